package node_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/node"
)

// TestScheduledScavenges: when the clock says so each node scavenges once, one after the other, and
// a leader that goes in the midst of a scavenge changes nothing of that.
func TestScheduledScavenges(t *testing.T) {
	var ahead atomic.Int64 // how far the clocks of all nodes are
	var held atomic.Pointer[chan struct{}]
	var waiting atomic.Bool // a scavenge waits for held to be closed
	nodes := openCluster(t, 3, func(_ int, o *node.Options) {
		o.Config.ScavengeSchedule, o.Config.ClockTolerance = "@hourly", 0
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		o.FS = vfs.NewFaulty(vfs.OS, func(op vfs.Op) error {
			if hold := held.Load(); hold != nil && strings.Contains(op.Name, "scavenging") {
				waiting.Store(true)
				<-*hold
			}
			return nil
		})
	})
	s := schedule{t, nodes}
	s.await("$scavengeScheduleJoined", 3)
	hourPasses := func() {
		now := time.Now().Add(time.Duration(ahead.Load()))
		ahead.Add(int64(now.Truncate(time.Hour).Add(time.Hour + time.Second).Sub(now)))
		// Nodes look at the clock when the stream grows.
		testkit.Eventually(t, time.Minute, func() error {
			if status, _ := write(t, s.leader(), "$scavengeSchedule", int(ahead.Load()/int64(time.Minute))); status != 201 {
				return fmt.Errorf("%d", status)
			}
			return nil
		})
	}
	hourPasses()
	s.await("$scavengeRoundEnded", 1)

	hold := make(chan struct{})
	goOn := sync.OnceFunc(func() {
		held.Store(nil)
		close(hold)
	})
	defer goOn()
	held.Store(&hold)
	hourPasses()
	testkit.Eventually(t, time.Minute, func() error {
		if !waiting.Load() {
			return fmt.Errorf("no scavenge is under way")
		}
		return nil
	})
	old := s.leader()
	testkit.Eventually(t, 3*time.Minute, func() error {
		if s.leader() == old {
			status, body := call(t, old, "POST", "/admin/node/resign", "")
			return fmt.Errorf("it leads still: %d %s", status, body)
		}
		return nil
	})
	goOn()
	s.await("$scavengeRoundEnded", 2)

	var endpoints []string
	for _, n := range nodes {
		endpoints = append(endpoints, n.Addr())
	}
	slices.Sort(endpoints)
	turn, turns := "", []string(nil)
	for _, e := range s.events() {
		switch e.Type {
		case "$scavengeTurnTaken":
			if turn != "" || e.Attempt != 1 {
				t.Errorf("%s takes its turn for the %d. time, while it is the turn of %q", e.Endpoint, e.Attempt, turn)
			}
			turn = e.Endpoint
		case "$scavengeTurnEnded":
			if turn != e.Endpoint || e.Result != "Success" {
				t.Errorf("a turn ends that was of %q: %+v", turn, e)
			}
			turn, turns = "", append(turns, e.Endpoint)
		case "$scavengeRoundEnded":
			slices.Sort(turns)
			if !slices.Equal(turns, endpoints) || e.Result != "Completed" {
				t.Errorf("the turns of the round were of %v: %+v", turns, e)
			}
			turns = nil
		}
	}
	testkit.Eventually(t, time.Minute, func() error {
		begun, ended := 0, 0
		for _, e := range s.read("$scavenges") {
			switch e.Type {
			case "$scavengeStarted":
				begun++
			case "$scavengeCompleted":
				ended++
			}
		}
		if begun != 6 || ended != 6 {
			return fmt.Errorf("%d scavenges began and %d ended", begun, ended)
		}
		return nil
	})
}

// schedule reads what nodes wrote of scheduled scavenges.
type schedule struct {
	t     *testing.T
	nodes []*node.Node
}

type scheduled struct {
	Type             string
	Endpoint, Result string
	Attempt          int
}

func (s schedule) leader() (found *node.Node) {
	s.t.Helper()
	testkit.Eventually(s.t, 3*time.Minute, func() error {
		for _, found = range s.nodes {
			if found.State() == "Leader" {
				return nil
			}
		}
		return fmt.Errorf("no leader")
	})
	return found
}

func (s schedule) events() []scheduled { return s.read("$scavengeSchedule") }

// read returns the events of a stream, none when they cannot be read now.
func (s schedule) read(stream string) (list []scheduled) {
	s.t.Helper()
	var feed struct {
		Entries []struct{ EventType, Data string }
	}
	status, body := call(s.t, s.leader(), "GET", "/streams/"+stream+"/0/forward/200?embed=body", "", "Accept", "application/json")
	if status == 200 {
		check.Must(s.t, json.Unmarshal([]byte(body), &feed))
	}
	for _, e := range slices.Backward(feed.Entries) {
		one := scheduled{}
		check.Must(s.t, json.Unmarshal([]byte(e.Data), &one), e)
		one.Type = e.EventType
		list = append(list, one)
	}
	return list
}

// await waits until there are so many events of a type.
func (s schedule) await(typ string, count int) {
	s.t.Helper()
	testkit.Eventually(s.t, 3*time.Minute, func() error {
		n, all := 0, s.events()
		for _, e := range all {
			if e.Type == typ {
				n++
			}
		}
		if n < count {
			return fmt.Errorf("%d %s in %+v", n, typ, all)
		}
		return nil
	})
}
