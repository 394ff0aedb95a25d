package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/hang"
	"github.com/annalsdb/annals/replication/pipeline"
)

// errHangs says that an operation on a disk of this node does not return.
var errHangs = errors.New("the disk of this node hangs")

// watchDisk looks for operations on the disk that hang.
func (c *Cluster) watchDisk(ctx context.Context) {
	tick := time.NewTicker(max(c.self.opts.HangTimeout/16, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.noteHang(c.self.opts.Replica.Disk.Overdue(c.self.opts.HangTimeout))
		case <-ctx.Done():
			return
		}
	}
}

// noteHang has a node whose disk hangs fall silent: it sends other nodes none of Raft's
// messages and answers none, so that they find a leader whose disk works. Otherwise a
// leader would lead for ever and acknowledge nothing: its heartbeats need no disk. When
// the disk goes on so does the node. What it stored meanwhile counts nothing
// without a quorum, and it learns from the others' messages that it leads no more.
//
// The process does not end: a disk in a cloud may hang for seconds, and a node on its own has nobody to take over.
func (c *Cluster) noteHang(op *hang.Op, since time.Duration) {
	before := c.hangs.Load()
	if (op == nil) == (before == nil) {
		return
	}
	if op != nil {
		err := fmt.Errorf("%w: %s %s is under way for %s", errHangs, op.Doing, op.File, since.Round(time.Millisecond))
		c.hung.Store(time.Now().Add(-since).UnixNano())
		c.hangs.Store(&err)
		c.metrics.hangs.Inc()
		c.self.logger.Error("the disk hangs: until it goes on this node takes no part in its cluster", "operation", op.Doing, "file", op.File, "since", since.Round(time.Millisecond))
	} else {
		c.hangs.Store(nil)
		c.self.logger.Warn("the disk goes on", "hung", time.Since(time.Unix(0, c.hung.Load())).Round(time.Millisecond))
	}
	if r := c.self.replica.Load(); r != nil {
		c.noteLeadership(r)
	}
	c.peers.look()
}

// Hangs returns what a disk of this node hangs in, nil when it does not.
func (c *Cluster) Hangs() error {
	if err := c.hangs.Load(); err != nil {
		return *err
	}
	return nil
}

// watchedDecider is the decider, which reads the event log and its index.
type watchedDecider struct {
	pipeline.Decider
	watch *hang.Watch
	read  hang.Op
}

func watchDecider(d pipeline.Decider, dir string, w *hang.Watch) *watchedDecider {
	return &watchedDecider{Decider: d, watch: w, read: hang.Op{Doing: "read what a write depends on", File: dir}}
}

func (w *watchedDecider) Reset() error {
	defer w.watch.End(w.watch.Begin(&w.read))
	return w.Decider.Reset()
}

func (w *watchedDecider) Decide(write *event.Write) event.Decision {
	defer w.watch.End(w.watch.Begin(&w.read))
	return w.Decider.Decide(write)
}
