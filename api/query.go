package api

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/stats"
)

const (
	// A query waits so long for a position that another node gave.
	awaitPosition = 2 * time.Second
	// The leader applies within this time what a follower has shown.
	awaitApplied = 250 * time.Millisecond
)

// QueryRead reads what a query finds in a part of the log, page by page.
type QueryRead struct {
	Query    event.Query
	After    int64 // only what lies at higher positions; -1: all
	Until    int64 // the last position; -1: the end of the log, once it is covered an empty log
	Backward bool

	metrics *QueryMetrics
}

// NotReached says that a position is ahead of this node's log.
type NotReached struct{ Position int64 }

func (e *NotReached) Error() string {
	return fmt.Sprintf("This node has not reached %d yet", e.Position)
}

// Cover begins a query, and makes Until the position that its answer covers up to. It waits for a
// position that this node has not reached yet. It returns *NotReached, and *event.BadRequest for an
// After that no log has yet.
func (n *Node) Cover(ctx context.Context, q *QueryRead) error {
	if q.metrics = n.Queries; q.metrics != nil {
		q.metrics.reads.Inc()
	}
	if q.Until >= n.Store.LogEnd() {
		wait, cancel := context.WithTimeout(ctx, awaitPosition)
		defer cancel()
		switch err := n.Store.WaitLog(wait, q.Until); {
		case err != nil && wait.Err() != nil && ctx.Err() == nil:
			return &NotReached{q.Until}
		case err != nil:
			return err
		}
	}
	if err := n.CheckAfter(ctx, q.After); err != nil || q.Until >= 0 {
		return err
	}
	var err error
	q.Until, err = n.LastPosition(ctx)
	return err
}

// CheckAfter returns *event.BadRequest for a position beyond the end of the leader's log. It is of
// another database, or of a time before a restore. Another node may lag, and the leader may apply a
// moment after a follower what that has shown.
func (n *Node) CheckAfter(ctx context.Context, after int64) error {
	if after <= max(n.Store.LogEnd()-1, 0) || n.Cluster.Role() != RoleLeader {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, awaitApplied)
	defer cancel()
	err := n.Store.WaitLog(wait, after)
	if wait.Err() != nil && ctx.Err() == nil {
		return &event.BadRequest{Text: fmt.Sprintf("Position %d lies beyond the end of the log.", after)}
	}
	return err
}

// LastPosition is that of the last record of the log, -1 when it is empty.
func (n *Node) LastPosition(ctx context.Context) (int64, error) {
	page, err := n.Store.ReadAll(ctx, event.AllRead{From: event.End, Backward: true, Count: 1, MaxScan: 1, MaxPayload: 1})
	return page.Last, err
}

// From is where the next page begins, as event.AllRead has it.
func (q *QueryRead) From() int64 {
	if q.Backward {
		return q.Until + 1
	}
	return min(q.After, math.MaxInt64-1) + 1
}

// Take returns the events of a page that are asked for, at most so many, and one or more of so many
// bytes, and moves past them. The page ended at next, as event.AllPage has it. There may be more
// events, from From on, when it says so.
func (q *QueryRead) Take(events []event.Resolved, next int64, more bool, count, payload int) ([]event.Resolved, bool) {
	bytes := 0
	for i := range events {
		e := &events[i]
		bytes += e.PayloadBytes()
		switch {
		case q.Backward && e.Position <= q.After, !q.Backward && e.Position > q.Until:
			more = false
		case i == count || i > 0 && bytes > payload:
			if next, more = events[i-1].Position, true; !q.Backward {
				next++
			}
		default:
			continue
		}
		events = events[:i]
		break
	}
	if q.Backward {
		q.Until = next - 1
	} else {
		q.After = next - 1
	}
	if q.metrics != nil {
		q.metrics.events.Add(uint64(len(events)))
	}
	return events, more && q.After < q.Until
}

// QueryMetrics count what queries ask for and find. A nil one counts nothing.
type QueryMetrics struct{ reads, events *stats.Counter }

// NewQueryMetrics registers them.
func NewQueryMetrics(r *stats.Registry) *QueryMetrics {
	return &QueryMetrics{
		reads:  r.Counter("annals_query_reads_total", "Queries that were read over both interfaces; each page over HTTP is one."),
		events: r.Counter("annals_query_events_total", "Events that queries found."),
	}
}
