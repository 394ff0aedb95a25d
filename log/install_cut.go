package eventlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// fit makes the prepared file begin where a file of this log ends, if it begins inside that one: both
// nodes merged, with different neighbours. What this log has it keeps, as one whole
// file; what lies behind is copied out of the fetched file into one of its own, which is prepared in its place.
func (p *PreparedChunk) fit() error {
	v, err := p.tr.view()
	if err != nil {
		return err
	}
	defer v.release()
	own := v.set.at(p.c.Start())
	if own == nil || own.Header.First >= p.c.Header.First {
		return nil
	}
	c, first, err := p.tr.cutBehind(p.c, own)
	if err != nil {
		return err
	}
	return p.become(c, first)
}

// redact blanks in the prepared file what this node redacted, in a copy that is prepared in its place.
func (p *PreparedChunk) redact() error {
	positions, err := p.tr.chunks.redactionsIn(p.c)
	if err != nil || len(positions) == 0 {
		return err
	}
	h := p.c.Header
	h.Mapped, h.FileID = true, event.ID(uuid.New())
	c, first, err := p.tr.copyFetched(p.c, chunkfile.HeaderSize, &h, positions)
	if err != nil {
		return fmt.Errorf("redact a fetched chunk: %w", err)
	}
	p.tr.logger.Info("a fetched chunk held data that were redacted here, they are blanked in it", logkey.Events, len(positions), "firstChunk", h.First)
	return p.become(c, first)
}

// become puts a file that was made here in the place of the one at hand.
func (p *PreparedChunk) become(c *chunkfile.Chunk, first chunkfile.Trailer) error {
	if p.fetched == "" {
		p.fetched = p.path
	}
	err := p.drop()
	p.c, p.path, p.first, p.made = c, c.Name, first, true
	return err
}

// cutBehind copies what a verified file has behind a file of this log in which it begins. The new file
// is durable and verified as if it had been fetched itself, and held.
func (tr *Transfer) cutBehind(c, own *chunkfile.Chunk) (_ *chunkfile.Chunk, first chunkfile.Trailer, err error) {
	offset, err := behind(c, own)
	if err != nil {
		return nil, first, err
	}
	h := chunkfile.Header{First: own.Header.Last + 1, Last: c.Header.Last, Mapped: true, FileID: event.ID(uuid.New()), Cluster: tr.cluster}
	if c, first, err = tr.copyFetched(c, offset, &h, nil); err != nil {
		return nil, first, fmt.Errorf("cut a fetched chunk behind %s: %w", filepath.Base(own.Name), err)
	}
	return c, first, nil
}

// copyFetched copies what a verified file has from an offset on into one of its own, with some records blanked. The
// new file is durable, verified and held.
func (tr *Transfer) copyFetched(c *chunkfile.Chunk, offset int64, h *chunkfile.Header, redact []int64) (_ *chunkfile.Chunk, first chunkfile.Trailer, err error) {
	path := filepath.Join(tr.opts.Dir, uuid.NewString()+vfs.TempSuffix)
	defer func() {
		if err != nil {
			if e := tr.opts.FS.Remove(path); !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}()
	if err := tr.copyFrom(c, offset, path, h, redact); err != nil {
		return nil, first, err
	}
	return tr.openFetched(path)
}

// behind returns the offset in a verified file of its first item behind the last frame of a
// file of this log in which it begins. That frame must be the same in both.
func behind(c *chunkfile.Chunk, own *chunkfile.Chunk) (offset int64, err error) {
	defer chunkfile.GuardFaults(&err)()
	if c.Header.Last <= own.Header.Last {
		return 0, fmt.Errorf("the file ends with chunk %d, %s has them up to %d", c.Header.Last, filepath.Base(own.Name), own.Header.Last)
	}
	// It covers more than one chunk, so it has a position map.
	i, err := c.Search(chunkfile.ChunkStart(own.Header.Last + 1))
	if err != nil {
		return 0, err
	}
	if i == 0 || i == c.MapEntries() {
		return 0, c.Corrupt(-1, "no frames on both sides of position %d", chunkfile.ChunkStart(own.Header.Last+1))
	}
	if _, offset, err = c.MapEntry(i, new([]byte)); err != nil {
		return 0, err
	}
	it, _, err := c.ItemBefore(offset, new([]byte))
	if err != nil {
		return 0, err
	}
	if !it.IsTrailer() {
		return 0, c.Corrupt(offset, "a frame goes on in another chunk")
	}
	if t := it.Trailer(); t.End() != own.Footer.End || t.Chain != own.Footer.Chain {
		return 0, &event.OtherHistory{Position: own.Footer.End}
	}
	return offset, nil
}

// copyFrom writes a durable file out of all that stands in another from an offset on, with the data of some records blanked.
func (tr *Transfer) copyFrom(c *chunkfile.Chunk, offset int64, path string, h *chunkfile.Header, redact []int64) (err error) {
	defer chunkfile.GuardFaults(&err)()
	w, err := chunkfile.Create(tr.opts.FS, path, h, 0, tr.chunks.Yielder())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	f, frames, blank := c.Footer, 0, redactor{positions: redact}
	in := chunkfile.ItemReader{C: c, Offset: offset, Limit: chunkfile.HeaderSize + f.DataSize}
	for {
		it, position, err := in.Next()
		if err != nil {
			return err
		}
		if it == nil {
			return w.Finish(&f)
		}
		switch {
		case it.IsStub():
			w.Stubs++
		case it.IsRecord():
			w.Records++
			if blanked := blank.item(it, position); blanked != nil {
				it = blanked
			}
		default:
			if frames++; frames == 1 {
				f.FirstIndex = it.Trailer().Index
			}
		}
		if err := w.Add(it, position); err != nil {
			return err
		}
	}
}
