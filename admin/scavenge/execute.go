package scavenge

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/annalsdb/annals/admin/scavenge/history"
	"github.com/annalsdb/annals/admin/scavenge/state"
	"github.com/annalsdb/annals/internal/logkey"
	eventlog "github.com/annalsdb/annals/log"
)

// execute rewrites the complete chunk files below the point that weigh enough.
func (r *run) execute(ctx context.Context, c *checkpoint) error {
	files, err := r.filesBelowPoint()
	if err != nil {
		return err
	}
	weights, err := r.weights()
	if err != nil {
		return err
	}
	ids, err := r.log.Chunks.IDsFrom()
	if err != nil {
		return err
	}
	// Stubs of events whose ids need not be known any more take place, too.
	for _, f := range files {
		if f.End <= ids {
			weights[f.First] += weightCertain * int64(f.Stubs)
		}
	}
	decisions, err := r.decided(ctx)
	if err != nil {
		return err
	}
	x := executor{r: r, decisions: decisions, weights: weights, at: *c}
	for _, f := range files {
		if f.Last > c.Chunk {
			x.files = append(x.files, f)
		}
	}
	x.done = make([]bool, len(x.files))
	r.begin(sizeOf(x.files), "bytes")
	if err := x.do(ctx); err != nil {
		return err
	}
	return decisions.Err()
}

// filesBelowPoint lists the complete chunk files that a run is about.
func (r *run) filesBelowPoint() ([]eventlog.ChunkInfo, error) {
	all, err := r.log.Chunks.List()
	if err != nil {
		return nil, err
	}
	var files []eventlog.ChunkInfo
	for _, f := range all {
		if f.Complete && f.Start < r.point.Position {
			files = append(files, f)
		}
	}
	return files, nil
}

func sizeOf(files []eventlog.ChunkInfo) (bytes int64) {
	for _, f := range files {
		bytes += f.DataBytes
	}
	return bytes
}

// weights returns what each logical chunk weighs.
func (r *run) weights() (map[int]int64, error) {
	chunks, err := r.db.Chunks()
	if err != nil {
		return nil, err
	}
	weights := make(map[int]int64, len(chunks))
	for _, c := range chunks {
		weights[c.Number] = c.Weight
	}
	return weights, nil
}

// decided returns what has to go. It is written down once a run: between
// calculation and cleaning nothing about streams changes.
func (r *run) decided(ctx context.Context) (_ *state.Decisions, err error) {
	if r.decisions == nil {
		r.decisions, err = r.db.Decisions(ctx)
	}
	return r.decisions, err
}

// forget gives back what decided made.
func (r *run) forget() error {
	if r.decisions == nil {
		return nil
	}
	d := r.decisions
	r.decisions = nil
	return d.Close()
}

// keeper says which events of a file stay.
type keeper struct {
	point     int64
	decisions *state.Decisions

	// Events of one stream are often neighbours: what was decided about the last one.
	stream   []byte
	decision state.Decision
	some     bool // of it goes
}

func (k *keeper) keep(rec *eventlog.Stored) bool {
	if rec.Position >= k.point {
		return true
	}
	if k.stream == nil || !bytes.Equal(k.stream, rec.Stream) {
		k.stream = append(k.stream[:0], rec.Stream...)
		k.decision, k.some = k.decisions.Find(rec.Stream)
	}
	d := &k.decision
	return !k.some || rec.Number >= d.Discard && (rec.Number >= d.Maybe || rec.Time >= d.Cutoff)
}

// executor works on chunk files, with several threads if it is asked to.
type executor struct {
	r         *run
	decisions *state.Decisions
	weights   map[int]int64
	files     []eventlog.ChunkInfo

	mu   sync.Mutex // guards what follows, and the writing of checkpoints
	done []bool     // of files
	at   checkpoint
}

// do has every file considered. The first error ends all threads.
func (x *executor) do(ctx context.Context) error {
	threads, each := errgroup.WithContext(ctx)
	threads.SetLimit(x.r.request.Threads)
	for i := range x.files {
		threads.Go(func() error {
			if err := each.Err(); err != nil {
				return err
			}
			return x.consider(each, i)
		})
	}
	return threads.Wait()
}

// consider executes a file, or leaves it as it is, by its weight.
func (x *executor) consider(ctx context.Context, i int) error {
	f := x.files[i]
	weight := int64(0)
	for n := f.First; n <= f.Last; n++ {
		weight += x.weights[n]
	}
	args := []any{"file", f.File, "chunks", fmt.Sprintf("%d-%d", f.First, f.Last), "positions", fmt.Sprintf("%d-%d", f.Start, f.End)}
	if !executed(weight, x.r.point.Threshold) {
		x.r.logger.Info(fmt.Sprintf("chunk skipped with weight %d", weight), args...)
		x.r.update(func(s *Status) { s.Skipped++ })
		x.r.did(f.DataBytes)
		return x.finish(ctx, i, false)
	}
	x.r.logger.Info(fmt.Sprintf("executing chunk with weight %d", weight), args...)
	return x.execute(ctx, i)
}

// executed says whether a file of a weight is executed: with a threshold of 0 any that weighs
// anything, with one below 0 all.
func executed(weight int64, threshold int) bool {
	return threshold < 0 || weight >= max(int64(threshold), 1)
}

func (x *executor) execute(ctx context.Context, i int) (err error) {
	r, f := x.r, x.files[i]
	begun := time.Now()
	defer x.decisions.Guard(&err)()
	k := keeper{point: r.point.Position, decisions: x.decisions}
	done, err := r.rewrite(ctx, f.First, f.Last, k.keep)
	took := time.Since(begun)
	if err != nil {
		// With ctx over it is the error of another thread, or a stop.
		if ctx.Err() == nil {
			r.history.Chunk(history.ChunkCompleted{First: f.First, Last: f.Last, Took: history.Ticks(took), Error: err.Error()})
		}
		return fmt.Errorf("execute %s: %w", f.File, err)
	}
	saved := done.OldBytes - done.Chunk.FileBytes
	r.update(func(s *Status) {
		s.Executed++
		s.Removed += int64(done.Removed)
		s.Saved += saved
	})
	r.s.metrics.chunks.Inc()
	r.s.metrics.removed.Add(uint64(done.Removed))
	r.s.metrics.savedBytes.Add(saved)
	r.history.Chunk(history.ChunkCompleted{First: f.First, Last: f.Last, Took: history.Ticks(took), Scavenged: true, Saved: saved})
	r.logger.Debug("chunk executed", logkey.File, done.Chunk.File, logkey.Removed, done.Removed, logkey.Saved, saved, logkey.Took, took.Round(time.Millisecond))
	return x.finish(ctx, i, true)
}

// rewrite makes one file of those of a range, with the events that are to be kept; nil: all.
func (r *run) rewrite(ctx context.Context, first, last int, keep func(*eventlog.Stored) bool) (eventlog.Rewritten, error) {
	ids, err := r.log.Chunks.IDsFrom() // It moves while events are appended.
	if err != nil {
		return eventlog.Rewritten{}, err
	}
	return r.log.Chunks.Rewrite(ctx, eventlog.Rewrite{
		First: first, Last: last, Keep: keep, IDsFrom: ids, Reserve: r.s.opts.DiskReserve,
		Pace: func(ctx context.Context, bytes int64) error {
			r.did(bytes)
			return r.pace.wait(ctx)
		},
	})
}

// finish notes that a file was done, and how far all are.
func (x *executor) finish(ctx context.Context, i int, executed bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.done[i] = true
	for n, done := range x.done {
		if !done {
			break
		}
		x.at.Chunk = x.files[n].Last
	}
	if executed {
		x.r.erase, x.at.Erase = true, true
		x.r.maxChunk = max(x.r.maxChunk, x.files[i].Last)
	}
	return x.r.db.Update(context.WithoutCancel(ctx), func(tx *state.Tx) error {
		if executed {
			if err := tx.ResetWeights(x.files[i].First, x.files[i].Last); err != nil {
				return err
			}
		}
		return set(tx, keyCheckpoint, x.at)
	})
}
