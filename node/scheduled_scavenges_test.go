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
	// a scavenge waits for held to be closed
	var waiting atomic.Bool
	nodes := openCluster(t, 4, func(i int, o *node.Options) { // The last is a read-only replica.
		o.Config.ClusterSize, o.Config.ReadOnlyReplica = 3, i == 3
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
	s.await("the schedule is known", func(r round) bool { return len(r.Schedules) == 1 })
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
	s.await("the first round ends", func(r round) bool { return r.Last.Result != "" })
	first := s.round().Last

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
	s.await("the second round ends", func(r round) bool { return r.Last.Due.After(first.Due) })

	var endpoints []string
	for _, n := range nodes {
		endpoints = append(endpoints, n.Addr())
	}
	slices.Sort(endpoints)
	for _, last := range []ended{first, s.round().Last} {
		var turns []string
		for i, turn := range last.Turns {
			if turn.Attempt != 1 || turn.Result != "Success" || i > 0 && turn.Taken.Before(last.Turns[i-1].Ended) {
				t.Errorf("the turns of a round are not one after the other: %+v", last.Turns)
			}
			turns = append(turns, turn.Endpoint)
		}
		if slices.Sort(turns); !slices.Equal(turns, endpoints) || last.Result != "Completed" {
			t.Errorf("the turns of the round were of %v: %+v", turns, last)
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
		if begun != 8 || ended != 8 {
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
	Type string
	round
}

// round is what the leader keeps of rounds.
type round struct {
	Schedules map[string]time.Time
	Last      ended
}

type ended struct {
	Due    time.Time
	Result string
	Turns  []struct {
		Endpoint, Result string
		Attempt          int
		Taken, Ended     time.Time
	}
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

// round is the last record.
func (s schedule) round() (r round) {
	for _, e := range s.read("$scavengeSchedule") {
		if e.Type == "$scavengeScheduleState" {
			r = e.round
		}
	}
	return r
}

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

// await waits until something holds of the last record.
func (s schedule) await(what string, holds func(r round) bool) {
	s.t.Helper()
	testkit.Eventually(s.t, 3*time.Minute, func() error {
		if r := s.round(); !holds(r) {
			return fmt.Errorf("%s: not in %+v", what, r)
		}
		return nil
	})
}
