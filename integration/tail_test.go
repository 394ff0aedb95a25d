package integration_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// tails are live tails of the whole log, through all nodes of a cluster.
type tails struct {
	cancel context.CancelFunc
	owned  sync.WaitGroup

	mu   sync.Mutex
	seen []map[string]string // of each tail: where each event is
	bad  []string
}

// startTails begins to follow the log, some of the tails slowly.
func (c *cluster) startTails(n int) *tails {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	f := &tails{cancel: cancel}
	c.t.Cleanup(f.stop)
	for i := range n {
		var nodes []string
		for k := range c.members {
			nodes = append(nodes, c.members[(i+k)%len(c.members)].URL())
		}
		t := check.Value(client.New(client.Options{Nodes: nodes})).Must(c.t)
		seen := map[string]string{}
		f.seen = append(f.seen, seen)
		f.owned.Go(func() {
			defer t.Close()
			f.follow(ctx, t, i, seen)
		})
	}
	return f
}

func (f *tails) stop() {
	f.cancel()
	f.owned.Wait()
}

func (f *tails) follow(ctx context.Context, t *client.Client, i int, seen map[string]string) {
	last := client.Place("")
	for e, err := range t.Subscribe(ctx, event.AllStream, client.TailOptions{NoData: true}) {
		if ctx.Err() != nil {
			return
		}
		f.mu.Lock()
		switch {
		case err != nil:
			f.bad = append(f.bad, fmt.Sprintf("tail %d: %v", i, err))
		case e.Place <= last || string(e.Place) != e.Position:
			f.bad = append(f.bad, fmt.Sprintf("tail %d: event %s at %s comes after %s", i, e.ID, e.Place, last))
		default:
			last, seen[e.ID] = e.Place, e.Position
		}
		f.mu.Unlock()
		if i%4 == 3 && pause(ctx, time.Millisecond) != nil { // It reads slowly.
			return
		}
	}
}

// have demands that each tail got each of the events, at the same place.
func (f *tails) have(t *testing.T, events map[string]place) {
	t.Helper()
	testkit.Eventually(t, settleLimit, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		for i, seen := range f.seen {
			if len(seen) < len(events) {
				return fmt.Errorf("tail %d has %d events of %d", i, len(seen), len(events))
			}
		}
		return nil
	})
	f.stop()
	for _, text := range f.bad {
		t.Error(text)
	}
	for i, seen := range f.seen {
		check.Equal(t, len(seen), len(events), "tail", i, "has ... events, the nodes have")
		for id := range events {
			if seen[id] == "" || seen[id] != f.seen[0][id] {
				t.Fatalf("tail %d has event %s at %q, tail 0 at %q", i, id, seen[id], f.seen[0][id])
			}
		}
	}
}
