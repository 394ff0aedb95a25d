package gossip

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"

	"github.com/annalsdb/annals/event"
)

// full is a node with the longest attributes that a node can have.
func full() Self {
	host := func(c string) string { return strings.Repeat(c, 100) }
	return Self{
		Node: id(1), Cluster: event.ID{1, 2, 3}, ReplicationAddress: host("a") + ":65535", HTTPHost: host("b"), HTTPPort: 65535, HTTPSecure: true,
		ReadOnly: true, Priority: -2147483648, ClusterSize: 65535, Version: "123.123.123.123-preview.12", Format: 65535, Phase: "bootstrapping-now",
	}
}

// The longest host names fit, with a third name for gossip, as serf encodes them.
func TestTagsFit(t *testing.T) {
	self := full()
	tags, err := self.encode(strings.Repeat("c", 100))
	if err != nil {
		t.Fatal(err)
	}
	g := newCluster(t).open(1, func(o *Options) { o.Self = self })
	// The third name cannot be looked up: it is told afterwards.
	if err := g.serf.SetTags(tags); err != nil {
		t.Fatal(err)
	}
	meta := g.serf.Memberlist().LocalNode().Meta
	if len(meta) != tagsSize(tags) || len(meta) > memberlist.MetaMaxSize-leavingSize {
		t.Errorf("the attributes take %d bytes, computed %d, possible %d", len(meta), tagsSize(tags), memberlist.MetaMaxSize)
	}
	t.Logf("%d of %d bytes", len(meta), memberlist.MetaMaxSize)
	self.HTTPHost = strings.Repeat("b", 200)
	if _, err := self.encode(strings.Repeat("c", 100)); err == nil || !strings.Contains(err.Error(), "508 are possible") {
		t.Errorf("longer names: %v", err)
	}
}

func TestTags(t *testing.T) {
	for name, c := range map[string]struct {
		self     Self
		host     string
		tags     string
		wantHost string
	}{
		"nothing":   {Self{Node: id(1)}, "", "map[]", ""},
		"same host": {Self{Node: id(1), ReplicationAddress: "n1:1112", Priority: -3}, "n1", "map[a:n1:1112 g:= n:-3]", "n1"},
		"other host": {
			Self{Node: id(1), Cluster: id(9), ReplicationAddress: "[::1]:1112", HTTPHost: "h", HTTPPort: 2113, HTTPSecure: true, ReadOnly: true, ClusterSize: 3, Version: "1.2", Format: 1, Phase: "member"},
			"n1", "map[a:[::1]:1112 c:09000000-0000-0000-0000-000000000009 f:1 g:n1 h:h p:2113 r:1 s:1 v:1.2 w:member z:3]", "n1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tags, err := c.self.encode(c.host)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(tags); got != c.tags {
				t.Errorf("tags %s, want %s", got, c.tags)
			}
			tags["later"] = "unknown"
			got, host, err := decode(id(1).String(), tags)
			if err != nil || got != c.self || host != c.wantHost {
				t.Errorf("decoded %+v, host %q, %v", got, host, err)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	name := id(1).String()
	for what, c := range map[string]struct {
		name string
		tags map[string]string
	}{
		"no id":             {"node-1", nil},
		"other spelling":    {strings.ToUpper(event.ID{0xab}.String()), nil},
		"role of old serf":  {name, map[string]string{"role": "a b"}},
		"cluster":           {name, map[string]string{tagCluster: "x"}},
		"port":              {name, map[string]string{tagHTTPPort: "65536"}},
		"negative":          {name, map[string]string{tagFormat: "-1"}},
		"number":            {name, map[string]string{tagPriority: "one"}},
		"replication":       {name, map[string]string{tagReplication: "host"}},
		"line break":        {name, map[string]string{tagVersion: "1\n2"}},
		"beyond ASCII":      {name, map[string]string{tagHTTPHost: "hôst"}},
		"not even UTF-8":    {name, map[string]string{tagPhase: "\xff"}},
		"far beyond number": {name, map[string]string{tagClusterSize: strings.Repeat("9", 400)}},
	} {
		t.Run(what, func(t *testing.T) {
			if s, _, err := decode(c.name, c.tags); err == nil || len(err.Error()) > 300 {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
}

// With the defaults a dead node is noticed within 4 s, and with an operator's longer
// periods accordingly later.
func TestPace(t *testing.T) {
	for name, c := range map[string]struct {
		interval, timeout time.Duration
		probe, direct     time.Duration
		noticed           time.Duration // at the latest, in a cluster of three
	}{
		"default":      {0, 0, 500 * time.Millisecond, 250 * time.Millisecond, 3500 * time.Millisecond},
		"long":         {8 * time.Second, 10 * time.Second, 2 * time.Second, time.Second, 14 * time.Second},
		"slow network": {2 * time.Second, 10 * time.Second, 2 * time.Second, time.Second, 14 * time.Second},
		"rare":         {8 * time.Second, 2500 * time.Millisecond, 2 * time.Second, 250 * time.Millisecond, 14 * time.Second},
		"least":        {minPace, minPace, 5 * time.Millisecond, 2 * time.Millisecond, 35 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Interval: c.interval, Timeout: c.timeout}
			o.EnsureDefaults()
			p := o.pace()
			// Two nodes to probe in turn, the probe itself, the time to answer the suspicion.
			noticed := 2*p.probe + p.probe + suspicion*p.probe
			if p.probe != c.probe || p.direct != c.direct || noticed != c.noticed {
				t.Errorf("probe %v, direct %v, noticed %v", p.probe, p.direct, noticed)
			}
			if p.spread <= 0 || p.reap <= 0 || 2*p.broadcast > o.timing.leave {
				t.Errorf("%+v", p)
			}
		})
	}
}

// The bits of the window say what a set of all counters says.
func TestWindow(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var w window
	seen, newest := map[uint64]bool{}, uint64(0)
	for range 100_000 {
		var counter uint64
		switch r.IntN(20) {
		case 0:
			counter = newest + r.Uint64N(3*windowSize)
		case 1, 2, 3:
			counter = newest + 1 + r.Uint64N(4)
		default:
			counter = newest - min(newest, r.Uint64N(windowSize+20))
		}
		want := counter > 0 && !seen[counter] && counter+windowSize > newest
		if got := w.add(counter); got != want {
			t.Fatalf("counter %d with newest %d: %t", counter, newest, got)
		}
		seen[counter], newest = true, max(newest, counter)
	}
}

func TestKeyringBounds(t *testing.T) {
	now := time.Now()
	r, err := newKeyring(id(1), 10*time.Minute, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	// Many nodes with many keys each.
	for i := range 1000 {
		node := event.ID{1, byte(i / 4 >> 8), byte(i / 4)}
		r.seal([]byte("x"), node, now.Add(time.Duration(i)))
		if err := r.learn(node, keyID{byte(i >> 8), byte(i)}, secret{byte(i)}, now.Add(time.Duration(i))); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.peers) != maxPeers || len(r.received) > maxKeys {
		t.Errorf("%d peers, %d keys", len(r.peers), len(r.received))
	}
	for range 3 * maxWaiting {
		r.seal([]byte("x"), id(2), now)
	}
	if n := len(r.peers[id(2)].waiting); n != maxWaiting {
		t.Errorf("%d packets wait", n)
	}
	if packets := r.introduced(id(2), r.sending(), now); len(packets) != maxWaiting {
		t.Errorf("%d packets had waited", len(packets))
	}

	// The key of another node cannot be taken over under its id.
	other := r.received[keyID{3, 231}]
	if err := r.learn(id(7), keyID{3, 231}, secret{7}, now); err != nil || r.received[keyID{3, 231}] != other {
		t.Error("a key was replaced")
	}

	// Renewed before its counter comes to an end, and never used beyond.
	key := r.sending()
	key.counter.Store(sealBefore)
	if err := r.tick(now); err != nil || r.sending() == key {
		t.Error("the key was not renewed")
	}
	if _, introduce := r.seal([]byte("x"), id(2), now); !introduce {
		t.Error("the new key is not introduced")
	}
	key.counter.Store(maxSealed)
	if _, ok := key.seal([]byte("x"), id(2)); ok {
		t.Error("the key was used beyond its end")
	}

	// The old one serves for the overlap, all of others until they must show a certificate again.
	if sealed, _ := r.seal([]byte("x"), id(2), now.Add(2*time.Minute)); sealed != nil {
		t.Error("the old key was used after the overlap")
	}
	if err := r.tick(now.Add(12*time.Minute + time.Second)); err != nil || len(r.received) != 0 || len(r.peers) != 0 || r.previous == nil {
		t.Errorf("%d keys, %d peers are left", len(r.received), len(r.peers))
	}
	if err := r.tick(now.Add(14 * time.Minute)); err != nil || r.previous != nil {
		t.Error("the old key is still kept")
	}
}

func TestAttempts(t *testing.T) {
	now := time.Now()
	a := attempts{first: time.Second, last: 3 * time.Second, of: map[netip.AddrPort]*attempt{}}
	at := func(n int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 1)
	}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
		if !a.begin(at(0), now) || a.begin(at(0), now) {
			t.Fatalf("attempt %d", i)
		}
		a.end(at(0), false, now)
		if a.begin(at(0), now.Add(want-1)) {
			t.Fatalf("after failure %d it was tried again before %v", i, want)
		}
		now = now.Add(want)
	}
	if !a.begin(at(0), now) {
		t.Fatal("not tried again")
	}
	a.end(at(0), true, now)
	if !a.begin(at(0), now.Add(time.Second)) {
		t.Error("after success it is not tried again")
	}
	a.end(at(0), false, now)
	for i := range maxGreeting + 1 {
		if got := a.begin(at(i+1), now); got != (i < maxGreeting) {
			t.Errorf("attempt %d at the same time: %t", i, got)
		}
	}
	for i := range maxGreeting {
		a.end(at(i+1), false, now)
	}
	for i := range 2 * maxAttempts {
		if a.begin(at(1000+i), now) {
			a.end(at(1000+i), false, now)
		}
	}
	if len(a.of) != maxAttempts {
		t.Errorf("%d addresses are remembered", len(a.of))
	}
	if !a.begin(at(5000), now.Add(time.Minute)) || len(a.of) != 1 {
		t.Errorf("%d addresses are remembered later", len(a.of))
	}
}

func TestHello(t *testing.T) {
	h := hello{node: id(1), port: 0x1234, key: keyID{2, 7: 3}, secret: secret{4, 31: 5}}
	const want = "a1" + "01000000000000000000000000000001" + "1234" + "0200000000000003" + "0400000000000000000000000000000000000000000000000000000000000005"
	if got := hex.EncodeToString(h.encode()); got != want || len(h.encode()) != helloSize {
		t.Errorf("encoded %s", got)
	}
	if got, err := readHello(bytes.NewReader(h.encode())); err != nil || got != h {
		t.Errorf("read %+v, %v", got, err)
	}
}

func TestLibraryLog(t *testing.T) {
	var out bytes.Buffer
	l := &libraryLog{to: hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Trace, DisableTime: true}), complaint: newLimiter(time.Minute)}
	for _, line := range []string{
		"2026/01/02 03:04:05 [DEBUG] memberlist: detail",
		"2026/01/02 03:04:05 [INFO] serf: state",
		"2026/01/02 03:04:05 [WARN] serf: worth reading",
		"2026/01/02 03:04:05 [WARN] serf: worth reading",
		"2026/01/02 03:04:05 [ERR] memberlist: Conflicting address for x",
		"2026/01/02 03:04:05 [ERR] memberlist: Failed fallback TCP ping: EOF",
		"2026/01/02 03:04:05 [ERROR] memberlist: other spelling",
		"without a level",
		"open [ only",
	} {
		if n, err := fmt.Fprintln(l, line); err != nil || n != len(line)+1 {
			t.Errorf("%d, %v", n, err)
		}
	}
	want := `[TRACE] memberlist: detail
[DEBUG] serf: state
[WARN]  serf: worth reading
[WARN]  memberlist: Conflicting address for x
[DEBUG] memberlist: Failed fallback TCP ping: EOF
[WARN]  memberlist: other spelling
[TRACE] without a level
[TRACE] open [ only
`
	if out.String() != want {
		t.Errorf("logged\n%s", out.String())
	}
}

func TestLimiter(t *testing.T) {
	l := newLimiter(time.Hour)
	for i := range 2 * maxComplaints {
		if got := l.allow(fmt.Sprint(i)); got != (i < maxComplaints) {
			t.Errorf("complaint %d: %t", i, got)
		}
	}
	if l.allow("0") || len(l.last) != maxComplaints {
		t.Error("it was allowed again")
	}
	l.every = 0
	if !l.allow("0") || !l.allow("new") {
		t.Error("it was not allowed later")
	}
}

func FuzzHello(f *testing.F) {
	f.Add((&hello{node: id(1), port: 1}).encode())
	f.Add([]byte{tlsAlert, 3, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := readHello(bytes.NewReader(b)); err == nil && !bytes.Equal(h.encode(), b[:helloSize]) {
			t.Errorf("%x is read as %+v", b, h)
		}
	})
}

func FuzzOpen(f *testing.F) {
	r, err := newKeyring(id(1), time.Minute, time.Minute)
	if err != nil {
		f.Fatal(err)
	}
	if err := r.learn(id(2), keyID{1}, secret{}, time.Now()); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{packetSealed})
	f.Add(append([]byte{packetSealed, 1}, make([]byte, sealedOverhead)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if packet, err := r.open(b, time.Now()); err == nil {
			t.Errorf("%x is opened as %x", b, packet)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(id(1).String(), tagHTTPPort, "2113")
	f.Add(id(1).String(), tagReplication, "[::1]:1")
	f.Add(id(1).String(), tagHost, tagHostSame)
	f.Fuzz(func(t *testing.T, name, key, value string) {
		s, host, err := decode(name, map[string]string{key: value})
		if err != nil {
			return
		}
		tags, err := s.encode(host)
		if err != nil {
			if len(value) > 300 {
				return
			}
			t.Fatalf("%+v cannot be encoded: %v", s, err)
		}
		if again, host2, err := decode(name, tags); err != nil || again != s || host2 != host {
			t.Errorf("%+v, %q became %+v, %q, %v", s, host, again, host2, err)
		}
	})
}
