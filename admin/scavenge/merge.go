package scavenge

import (
	"context"
	"fmt"
	"time"

	"github.com/annalsdb/annals/admin/scavenge/history"
	"github.com/annalsdb/annals/internal/logkey"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/chunkfile"
)

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
