package eventlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/annalsdb/annals/event"
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
// sources are the chunks that the file was made of: they must still be in use. nil stands for
// those that it covers. The caller holds them, so that none of them can come back under a
// new name, and l.jobs.
func (cs *Chunks) switchChunk(tmp string, sources []*chunkfile.Chunk) (info ChunkInfo, err error) {
	cs.switchMu.Lock()
	defer cs.switchMu.Unlock()
	if sources != nil && !cs.inUse(sources) {
		return info, event.ErrChunkReplaced
	}
	// The start trusts a rewritten chunk only within what is durable; so what it replaces must be.
	if err := cs.syncer.Sync(); err != nil {
		return info, err
	}
	path := filepath.Join(cs.opts.Dir, tmp)
	c, err := chunkfile.Open(cs.opts.FS, path, 0)
	if err != nil {
		return info, err
	}
	if !c.Complete {
		return info, errors.Join(c.Corrupt(-1, "the new chunk is not complete"), c.Close())
	}
	first, last, footer := c.Header.First, c.Header.Last, c.Footer
	y := cs.Yielder()
	sum, err := c.ComputeChecksum(func(b []byte, at int64) error {
		y.GiveWay()
		return chunkfile.ReadFull(c.File, b, at)
	})
	if err == nil && sum != footer.Checksum {
		err = c.Corrupt(-1, "checksum of the whole file does not match")
	}
	if err == nil && c.Header.Cluster != cs.cluster {
		err = c.Corrupt(40, "the chunk belongs to another cluster")
	}
	if err = errors.Join(err, c.Close()); err != nil {
		return info, err
	}

	cs.setMu.Lock()
	old, err := cs.replaceable(first, last, &footer)
	cs.setMu.Unlock()
	if err != nil {
		return info, err
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
	// Only the appender changed the list meanwhile, and only behind complete chunks.
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

// replaceable returns the chunks that a file with this range and footer may replace. It runs under setMu.
func (cs *Chunks) replaceable(first, last int, f *chunkfile.Footer) ([]*chunkfile.Chunk, error) {
	var old []*chunkfile.Chunk
	for _, c := range cs.files {
		if c.Header.Last < first || c.Header.First > last {
			continue
		}
		if c.Header.First < first || c.Header.Last > last {
			return nil, fmt.Errorf("switch chunk: chunks %d to %d do not match the file %s", first, last, c.Name)
		}
		if !c.Complete {
			return nil, fmt.Errorf("switch chunk: %s is not complete", c.Name)
		}
		old = append(old, c)
	}
	if len(old) == 0 || old[0].Header.First != first || old[len(old)-1].Header.Last != last {
		return nil, fmt.Errorf("switch chunk: the log has no chunks %d to %d", first, last)
	}
	end := old[len(old)-1].Footer
	if end.End != f.End || old[0].Footer.FirstIndex != f.FirstIndex || end.Chain != f.Chain || end.LastIndex != f.LastIndex || end.LastTerm != f.LastTerm || end.LastCompletes != f.LastCompletes {
		return nil, &event.Corruption{File: old[len(old)-1].Name, Offset: -1, Detail: "the new chunk does not end the way the old one does"}
	}
	return old, nil
}
