package replication

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/bell"
	"github.com/annalsdb/annals/internal/logkey"
)

// snapshotter has snapshots written as the Raft log grows. raft counts entries only, and an entry
// may be of any size up to some megabytes.
type snapshotter struct {
	replica *Replica
	kick    chan struct{}
	quit    chan struct{}
	ended   sync.Once
	wg      sync.WaitGroup

	// Since the last snapshot, in the Raft log.
	entries atomic.Uint64
	bytes   atomic.Int64

	mu   sync.Mutex // held while one is written
	held int64      // guarded by mu: what was stored since compaction waits for another node
}

// newSnapshotter counts what the Raft log holds beyond the newest snapshot: otherwise a node that
// is killed again and again would gather more each time.
func newSnapshotter(r *Replica) *snapshotter {
	s := &snapshotter{replica: r, kick: make(chan struct{}, 1), quit: make(chan struct{})}
	newest, _ := r.state.Snapshots.Newest()
	if last, err := r.state.Logs.LastIndex(); err == nil && last > newest {
		s.entries.Store(last - newest)
	}
	r.state.Logs.Stored = s.stored
	return s
}

// stored is called for everything appended to the Raft log, on raft's own goroutine.
func (s *snapshotter) stored(entries, bytes int) {
	n, b := s.entries.Add(uint64(entries)), s.bytes.Add(int64(bytes))
	if o := &s.replica.opts; n >= o.SnapshotEntries || b >= o.SnapshotBytes {
		bell.Ring(s.kick)
	}
}

func (s *snapshotter) start() {
	s.wg.Go(func() {
		for {
			select {
			case <-s.kick:
			case <-s.quit:
				return
			}
			if err := s.take(uint64(s.replica.opts.TrailingEntries)); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
				s.replica.logger.Warn("snapshot was not written", logkey.Error, err)
			}
		}
	})
}

// stop ends the goroutine. It waits for a snapshot that is being written.
func (s *snapshotter) stop() {
	s.ended.Do(func() { close(s.quit) })
	s.wg.Wait()
}

// trailingBytes bounds the entries that are kept before a snapshot's end, for followers that lag a
// little or were away for a moment. Options.TrailingEntries does, too.
const trailingBytes = 256 << 20

// take has a snapshot written and the Raft log cut. At most so many of the newest entries are kept,
// and at most as many as the bound in bytes allows; more of both while another node that is
// catching up needs them.
func (s *snapshotter) take(maxTrailing uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.replica
	entries, bytes := s.entries.Load(), s.bytes.Load()
	last := r.raft.LastIndex()
	keep := min(maxTrailing, r.state.Logs.Trailing(last, trailingBytes))
	if err := r.keepTrailing(keep); err != nil {
		return err
	}
	r.state.Logs.Needed.Store(s.hold(last, keep, bytes+int64(entries)*entryCost))
	err := r.raft.Snapshot().Error()
	// What this attempt saw does not count any more even if it failed, or each
	// entry would cause the next attempt.
	s.entries.Add(-entries)
	s.bytes.Add(-bytes)
	return err
}

// entryCost is what a held entry counts in addition to its data.
const entryCost = 1 << 10

// hold returns the index of the first entry that another node needs to catch up. It is 0 if there
// is none, if the entry is kept anyway, or if it has been held for too long. stored counts what
// came since the last call.
func (s *snapshotter) hold(last, keep uint64, stored int64) uint64 {
	logs, o := s.replica.state.Logs, &s.replica.opts
	need := o.Awaited()
	if need == 0 || need+keep > last || logs.Full.Load() {
		s.held = 0
		return 0
	}
	if s.held += stored; s.held > o.HoldBytes {
		s.replica.logger.Warn("another node is catching up too slowly: the entries that it needs are deleted, and it must fetch data instead", logkey.Index, need)
		s.held = 0
		return 0
	}
	return need
}

// keepTrailing sets how many entries the next snapshot leaves in the Raft log.
func (r *Replica) keepTrailing(entries uint64) error {
	r.configMu.Lock()
	defer r.configMu.Unlock()
	config := r.raft.ReloadableConfig()
	config.TrailingLogs = entries
	if err := r.raft.ReloadConfig(config); err != nil {
		return fmt.Errorf("set trailing entries: %w", err)
	}
	return nil
}
