package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/hang"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/replication/pipeline"
	"github.com/annalsdb/annals/stats"
)

// errHangs says that an operation on a disk of this node does not return.
var errHangs = errors.New("the disk of this node hangs")

// disk knows whether a disk of this node hangs.
type disk struct {
	watch   *hang.Watch
	limit   time.Duration // for an operation
	logger  hclog.Logger
	count   *stats.Counter
	changed func() // it hangs, or works again

	hangs reason    // an operation does not return
	since time.Time // when that began; belongs to the goroutine that looks
}

// run looks for operations on the disk that hang.
func (d *disk) run(ctx context.Context) {
	tick := time.NewTicker(max(d.limit/16, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			d.note(d.watch.Overdue(d.limit))
		case <-ctx.Done():
			return
		}
	}
}

// note has a node whose disk hangs fall silent: it sends other nodes none of Raft's messages and
// answers none, so that they find a leader whose disk works. Otherwise a leader would lead for ever
// and acknowledge nothing: its heartbeats need no disk. When the disk works again the node speaks
// again. Entries that it stored meanwhile do not count without a quorum, and the others' messages
// show it that it does not lead any more.
//
// The process does not end: a disk in a cloud may hang for seconds, and no node takes over from a
// node on its own.
func (d *disk) note(op *hang.Op, since time.Duration) {
	if (op == nil) == (d.hanging() == nil) {
		return
	}
	if op != nil {
		d.since = time.Now().Add(-since)
		d.hangs.set(fmt.Errorf("%w: %s %s has been running for %s", errHangs, op.Doing, op.File, since.Round(time.Millisecond)))
		d.count.Inc()
		d.logger.Error("the disk hangs: this node takes no part in its cluster until the disk works again", "operation", op.Doing, logkey.File, op.File, "since", since.Round(time.Millisecond))
	} else {
		d.hangs.set(nil)
		d.logger.Warn("the disk works again", "hung", time.Since(d.since).Round(time.Millisecond))
	}
	d.changed()
}

// hanging returns what a disk of this node hangs in, nil when it does not.
func (d *disk) hanging() error { return d.hangs.get() }

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
