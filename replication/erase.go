package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/replication/raftdisk"
)

// erasePace is how often is looked at what an erasure waits for.
const erasePace = 50 * time.Millisecond

// EraseLog removes this node's copy of events from its Raft log: when it returns nil, no file in
// the folder raft holds an entry whose records lie below a position of the event log, nor any other
// that was applied when it was called. Each node does it for itself, whatever its role.
//
// Entries that are not applied yet, and those that came since, stay, so that a follower that lags a
// little is not disturbed. A live node that is catching up is waited for, at most Options.HoldTime;
// after that it must fetch data as if it had been away.
//
// The error is event.ErrNotReady as long as no Replica runs. When the context ends the call returns
// at once; the work that it has begun is finished all the same.
func (c *Cluster) EraseLog(ctx context.Context, upTo int64) error {
	r := c.self.replica.Load()
	if r == nil {
		return fmt.Errorf("erase the Raft log: %w", event.ErrNotReady)
	}
	return r.erase(ctx, upTo, c.peers.awaitOthers)
}

// erase waits with others, if given, for nodes that need the entries up to an index.
func (r *Replica) erase(ctx context.Context, upTo int64, others func(ctx context.Context, index uint64)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	detach := context.AfterFunc(r.running, func() { cancel(event.ErrNotReady) })
	done := make(chan error, 1)
	go func() {
		defer cancel(nil)
		defer detach()
		select {
		case r.erasing <- struct{}{}:
			done <- r.eraseThrough(ctx, upTo, others)
			<-r.erasing
		case <-ctx.Done():
			done <- context.Cause(ctx)
		}
	}()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		select {
		case err = <-done: // It may be why the context is over.
		default:
			err = context.Cause(ctx)
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrRaftShutdown), errors.Is(err, event.ErrClosed):
		err = event.ErrNotReady
	}
	return fmt.Errorf("erase the Raft log: %w", err)
}

func (r *Replica) eraseThrough(ctx context.Context, upTo int64, others func(context.Context, uint64)) error {
	// Entries fetched from other nodes come to the Raft log later: it waits for raft.
	var through uint64
	for {
		if tail := r.opts.Log.Tail(); through == 0 && tail.End >= upTo {
			if through = tail.Index; through == 0 {
				return nil // Nothing was ever applied.
			}
		}
		if through > 0 && r.raft.AppliedIndex() >= through {
			break
		}
		if err := clock.Sleep(ctx, erasePace); err != nil {
			return context.Cause(ctx)
		}
	}
	if others != nil {
		others(ctx, through)
	}
	if err := r.cover(ctx, through); err != nil {
		return err
	}
	stalled, err := r.state.Logs.Rewrite(through, r.logger)
	if err != nil {
		return err
	}
	r.metrics.erasures.Observe(stalled.Seconds())
	if left, err := raftdisk.Asides(r.opts.disk()); err != nil || len(left) > 0 {
		r.logger.Warn("consensus state that was set aside may hold the erased data: remove these folders", "folders", left, logkey.Error, err)
	}
	r.logger.Info("the Raft log was rewritten without the applied entries", logkey.Index, through, "stalled", stalled.Round(time.Microsecond))
	return nil
}

// cover has snapshots written until one covers an index that is applied, or about to be.
//
// raft refuses in some moments, for example while nothing has been applied since it was
// started: then there are entries up to the index on their way to the state machine.
func (r *Replica) cover(ctx context.Context, through uint64) error {
	for {
		if index, _ := r.state.Snapshots.Newest(); index >= through {
			return ctx.Err()
		}
		err := r.snaps.take(uint64(r.opts.TrailingEntries))
		if index, _ := r.state.Snapshots.Newest(); index >= through {
			return ctx.Err()
		}
		if failed := r.fail.Check(); failed != nil {
			return failed
		}
		if errors.Is(err, raft.ErrRaftShutdown) {
			return err
		}
		if clock.Sleep(ctx, erasePace) != nil {
			if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
				return fmt.Errorf("%w; the snapshot was not written: %w", context.Cause(ctx), err)
			}
			return context.Cause(ctx)
		}
	}
}

// trimAppend removes from a message the entries that the newest snapshot covers.
//
// All of that is committed and applied here, as it is at any leader of this term. But raft compares
// the entry before a message with its Raft log, where that entry may be gone. A message may be
// repeated, or come from a new leader that does not know how far this node is. raft would refuse
// it. The leader would go back, entry by entry, and then offer its snapshot, which is older than
// this node's. Neither would ever make progress.
func trimAppend(a *raft.AppendEntriesRequest, covered func() (index, term uint64)) {
	if a.PrevLogEntry == 0 && len(a.Entries) == 0 {
		return // A heartbeat, which compares nothing.
	}
	index, term := covered()
	if a.PrevLogEntry >= index {
		return
	}
	from := slices.IndexFunc(a.Entries, func(l *raft.Log) bool { return l.Index > index })
	if from < 0 {
		from = len(a.Entries)
	}
	a.Entries = a.Entries[from:]
	a.PrevLogEntry, a.PrevLogTerm = index, term
	// Entries of this node after the compared ones may be of another history: this message does not
	// commit them.
	a.LeaderCommitIndex = min(a.LeaderCommitIndex, index+uint64(len(a.Entries)))
}
