package lab_test

import (
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/lab"
)

// numbers are what "send" sends, as "received" shows it.
func numbers(first, last int) string {
	var all []string
	for i := first; i <= last; i++ {
		all = append(all, strconv.Itoa(i))
	}
	return strings.Join(all, " ")
}

// settle sends last datagrams over a whole link until one arrives: what was sent
// before has arrived or is lost. It returns all that arrived before them.
func settle(t *testing.T, from, to *connection, address string) string {
	t.Helper()
	const last = " 999999"
	var all string
	eventually(t, "the last datagram arrives", func() bool {
		from.must(t, "send %s %[2]s %[2]s", address, last)
		all = " " + to.must(t, "received")
		return strings.HasSuffix(all, last)
	})
	for strings.HasSuffix(all, last) {
		all = strings.TrimSuffix(all, last)
	}
	return strings.TrimSpace(all)
}

func TestHostsReachEachOther(t *testing.T) {
	start := time.Now()
	l := newLab(t, lab.Options{})
	t.Logf("three hosts took %s", time.Since(start))
	c := serveAll(t, l)
	for i, from := range c {
		for _, to := range l.Hosts() {
			check.Equal(t, from.must(t, "ask %s hello", to.Addr()), "hello", "host", i, "asked", to)
		}
	}
	check.Equal(t, settle(t, c[0], c[1], l.Host(1).Addr()), "", "host 1")
	// From a host to the client.
	listener, err := net.Listen("tcp4", net.JoinHostPort(l.ClientAddr(), commandPort))
	check.Must(t, err)
	defer listener.Close()
	go accept(listener, func(c net.Conn) { obey(c, nil, &received{}) })
	if got := c[2].must(t, "ask %s client", l.ClientAddr()); got != "client" {
		t.Errorf("host 2 asked the client: %q", got)
	}
	if r, err := l.Link(l.Host(0), l.Host(1)).Traffic(); err != nil || r.Packets == 0 || r.Bytes < 20*r.Packets || r.Dropped != 0 {
		t.Errorf("traffic %+v, %v", r, err)
	}
}

func TestCutIsOneWay(t *testing.T) {
	l := newLab(t, lab.Options{Hosts: 2})
	a, b := l.Host(0), l.Host(1)
	c := serveAll(t, l)
	do(t, l.Link(a, b).Cut())
	c[0].must(t, "send %s 1 10", b.Addr())
	c[1].must(t, "send %s 11 20", a.Addr())
	check.Equal(t, settle(t, c[1], c[0], a.Addr()), numbers(11, 20), "the whole direction carried")
	do(t, l.Link(a, b).Set(lab.Rule{}))
	c[0].must(t, "send %s 21 30", b.Addr())
	if got := settle(t, c[0], c[1], b.Addr()); got != numbers(21, 30) {
		t.Errorf("of what was sent while the link was cut and after it %q arrived", got)
	}
	if r, err := l.Link(a, b).Traffic(); err != nil || r.Dropped != 10 {
		t.Errorf("traffic %+v, %v", r, err)
	}
}

func TestCutStallsAConnection(t *testing.T) {
	for _, way := range []string{"to the host", "from the host"} {
		t.Run(way, func(t *testing.T) {
			l := newLab(t, lab.Options{Hosts: 1})
			c := serveAll(t, l)[0]
			from, to := (*lab.Host)(nil), l.Host(0)
			if way == "from the host" {
				from, to = to, from
			}
			do(t, l.Link(from, to).Cut())
			if got, err := c.ask("stalled", 300*time.Millisecond); !isTimeout(err) {
				t.Fatalf("got %q, %v", got, err)
			}
			do(t, l.Link(from, to).Set(lab.Rule{}))
			if got, err := c.answer(patience); got != "stalled" || err != nil {
				t.Fatalf("got %q, %v", got, err)
			}
		})
	}
}

func TestDelay(t *testing.T) {
	const delay, jitter = 60 * time.Millisecond, 20 * time.Millisecond
	l := newLab(t, lab.Options{Hosts: 1})
	h := l.Host(0)
	c := serveAll(t, l)[0]
	roundTrip := func() time.Duration {
		start := time.Now()
		c.must(t, "ping")
		return time.Since(start)
	}
	do(t, l.Link(nil, h).Set(lab.Rule{Delay: delay}), l.Link(h, nil).Set(lab.Rule{Delay: delay, Jitter: jitter}))
	for range 3 {
		if took := roundTrip(); took < 2*delay {
			t.Errorf("a round trip took %s", took)
		}
	}
	do(t, l.Link(nil, h).Set(lab.Rule{}), l.Link(h, nil).Set(lab.Rule{}))
	eventually(t, "a round trip is quick again", func() bool { return roundTrip() < delay })
}

func TestDelayKeepsOrder(t *testing.T) {
	l := newLab(t, lab.Options{Hosts: 2})
	a, b := l.Host(0), l.Host(1)
	c := serveAll(t, l)
	do(t, l.Link(a, b).Set(lab.Rule{Delay: 50 * time.Millisecond}))
	c[0].must(t, "send %s 1 20", b.Addr())
	do(t, l.Link(a, b).Set(lab.Rule{Delay: 10 * time.Millisecond}))
	c[0].must(t, "send %s 21 40", b.Addr())
	do(t, l.Link(a, b).Set(lab.Rule{}))
	c[0].must(t, "send %s 41 60", b.Addr())
	check.Equal(t, settle(t, c[0], c[1], b.Addr()), numbers(1, 60))
}

func TestHealEndsALongDelay(t *testing.T) {
	l := newLab(t, lab.Options{Hosts: 1})
	c := serveAll(t, l)[0]
	do(t, l.Link(nil, l.Host(0)).Set(lab.Rule{Delay: time.Hour}))
	if got, err := c.ask("late", 100*time.Millisecond); !isTimeout(err) {
		t.Fatalf("got %q, %v", got, err)
	}
	do(t, l.Link(nil, l.Host(0)).Set(lab.Rule{}))
	if got, err := c.answer(patience); got != "late" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
}

func TestCutLosesWhatIsOnTheWay(t *testing.T) {
	l := newLab(t, lab.Options{Hosts: 2})
	a, b := l.Host(0), l.Host(1)
	c := serveAll(t, l)
	do(t, l.Link(a, b).Set(lab.Rule{Delay: time.Hour}))
	c[0].must(t, "send %s 1 10", b.Addr())
	eventually(t, "the link is cut with ten packets on the way", func() bool {
		do(t, l.Link(a, b).Cut())
		r, err := l.Link(a, b).Traffic()
		return err == nil && r.Dropped == 10
	})
	do(t, l.Link(a, b).Set(lab.Rule{}))
	check.Equal(t, settle(t, c[0], c[1], b.Addr()), "")
}

func TestDrop(t *testing.T) {
	const sent = 1000
	arrived := func(t *testing.T, probability float64) string {
		l := newLab(t, lab.Options{Hosts: 2, Seed: 42})
		a, b := l.Host(0), l.Host(1)
		c := serveAll(t, l)
		do(t, l.Link(a, b).Set(lab.Rule{Drop: probability}))
		var got string
		// Few at a time, and then until the program has them: a socket that is
		// full loses datagrams, too.
		for i := 1; i <= sent; i += 50 {
			c[0].must(t, "send %s %d %d", b.Addr(), i, i+49)
			eventually(t, "all are judged and read", func() bool {
				got = c[1].must(t, "received")
				r, err := l.Link(a, b).Traffic()
				return err == nil && r.Packets+r.Dropped == uint64(i+49) && r.Packets == uint64(len(strings.Fields(got)))
			})
		}
		return got
	}
	check.Equal(t, arrived(t, 1), "", "with probability 1 ... arrived")
	first := arrived(t, 0.3)
	if n := len(strings.Fields(first)); n < 640 || n > 760 {
		t.Errorf("with probability 0.3 %d of %d arrived", n, sent)
	}
	check.Equal(t, first, arrived(t, 0.3), "with the same seed arrived ...")
}

func TestBandwidth(t *testing.T) {
	const size, perSecond = 1 << 20, 2 << 20
	l := newLab(t, lab.Options{Hosts: 1})
	serveAll(t, l)
	do(t, l.Link(nil, l.Host(0)).Set(lab.Rule{BytesPerSecond: perSecond}))
	took := check.Value(push(l.Host(0).Addr(), size)).Must(t)
	if took < time.Second*size/perSecond {
		t.Errorf("%d bytes at %d per second took %s", size, perSecond, took)
	}
}

// TestRulesChangeUnderLoad breaks and heals links while data flows. All of it must arrive.
func TestRulesChangeUnderLoad(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	l := newLab(t, lab.Options{Hosts: 2, Seed: int64(seed)})
	a, b := l.Host(0), l.Host(1)
	c := serveAll(t, l)
	done := make(chan error, 1)
	go func() {
		_, err := c[0].ask("push "+b.Addr()+" 100000000", patience)
		done <- err
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 300 {
		rule := lab.Rule{Cut: random.IntN(10) == 0}
		if random.IntN(2) == 0 {
			rule.Delay = time.Duration(random.IntN(int(3 * time.Millisecond)))
		}
		if random.IntN(4) == 0 {
			rule.Jitter = time.Millisecond
		}
		if random.IntN(4) == 0 {
			rule.Drop = 0.02
		}
		if random.IntN(4) == 0 {
			rule.BytesPerSecond = 100 << 20
		}
		from, to := a, b
		if random.IntN(2) == 0 {
			from, to = b, a
		}
		do(t, l.Link(from, to).Set(rule))
		<-tick.C
	}
	do(t, l.HealAll())
	do(t, <-done)
}

func TestCutIsOfOneLink(t *testing.T) {
	l := newLab(t, lab.Options{Hosts: 4})
	h := append(l.Hosts(), nil)
	names := "0123c"
	cuts := func() string {
		var all []string
		for i, from := range h {
			for j, to := range h {
				if i == j {
					continue
				}
				if r, err := l.Link(from, to).Rule(); err != nil {
					t.Fatal(err)
				} else if r.Cut {
					all = append(all, names[i:i+1]+names[j:j+1])
				}
			}
		}
		return strings.Join(all, " ")
	}
	cases := []struct {
		name string
		do   func() error
		want string
	}{
		{"nothing", func() error { return nil }, ""},
		{"one way", func() error { return l.Link(h[0], nil).Cut() }, "0c"},
		{"cut and healed", func() error { do(t, l.Link(h[0], h[1]).Cut()); return l.Link(h[0], h[1]).Set(lab.Rule{}) }, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			do(t, c.do())
			check.Equal(t, cuts(), c.want, "cut are")
			do(t, l.HealAll())
			check.Equal(t, cuts(), "", "after healing all are cut")
		})
	}
}

func TestRulesAreChecked(t *testing.T) {
	l, other := newLab(t, lab.Options{Hosts: 2}), newLab(t, lab.Options{Hosts: 1})
	a, b := l.Host(0), l.Host(1)
	cases := map[string]error{
		"a probability above 1": l.Link(a, b).Set(lab.Rule{Drop: 1.1}),
		"a negative delay":      l.Link(a, b).Set(lab.Rule{Delay: -1}),
		"a negative jitter":     l.Link(a, b).Set(lab.Rule{Jitter: -1}),
		"a negative bandwidth":  l.Link(a, b).Set(lab.Rule{BytesPerSecond: -1}),
		"a host to itself":      l.Link(a, a).Cut(),
		"the client to itself":  l.Link(nil, nil).Cut(),
		"a host of another lab": l.Link(a, other.Host(0)).Cut(),
	}
	for name, err := range cases {
		check.Fails(t, err, name, "is no error")
	}
	if r, err := l.Link(a, b).Rule(); err != nil || r != (lab.Rule{}) {
		t.Errorf("the rule became %+v, %v", r, err)
	}
}
