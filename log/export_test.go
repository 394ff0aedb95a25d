package eventlog

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/annalsdb/annals/log/chunkfile"
)

// SwitchChunk puts a chunk file in the place of those that it covers.
func (l *Log) SwitchChunk(tmp string) error {
	l.Chunks.jobs.RLock()
	defer l.Chunks.jobs.RUnlock()
	if err := l.usable(); err != nil {
		return err
	}
	c, err := chunkfile.Open(l.opts.FS, filepath.Join(l.opts.Dir, tmp), 0)
	if err != nil {
		return err
	}
	old, err := l.Chunks.sources(c.Header.First, c.Header.Last)
	if err = errors.Join(err, c.Close()); err != nil {
		return err
	}
	_, err = l.Chunks.switchChunk(tmp, old)
	for _, o := range old {
		err = errors.Join(err, o.Release())
	}
	return err
}

// InstallChunk verifies a chunk file that was fetched from another node and
// makes it a part of the log, as PrepareChunk and Install do. tmp is its name in the log's folder.
func (tr *Transfer) InstallChunk(tmp string) error {
	p, err := tr.PrepareChunk(tmp)
	if err != nil {
		return fmt.Errorf("install chunk: %w", err)
	}
	return errors.Join(p.Install(), p.Close())
}
