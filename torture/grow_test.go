package torture

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

// growing is a fault that adds node 3 to a cluster of three that is not there.
func growing(s *scene, c *fakeCluster, w *watch) *growth {
	n := newNemesis(c, w, w.line, s.find, 1, nil, func() {})
	return &growth{operator: operator{n}, node: Target{Name: "node 3", Index: 3}}
}

// TestGrownIsWatched: an added voter must keep its consensus state, though its disk was emptied
// before.
func TestGrownIsWatched(t *testing.T) {
	var nodes *targets
	node := func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, membersPath) {
			_, _ = fmt.Fprintf(w, `{"links":[{"relation":"previous","uri":"/%032d/"}]}`, 0)
		} else if r.Method == http.MethodGet {
			added := strings.TrimPrefix(nodes.all()[1].Base, "http://")
			_, _ = fmt.Fprintf(w, `[{"httpAddress":%q,"isAlive":true,"voter":true}]`, added)
		}
	}
	nodes = servers(t, node, node)
	s := newScene(t)
	h := newHTTP(nil)
	defer h.Close()
	w := newWatch(h, nodes.all, s.find, &timeline{start: time.Now()})
	w.leader, w.term, w.views[1] = 0, 2, view{state: "Follower", term: 2}
	g := growing(s, newFake(3), w)
	g.c, g.patience = reached{newFake(3), nodes}, time.Minute
	g.node = nodes.all()[1]
	check.Must(t, g.forget(1))
	w.known(1, "a")
	w.known(1, "b")
	s.expect()
	check.Must(t, g.admit(t.Context()))
	check.Equal(t, g.whole, true, "whole")
	w.known(1, "b")
	w.known(1, "c")
	s.expect(kindRenewed)
}

// reached is a fake cluster whose nodes have addresses.
type reached struct {
	*fakeCluster
	nodes *targets
}

func (r reached) Targets() []Target    { return r.nodes.all() }
func (r reached) Wipe(int, bool) error { return nil }

// TestHalvesThatAreNot: a cluster that still has a majority is not judged, and is made whole again.
func TestHalvesThatAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		c := newFake(4)
		c.able.Network = false
		for i := range c.nodes {
			c.frozen[i] = true // It cannot be killed.
		}
		g := growing(s, c, newWatch(newHTTP(noWire{}), c.Targets, s.find, &timeline{start: time.Now()}))
		began := time.Now()
		check.Fails(t, g.halve(t.Context()), "nodes cannot be killed")
		check.Equal(t, time.Since(began), 0, "it took")
		check.Equal(t, len(g.powerless), 0, "times without a majority")
		check.Equal(t, c.struck["start"], 2, "nodes started")
	})
}
