package eventlog

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/index"
)

// notifier wakes those who wait for the log to move: all of it, or some streams.
// Every wait ends with the next event of its kind; who waits looks again.
type notifier struct {
	waiting atomic.Int64
	mu      sync.Mutex
	log     chan struct{}                   // closed when the log moves; nil without waiters
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
	n.waiting.Add(1)
	defer n.waiting.Add(-1)
	for {
		woken, forget, closed := n.subscribe(streams)
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
			forget()
		case <-ctx.Done():
			forget()
			return ctx.Err()
		}
	}
}

func (n *notifier) subscribe(streams []uint64) (woken <-chan struct{}, forget func(), closed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, func() {}, true
	}
	if len(streams) == 0 {
		if n.log == nil {
			n.log = make(chan struct{})
		}
		return n.log, func() {}, false
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

// wake ends the waits for the log, for the streams of the given entries, and for what was posted.
func (n *notifier) wake(entries, posted []index.Entry) {
	if n.waiting.Load() == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.log != nil {
		close(n.log)
		n.log = nil
	}
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
	if n.log != nil {
		close(n.log)
		n.log = nil
	}
	for hash, set := range n.streams {
		for w := range set {
			w.wake()
		}
		delete(n.streams, hash)
	}
}
