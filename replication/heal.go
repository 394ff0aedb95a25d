package replication

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

// Healer is the event log as far as its complete chunk files can be replaced by those of other
// nodes.
type Healer interface {
	// Damaged lists the chunk files in use that are known to be damaged.
	Damaged() []DamagedChunk
	// ChunkFiles describes the complete files that cover a range of chunks, in order; none when
	// this node does not have all of the range, undamaged as far as it knows.
	ChunkFiles(first, last int) ([]ChunkFile, error)
	// OpenChunkFile gives one of them to read, once it was compared with its checksum.
	// fs.ErrNotExist says that it was replaced.
	OpenChunkFile(first int, checksum string) (ChunkReader, error)
	// Heal replaces a damaged file by temporary files that cover its range. The files are gone
	// afterwards.
	Heal(damaged DamagedChunk, names []string) error
	// Mend begins to put a damaged file together again from its whole parts and those of other
	// nodes.
	Mend(damaged DamagedChunk) (Mending, error)
	// Salvage sends the undamaged items of this log in ranges of positions. Each call of send says
	// what there is within a span, all of it.
	Salvage(wanted Wanted, send func(s Span, raw []byte) error) error
}

// DamagedChunk is a damaged chunk file.
type DamagedChunk struct {
	File        string
	First, Last int // logical chunk numbers, both included
	Err         error
}

// ChunkReader reads a chunk file.
type ChunkReader interface {
	io.ReaderAt
	Size() int64
	Close() error
}

const (
	healPause    = 5 * time.Second // after the first attempt that failed
	healPauseMax = 10 * time.Minute
	healOpening  = time.Second     // between looks while the log is being opened
	healVerify   = 3 * time.Minute // that a node may read a file before it sends it
	maxHealFiles = 1000
)

// healer replaces damaged chunk files by what other nodes have of their range. One goroutine does.
type healer struct {
	self *self
	pull *puller
	wake chan struct{}
}

// run heals when the log found damage, and tries again by growing pauses.
func (h *healer) run(ctx context.Context) {
	pause := healPause
	for ctx.Err() == nil {
		wait := h.attempt(ctx, pause)
		if wait > healOpening {
			pause = min(2*pause, healPauseMax)
		} else {
			pause = healPause
		}
		var again <-chan time.Time
		if wait > 0 {
			again = time.After(wait)
		}
		select {
		case <-h.wake:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// attempt heals damaged files, and returns how long to wait before the next attempt, 0 when nothing
// is left to do.
func (h *healer) attempt(ctx context.Context, pause time.Duration) (wait time.Duration) {
	m := h.self.deps.Load()
	if m == nil {
		return healOpening
	}
	if m.Healer == nil {
		return 0
	}
	for _, d := range m.Healer.Damaged() {
		begun := time.Now()
		from, err := h.heal(ctx, m, d)
		switch {
		case ctx.Err() != nil:
			return 0
		case err == nil && from == "": // mend has told.
		case err == nil:
			h.pull.metrics.healed.Inc()
			h.self.logger.Info("a damaged chunk was replaced by a copy from another node", logkey.File, d.File, logkey.From, from, logkey.Took, time.Since(begun).Round(time.Millisecond))
		case errors.Is(err, event.ErrChunkReplaced):
		default:
			wait = pause
			h.self.logger.Warn("a damaged chunk could not be replaced: its damaged part cannot be read", logkey.File, d.File, "again_in", pause, logkey.Error, err)
		}
	}
	return wait
}

var errNoCopy = errors.New("no other node has it: stop this node and run annals verify --repair-from with a node restored from a backup, or restore this node")

// heal fetches a damaged file from one node after the other until one has it whole. If none has, it
// is put together from the whole parts of all nodes, this one included; from is empty then.
func (h *healer) heal(ctx context.Context, m *Dependencies, d DamagedChunk) (from string, err error) {
	if h.self.opts.Size == 1 {
		// Parts outside the events can be made again.
		if err := h.mend(ctx, m, d, nil); err != nil {
			return "", errors.Join(errNoCopy, err)
		}
		return "", nil
	}
	sources, err := h.pull.sources(ctx)
	if err != nil {
		return "", err
	}
	err = nil
	for _, s := range sources {
		one := h.healFrom(ctx, m, d, s.address)
		if one == nil || errors.Is(one, event.ErrChunkReplaced) || ctx.Err() != nil {
			return s.address, one
		}
		err = errors.Join(err, fmt.Errorf("node at %s: %w", s.address, one))
	}
	one := h.mend(ctx, m, d, sources)
	if one == nil || errors.Is(one, event.ErrChunkReplaced) || ctx.Err() != nil {
		return "", one
	}
	return "", errors.Join(one, err)
}

// healFrom fetches the files that cover the range from one node and puts them in place.
func (h *healer) healFrom(ctx context.Context, m *Dependencies, d DamagedChunk, address string) (err error) {
	files, err := h.list(ctx, address, d)
	if err != nil {
		return err
	}
	var names []string
	handed := false
	defer func() {
		if handed {
			return
		}
		for _, name := range names {
			err = errors.Join(err, m.Data.DropTemp(name))
		}
	}()
	for _, file := range files {
		f, name, err := m.Data.CreateTemp()
		if err != nil {
			return err
		}
		names = append(names, name)
		query := url.Values{"first": {strconv.Itoa(file.First)}, "checksum": {file.Checksum}}
		err = h.pull.receive(ctx, address, "/chunk-file?"+query.Encode(), file, f, 0, healVerify, func(int64) {})
		// Heal verifies its content.
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	handed = true
	return m.Healer.Heal(d, names)
}

// list asks a node for its files of the range.
func (h *healer) list(ctx context.Context, address string, d DamagedChunk) (files []ChunkFile, err error) {
	asking, cancel := context.WithTimeout(ctx, stallAfter)
	defer cancel()
	query := url.Values{"first": {strconv.Itoa(d.First)}, "last": {strconv.Itoa(d.Last)}}
	if err := h.pull.peers.caller.call(asking, address, http.MethodGet, "/chunk-files?"+query.Encode(), nil, &files); err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("it does not have these chunks whole")
	}
	next := d.First
	for _, f := range files {
		if f.First > next || f.Last < next || !f.plausible() {
			return nil, fmt.Errorf("it lists a file of %d bytes with chunks %d to %d where chunk %d is needed", f.Size, f.First, f.Last, next)
		}
		next = f.Last + 1
	}
	if next <= d.Last || len(files) > maxHealFiles {
		return nil, fmt.Errorf("it lists %d files up to chunk %d", len(files), next-1)
	}
	return files, nil
}

// plausible reports whether a file can be what another node says that it is.
func (f *ChunkFile) plausible() bool { return f.Size > 0 && f.Size <= 5<<30 && len(f.Checksum) == 32 }
