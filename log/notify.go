package eventlog

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/index"
)

// notifier wakes those who wait for the log to move: all of it, or one stream.
// Every wait ends with the next event of its kind; whoever waits looks again.
type notifier struct {
	waiting atomic.Int64
	mu      sync.Mutex
	log     chan struct{}                         // closed when the log moves; nil when nobody waits
	streams map[uint64]map[chan struct{}]struct{} // by stream hash
	closed  bool
}

// wait blocks until ready says true. It is asked at first and after each event
// of the stream (or of any stream, when all is set).
func (n *notifier) wait(ctx context.Context, all bool, stream uint64, ready func() (bool, error)) error {
	n.waiting.Add(1)
	defer n.waiting.Add(-1)
	for {
		woken, forget, closed := n.subscribe(all, stream)
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
		case <-ctx.Done():
			forget()
			return ctx.Err()
		}
	}
}

func (n *notifier) subscribe(all bool, stream uint64) (woken <-chan struct{}, forget func(), closed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, func() {}, true
	}
	ch := make(chan struct{})
	if all {
		if n.log == nil {
			n.log = ch
		}
		return n.log, func() {}, false
	}
	if n.streams == nil {
		n.streams = make(map[uint64]map[chan struct{}]struct{})
	}
	set := n.streams[stream]
	if set == nil {
		set = make(map[chan struct{}]struct{})
		n.streams[stream] = set
	}
	set[ch] = struct{}{}
	return ch, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if set := n.streams[stream]; set != nil {
			delete(set, ch)
			if len(set) == 0 {
				delete(n.streams, stream)
			}
		}
	}, false
}

// wake ends the waits for the log and for the streams of the given entries.
func (n *notifier) wake(entries []index.Entry) {
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
	for _, e := range entries {
		for ch := range n.streams[e.Hash] {
			close(ch)
		}
		delete(n.streams, e.Hash)
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
		for ch := range set {
			close(ch)
		}
		delete(n.streams, hash)
	}
}
