package eventlog

import (
	"errors"

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
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Release())
		}
	}()
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
