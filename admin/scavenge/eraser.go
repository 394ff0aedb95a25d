package scavenge

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/stats"
)

// Times that the eraser takes.
const (
	erasePatience = 45 * time.Second // for a try
	erasePace     = 10 * time.Second // between tries
)

// eraseFile is the name of the file that says, as a decimal number, up to where the Raft
// log is still to be erased. It is there as long as something is. Do not change.
const eraseFile = "erase.pending"

// eraser makes the Raft log forget removed events, and tries again if that fails, so that a run
// need not wait for a cluster without a leader. A file holds the position up to which this is still
// to be done, so that the next process continues.
type eraser struct {
	erase  func(ctx context.Context, position int64) error
	fsys   vfs.FS
	file   string
	logger hclog.Logger
	metric *stats.Gauge // 1 while something is left to erase

	// guards the fields below, and is held while the file changes: only a run and retry want it
	mu      sync.Mutex
	pending bool  // retry is at work
	left    int64 // up to where it is to erase
}

// resume continues the work that an earlier process left.
func (e *eraser) resume(background context.Context, owned *sync.WaitGroup) {
	text, err := vfs.ReadFile(e.fsys, e.file)
	// A data folder that cannot be is for others to report.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return
	}
	position := int64(0) // If the file cannot be read: everything that is applied.
	if err == nil {
		position, err = strconv.ParseInt(string(text), 10, 64)
	}
	if err != nil {
		e.logger.Warn("the file cannot be read that says how far the Raft log may hold removed events; compacting the whole log as far as it is applied", logkey.File, e.file, logkey.Error, err)
	}
	e.logger.Info("the Raft log may still hold events that an earlier process removed; compacting it", logkey.Position, position)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begin(background, owned, position)
}

// do erases once; if that fails it tries again in the background, until background ends. The error
// says that a restart would forget what is left.
func (e *eraser) do(ctx, background context.Context, owned *sync.WaitGroup, position int64) error {
	err := e.once(ctx, position)
	if err == nil {
		return nil
	}
	e.logger.Warn("the Raft log may still hold removed events; trying again to compact it", logkey.Error, err)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := vfs.WriteFileAtomic(e.fsys, e.file, strconv.AppendInt(nil, max(e.left, position), 10)); err != nil {
		return err
	}
	e.begin(background, owned, position)
	return nil
}

// begin has retry erase up to a position as well. The caller holds mu.
func (e *eraser) begin(background context.Context, owned *sync.WaitGroup, position int64) {
	e.left = max(e.left, position)
	e.metric.Set(1)
	if !e.pending {
		e.pending = true
		owned.Go(func() { e.retry(background) })
	}
}

// retry erases up to the last position that was asked for.
func (e *eraser) retry(ctx context.Context) {
	for clock.Sleep(ctx, erasePace) == nil {
		e.mu.Lock()
		position := e.left
		e.mu.Unlock()
		if e.once(ctx, position) != nil {
			continue
		}
		done, err := e.settle(position)
		if err != nil {
			e.logger.Warn("the Raft log was compacted, but the file that asks for it cannot be removed or rewritten; compacting it again soon", logkey.File, e.file, logkey.Error, err)
		}
		if done {
			e.logger.Info("the Raft log was compacted: it holds no removed events any more")
			return
		}
	}
}

// settle notes what was erased, and reports whether nothing is left.
func (e *eraser) settle(position int64) (done bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left > position {
		return false, nil
	}
	if err := e.fsys.Remove(e.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err := e.fsys.SyncDir(filepath.Dir(e.file)); err != nil {
		return false, err
	}
	e.pending, e.left = false, 0
	e.metric.Set(0)
	return true, nil
}

func (e *eraser) once(ctx context.Context, position int64) error {
	ctx, cancel := context.WithTimeout(ctx, erasePatience)
	defer cancel()
	return e.erase(ctx, position)
}
