package scavenge

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/annalsdb/annals/admin/scavenge/history"
	"github.com/annalsdb/annals/admin/scavenge/state"
	"github.com/annalsdb/annals/internal/logkey"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/chunkfile"
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
	// Stubs of events whose ids are no longer needed take space, too.
	for _, f := range files {
		if f.End <= ids {
			weights[f.First] += weightCertain * int64(f.Stubs)
		}
	}
	decisions, err := r.decided(ctx)
	if err != nil {
		return err
	}
	x := executor{r: r, decisions: decisions, at: *c}
	files = slices.DeleteFunc(files, func(f eventlog.ChunkInfo) bool { return f.Last <= c.Chunk })
	r.begin(sizeOf(files), "bytes")
	x.units = r.units(files, weights)
	x.done = make([]bool, len(x.units))
	if err := x.do(ctx); err != nil {
		return err
	}
	return decisions.Err()
}

// filesBelowPoint lists the complete chunk files that begin below the point.
func (r *run) filesBelowPoint() ([]eventlog.ChunkInfo, error) {
	all, err := r.log.Chunks.List()
	return slices.DeleteFunc(all, func(f eventlog.ChunkInfo) bool { return !f.Complete || f.Start >= r.point.Position }), err
}

func sizeOf(files []eventlog.ChunkInfo) (bytes int64) {
	for _, f := range files {
		bytes += f.DataBytes
	}
	return bytes
}

// weights returns the weight of each logical chunk.
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

// decided returns the decisions about all streams. They are written once for each run: between
// calculation and cleaning they do not change.
func (r *run) decided(ctx context.Context) (_ *state.Decisions, err error) {
	if r.decisions == nil {
		r.decisions, err = r.db.Decisions(ctx)
	}
	return r.decisions, err
}

// forget closes the decisions.
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

	// The decision about the last event's stream: events of one stream are often neighbours.
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

// considered is a file with what there is to decide about it.
type considered struct {
	eventlog.ChunkInfo
	weight   int64
	executed bool
}

// left estimates how much data will be left in the file.
func (f *considered) left() int64 {
	items := f.Records + f.Stubs
	if !f.executed || items == 0 {
		return f.DataBytes
	}
	gone := min(float64(f.weight)/weightCertain/float64(items), 1)
	return int64(float64(f.DataBytes) * (1 - gone))
}

// units divides files into those that become one file if any of them is executed: neighbours that
// are small together afterwards. They would be copied once more to be merged otherwise.
func (r *run) units(files []eventlog.ChunkInfo, weights map[int]int64) (units [][]considered) {
	size := int64(0)
	for i, info := range files {
		f := considered{ChunkInfo: info}
		for n := f.First; n <= f.Last; n++ {
			f.weight += weights[n]
		}
		f.executed = executed(f.weight, r.point.Threshold)
		size += f.left()
		if i > 0 && !r.s.opts.DisableMerging && f.First == files[i-1].Last+1 && size <= mergeBytes {
			units[len(units)-1] = append(units[len(units)-1], f)
			continue
		}
		size = f.left()
		units = append(units, []considered{f})
	}
	return units
}

// executor works on chunk files, with several threads if it is asked to.
type executor struct {
	r         *run
	decisions *state.Decisions
	units     [][]considered

	mu   sync.Mutex // guards the fields below, and the writing of checkpoints
	done []bool     // of units
	at   checkpoint
}

// do considers every file. The first error ends all threads.
func (x *executor) do(ctx context.Context) error {
	threads, each := errgroup.WithContext(ctx)
	threads.SetLimit(x.r.request.Threads)
	for i := range x.units {
		threads.Go(func() error {
			if err := each.Err(); err != nil {
				return err
			}
			return x.consider(each, i)
		})
	}
	if threads.Wait() != nil {
		return context.Cause(each) // The reason of an interrupt, else the first error.
	}
	return nil
}

// consider executes the files of a unit that weigh enough, and leaves the others as they are.
func (x *executor) consider(ctx context.Context, i int) error {
	for _, f := range x.units[i] {
		args := []any{"file", f.File, "chunks", fmt.Sprintf("%d-%d", f.First, f.Last), "positions", fmt.Sprintf("%d-%d", f.Start, f.End)}
		if f.executed {
			x.r.logger.Info(fmt.Sprintf("executing chunk with weight %d", f.weight), args...)
			continue
		}
		x.r.logger.Info(fmt.Sprintf("chunk skipped with weight %d", f.weight), args...)
		x.r.update(func(s *Status) { s.Skipped++ })
	}
	for files, most := x.units[i], len(x.units[i]); len(files) > 0; {
		now := files[:min(most, len(files))]
		if !slices.ContainsFunc(now, func(f considered) bool { return f.executed }) {
			for _, f := range now {
				x.r.did(f.DataBytes)
			}
			files = files[len(now):]
			continue
		}
		n, err := x.execute(ctx, now)
		if err != nil && len(now) > 1 && ctx.Err() == nil {
			// It takes more space until the old files go, and reads files that are not executed:
			// one by one the others may succeed. They are merged later.
			x.r.logger.Warn("chunk files are executed one by one", logkey.Chunks, fmt.Sprintf("%d-%d", now[0].First, now[len(now)-1].Last), logkey.Error, err)
			most = 1
			continue
		}
		if err != nil {
			return err
		}
		if err := x.finish(ctx, i, now[:n], false); err != nil {
			return err
		}
		files = files[n:]
	}
	return x.finish(ctx, i, nil, true)
}

// executed says whether a file of a weight is executed: with a threshold of 0 any that weighs
// anything, with one below 0 all.
func executed(weight int64, threshold int) bool {
	return threshold < 0 || weight >= max(int64(threshold), 1)
}

// execute makes one file from neighbours, as many as fit, without the events that go from those
// that are executed. It returns how many files it took.
func (x *executor) execute(ctx context.Context, files []considered) (n int, err error) {
	r, begun := x.r, time.Now()
	defer x.decisions.Guard(&err)()
	k, at := keeper{point: r.point.Position, decisions: x.decisions}, 0
	keep := func(rec *eventlog.Stored) bool {
		for at+1 < len(files) && rec.Position >= files[at+1].Start {
			at++
		}
		return !files[at].executed || k.keep(rec)
	}
	first, last := files[0].First, files[len(files)-1].Last
	done, err := r.rewrite(ctx, first, last, keep)
	took := time.Since(begun)
	if err != nil {
		// With ctx over it is the error of another thread, or a stop. Of several files each is
		// tried alone.
		if ctx.Err() == nil && len(files) == 1 {
			r.history.Chunk(history.ChunkCompleted{First: first, Last: last, Took: history.Ticks(took), Error: err.Error()})
		}
		return 0, fmt.Errorf("execute chunks %d to %d: %w", first, last, err)
	}
	n = len(done.Sources)
	count, saved, rest := 0, int64(0), done.OldBytes-done.Chunk.FileBytes
	for i, f := range done.Sources {
		if !files[i].executed {
			continue
		}
		if n == 1 {
			f.Saved = rest
		}
		count, saved, rest = count+1, saved+f.Saved, rest-f.Saved
		r.history.Chunk(history.ChunkCompleted{First: f.First, Last: f.Last, Took: history.Ticks(took / time.Duration(n)), Scavenged: true, Saved: f.Saved})
	}
	r.update(func(s *Status) {
		s.Executed += count
		s.Removed += int64(done.Removed)
		s.Saved += saved
	})
	r.s.metrics.chunks.Add(uint64(count))
	r.s.metrics.removed.Add(uint64(done.Removed))
	r.s.metrics.savedBytes.Add(saved)
	r.logger.Debug("chunk executed", logkey.File, done.Chunk.File, logkey.Removed, done.Removed, logkey.Saved, saved, logkey.Took, took.Round(time.Millisecond))
	if n > 1 {
		r.merged(done, rest, took)
	}
	return n, nil
}

// rewrite makes one file of those of a range, with the events that are to be kept; nil: all.
func (r *run) rewrite(ctx context.Context, first, last int, keep func(*eventlog.Stored) bool) (eventlog.Rewritten, error) {
	ids, err := r.log.Chunks.IDsFrom() // It moves while events are appended.
	if err != nil {
		return eventlog.Rewritten{}, err
	}
	return r.log.Chunks.Rewrite(ctx, eventlog.Rewrite{
		First: first, Last: last, Keep: keep, IDsFrom: ids, MaxData: mergeBytes, Reserve: r.s.opts.DiskReserve,
		Pace: func(ctx context.Context, bytes int64) error {
			r.did(bytes)
			return r.pace.wait(ctx)
		},
	})
}

// finish notes which files of a unit were executed, or that all of it is done, and how far all
// units are.
func (x *executor) finish(ctx context.Context, i int, files []considered, whole bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.done[i] = whole
	for n, done := range x.done {
		if !done {
			break
		}
		x.at.Chunk = x.units[n][len(x.units[n])-1].Last
	}
	for _, f := range files {
		if f.executed {
			x.r.erase, x.at.Erase = true, true
			x.r.maxChunk = max(x.r.maxChunk, f.Last)
		}
	}
	return x.r.db.Update(context.WithoutCancel(ctx), func(tx *state.Tx) error {
		for _, f := range files {
			if !f.executed {
				continue
			}
			if err := tx.ResetWeights(f.First, f.Last); err != nil {
				return err
			}
		}
		return set(tx, keyCheckpoint, x.at)
	})
}

// mergeBytes is how much data a merged file holds at most.
const mergeBytes = chunkfile.ChunkSize

// merge makes one chunk file from neighbours that fit into one, until there are none.
func (r *run) merge(ctx context.Context, _ *checkpoint) error {
	if r.s.opts.DisableMerging {
		r.logger.Info("chunk files are not merged: merging is switched off")
		return nil
	}
	for pass := 1; ; pass++ {
		files, err := r.filesBelowPoint()
		if err != nil {
			return err
		}
		groups := mergeable(files)
		r.logger.Info("merging chunk files", "pass", pass, logkey.Files, len(files), "groups", len(groups))
		if len(groups) == 0 {
			return nil
		}
		total := int64(0)
		for _, g := range groups {
			total += sizeOf(g)
		}
		r.begin(total, "bytes")
		for _, g := range groups {
			if err := r.mergeGroup(ctx, g); err != nil {
				return err
			}
		}
	}
}

// mergeable returns groups of neighbours whose data go into one file, each as
// long as can be from the first file on that is in none.
func mergeable(files []eventlog.ChunkInfo) (groups [][]eventlog.ChunkInfo) {
	for from := 0; from < len(files); {
		size, to := files[from].DataBytes, from+1
		for to < len(files) && files[to].First == files[to-1].Last+1 && size+files[to].DataBytes <= mergeBytes {
			size += files[to].DataBytes
			to++
		}
		if to-from > 1 {
			groups = append(groups, files[from:to])
		}
		from = to
	}
	return groups
}

func (r *run) mergeGroup(ctx context.Context, group []eventlog.ChunkInfo) error {
	first, last := group[0].First, group[len(group)-1].Last
	begun := time.Now()
	done, err := r.rewrite(ctx, first, last, nil)
	took := time.Since(begun)
	if err != nil {
		if !stopped(err) {
			r.history.Merge(history.MergeCompleted{First: first, Last: last, Took: history.Ticks(took), Error: err.Error()})
		}
		return fmt.Errorf("merge chunks %d to %d: %w", first, last, err)
	}
	r.merged(done, done.OldBytes-done.Chunk.FileBytes, took)
	return nil
}

// merged reports that several files have become one.
func (r *run) merged(done eventlog.Rewritten, saved int64, took time.Duration) {
	n, first, last := len(done.Sources), done.Chunk.First, done.Chunk.Last
	r.update(func(s *Status) {
		s.Merged += n
		s.Saved += saved
	})
	r.s.metrics.merged.Add(uint64(n))
	r.s.metrics.savedBytes.Add(saved)
	r.history.Merge(history.MergeCompleted{First: first, Last: last, Took: history.Ticks(took), Saved: saved, Merged: true})
	r.logger.Info("chunk files merged", logkey.File, done.Chunk.File, logkey.Chunks, fmt.Sprintf("%d-%d", first, last), logkey.Files, n, logkey.Saved, saved, logkey.Took, took.Round(time.Millisecond))
}
