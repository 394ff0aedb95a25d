package gossip

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/throttle"
)

// full is a node with the longest attributes that a node can have.
func full() Self {
	host := func(c string) string { return strings.Repeat(c, 100) }
	return Self{
		Node: id(1), Cluster: event.ID{1, 2, 3}, ReplicationAddress: host("a") + ":65535", HTTPHost: host("b"), HTTPPort: 65535, HTTPSecure: true,
		ReadOnly: true, Priority: -2147483648, ClusterSize: 65535, Version: "123.123.123.123-preview.12", Format: 65535, Phase: "bootstrapping-now",
	}
}

// The longest host names fit, as serf encodes them.
func TestTagsFit(t *testing.T) {
	self := full()
	g := newCluster(t).open(1, func(o *nodeOptions) { o.Self = self })
	tags := check.Value(self.encode()).Must(t)
	meta := g.serf.Memberlist().LocalNode().Meta
	if len(meta) != tagsSize(tags) || len(meta) > memberlist.MetaMaxSize-leavingSize {
		t.Errorf("the attributes take %d bytes, computed %d, possible %d", len(meta), tagsSize(tags), memberlist.MetaMaxSize)
	}
	t.Logf("%d of %d bytes", len(meta), memberlist.MetaMaxSize)
	self.HTTPHost = strings.Repeat("b", 300)
	check.Says(t, check.Err(self.encode()), "508 are possible", "longer names")
}

func TestTags(t *testing.T) {
	for name, c := range map[string]struct {
		self     Self
		tags     string
		wantHost string // of the certificate
	}{
		"nothing": {Self{Node: id(1)}, "map[]", ""},
		"name":    {Self{Node: id(1), ReplicationAddress: "n1:1112", Priority: -3}, "map[a:n1:1112 n:-3]", "n1"},
		"address": {
			Self{Node: id(1), Cluster: id(9), ReplicationAddress: "[::1]:1112", HTTPHost: "h", HTTPPort: 2113, HTTPSecure: true, ReadOnly: true, ClusterSize: 3, Version: "1.2", Format: 1, Phase: "member"},
			"map[a:[::1]:1112 c:09000000-0000-0000-0000-000000000009 f:1 h:h p:2113 r:1 s:1 v:1.2 w:member z:3]", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tags, err := c.self.encode()
			check.Must(t, err)
			check.Equal(t, fmt.Sprint(tags), c.tags, "tags")
			tags["later"] = "unknown"
			got, err := decode(id(1).String(), tags)
			if m := (Member{Self: got}); err != nil || got != c.self || m.host() != c.wantHost {
				t.Errorf("decoded %+v, host %q, %v", got, m.host(), err)
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
			if s, err := decode(c.name, c.tags); err == nil || len(err.Error()) > 300 {
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

func TestLibraryLog(t *testing.T) {
	var out bytes.Buffer
	l := &libraryLog{to: hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Trace, DisableTime: true}), complaint: &throttle.Lines[string]{Every: time.Minute}}
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
	check.Equal(t, out.String(), want, "logged")
}

func FuzzDecode(f *testing.F) {
	f.Add(id(1).String(), tagHTTPPort, "2113")
	f.Add(id(1).String(), tagReplication, "[::1]:1")
	f.Fuzz(func(t *testing.T, name, key, value string) {
		s, err := decode(name, map[string]string{key: value})
		if err != nil {
			return
		}
		tags, err := s.encode()
		if err != nil {
			if len(value) > 300 {
				return
			}
			t.Fatalf("%+v cannot be encoded: %v", s, err)
		}
		if again, err := decode(name, tags); err != nil || again != s {
			t.Errorf("%+v became %+v, %v", s, again, err)
		}
	})
}
