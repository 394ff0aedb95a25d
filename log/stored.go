package eventlog

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
	"github.com/annalsdb/annals/stats"
)

// Chunks are the files of the log. What they hold is read here whether or not readers of streams
// see it, and files are put in the place of others.
type Chunks struct {
	*state
	syncer *syncer
	reads  *Reader

	jobs     sync.RWMutex // held for reading by jobs that rewrite or switch chunks; Close takes it
	switchMu sync.Mutex   // one switchChunk at a time
}

// Stored is a record as it lies in the log, hidden or not. Its slices are
// borrowed: they must not be changed, nor used when the function that was given
// the record has returned.
type Stored struct {
	Position int64
	Size     int // bytes of the item in the log
	Number   int64
	Time     int64 // nanoseconds since 1970
	ID       event.ID
	Flags    event.Flags
	Stream   []byte
	Type     []byte
	Data     []byte
	Metadata []byte
}

// IsBare reports whether nothing is left of the metadata.
func (s *Stored) IsBare() bool { return isBlank(s.Metadata) }

// ChunkInfo describes a chunk file in use.
type ChunkInfo struct {
	File        string // name in the folder of the log
	First, Last int    // logical chunks that it covers
	Version     int
	Complete    bool  // Rewrite takes it: it has its footer, and no frame will ever be added
	Rewritten   bool  // scavenged, merged or redacted
	Start       int64 // position at which its first logical chunk begins
	End         int64 // position after its last frame; of the active chunk: the log's end
	DataBytes   int64 // of records, trailers and stubs, as they lie in the file
	FileBytes   int64
	Records     int // events that are left; of the active chunk -1
	Stubs       int // of removed events, see DESIGN.md
}

// Chunks lists the chunk files in use by rising number; the active one, if there is one, is the
// last.
func (cs *Chunks) List() ([]ChunkInfo, error) {
	v, err := cs.view()
	if err != nil {
		return nil, err
	}
	defer v.release()
	infos := make([]ChunkInfo, len(v.set.chunks))
	for i, c := range v.set.chunks {
		infos[i] = chunkInfo(c, v.tail.End)
	}
	return infos, nil
}

// info describes the chunk as it is in a log that ends at end.
func chunkInfo(c *chunkfile.Chunk, end int64) ChunkInfo {
	i := ChunkInfo{
		File: filepath.Base(c.Name), First: c.Header.First, Last: c.Header.Last, Version: c.Version,
		Complete: c.Settled(end), Rewritten: c.Rewritten(), Start: c.Start(), DataBytes: c.DataEnd(end) - chunkfile.HeaderSize,
	}
	if c.Complete && c.Footer.End <= end {
		i.End, i.Records, i.Stubs, i.FileBytes = c.Footer.End, c.Footer.Records, c.Footer.Stubs, c.FileSize()
	} else {
		i.End, i.Records, i.FileBytes = end, -1, chunkfile.HeaderSize+i.DataBytes
	}
	return i
}

// StreamAt appends to dst the name of the stream whose record begins at exactly a
// position; ok is false when no record is there, or no longer.
func (cs *Chunks) StreamAt(dst []byte, position int64) (name []byte, ok bool, err error) {
	v, err := cs.view()
	if err != nil {
		return dst, false, err
	}
	defer v.release()
	return v.streamAt(dst, position)
}

// Backs reports whether the record of a posting is still there, and says what it is posted for.
func (cs *Chunks) Backs(posting index.Entry) (backs bool, err error) {
	err = cs.read(func(v view) error {
		if c := v.set.at(posting.Position); c != nil && !c.Header.Mapped {
			backs = true // The file has all that was ever written to it.
			return nil
		}
		scratch := scratches.Get().(*[]byte)
		defer scratches.Put(scratch)
		it, err := v.itemAt(posting.Position, scratch)
		if err != nil || it == nil || !it.IsRecord() {
			return err
		}
		backs = event.Flags(it.Flags())&event.FlagRedacted == 0 ||
			slices.ContainsFunc((&poster{malformed: new(stats.Counter)}).read(it), func(l label.Label) bool { return l.Hash() == posting.Hash })
		return nil
	})
	return backs, err
}

// scratches are what records are read into where files are not mapped.
var scratches = sync.Pool{New: func() any { return new([]byte) }}

func (v view) streamAt(dst []byte, position int64) (_ []byte, ok bool, err error) {
	defer chunkfile.GuardFaults(&err)()
	if v.inVoid(position) {
		return dst, false, nil
	}
	scratch := scratches.Get().(*[]byte)
	defer scratches.Put(scratch)
	it, err := v.itemAt(position, scratch)
	if err != nil {
		if err = v.explain(position, false, err); errors.Is(err, event.ErrBadPosition) {
			return dst, false, nil
		}
		return dst, false, fmt.Errorf("stream of the record at %d: %w", position, err)
	}
	if it == nil || !it.IsRecord() {
		return dst, false, nil
	}
	return append(dst, it.Stream()...), true, nil
}

// inVoid reports whether a position lies after the last frame of a chunk as it was written.
func (v view) inVoid(position int64) bool {
	c := v.set.at(position)
	return c != nil && !c.Header.Mapped && chunkfile.HeaderSize+position-c.Start() >= c.DataEnd(v.tail.End)
}

// IDsFrom returns a position at or before the oldest event whose id decisions
// about writes may depend on, beyond those that the log itself has: Rewrite must keep the ids of
// events from there on. It is the start of the chunk file that holds the last of the
// Options.RecentIDs newest events, the active chunk not counted.
func (cs *Chunks) IDsFrom() (int64, error) {
	v, err := cs.view()
	if err != nil {
		return 0, err
	}
	defer v.release()
	events := 0
	for i := len(v.set.chunks) - 1; i >= 0; i-- {
		c := v.set.chunks[i]
		if !c.Complete || c.Footer.End > v.tail.End {
			continue
		}
		if events += c.Footer.Records + c.Footer.Stubs; events >= cs.opts.RecentIDs {
			return c.Start(), nil
		}
	}
	return 0, nil
}

// Rewrite says how to make one chunk file out of one or several.
type Rewrite struct {
	First, Last int                // logical chunks: those of whole, complete files in use
	Keep        func(*Stored) bool // which events stay; nil: all
	// positions of events whose data are blanked, rising; those that are not there, or are already,
	// are passed over
	Redact []int64
	// those of Redact whose metadata are blanked, too
	RedactMetadata []int64
	// The ids of removed events at or after this position are kept, in stubs. Stubs before it are
	// removed.
	IDsFrom int64

	// MaxData bounds the data of the new file. Files whose events do not fit any more are left as
	// they are, but for the first, which is left as well when it alone fits and nothing of it goes.
	// 0: they all go into the new file.
	MaxData int64

	// Pace, if not nil, is called between blocks of at most a few MiB with the bytes
	// read since it was called last. It may wait; its error ends the work.
	Pace func(ctx context.Context, bytes int64) error

	// Reserve is how many bytes must stay free on the volume while the new file is written; with
	// less the work ends with event.ErrDiskFull. 0: free space is not checked.
	Reserve int64
}

// Rewritten says what a Rewrite has done.
type Rewritten struct {
	Chunk        ChunkInfo // the file that is in use now
	Sources      []Source  // the files that there were before
	OldBytes     int64     // of those files
	Removed      int       // events
	RemovedBytes int64     // of their records
	Redacted     int       // events that were blanked

	replaced *replacedFiles
}

// Source is a file that a rewritten one took the place of.
type Source struct {
	First, Last int // logical chunks
	Removed     int // events
	// bytes of the file that are not in the new one, header and footer not counted; may be negative
	Saved int64
}

// replacedFiles are those that a rewritten one took the place of.
type replacedFiles []*chunkfile.Chunk

// Closed returns when the files that were replaced are closed by their last
// reader, and gone from the folder, or ctx ends.
func (r *Rewritten) Closed(ctx context.Context) error {
	for _, c := range *r.replaced {
		select {
		case <-c.Closed:
		case <-ctx.Done():
			return fmt.Errorf("%s, which was replaced, is still being read: %w", filepath.Base(c.Name), ctx.Err())
		}
	}
	return nil
}

const (
	// lookEvery is how many items are read between two looks at a context.
	lookEvery = 1024
)

// set fills in what an item is. Its slices share the item's memory.
func (s *Stored) set(it chunkfile.Item, position int64) {
	content := it.Content()
	typeAt := it.StreamLen()
	dataAt := typeAt + it.TypeLen()
	metadataAt := len(content) - it.MetadataLen()
	s.Position = position
	s.Size = len(it)
	s.Number = it.Number()
	s.Time = it.Time()
	s.ID = it.Id()
	s.Flags = event.Flags(it.Flags())
	s.Stream = content[:typeAt:typeAt]
	s.Type = content[typeAt:dataAt:dataAt]
	s.Data = content[dataAt:metadataAt:metadataAt]
	s.Metadata = content[metadataAt:]
}

// Scan gives f the records at the positions from (included) to to (excluded), in order, also those
// that readers do not see. From is where an item begins, or anywhere in a rewritten chunk or in the
// void. It holds the file that it reads, one at a time, and looks at ctx at least every 1024
// records. f's error ends it and is returned as it is.
func (cs *Chunks) Scan(ctx context.Context, from, to int64, f func(*Stored) error) error {
	if from < 0 {
		return event.ErrBadPosition
	}
	to = min(to, cs.Tail().End)
	for from < to {
		if err := ctx.Err(); err != nil {
			return err
		}
		next, err := cs.scanChunk(ctx, from, to, f)
		if err != nil {
			return err
		}
		from = next
	}
	return nil
}

// scanChunk scans the file that covers a position and returns where the next one begins.
func (cs *Chunks) scanChunk(ctx context.Context, from, to int64, f func(*Stored) error) (next int64, err error) {
	r, err := cs.readerAt(from)
	if err != nil {
		return 0, err
	}
	if r == nil {
		return to, nil
	}
	defer func() {
		if failed := r.C.Release(); failed != nil {
			err = errors.Join(err, failed)
		}
	}()
	defer chunkfile.GuardFaults(&err)()
	var s Stored
	for n := 1; ; n++ {
		if n%lookEvery == 0 {
			if err := ctx.Err(); err != nil {
				return 0, err
			}
		}
		it, position, err := r.Next()
		if err != nil {
			return 0, fmt.Errorf("scan the log: %w", err)
		}
		if it == nil {
			return chunkfile.ChunkStart(r.C.Header.Last + 1), nil
		}
		if position >= to {
			return to, nil
		}
		if !it.IsRecord() {
			continue
		}
		s.set(it, position)
		if err := f(&s); err != nil {
			return 0, err
		}
	}
}

// readerAt returns a reader that begins with the first item at or after a position; nil where there
// is no file. Its chunk is held and must be released.
func (cs *Chunks) readerAt(position int64) (_ *chunkfile.ItemReader, err error) {
	v, err := cs.view()
	if err != nil {
		return nil, err
	}
	defer v.release()
	defer chunkfile.GuardFaults(&err)()
	c := v.set.at(position)
	if c == nil {
		return nil, nil
	}
	r := &chunkfile.ItemReader{C: c, Offset: chunkfile.HeaderSize + position - c.Start(), Limit: c.DataEnd(v.tail.End)}
	if c.Header.Mapped {
		if r.Offset, _, err = c.FindFrom(position, new([]byte)); err != nil {
			return nil, err
		}
	} else if r.Offset < r.Limit {
		// The position comes from outside: it may be none.
		if _, err := v.itemAt(position, new([]byte)); err != nil {
			return nil, v.explain(position, false, err)
		}
	}
	c.Retain()
	return r, nil
}
