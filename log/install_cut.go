package eventlog

import (
	"fmt"
	"path/filepath"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/log/chunkfile"
)

// fit makes the prepared file begin where a file of this log ends, if it begins inside that file:
// both nodes merged, with different neighbours. This log keeps its own file whole. The part after
// it is copied out of the fetched file into a new file, which is prepared instead.
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
	if err := goesOnBehind(p.c, own); err != nil {
		return err
	}
	c, first, err := p.tr.madeOf([]*chunkfile.Chunk{p.c}, own.Header.Last+1, p.c.Header.Last, nil)
	if err != nil {
		return fmt.Errorf("cut a fetched chunk after %s: %w", filepath.Base(own.Name), err)
	}
	return p.become(c, first)
}

// redact blanks in the prepared file what this node redacted, in a copy that is prepared in its
// place.
func (p *PreparedChunk) redact() error {
	positions, err := p.tr.chunks.redactionsIn(p.c)
	if err != nil || len(positions) == 0 {
		return err
	}
	h := &p.c.Header
	c, first, err := p.tr.madeOf([]*chunkfile.Chunk{p.c}, h.First, h.Last, positions)
	if err != nil {
		return fmt.Errorf("redact a fetched chunk: %w", err)
	}
	p.tr.logger.Info("a fetched chunk held data that was redacted here, the data was blanked", logkey.Events, len(positions), "firstChunk", h.First)
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

// goesOnBehind checks that a verified file continues after the last frame of a file of this log in
// which it begins. That frame must be the same in both.
func goesOnBehind(c, own *chunkfile.Chunk) (err error) {
	defer chunkfile.GuardFaults(&err)()
	if c.Header.Last <= own.Header.Last {
		return fmt.Errorf("the file ends with chunk %d, %s has them up to %d", c.Header.Last, filepath.Base(own.Name), own.Header.Last)
	}
	// It covers more than one chunk, so it has a position map.
	offset, _, err := c.FindFrom(chunkfile.ChunkStart(own.Header.Last+1), new([]byte))
	if err != nil {
		return err
	}
	if offset == chunkfile.HeaderSize || offset == chunkfile.HeaderSize+c.Footer.DataSize {
		return c.Corrupt(-1, "no frames on both sides of position %d", chunkfile.ChunkStart(own.Header.Last+1))
	}
	it, _, err := c.ItemBefore(offset, new([]byte))
	if err != nil {
		return err
	}
	if !it.IsTrailer() {
		return c.Corrupt(offset, "a frame continues in another chunk")
	}
	if t := it.Trailer(); t.End() != own.Footer.End || t.Chain != own.Footer.Chain {
		return &event.OtherHistory{Position: own.Footer.End}
	}
	return nil
}
