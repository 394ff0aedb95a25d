package eventlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
)

// fit makes the prepared file begin where a file of this log ends, if it begins inside that one: both
// nodes merged, with different neighbours. What this log has it keeps, as one whole
// file; what lies behind is copied out of the fetched file into one of its own, which is prepared in its place.
func (p *PreparedChunk) fit() error {
	v, err := p.l.view()
	if err != nil {
		return err
	}
	defer v.release()
	own := v.set.at(p.c.start())
	if own == nil || own.header.first >= p.c.header.first {
		return nil
	}
	c, first, err := p.l.cutBehind(p.c, own)
	if err != nil {
		return err
	}
	return p.become(c, first)
}

// redact blanks in the prepared file what this node redacted, in a copy that is prepared in its place.
func (p *PreparedChunk) redact() error {
	positions, err := p.l.redactionsIn(p.c)
	if err != nil || len(positions) == 0 {
		return err
	}
	h := p.c.header
	h.mapped, h.fileID = true, event.ID(uuid.New())
	c, first, err := p.l.copyFetched(p.c, headerSize, &h, positions)
	if err != nil {
		return fmt.Errorf("redact a fetched chunk: %w", err)
	}
	p.l.logger.Info("a fetched chunk held data that were redacted here, they are blanked in it", "events", len(positions), "firstChunk", h.first)
	return p.become(c, first)
}

// become puts a file that was made here in the place of the one at hand.
func (p *PreparedChunk) become(c *chunk, first trailer) error {
	if p.fetched == "" {
		p.fetched = p.path
	}
	err := p.drop()
	p.c, p.path, p.first, p.made = c, c.name, first, true
	return err
}

// cutBehind copies what a verified file has behind a file of this log in which it begins. The new file
// is durable and verified as if it had been fetched itself, and held.
func (l *Log) cutBehind(c, own *chunk) (_ *chunk, first trailer, err error) {
	offset, err := c.behind(own)
	if err != nil {
		return nil, first, err
	}
	h := header{first: own.header.last + 1, last: c.header.last, mapped: true, fileID: event.ID(uuid.New()), cluster: l.cluster}
	if c, first, err = l.copyFetched(c, offset, &h, nil); err != nil {
		return nil, first, fmt.Errorf("cut a fetched chunk behind %s: %w", filepath.Base(own.name), err)
	}
	return c, first, nil
}

// copyFetched copies what a verified file has from an offset on into one of its own, with some records blanked. The
// new file is durable, verified and held.
func (l *Log) copyFetched(c *chunk, offset int64, h *header, redact []int64) (_ *chunk, first trailer, err error) {
	path := filepath.Join(l.opts.Dir, uuid.NewString()+vfs.TempSuffix)
	defer func() {
		if err != nil {
			if e := l.opts.FS.Remove(path); !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}()
	if err := l.copyFrom(c, offset, path, h, redact); err != nil {
		return nil, first, err
	}
	return l.openFetched(path)
}

// behind returns the offset in a verified file of its first item behind the last frame of a
// file of this log in which it begins. That frame must be the same in both.
func (c *chunk) behind(own *chunk) (offset int64, err error) {
	defer guardFaults(&err)()
	if c.header.last <= own.header.last {
		return 0, fmt.Errorf("the file ends with chunk %d, %s has them up to %d", c.header.last, filepath.Base(own.name), own.header.last)
	}
	// It covers more than one chunk, so it has a position map.
	i, err := c.search(chunkStart(own.header.last + 1))
	if err != nil {
		return 0, err
	}
	if i == 0 || i == c.mapEntries() {
		return 0, c.corrupt(-1, "no frames on both sides of position %d", chunkStart(own.header.last+1))
	}
	if _, offset, err = c.mapEntry(i, new([]byte)); err != nil {
		return 0, err
	}
	it, _, err := c.itemBefore(offset, new([]byte))
	if err != nil {
		return 0, err
	}
	if !it.isTrailer() {
		return 0, c.corrupt(offset, "a frame goes on in another chunk")
	}
	if t := it.trailer(); t.end() != own.footer.end || t.chain != own.footer.chain {
		return 0, &event.OtherHistory{Position: own.footer.end}
	}
	return offset, nil
}

// copyFrom writes a durable file out of all that stands in another from an offset on, with the data of some records blanked.
func (l *Log) copyFrom(c *chunk, offset int64, path string, h *header, redact []int64) (err error) {
	defer guardFaults(&err)()
	w, err := l.createRewritten(path, h, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	f, frames, blank := c.footer, 0, redactor{positions: redact}
	in := itemReader{c: c, offset: offset, limit: headerSize + f.dataSize}
	for {
		it, position, err := in.next()
		if err != nil {
			return err
		}
		if it == nil {
			return w.finish(&f)
		}
		switch {
		case it.isStub():
			w.stubs++
		case it.isRecord():
			w.records++
			if blanked := blank.item(it, position); blanked != nil {
				it = blanked
			}
		default:
			if frames++; frames == 1 {
				f.firstIndex = it.trailer().index
			}
		}
		if err := w.add(it, position); err != nil {
			return err
		}
	}
}
