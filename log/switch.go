package eventlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// switchChunk puts a rewritten chunk file in the place of the complete chunks
// that it covers. tmp is its name in the log's folder; it must be complete,
// synced, and cover exactly the logical chunks of one or several files in use.
//
// The file is renamed to the next version of the first of them, readers see it
// from then on, and each replaced file is removed when its last reader lets go.
// A crash leaves either the old files in use or the new one: the higher version
// wins at the next start, and a file that covers several removes the others.
//
// An error after the rename is final, as with Append: what the folder holds is
// then not known. So is one of making the log durable, which comes first. Any
// other leaves the log and the file as they were.
//
// old are the chunks that the file was made of: they must still be in use. The caller holds them,
// so that none of them can come back under a new name, and l.jobs.
func (cs *Chunks) switchChunk(tmp string, old []*chunkfile.Chunk) (info ChunkInfo, err error) {
	cs.switchMu.Lock()
	defer cs.switchMu.Unlock()
	if !cs.inUse(old) {
		return info, event.ErrChunkReplaced
	}
	// The start trusts a rewritten chunk only within what is durable; so what it replaces must be.
	if err := cs.syncer.Sync(); err != nil {
		return info, err
	}
	path := filepath.Join(cs.opts.Dir, tmp)
	c, err := cs.openWhole(path)
	if err != nil {
		return info, err
	}
	first, footer := c.Header.First, c.Footer
	if err := c.Close(); err != nil {
		return info, err
	}
	if last := old[len(old)-1]; !sameFrames(&old[0].Footer, &last.Footer, &footer) {
		return info, &event.Corruption{File: last.Name, Offset: -1, Detail: "the new chunk does not end the way the old one does"}
	}
	version := old[0].Version + 1
	name := filepath.Join(cs.opts.Dir, chunkfile.FileName(first, version))
	if _, err := cs.opts.FS.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		return info, fmt.Errorf("switch chunk: %s is in the way", name)
	}
	if err := cs.opts.FS.Rename(path, name); err != nil {
		err = fmt.Errorf("switch chunk: %w", err)
		if cs.notRenamed(path, name) {
			return info, err
		}
		return info, cs.fail(err)
	}
	if err := cs.opts.FS.SyncDir(cs.opts.Dir); err != nil {
		return info, cs.fail(fmt.Errorf("switch chunk: %w", err))
	}
	if c, err = chunkfile.OpenMapped(cs.opts.FS, name, version); err != nil {
		return info, cs.fail(fmt.Errorf("switch chunk: %w", err))
	}
	c.Retain()
	for _, o := range old {
		o.Obsolete.Store(true)
	}
	cs.setMu.Lock()
	// Only the appender has changed the list in the meantime, and only after complete chunks.
	at := slices.Index(cs.files, old[0])
	cs.files = slices.Replace(slices.Clone(cs.files), at, at+len(old), c)
	cs.filesChanged = true
	p := cs.pub.Load()
	replaced := cs.publishLocked(p.tail, p.epoch)
	cs.setMu.Unlock()
	replaced.release()
	for _, o := range old {
		if err := o.Release(); err != nil {
			cs.closeFailed(err)
		}
	}
	return chunkInfo(c, p.tail.End), nil
}

// notRenamed reports whether a rename that failed has certainly left everything as it was.
func (cs *Chunks) notRenamed(from, to string) bool {
	_, gone := cs.opts.FS.Stat(from)
	_, made := cs.opts.FS.Stat(to)
	return gone == nil && errors.Is(made, fs.ErrNotExist)
}

// openWhole opens a complete chunk file of this cluster and compares it with its checksum.
func (s *state) openWhole(path string) (*chunkfile.Chunk, error) {
	c, err := chunkfile.Open(s.opts.FS, path, 0)
	if err != nil {
		return nil, err
	}
	y := s.Yielder()
	sum, err := [16]byte{}, error(nil)
	if c.Complete {
		sum, err = c.ComputeChecksum(func(b []byte, at int64) error {
			y.GiveWay()
			return vfs.ReadFull(c.File, b, at)
		})
	}
	switch {
	case err != nil:
	case !c.Complete:
		err = c.Corrupt(-1, "the fetched chunk is not complete")
	case c.Header.Cluster != s.cluster:
		err = c.Corrupt(40, "the chunk belongs to cluster %s, the log to %s", c.Header.Cluster, s.cluster)
	case sum != c.Footer.Checksum:
		err = c.Corrupt(-1, "checksum of the whole file does not match")
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// sameFrames reports whether a file begins and ends with the frames that others begin and end with.
func sameFrames(first, last, f *chunkfile.Footer) bool {
	return first.FirstIndex == f.FirstIndex && last.End == f.End && last.Chain == f.Chain && last.LastIndex == f.LastIndex &&
		last.LastTerm == f.LastTerm && last.LastCompletes == f.LastCompletes
}
