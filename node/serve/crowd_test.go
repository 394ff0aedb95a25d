package serve

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// guest is a connection of a test's crowd.
type guest struct {
	member
	addr  netip.Addr
	last  int64
	ended bool
}

func newGuest(addr string, used int64) *guest {
	g := &guest{addr: netip.MustParseAddr(addr), last: used}
	g.member = member{used: func() int64 { return g.last }, end: func() { g.ended = true }}
	return g
}

func (g *guest) from() net.Addr { return net.TCPAddrFromAddrPort(netip.AddrPortFrom(g.addr, 1)) }

func TestCrowd(t *testing.T) {
	const a, b, v6, same, other = "10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"
	for name, c := range map[string]struct {
		guests []*guest
		then   func(guests []*guest)
		next   *guest
		ended  []int // of guests
	}{
		"there is room": {[]*guest{newGuest(a, 1), newGuest(a, 2)}, nil, newGuest(a, 3), nil},
		"the idlest": {[]*guest{newGuest(a, 1), newGuest(a, 2), newGuest(a, 3)}, func(g []*guest) { g[0].last = 4 }, newGuest(a, 5),
			[]int{1}},
		"of the address that has most": {[]*guest{newGuest(b, 1), newGuest(a, 2), newGuest(a, 3)}, nil, newGuest(b, 4), []int{1}},
		"also if that is its own":      {[]*guest{newGuest(b, 1), newGuest(a, 2), newGuest(a, 3)}, nil, newGuest(a, 4), []int{1}},
		"the idlest of those that have as many": {[]*guest{newGuest(a, 1), newGuest(b, 2), newGuest(v6, 3)},
			func(g []*guest) { g[0].last = 9 }, newGuest("10.0.0.9", 10), []int{1}},
		"a network of IPv6 is one address": {[]*guest{newGuest(a, 1), newGuest(v6, 2), newGuest(same, 3)}, nil, newGuest(other, 4), []int{1}},
		"an IPv4 address in IPv6": {[]*guest{newGuest(b, 1), newGuest(a, 2), newGuest("::ffff:"+a, 3)}, nil, newGuest(b, 4),
			[]int{1}},
	} {
		crowd := crowd{most: 3}
		for _, g := range c.guests {
			crowd.add(&g.member, g.from())
		}
		if c.then != nil {
			c.then(c.guests)
		}
		count := crowd.add(&c.next.member, c.next.from())
		var ended []int
		for i, g := range c.guests {
			if g.ended {
				ended = append(ended, i)
			}
		}
		if !slices.Equal(ended, c.ended) || count != len(c.ended) || c.next.ended {
			t.Errorf("%s: ended %v (%d), want %v", name, ended, count, c.ended)
		}
	}
}

// A crowd chooses as one does that looks at all of its members, whatever came and went before.
func TestCrowdChoosesTheIdlest(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	const most = 20
	crowd := crowd{most: most}
	var in []*guest
	now := int64(0)
	for range 5000 {
		now++
		if len(in) > 0 {
			for range 3 {
				g := in[r.IntN(len(in))]
				g.last = now*10 + int64(r.IntN(9))
			}
			if i := r.IntN(len(in)); r.IntN(4) == 0 {
				crowd.remove(&in[i].member)
				crowd.remove(&in[i].member)
				in = slices.Delete(in, i, i+1)
			}
		}
		var want []*guest // one of them ends
		if len(in) == most {
			want = idlest(in)
		}
		g := newGuest(fmt.Sprintf("10.0.0.%d", r.IntN(6)), now*10)
		crowd.add(&g.member, g.from())
		in = append(in, g)
		before := len(in)
		in = slices.DeleteFunc(in, func(g *guest) bool { return g.ended })
		if gone := before - len(in); gone != min(len(want), 1) || gone == 1 && !slices.ContainsFunc(want, func(g *guest) bool { return g.ended }) {
			t.Fatalf("seed %d: %d ended, want one of %d", seed, gone, len(want))
		}
		check.MustEqual(t, crowd.size, len(in), "seed", seed, "size")
	}
	for crowd.giveWay(3) {
	}
	check.Equal(t, crowd.size, 3, "seed", seed, "are left")
}

// idlest are those of which one is to end: of the addresses with most those used the longest time
// ago.
func idlest(in []*guest) (found []*guest) {
	counts := map[netip.Addr]int{}
	most := 0
	for _, g := range in {
		counts[g.addr]++
		most = max(most, counts[g.addr])
	}
	for _, g := range in {
		switch {
		case counts[g.addr] < most || len(found) > 0 && g.last > found[0].last:
		case len(found) > 0 && g.last == found[0].last:
			found = append(found, g)
		default:
			found = []*guest{g}
		}
	}
	return found
}

func BenchmarkCrowd(b *testing.B) {
	crowd := crowd{most: 10_000}
	for i := range 10_000 {
		g := newGuest(fmt.Sprintf("10.0.%d.%d", i%40, i%7), int64(i))
		crowd.add(&g.member, g.from())
	}
	for i := 0; b.Loop(); i++ {
		g := newGuest("10.1.0.1", int64(10_000+i))
		crowd.add(&g.member, g.from())
	}
}
