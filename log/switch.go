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
func (l *Log) switchChunk(tmp string, sources []*chunkfile.Chunk) (info ChunkInfo, err error) {
	l.switchMu.Lock()
	defer l.switchMu.Unlock()
	if sources != nil && !l.inUse(sources) {
		return info, event.ErrChunkReplaced
	}
	// The start trusts a rewritten chunk only within what is durable; so what it replaces must be.
	if err := l.Sync(); err != nil {
		return info, err
	}
	path := filepath.Join(l.opts.Dir, tmp)
	c, err := chunkfile.Open(l.opts.FS, path, 0)
	if err != nil {
		return info, err
	}
	if !c.Complete {
		return info, errors.Join(c.Corrupt(-1, "the new chunk is not complete"), c.Close())
	}
	first, last, footer := c.Header.First, c.Header.Last, c.Footer
	y := l.Yielder()
	sum, err := c.ComputeChecksum(func(b []byte, at int64) error {
		y.GiveWay()
		return chunkfile.ReadFull(c.File, b, at)
	})
	if err == nil && sum != footer.Checksum {
		err = c.Corrupt(-1, "checksum of the whole file does not match")
	}
	if err == nil && c.Header.Cluster != l.cluster {
		err = c.Corrupt(40, "the chunk belongs to another cluster")
	}
	if err = errors.Join(err, c.Close()); err != nil {
		return info, err
	}

	l.setMu.Lock()
	old, err := l.replaceable(first, last, &footer)
	l.setMu.Unlock()
	if err != nil {
		return info, err
	}
	version := old[0].Version + 1
	name := filepath.Join(l.opts.Dir, chunkfile.FileName(first, version))
	if _, err := l.opts.FS.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		return info, fmt.Errorf("switch chunk: %s is in the way", name)
	}
	if err := l.opts.FS.Rename(path, name); err != nil {
		err = fmt.Errorf("switch chunk: %w", err)
		if l.notRenamed(path, name) {
			return info, err
		}
		return info, l.fail(err)
	}
	if err := l.opts.FS.SyncDir(l.opts.Dir); err != nil {
		return info, l.fail(fmt.Errorf("switch chunk: %w", err))
	}
	if c, err = chunkfile.OpenMapped(l.opts.FS, name, version); err != nil {
		return info, l.fail(fmt.Errorf("switch chunk: %w", err))
	}
	c.Retain()
	for _, o := range old {
		o.Obsolete.Store(true)
	}
	l.setMu.Lock()
	// Only the appender changed the list meanwhile, and only behind complete chunks.
	at := slices.Index(l.chunks, old[0])
	l.chunks = slices.Replace(slices.Clone(l.chunks), at, at+len(old), c)
	l.chunksChanged = true
	p := l.pub.Load()
	replaced := l.publishLocked(p.tail, p.epoch)
	l.setMu.Unlock()
	replaced.release()
	for _, o := range old {
		if err := o.Release(); err != nil {
			l.closeFailed(err)
		}
	}
	return chunkInfo(c, p.tail.End), nil
}

// inUse reports whether all of these chunks are in the log's list, which has each of them once.
func (l *Log) inUse(sources []*chunkfile.Chunk) bool {
	l.setMu.Lock()
	defer l.setMu.Unlock()
	for _, c := range sources {
		if !slices.Contains(l.chunks, c) {
			return false
		}
	}
	return true
}

// notRenamed reports whether a rename that failed has certainly left everything as it was.
func (l *Log) notRenamed(from, to string) bool {
	_, gone := l.opts.FS.Stat(from)
	_, made := l.opts.FS.Stat(to)
	return gone == nil && errors.Is(made, fs.ErrNotExist)
}

// replaceable returns the chunks that a file with this range and footer may replace. It runs under setMu.
func (l *Log) replaceable(first, last int, f *chunkfile.Footer) ([]*chunkfile.Chunk, error) {
	var old []*chunkfile.Chunk
	for _, c := range l.chunks {
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
