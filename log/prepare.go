package eventlog

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// PreparedChunk is a chunk file fetched from another node, verified as far as that can be done
// without knowing where the log ends. It must be closed.
type PreparedChunk struct {
	tr    *Transfer
	path  string
	first chunkfile.Trailer // of the first frame
	c     *chunkfile.Chunk  // held; nil when it was installed or closed
	// the file was made here, out of the fetched one, and goes if it is not installed
	made    bool
	fetched string // path of the fetched file, if the file was made out of it
}

// PrepareChunk verifies a chunk file that was fetched from another node into a temporary file: its
// checksum, its cluster, and that frames, position map and footer agree. It makes the file durable
// and blanks what this node redacted. If a file of this log reaches into it, the part after that
// file is copied to a file of its own. This takes as long as reading the file, and may run at the
// same time as everything else.
func (tr *Transfer) PrepareChunk(tmp string) (*PreparedChunk, error) {
	if err := tr.usable(); err != nil {
		return nil, err
	}
	path, err := tr.tempPath(tmp)
	if err != nil {
		return nil, err
	}
	c, first, err := tr.openFetched(path)
	if err != nil {
		return nil, err
	}
	p := &PreparedChunk{tr: tr, path: path, first: first, c: c}
	if err := errors.Join(p.redact(), p.fit()); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// openFetched makes a chunk file durable, verifies it, and returns it held, with the trailer of its
// first frame.
func (tr *Transfer) openFetched(path string) (_ *chunkfile.Chunk, first chunkfile.Trailer, err error) {
	// A file under its final name counts as whole.
	if err := chunkfile.Sync(tr.opts.FS, path); err != nil {
		return nil, first, err
	}
	c, err := tr.openWhole(path)
	if err != nil {
		return nil, first, err
	}
	c.Retain()
	defer vfs.Undo(&err, c.Release)
	if err := c.Use(); err != nil {
		return nil, first, err
	}
	if first, err = c.CheckContent(); err != nil {
		return nil, first, err
	}
	return c, first, nil
}

// Close lets go of the file. The fetched one stays where it is, unless it was installed. It is
// idempotent.
func (p *PreparedChunk) Close() error {
	if p.c == nil {
		return nil
	}
	return p.drop()
}

// drop lets go of the file at hand, and removes it if it was made here.
func (p *PreparedChunk) drop() error {
	c := p.c
	p.c = nil
	c.Obsolete.Store(p.made)
	return c.Release()
}

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
	c, first, err := p.tr.madeOf([]*chunkfile.Chunk{p.c}, own.Header.Last+1, p.c.Header.Last, blanks{})
	if err != nil {
		return fmt.Errorf("cut a fetched chunk after %s: %w", filepath.Base(own.Name), err)
	}
	return p.become(c, first)
}

// redact blanks in the prepared file what this node redacted, in a copy that is prepared in its
// place.
func (p *PreparedChunk) redact() error {
	redact, err := p.tr.chunks.redactionsIn(p.c)
	if err != nil || len(redact.data) == 0 {
		return err
	}
	h := &p.c.Header
	c, first, err := p.tr.madeOf([]*chunkfile.Chunk{p.c}, h.First, h.Last, redact)
	if err != nil {
		return fmt.Errorf("redact a fetched chunk: %w", err)
	}
	p.tr.logger.Info("a fetched chunk held data that was redacted here, the data was blanked", logkey.Events, len(redact.data), "firstChunk", h.First)
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
