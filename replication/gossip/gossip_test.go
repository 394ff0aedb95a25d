package gossip

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/replication/wire"
)

// modes are what every test of membership holds for.
func modes(t *testing.T, test func(t *testing.T, c *cluster, mode func(*nodeOptions))) {
	t.Run("plain", func(t *testing.T) {
		t.Parallel()
		test(t, newCluster(t), func(*nodeOptions) {})
	})
	t.Run("secure", func(t *testing.T) {
		t.Parallel()
		test(t, newCluster(t), newAuthority(t).secured())
	})
}

func TestConverge(t *testing.T) {
	modes(t, func(t *testing.T, c *cluster, mode func(*nodeOptions)) {
		for n := byte(1); n <= 3; n++ {
			c.open(n, mode)
		}
		c.sees("1+ 2+ 3+", 1, 2, 3)
		c.open(4, mode)
		c.open(5, mode)
		c.sees("1+ 2+ 3+ 4+ 5+", 1, 2, 3, 4, 5)
		// It counts as dead when the machine stands still.
		testkit.Eventually(t, patience, func() error {
			got := get(t, c.nodes[1], 4)
			want := Member{
				Self:  Self{Node: id(4), ReplicationAddress: "127.0.0.1:1004", HTTPHost: "127.0.0.1", HTTPPort: 2004, Format: 1, Phase: "fresh"},
				Alive: true, Since: got.Since, GossipAddress: c.nodes[4].Addr(),
			}
			if got != want || time.Since(got.Since) > patience {
				return fmt.Errorf("member %+v, want %+v", got, want)
			}
			return nil
		})
	})
}

func TestDeadAndBack(t *testing.T) {
	modes(t, func(t *testing.T, c *cluster, mode func(*nodeOptions)) {
		for n := byte(1); n <= 3; n++ {
			c.open(n, mode)
		}
		c.sees("1+ 2+ 3+", 1, 2, 3)
		begin := time.Now()
		c.kill(3)
		c.sees("1+ 2+ 3x", 1, 2) // TestPace says how soon.
		if since := get(t, c.nodes[1], 3).Since; since.Before(begin) {
			t.Errorf("dead since %v before it was killed", begin.Sub(since))
		}
		// Comes back with the same id at another address.
		c.open(3, mode)
		c.sees("1+ 2+ 3+", 1, 2, 3)
		if got, want := get(t, c.nodes[1], 3).GossipAddress, c.nodes[3].Addr(); got != want {
			t.Errorf("it is seen at %s and is at %s", got, want)
		}
	})
}

// A node may be back at another address before any node noticed that it was gone.
func TestMoved(t *testing.T) {
	modes(t, func(t *testing.T, c *cluster, mode func(*nodeOptions)) {
		for n := byte(1); n <= 3; n++ {
			c.open(n, mode)
		}
		c.sees("1+ 2+ 3+", 1, 2, 3)
		c.kill(3)
		c.open(3, mode)
		c.sees("1+ 2+ 3+", 3)
		for _, n := range []byte{1, 2} {
			eventually(t, "the new address is seen", func() bool {
				m := get(t, c.nodes[n], 3)
				return m.Alive && m.GossipAddress == c.nodes[3].Addr()
			})
		}
	})
}

func TestLeave(t *testing.T) {
	modes(t, func(t *testing.T, c *cluster, mode func(*nodeOptions)) {
		for n := byte(1); n <= 3; n++ {
			c.open(n, mode)
		}
		c.sees("1+ 2+ 3+", 1, 2, 3)
		left := c.nodes[3]
		delete(c.nodes, 3)
		for range 2 {
			check.NoError(t, left.Close())
		}
		c.sees("1+ 2+ 3-", 1, 2)
		if err := left.Update(func(s *Self) { s.Phase = "late" }); !errors.Is(err, ErrClosed) {
			t.Errorf("update after closing: %v", err)
		}
		check.NoError(t, left.o.Port.Close())
		c.open(3, mode)
		c.sees("1+ 2+ 3+", 1, 2, 3)
	})
}

func TestDeadRemoval(t *testing.T) {
	modes(t, func(t *testing.T, c *cluster, mode func(*nodeOptions)) {
		const removal = 2 * time.Second
		for n := byte(1); n <= 3; n++ {
			c.open(n, mode, func(o *nodeOptions) { o.DeadRemoval = removal })
		}
		c.sees("1+ 2+ 3+", 1, 2, 3)
		c.kill(3)
		// This node may be too late to see it dead.
		var dead time.Time
		for g := c.nodes[1]; ; {
			changed, members := g.Changed(), g.Members()
			at := slices.IndexFunc(members, func(m Member) bool { return m.Node == id(3) })
			if at < 0 {
				break
			}
			if !members[at].Alive {
				dead = members[at].Since
			}
			select {
			case <-changed:
			case <-time.After(patience):
				t.Fatal("it is never removed")
			}
		}
		if stayed := time.Since(dead); stayed < removal-100*time.Millisecond {
			t.Errorf("removed after %v", stayed)
		}
		c.sees("1+ 2+", 1, 2)
	})
}

func TestUpdate(t *testing.T) {
	modes(t, func(t *testing.T, c *cluster, mode func(*nodeOptions)) {
		for n := byte(1); n <= 3; n++ {
			c.open(n, mode)
		}
		c.sees("1+ 2+ 3+", 1, 2, 3)
		cluster := event.ID{1, 2, 3}
		changed := c.nodes[2].Changed()
		check.Must(t, c.nodes[2].Update(func(s *Self) { s.Cluster, s.Phase, s.Priority = cluster, "member", -7 }))
		select {
		case <-changed:
		default:
			t.Error("the change of this node is not a change")
		}
		want := c.nodes[2].Members()[1].Self
		if want.Cluster != cluster || want.Phase != "member" || want.Priority != -7 {
			t.Errorf("after the update: %+v", want)
		}
		for _, n := range []byte{1, 3} {
			eventually(t, "the update is seen", func() bool { return get(t, c.nodes[n], 2).Self == want })
		}
		check.Fails(t, c.nodes[2].Update(func(s *Self) { s.Node = id(9) }), "a node changed its id")
		if err := c.nodes[2].Update(func(s *Self) { s.Phase = "two words" }); err == nil {
			t.Error("a space was accepted")
		}
		check.Equal(t, c.nodes[2].Members()[1].Self, want, "after refused updates")
	})
}

func TestOtherCluster(t *testing.T) {
	of := func(n byte) func(*nodeOptions) { return func(o *nodeOptions) { o.Self.Cluster = event.ID{n, n} } }
	modes(t, func(t *testing.T, c *cluster, mode func(*nodeOptions)) {
		c.open(1, mode, of(1))
		c.open(2, mode, of(1))
		c.sees("1+ 2+", 1, 2)
		c.open(3, mode, of(2))
		message := func(theirs, ours byte) string {
			return "this node belongs to cluster " + event.ID{ours, ours}.String() + ", the other to " + event.ID{theirs, theirs}.String()
		}
		eventually(t, "the refusal is logged on both sides", func() bool {
			return c.logs.count(message(2, 1)) > 1
		})
		// A node without a cluster is let in by both and connects neither.
		c.open(4, mode, func(o *nodeOptions) {
			seeds := []string{c.nodes[1].Addr(), c.nodes[3].Addr()}
			o.Seeds = func(context.Context) ([]string, error) { return seeds, nil }
		})
		c.sees("1+ 2+ 3+ 4+", 4)
		c.sees("1+ 2+ 4+", 1, 2)
		c.sees("3+ 4+", 3)
		if n := c.logs.warnings(message(2, 1)); n > 4 {
			t.Errorf("two nodes warned %d times", n)
		}
		// Once it belongs to one of them, the other hears of it, or its port refuses it.
		check.Must(t, c.nodes[4].Update(func(s *Self) { s.Cluster = event.ID{1, 1} }))
		c.sees("1+ 2+ 4+", 1, 2, 4)
		eventually(t, "the other does not see it alive", func() bool { return !strings.Contains(summary(c.nodes[3]), "4+") })
	})
}

func TestOtherFormat(t *testing.T) {
	c := newCluster(t)
	c.open(1)
	c.open(2, func(o *nodeOptions) { o.Self.Format = 2 })
	eventually(t, "the refusal is logged on both sides", func() bool {
		return c.logs.count("it has another chunk size or format: 2, this node has 1") > 0 && c.logs.count("it has another chunk size or format: 1, this node has 2") > 0
	})
	c.sees("1+", 1)
	c.sees("2+", 2)
}

func TestPartition(t *testing.T) {
	modes(t, func(t *testing.T, c *cluster, mode func(*nodeOptions)) {
		for n := byte(1); n <= 4; n++ {
			c.open(n, mode)
		}
		c.sees("1+ 2+ 3+ 4+", 1, 2, 3, 4)
		c.link([]byte{1, 2}, []byte{3, 4}, false)
		c.sees("1+ 2+ 3x 4x", 1, 2)
		c.sees("1x 2x 3+ 4+", 3, 4)
		c.link([]byte{1, 2}, []byte{3, 4}, true)
		c.sees("1+ 2+ 3+ 4+", 1, 2, 3, 4)
	})
}

// Halves that have forgotten each other know nothing but the seeds any more.
func TestForgottenPartition(t *testing.T) {
	modes(t, func(t *testing.T, c *cluster, mode func(*nodeOptions)) {
		for n := byte(1); n <= 4; n++ {
			c.open(n, mode, func(o *nodeOptions) { o.DeadRemoval = 200 * time.Millisecond })
		}
		c.sees("1+ 2+ 3+ 4+", 1, 2, 3, 4)
		c.link([]byte{1, 2}, []byte{3, 4}, false)
		c.sees("1+ 2+", 1, 2)
		c.sees("3+ 4+", 3, 4)
		c.link([]byte{1, 2}, []byte{3, 4}, true)
		c.sees("1+ 2+ 3+ 4+", 1, 2, 3, 4)
	})
}

// A node whose seeds answer nothing at first, then wrongly, then rightly.
func TestSeedsChange(t *testing.T) {
	c := newCluster(t)
	c.open(1)
	right := []string{c.nodes[1].Addr()}
	calls := 0
	c.open(2, func(o *nodeOptions) {
		o.Seeds = func(context.Context) ([]string, error) {
			calls++ // by the joiner alone
			switch calls {
			case 1:
				return nil, errors.New("no such name")
			case 2:
				return []string{"127.0.0.1:1", "no port", ":5"}, nil
			default:
				return right, nil
			}
		}
	})
	c.sees("1+ 2+", 1, 2)
	for _, what := range []string{"no such name", "is not of the form host:port", "cannot reach a gossip seed: seed=127.0.0.1"} {
		if c.logs.count(what) == 0 {
			t.Errorf("the log lacks %q", what)
		}
	}
}

// Closing must not wait for a seed that does not answer, nor for a slow lookup.
func TestCloseDuringJoin(t *testing.T) {
	met := make(chan struct{}, 1)
	for name, slow := range map[string]func(context.Context) ([]string, error){
		"seeds": func(ctx context.Context) ([]string, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"address": func(context.Context) ([]string, error) { return []string{silent(t, met)}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{}, 100)
			port, err := wire.Open(wire.Options{Bind: "127.0.0.1:0", Node: id(1), Security: newAuthority(t).papers("127.0.0.1"), HandshakeTimeout: time.Hour})
			check.Must(t, err)
			o := Options{Port: port, Self: Self{Node: id(1)}, Timeout: time.Hour}
			o.Seeds = func(ctx context.Context) ([]string, error) {
				asked <- struct{}{}
				return slow(ctx)
			}
			g, err := Open(o)
			check.Must(t, err)
			<-asked
			if name == "address" {
				<-met // A connection is being made.
			}
			// The time limits are an hour.
			check.NoError(t, errors.Join(g.Close(), port.Close()))
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, change := range map[string]func(*nodeOptions){
		"unknown host": func(o *nodeOptions) { o.wire.Advertise = "nobody.invalid:1" },
		"no id":        func(o *nodeOptions) { o.Self.Node = event.ID{} },
		"period":       func(o *nodeOptions) { o.Interval = time.Nanosecond },
		"attributes":   func(o *nodeOptions) { o.Self.Version = "a b" },
	} {
		t.Run(name, func(t *testing.T) {
			o := nodeOptions{Options: Options{Self: Self{Node: id(2)}}, wire: wire.Options{Bind: "127.0.0.1:0", Node: id(2)}}
			change(&o)
			port := check.Value(wire.Open(o.wire)).Must(t)
			o.Port = port
			if g, err := Open(o.Options); err == nil {
				t.Error("it opened", g.Close())
			}
			check.NoError(t, port.Close())
		})
	}
}
