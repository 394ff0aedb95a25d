package replication

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// snapshotter has manifests written as the Raft log grows. raft counts entries
// only, and an entry may be of any size up to some megabytes.
type snapshotter struct {
	replica *Replica
	kick    chan struct{} // capacity 1
	quit    chan struct{}
	ended   sync.Once
	wg      sync.WaitGroup

	// Since the last manifest, in the Raft log.
	entries atomic.Uint64
	bytes   atomic.Int64

	mu sync.Mutex // held while one is written, so that EraseLog's setting is its own
}

// newSnapshotter counts what the Raft log holds beyond the newest manifest: a
// node that is killed again and again must not gather more each time.
func newSnapshotter(r *Replica) *snapshotter {
	s := &snapshotter{replica: r, kick: make(chan struct{}, 1), quit: make(chan struct{})}
	newest := uint64(0)
	if list := r.state.snaps.list; len(list) > 0 {
		newest = list[0].meta.Index
	}
	if last, err := r.state.logs.LastIndex(); err == nil && last > newest {
		s.entries.Store(last - newest)
	}
	r.state.logs.stored = s.stored
	return s
}

// stored is called for everything appended to the Raft log, on raft's own goroutine.
func (s *snapshotter) stored(entries, bytes int) {
	n, b := s.entries.Add(uint64(entries)), s.bytes.Add(int64(bytes))
	if o := &s.replica.opts; n < o.SnapshotEntries && b < o.SnapshotBytes {
		return
	}
	select {
	case s.kick <- struct{}{}:
	default:
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
				s.replica.logger.Warn("manifest was not written", keyError, err)
			}
		}
	})
}

// stop ends the goroutine. It waits for a manifest that is being written.
func (s *snapshotter) stop() {
	s.ended.Do(func() { close(s.quit) })
	s.wg.Wait()
}

// take has a manifest written and the Raft log cut, leaving at most so many
// entries behind the newest, and at most as many as the bound in bytes allows.
func (s *snapshotter) take(maxTrailing uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.replica
	entries, bytes := s.entries.Load(), s.bytes.Load()
	if err := r.keepTrailing(min(maxTrailing, r.state.logs.sizes.trailing(r.raft.LastIndex(), r.opts.TrailingBytes))); err != nil {
		return err
	}
	err := r.raft.Snapshot().Error()
	// What this attempt saw does not count any more even if it failed, or each
	// entry would cause the next attempt.
	s.entries.Add(-entries)
	s.bytes.Add(-bytes)
	return err
}

// keepTrailing sets how many entries the next manifest leaves in the Raft log.
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
