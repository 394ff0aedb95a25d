package eventlog

import (
	"context"
	"math"
	"sync"
	"sync/atomic"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/milestone"
	"github.com/annalsdb/annals/log/index"
)

// notifier wakes those who wait for the log to move: to a position, or by an event of some streams.
// A wait for streams ends with the next event of its kind; who waits looks again.
type notifier struct {
	waiting atomic.Int64
	mu      sync.Mutex
	log     milestone.List                  // those who wait for a position
	streams map[uint64]map[*waiter]struct{} // by stream hash
	closed  bool
}

// waiter is one who waits for any of some streams.
type waiter struct {
	woken chan struct{}
	done  bool // woken is closed: another of the streams was first
}

func (w *waiter) wake() {
	if !w.done {
		w.done = true
		close(w.woken)
	}
}

// wait blocks until ready says true. It is asked at first and after each event that has one of the
// hashes, of its stream or of what it says of itself, and after any event when none is given.
func (n *notifier) wait(ctx context.Context, ready func() (bool, error), streams ...uint64) error {
	return n.waitFor(ctx, math.MinInt64, ready, streams)
}

// waitFor is wait; without streams ready is asked when the log has passed the position.
func (n *notifier) waitFor(ctx context.Context, position int64, ready func() (bool, error), streams []uint64) error {
	n.waiting.Add(1)
	defer n.waiting.Add(-1)
	for {
		woken, forget, closed := n.subscribe(position, streams)
		done, err := ready()
		if !done && err == nil && closed {
			err = event.ErrClosed
		}
		if done || err != nil {
			forget()
			return err
		}
		select {
		case <-woken:
			if len(streams) > 0 {
				forget()
			} else if done, err := ready(); done || err != nil {
				return err // All who waited for a position come at once: none takes the lock again.
			}
		case <-ctx.Done():
			forget()
			return ctx.Err()
		}
	}
}

func (n *notifier) subscribe(position int64, streams []uint64) (woken <-chan struct{}, forget func(), closed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, func() {}, true
	}
	if len(streams) == 0 {
		w := n.log.Add(position)
		return w.Woken, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.log.Remove(w)
		}, false
	}
	if n.streams == nil {
		n.streams = make(map[uint64]map[*waiter]struct{})
	}
	w := &waiter{woken: make(chan struct{})}
	for _, stream := range streams {
		set := n.streams[stream]
		if set == nil {
			set = make(map[*waiter]struct{})
			n.streams[stream] = set
		}
		set[w] = struct{}{}
	}
	return w.woken, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, stream := range streams {
			if set := n.streams[stream]; set != nil {
				delete(set, w)
				if len(set) == 0 {
					delete(n.streams, stream)
				}
			}
		}
	}, false
}

// wake ends the waits for positions below the end of the log, for the streams of the given entries,
// and for what was posted.
func (n *notifier) wake(end int64, entries, posted []index.Entry) {
	if n.waiting.Load() == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.log.Pass(end)
	if len(n.streams) == 0 {
		return
	}
	for _, list := range [...][]index.Entry{entries, posted} {
		for _, e := range list {
			if set, ok := n.streams[e.Hash]; ok {
				for w := range set {
					w.wake()
				}
				delete(n.streams, e.Hash)
			}
		}
	}
}

// close ends all waits for good.
func (n *notifier) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	n.wakeAllLocked()
}

// wakeAll ends all waits, whatever they wait for.
func (n *notifier) wakeAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wakeAllLocked()
}

func (n *notifier) wakeAllLocked() {
	n.log.Pass(math.MaxInt64)
	for hash, set := range n.streams {
		for w := range set {
			w.wake()
		}
		delete(n.streams, hash)
	}
}
