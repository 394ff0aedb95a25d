package node

import (
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"sync"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/admin/scavenge/history"
	"github.com/annalsdb/annals/admin/scavenge/schedule"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
)

// scavenging is what frees space on this node: runs, the record of them in the
// database, and the clock that starts some of them.
type scavenging struct {
	n       *Node
	history *history.Writer
	runs    *scavenge.Service
	clock   *schedule.Scheduler // nil: a database in memory

	running context.Context
	cancel  context.CancelFunc
	owned   sync.WaitGroup
}

// asker asks other nodes how far their turns are.
type asker struct{ part }

func (a asker) Ask(ctx context.Context, node event.ID, q schedule.Ask) (answer schedule.Answer, err error) {
	err = a.Jobs.Ask(ctx, node, q, &answer)
	return answer, err
}

func newScavenging(n *Node) (*scavenging, error) {
	c := n.config
	s := &scavenging{n: n}
	s.running, s.cancel = context.WithCancel(n.running)
	logger := n.logger.Named("scavenge")
	s.history = history.New(history.Options{
		Store: n.store, Logger: logger, Endpoint: n.endpoint, MaxAge: c.ScavengeHistoryMaxAge, WriteTimeout: c.WriteTimeout, Stats: n.opts.Stats,
	})
	s.runs = scavenge.New(scavenge.Options{
		Log: n.store.Log, FS: n.opts.FS, Dir: filepath.Join(cmp.Or(c.Index, filepath.Join(c.Db, "index")), scavenge.Folder), InMemory: c.MemDb,
		Write: n.store.WriteOwn, Erase: n.cluster.EraseLog, PendingDir: c.Db, Now: n.cluster.Clock.Now, AwaitNow: n.cluster.Clock.Await, History: s.history, Lock: &n.chunks,
		// More than the node keeps for itself: a run ends before writes are refused.
		DiskReserve:    2 * n.opts.DiskReserve,
		DisableMerging: c.DisableScavengeMerging, DatabasePageSize: c.ScavengeBackendPageSize, DatabaseCacheBytes: c.ScavengeBackendCacheSize,
		Logger: logger, Stats: n.opts.Stats,
	})
	if c.MemDb {
		return s, nil
	}
	var err error
	if s.clock, err = schedule.New(schedule.Options{
		Expression: c.ScavengeSchedule,
		Request:    scavenge.Request{Threads: 1, Threshold: c.ScavengeScheduleThreshold, ThrottlePercent: c.ScavengeScheduleThrottle},
		Endpoint:   n.endpoint(), Runner: s.runs, Store: n.store, Cluster: asker{n.part()}, Now: n.opts.Now, Logger: logger.Named("schedule"), Stats: n.opts.Stats,
	}); err != nil {
		s.close()
		return s, err
	}
	n.leading.services = append(n.leading.services, s.clock)
	return s, nil
}

// answer answers the leader.
func (s *scavenging) answer(ctx context.Context, question []byte) (a schedule.Answer, err error) {
	var q schedule.Ask
	if err := json.Unmarshal(question, &q); err != nil || s.clock == nil {
		return a, cmp.Or(err, event.ErrNotReady)
	}
	return s.clock.Answer(ctx, q), nil
}

// start begins the work that runs without a request.
func (s *scavenging) start() {
	if !s.n.config.MemDb {
		s.owned.Go(func() { s.run(s.running) })
	}
}

func (s *scavenging) run(ctx context.Context) {
	if !s.awaitStart(ctx) {
		return
	}
	if err := s.history.CloseInterrupted(ctx, s.runs.Running); err != nil && ctx.Err() == nil {
		s.n.logger.Named("scavenge").Warn("runs that were interrupted by the last stop may be listed as still running", logkey.Error, err)
	}
}

// awaitStart returns true when this node has taken its part in the cluster, false when ctx ends
// before.
func (s *scavenging) awaitStart(ctx context.Context) bool {
	for !s.n.cluster.Ready() || !s.n.cluster.CaughtUp() {
		if clock.Sleep(ctx, startedPace) != nil {
			return false
		}
	}
	return true
}

// close stops a scavenge that runs, and records that if there is a leader. The next process resumes
// a run that the clock started, so the clock must not see it stop.
func (s *scavenging) close() {
	s.cancel()
	s.owned.Wait()
	if s.clock != nil {
		s.clock.Close()
	}
	s.runs.Close()
	s.history.Close()
}
