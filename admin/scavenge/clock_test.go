package scavenge_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/admin/scavenge/history"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
)

// clocked is a node that applies what a leader decides, and scavenges. Each has a clock, and there
// is the time that it is.
type clocked struct {
	t       *testing.T
	time    time.Time
	leader  time.Duration // the leader's clock is ahead by so much
	own     time.Duration // this node's is
	lies    int           // for so many readings, if it is given
	m       *model
	log     *eventlog.Log
	service *scavenge.Service
}

func newClocked(t *testing.T) *clocked {
	c := &clocked{t: t, time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), m: newModel()}
	disk := vfs.NewMem()
	own := func() time.Time {
		at := c.time.Add(c.own)
		if c.lies > 0 {
			if c.lies--; c.lies == 0 {
				c.own = 0
			}
		}
		return at
	}
	var err error
	if c.log, err = eventlog.Open(eventlog.Options{Dir: "db", FS: disk, ClusterID: c.m.cluster, SkipVerify: true, Now: own}); err != nil {
		t.Fatal(err)
	}
	h := history.New(history.Options{Store: noStore{}, Endpoint: func() string { return "test" }})
	o := scavenge.Options{
		Log: func() (*eventlog.Log, error) { return c.log, nil }, FS: disk, Dir: filepath.Join("db", "index", scavenge.Folder), Write: c.write, History: h,
		DatabasePageSize: 512, Now: own,
	}
	c.service = scavenge.New(o)
	t.Cleanup(func() {
		c.service.Close()
		h.Close()
		check.NoError(t, c.log.Close())
	})
	return c
}

// write is the leader. Times never fall, and points say what its clock showed, as the decider has
// it.
func (c *clocked) write(_ context.Context, w *event.Write) (event.Written, error) {
	p := proposed{stream: w.Stream, typ: w.Events[0].Type, flags: event.FlagJSON, data: w.Events[0].Data}
	clock := c.time.Add(c.leader)
	if p.typ == event.TypeScavengePoint && clock.UnixNano() < c.m.tail.Time {
		p.meta = fmt.Appendf(nil, `{"%s":"%s"}`, event.KeyEffectiveNow, clock.Format(time.RFC3339Nano))
	}
	c.m.clock = max(clock.UnixNano(), c.m.tail.Time)
	if err := errors.Join(c.log.Append(c.m.write(p)), c.log.Commit()); err != nil {
		return event.Written{}, err
	}
	last := int64(len(c.m.streams[w.Stream])) - 1
	return event.Written{First: last, Last: last}, nil
}

func (c *clocked) put(stream, data string) {
	c.t.Helper()
	if _, err := c.write(c.t.Context(), &event.Write{Stream: stream, Events: []event.Proposed{{Type: "type", Data: []byte(data)}}}); err != nil {
		c.t.Fatal(err)
	}
}

// visible are the events that readers with a right clock see.
func (c *clocked) visible(streams ...string) (found []string) {
	c.t.Helper()
	defer func(own time.Duration) { c.own = own }(c.own)
	c.own = 0
	for _, stream := range streams {
		page, err := c.log.Reads.ReadStream(event.StreamRead{Stream: stream, From: 0, Count: 1000})
		check.Must(c.t, err)
		for _, e := range page.Events {
			found = append(found, fmt.Sprint(stream, " ", e.Number))
		}
	}
	return found
}

func (c *clocked) run() scavenge.Status {
	c.t.Helper()
	id := check.Value(c.service.Start(scavenge.Request{})).Must(c.t)
	status := check.Value(c.service.Wait(c.t.Context(), id)).Must(c.t)
	return status
}

const decade = 10 * 365 * 24 * time.Hour

// A clock that is wrong once, at the worst moment, costs no event.
func TestWrongClock(t *testing.T) {
	// Ten events, an hour between them, with a maximum age of 30 days; then a clock is wrong, and
	// it is a day later.
	for _, c := range []struct {
		name    string
		wrong   func(*clocked)
		fails   bool
		later   time.Duration // until there is another run
		left    int           // of the ten
		removed int64         // by the last run
	}{
		{name: "the leader's, for one write", left: 10, wrong: func(c *clocked) {
			c.leader = decade
			c.put("other", "{}")
			c.leader = 0
		}},
		{name: "the leader's, for one write, and time has passed", later: 40 * 24 * time.Hour, left: 0, removed: 9, wrong: func(c *clocked) {
			c.leader = decade
			c.put("other", "{}")
			c.leader = 0
		}},
		{name: "the leader's, when it writes the point", left: 10, wrong: func(c *clocked) { c.leader = decade }},
		{name: "this node's, when it chooses the point", left: 10, wrong: func(c *clocked) { c.own = decade }},
		{name: "the leader's, for one write, and then this node's", left: 10, wrong: func(c *clocked) {
			c.leader = decade
			c.put("other", "{}")
			c.leader, c.own = 0, decade
		}},
		{name: "that of both, for a moment", fails: true, left: 10, wrong: func(c *clocked) {
			c.leader, c.own, c.lies = decade, decade, 1
		}},
		{name: "this node's, behind", left: 10, wrong: func(c *clocked) { c.own = -decade }},
		{name: "no clock", left: 10, wrong: func(*clocked) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newClocked(t)
			n.put("$$orders", `{"$maxAge":2592000}`)
			for range 10 {
				n.time = n.time.Add(time.Hour)
				n.put("orders", "{}")
			}
			n.time = n.time.Add(24 * time.Hour)
			c.wrong(n)
			status := n.run()
			if failed := status.Result == scavenge.ResultErrored; failed != c.fails || failed && !strings.Contains(status.Error, "went back") {
				t.Fatalf("%s, %s", status.Result, status.Error)
			}
			if c.fails || c.later > 0 {
				n.time = n.time.Add(c.later + time.Second)
				if status = n.run(); status.Result != scavenge.ResultSuccess {
					t.Fatalf("later: %s, %s", status.Result, status.Error)
				}
			}
			if got := n.visible("orders"); len(got) != c.left || status.Removed != c.removed {
				t.Errorf("readers see %d events and %d were removed, want %d and %d", len(got), status.Removed, c.left, c.removed)
			}
		})
	}
}

// Whatever the clocks of leaders do, and this node's between runs, a run removes nothing that a
// reader with a right clock sees.
func TestWrongClocksAtRandom(t *testing.T) {
	for _, seed := range seeds(t, 4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 5))
			n := newClocked(t)
			streams := []string{"day", "month", "all"}
			n.put("$$day", `{"$maxAge":86400}`)
			n.put("$$month", `{"$maxAge":2592000}`)
			leap := func() time.Duration {
				switch rng.IntN(10) {
				case 0:
					return time.Duration(rng.Int64N(int64(decade)))
				case 1:
					return -time.Duration(rng.Int64N(int64(decade)))
				}
				return time.Duration(rng.IntN(200)-100) * time.Millisecond
			}
			for _, s := range streams {
				n.put(s, "{}")
			}
			removed, failed := int64(0), 0
			for range 30 {
				for range rng.IntN(20) {
					n.time = n.time.Add(time.Duration(rng.Int64N(int64(12 * time.Hour))))
					n.leader = leap()
					n.put(streams[rng.IntN(len(streams))], "{}")
				}
				n.time = n.time.Add(time.Duration(rng.Int64N(int64(20 * 24 * time.Hour))))
				n.leader = leap()
				before := n.visible(streams...)
				n.own = leap()
				if n.own > 0 { // It is right again before anything is removed.
					n.lies = 1
				}
				status := n.run()
				n.own, n.lies = 0, 0
				switch removed += status.Removed; {
				case status.Result == scavenge.ResultErrored && strings.Contains(status.Error, "went back"):
					failed++
				case status.Result != scavenge.ResultSuccess:
					t.Fatalf("%s: %s", status.Result, status.Error)
				}
				if after := n.visible(streams...); !slices.Equal(before, after) {
					t.Fatalf("readers saw %v before and see %v after a run with the time %v at %v", before, after, status.Point.EffectiveNow, n.time)
				}
			}
			t.Logf("%d events removed, %d runs failed", removed, failed)
		})
	}
}
