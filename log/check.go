package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// checkFile says how far the check of all chunks has come. It matters only on this node, and losing
// it costs little: the check starts again.
const checkFile = "check.state"

// checkState is the content of checkFile.
type checkState struct {
	Next  int       `json:"next"`  // logical chunk that comes next; 0: no check is running
	Ended time.Time `json:"ended"` // the last check that read all
}

// CheckProgress says how far the check of all complete chunks is.
type CheckProgress struct {
	Running     bool
	Done, Total int64     // bytes of chunk files
	Ended       time.Time // the last check that read all; zero: none has
}

// CheckProgress says how far the check of all complete chunks is.
func (h *Health) CheckProgress() CheckProgress {
	p := h.checked.Load()
	if p == nil {
		return CheckProgress{}
	}
	return *p
}

// checker reads all complete chunks now and then and compares them with their checksums, because
// bytes may rot that are never read. It is one goroutine.
type checker struct {
	h     *Health
	state checkState
}

// checkPause is the least time that the check waits for at once.
const checkPause = 100 * time.Millisecond

// runChecks verifies what is complete at start, then checks regularly, and examines at any time
// what reads suspect.
func (h *Health) runChecks(ctx context.Context) {
	k := checker{h: h}
	k.load()
	if !h.opts.SkipVerify && k.pass(ctx, 0, h.opts.VerifyPerSec, 1) {
		k.ended()
	}
	for ctx.Err() == nil {
		wait := time.Hour // The clock may be set.
		if every := h.opts.CheckEvery; every > 0 {
			due := k.state.Ended.Add(every).Sub(h.opts.Now())
			if k.state.Next > 0 || due <= 0 {
				if k.pass(ctx, k.state.Next, h.opts.CheckPerSec, 4) {
					k.ended()
				}
				continue
			}
			wait = min(wait, due)
		}
		again := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-h.damages.wake:
			h.suspicions(ctx)
		case <-again.C:
		}
		again.Stop()
	}
}

// load reads where an earlier process was. What cannot be read is as good as nothing.
func (k *checker) load() {
	h := k.h
	if h.opts.CheckEvery <= 0 {
		return
	}
	data, err := vfs.ReadFile(h.opts.FS, filepath.Join(h.opts.Dir, checkFile))
	if err == nil {
		err = json.Unmarshal(data, &k.state)
	}
	if k.state.Next < 0 || k.state.Ended.After(h.opts.Now()) {
		err = errors.New("it lies in the future")
	}
	if err != nil {
		k.state = checkState{Ended: h.opts.Now()} // A week from now on.
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.logger.Warn("the progress of the chunk check cannot be read, the check starts with the first chunk", logkey.Error, err)
	}
	if err == nil {
		h.checked.Store(&CheckProgress{Ended: k.state.Ended})
	} else {
		k.save()
	}
}

func (k *checker) save() {
	h := k.h
	if h.opts.CheckEvery <= 0 {
		return
	}
	data, err := json.Marshal(k.state)
	if err == nil {
		err = vfs.WriteFileAtomic(h.opts.FS, filepath.Join(h.opts.Dir, checkFile), append(data, '\n'))
	}
	if err != nil {
		h.logger.Warn("the progress of the chunk check cannot be written", logkey.Error, err)
	}
}

// ended takes note of a check that has read all.
func (k *checker) ended() {
	k.state = checkState{Ended: k.h.opts.Now()}
	p := k.h.CheckProgress()
	p.Running, p.Done, p.Ended = false, p.Total, k.state.Ended
	k.h.checked.Store(&p)
	k.save()
}

// pass reads the complete chunks from one on, before the first of them the index, at a rate that is
// divided while the log is used. It reports whether it came to the end.
func (k *checker) pass(ctx context.Context, number int, perSec, divided int64) (all bool) {
	h := k.h
	started, whole := time.Now(), 0
	p := CheckProgress{Running: true, Ended: k.state.Ended}
	p.Done, p.Total = h.completeBytes(number)
	h.checked.Store(&p)
	h.metrics.verifying.Set(1)
	defer h.metrics.verifying.Set(0)
	defer func() {
		p := h.CheckProgress()
		p.Running = false
		h.checked.Store(&p)
	}()
	yielder := h.chunks.Yielder()
	owed := time.Duration(0) // of waiting
	last := time.Now()
	pace := func(n int64) error {
		h.suspicions(ctx)
		rate := perSec
		if divided > 1 && yielder.InUse() {
			rate /= divided
		}
		now := time.Now()
		owed += time.Duration(float64(n)/float64(rate)*float64(time.Second)) - now.Sub(last)
		owed, last = max(owed, -time.Second), now
		if owed < checkPause {
			return ctx.Err()
		}
		return clock.Sleep(ctx, owed) // The next call counts it.
	}
	pause := func(n int64) error {
		h.metrics.verified.Add(uint64(n))
		next := h.CheckProgress()
		next.Done += n
		h.checked.Store(&next)
		return pace(n)
	}
	if number == 0 {
		if err := index.Check(h.index, pace); err != nil && ctx.Err() == nil {
			h.logger.Warn("the index could not be checked", logkey.Error, err)
		}
		if err := h.postings.Check(pace); err != nil && ctx.Err() == nil {
			h.logger.Warn("the index of postings could not be checked", logkey.Error, err)
		}
	}
	for {
		next, ok := h.checkChunk(ctx, number, pause)
		if ctx.Err() != nil {
			return false
		}
		if next < 0 {
			break
		}
		number = next
		if ok {
			whole++
			h.metrics.verifyAt.Set(chunkfile.ChunkStart(number))
		}
		if divided > 1 {
			k.state.Next = number
			k.save()
		}
	}
	if whole > 0 {
		h.logger.Info("complete chunks verified", logkey.Chunks, whole, logkey.Took, time.Since(started).Round(time.Millisecond))
	}
	return true
}

// completeBytes is the size of the complete chunk files, and of those before a chunk.
func (h *Health) completeBytes(number int) (before, all int64) {
	v, err := h.view()
	if err != nil {
		return 0, 0
	}
	defer v.release()
	for _, c := range v.set.chunks {
		if c.Complete {
			all += c.FileSize()
			if c.Header.Last < number {
				before += c.FileSize()
			}
		}
	}
	return before, all
}

// checkChunk examines the file that covers a logical chunk, and returns the number of the chunk
// after it, or a negative number after the last complete chunk. It holds the chunk only while it
// reads, so a replaced file can be removed soon.
func (h *Health) checkChunk(ctx context.Context, number int, pause func(int64) error) (next int, whole bool) {
	v, err := h.view()
	if err != nil {
		return -1, false
	}
	defer v.release()
	c := v.set.at(chunkfile.ChunkStart(number))
	if c == nil || !c.Complete {
		return -1, false
	}
	if whole, err = h.examine(c, pause); err != nil && ctx.Err() == nil {
		h.logger.Warn("a chunk cannot be checked", logkey.File, filepath.Base(c.Name), logkey.Error, err)
	}
	return c.Header.Last + 1, whole
}
