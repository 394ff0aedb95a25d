package eventlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/bell"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// Health knows what of the log's files is not what was written, and looks for it.
type Health struct {
	*state
	reads   *Reader
	chunks  *Chunks
	order   *order
	checked atomic.Pointer[CheckProgress] // nil: nothing was checked yet
}

// Damage is a complete chunk file in use that is not what was written.
type Damage struct {
	File        string // in the folder of the log
	First, Last int    // logical chunks that it covers
	// in the file, of the first byte known to be wrong or its record; -1: unknown
	Offset int64
	Err    error
	Found  time.Time
}

// damages knows which chunk files are damaged, and which a read has put under suspicion. A read
// that meets wrong bytes does not prove that the file is wrong: the index may have led it astray,
// or a client with a position that is none. So the file is compared with its checksum at once.
type damages struct {
	wake   chan struct{}                 // capacity 1: there are suspects
	mend   chan struct{}                 // capacity 1: the index is damaged
	report func(*chunkfile.Chunk, error) // suspect

	mu       sync.Mutex // guards what follows
	known    map[string]Damage
	suspects map[*chunkfile.Chunk]error
	cleared  map[string]time.Time // when the file was last found to be whole after all

	// what a read met that the index may explain; nil: it is not under suspicion
	index        error
	indexCleared time.Time // when the index was last found to be whole after all
}

// clearedFor is how long a file or index that was found to be whole is not read again because of
// what a read met.
const clearedFor = time.Minute

func newDamages() *damages {
	d := &damages{
		wake: make(chan struct{}, 1), mend: make(chan struct{}, 1), known: map[string]Damage{}, suspects: map[*chunkfile.Chunk]error{}, cleared: map[string]time.Time{},
	}
	d.report = d.suspect
	return d
}

// suspect has the file of a chunk examined soon.
func (d *damages) suspect(c *chunkfile.Chunk, err error) {
	if !c.Complete {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.known[c.Name]; known || d.suspects[c] != nil || time.Since(d.cleared[c.Name]) < clearedFor {
		return
	}
	d.suspects[c] = err
	bell.Ring(d.wake)
}

// suspectIndex has the index examined soon: it led a read to a wrong place.
func (d *damages) suspectIndex(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.index != nil || time.Since(d.indexCleared) < clearedFor {
		return
	}
	d.index = err
	bell.Ring(d.wake)
}

// ofIndex has the index built again.
func (d *damages) ofIndex() { bell.Ring(d.mend) }

// takeIndex returns why the index is under suspicion, nil when it is not.
func (d *damages) takeIndex() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.index
	d.index = nil
	return err
}

func (d *damages) clearIndex() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.indexCleared = time.Now()
}

// take returns a suspect, nil when there is none.
func (d *damages) take() (*chunkfile.Chunk, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c, err := range d.suspects {
		delete(d.suspects, c)
		return c, err
	}
	return nil, nil
}

func (d *damages) clear(c *chunkfile.Chunk) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cleared[c.Name] = time.Now()
}

// add reports whether the damage is news.
func (d *damages) add(c *chunkfile.Chunk, damage Damage) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, known := d.known[c.Name]
	d.known[c.Name] = damage
	return !known
}

// Damaged lists the complete chunk files in use that are known to be damaged, by their place in
// the log. Reads of what is damaged in them fail, others do not.
func (h *Health) Damaged() []Damage {
	d := h.damages
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known) == 0 {
		return nil
	}
	v, err := h.view()
	if err != nil {
		return nil
	}
	defer v.release()
	var list []Damage
	used := make(map[string]bool, len(v.set.chunks))
	for _, c := range v.set.chunks {
		used[c.Name] = true
		if damage, ok := d.known[c.Name]; ok {
			list = append(list, damage)
		}
	}
	for name := range d.known { // What was replaced.
		if !used[name] {
			delete(d.known, name)
		}
	}
	return list
}

// Unhealthy says what of the log cannot be read, nil when all can as far as is known.
func (h *Health) Unhealthy() error {
	list := h.Damaged()
	switch {
	case len(list) == 1:
		return fmt.Errorf("a complete chunk is damaged: %w", list[0].Err)
	case len(list) > 1:
		return fmt.Errorf("%d complete chunks are damaged, the first of them: %w", len(list), list[0].Err)
	}
	if err := h.index.Damage(); err != nil {
		return fmt.Errorf("the index is damaged and will be built again from the log: %w", err)
	}
	return cmp.Or(h.order.wrong(), h.reads.ids.failed())
}

// examine compares the file of a chunk with its checksum, and makes known what is wrong with it.
// The error says that this could not be judged.
func (h *Health) examine(c *chunkfile.Chunk, pause func(bytes int64) error) (whole bool, err error) {
	err = c.Verify(pause)
	if err == nil {
		return true, nil
	}
	if !event.IsCorruption(err) {
		return false, err
	}
	damage := Damage{File: filepath.Base(c.Name), First: c.Header.First, Last: c.Header.Last, Offset: -1, Err: err, Found: h.opts.Now()}
	if corruption, ok := errors.AsType[*event.Corruption](c.Locate(err)); ok {
		damage.Offset, damage.Err = corruption.Offset, corruption
	}
	if !h.damages.add(c, damage) {
		return false, nil
	}
	h.metrics.damaged.Inc()
	h.logger.Error("a complete chunk is damaged", logkey.File, damage.File, "offset", damage.Offset, logkey.Error, damage.Err)
	h.opts.OnDamage(damage.Err)
	// What the index has in memory alone a start after a crash would have to read from the damaged
	// chunk. An error stops the log by itself.
	if err := h.index.Flush(); err != nil {
		h.logger.Debug("write index", logkey.Error, err)
	}
	return false, nil
}

// suspicions examines what reads have put under suspicion.
func (h *Health) suspicions(ctx context.Context) {
	for ctx.Err() == nil {
		c, met := h.damages.take()
		if c == nil {
			break
		}
		v, err := h.view()
		if err != nil {
			return
		}
		if !slices.Contains(v.set.chunks, c) { // It was replaced, and may be closed.
			v.release()
			continue
		}
		whole, err := h.examine(c, func(int64) error { return ctx.Err() })
		v.release()
		switch {
		case whole:
			h.damages.clear(c)
			h.logger.Debug("a read reported damage, but the chunk is intact", logkey.File, filepath.Base(c.Name), logkey.Error, met)
			h.damages.suspectIndex(met)
		case err != nil && ctx.Err() == nil:
			h.logger.Warn("a chunk that looks damaged cannot be examined", logkey.File, filepath.Base(c.Name), logkey.Error, err)
		}
	}
	h.examineIndex(ctx)
}

// examineIndex compares the index with its checksums if reads have put it under suspicion.
func (h *Health) examineIndex(ctx context.Context) {
	met := h.damages.takeIndex()
	if met == nil || h.index.Damage() != nil {
		return
	}
	err := index.Check(h.index, func(int64) error { return ctx.Err() })
	switch {
	case ctx.Err() != nil || h.index.Damage() != nil:
	case err != nil:
		h.logger.Warn("the index, which looks damaged, cannot be examined", logkey.Error, err)
	default:
		h.damages.clearIndex()
		h.logger.Debug("a read reported damage, but the index is intact", logkey.Error, met)
	}
}

// covering returns the files that cover a range of logical chunks, each held, and that take no more
// frames; none when they do not all.
func (v view) covering(first, last int) []*chunkfile.Chunk {
	var found []*chunkfile.Chunk
	for n := first; n <= last; n = found[len(found)-1].Header.Last + 1 {
		c := v.set.at(chunkfile.ChunkStart(n))
		if c == nil || !c.Settled(v.tail.End) {
			_ = chunkfile.ReleaseAll(found) // The set holds them as well.
			return nil
		}
		c.Retain()
		found = append(found, c)
	}
	return slices.Clip(found)
}

// How long a damaged index waits for being built again, which reads the whole log.
const (
	mendIndexAfter = time.Second // a leader hands over first
	mendIndexAgain = time.Minute // from attempt to attempt: what stood in the way may be mended
)

// mendIndex rebuilds the index whenever a table is found to be damaged. The node keeps serving.
func (h *Health) mendIndex(ctx context.Context) {
	var tried time.Time
	for {
		for h.index.Damage() == nil {
			select {
			case <-ctx.Done():
				return
			case <-h.damages.mend:
			}
		}
		wait := mendIndexAfter
		if !tried.IsZero() {
			wait = max(wait, mendIndexAgain-time.Since(tried))
		}
		if clock.Sleep(ctx, wait) != nil {
			return
		}
		err := h.rebuildIndex(ctx)
		tried = time.Now()
		if err != nil && ctx.Err() == nil {
			h.logger.Error("the damaged index could not be built again yet", logkey.Error, err)
		}
	}
}

func (h *Health) rebuildIndex(ctx context.Context) error {
	h.bringing.Lock()
	defer h.bringing.Unlock()
	return index.Rebuild(ctx, h.index, func(upTo int64, add func([]index.Entry) error) error {
		// Entries that scavenges took out come back with the records that are still there. A run
		// that has its state open loses it, and the next one begins from the start.
		if err := h.removeScavengeState(); err != nil {
			return err
		}
		return h.entries(0, upTo, func(batch []index.Entry, _ int64, _ event.Chain) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return add(batch)
		})
	})
}
