package eventlog

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/google/uuid"
	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// Frame is one entry to append: records as AppendRecord made them, for the
// positions from First on, and the Raft entry that carried them.
type Frame struct {
	First     int64
	Records   []byte
	Completes bool // the frame is the last of its chunk
	Index     uint64
	Term      uint64
}

// appender is the state of the one goroutine that appends. Everything between the published tail
// and the appender's own tail is in buf and the lists next to it.
type appender struct {
	*state
	syncer *syncer
	reads  *Reader // learns what is committed
	names  *Names  // learns how far the log is
	order  *order  // looks at the numbers

	tail   event.Tail
	epoch  int64
	active *activeChunk // nil when the next frame starts a chunk

	buf []byte // bytes not yet written to the active chunk

	// What the index and the caches learn at the next commit, one entry a record.
	entries []index.Entry
	poster  poster
	ids     []recentID
	items   []chunkfile.Item // share the memory of the frames
}

// activeChunk is the writer's side of the chunk that grows.
type activeChunk struct {
	number  int
	file    vfs.File
	written int64 // bytes in the file, header included
	sum     *xxh3.Hasher
	records int
	first   uint64 // Raft index of its first frame, 0 while it has none
}

// Append adds a frame at the log's end as the appender sees it, after everything that was appended
// and is not committed yet. It checks only the shape of the records: the fence belongs to the state
// machine. Only one goroutine may append.
//
// Any error is final: the log takes nothing more, and its owner must stop.
func (l *Log) Append(f Frame) error {
	if err := l.usable(); err != nil {
		return err
	}
	if err := l.appender.append(&f); err != nil {
		return l.fail(fmt.Errorf("append entry %d: %w", f.Index, err))
	}
	return nil
}

// Appended is the log's end as the appender sees it: with what was appended and
// not committed. Only the goroutine that appends may ask.
func (l *Log) Appended() event.Tail { return l.appender.tail }

func (a *appender) append(f *Frame) error {
	if f.First != chunkfile.Place(a.tail.End, len(f.Records)) || len(f.Records) == 0 || len(f.Records) > chunkfile.MaxFrameBytes {
		return fmt.Errorf("frame of %d bytes at %d does not follow the log's end %d", len(f.Records), f.First, a.tail.End)
	}
	if f.Index <= a.tail.Index || f.Term < a.tail.Term {
		return fmt.Errorf("frame of index %d and term %d cannot follow index %d and term %d", f.Index, f.Term, a.tail.Index, a.tail.Term)
	}
	if err := a.activate(chunkfile.ChunkNumber(f.First)); err != nil {
		return err
	}
	t := chunkfile.Trailer{First: f.First, Length: len(f.Records), Index: f.Index, Term: f.Term, Time: a.tail.Time, Completes: f.Completes}
	for at := 0; at < len(f.Records); {
		it, err := chunkfile.ParseItem(f.Records[at:])
		if err == nil && (!it.IsRecord() || it.Position() != f.First+int64(at)) {
			err = errors.New("not a record of this position")
		}
		if err != nil {
			return fmt.Errorf("record at byte %d of the entry: %w", at, err)
		}
		a.noteRecord(it)
		t.Time = max(t.Time, it.Time())
		a.active.records++
		at += len(it)
	}
	t.Chain = chunkfile.NextChain(a.tail.Chain, f.First, f.Records)
	a.buf = append(a.buf, f.Records...)
	a.buf = t.Append(a.buf)
	if a.active.first == 0 {
		a.active.first = f.Index
	}
	if f.Term > a.tail.Term {
		a.epoch = f.First
	}
	a.tail = event.Tail{End: t.End(), Chain: t.Chain, Index: f.Index, Term: f.Term, Time: t.Time}
	if f.Completes {
		if err := a.completeActive(true); err != nil {
			return err
		}
		a.tail.End = chunkfile.NextChunk(a.tail.End)
	}
	return nil
}

// activate makes a chunk the active one: the one before it is complete from then on.
func (a *appender) activate(number int) error {
	if a.active != nil && a.active.number != number {
		if err := a.completeActive(false); err != nil {
			return err
		}
	}
	if a.active != nil {
		return nil
	}
	if next := a.nextChunk(); number != next {
		return fmt.Errorf("a frame in chunk %d cannot follow a log whose next chunk is %d", number, next)
	}
	return a.startChunk(number)
}

// noteRecord remembers what the index and the caches are to learn of a record when it is committed.
func (a *appender) noteRecord(it chunkfile.Item) {
	hash := chunkfile.HashStream(chunkfile.String(it.Stream()))
	a.entries = append(a.entries, index.Entry{Hash: hash, Number: it.Number(), Position: it.Position()})
	a.ids = append(a.ids, recentID{id: it.Id(), stream: hash, number: it.Number()})
	a.items = append(a.items, it)
}

// Commit writes what was appended, indexes it, shows it to readers and wakes
// those who wait. Nothing is synced: until Sync the Raft log answers for it.
func (l *Log) Commit() error { return l.appender.Commit() }

// Commit is the log's.
func (a *appender) Commit() error {
	if err := a.usable(); err != nil {
		return err
	}
	if err := a.commit(); err != nil {
		return a.fail(fmt.Errorf("commit: %w", err))
	}
	return nil
}

func (a *appender) commit() error {
	if len(a.entries) == 0 {
		return nil
	}
	if err := a.writeBuffer(); err != nil {
		return err
	}
	// This comes before the index and readers learn of the events. So a copy that begins after that
	// has them, and an index that was copied before is not ahead of it.
	if err := a.syncer.chk.Chaser.Put(a.tail.End); err != nil {
		return err
	}
	if err := a.index.Add(a.entries, a.tail.End, a.tail.Chain); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	posted := &a.poster.batch
	posted.Reset(a.postings)
	for _, it := range a.items {
		a.poster.note(it, it.Position())
	}
	if err := a.postings.Post(posted, a.Tail().End, a.tail.End, a.tail.Chain); err != nil {
		return fmt.Errorf("postings: %w", err)
	}
	a.reads.ids.add(a.ids)
	for _, it := range a.items {
		a.reads.withdrawn.note(it)
	}
	a.unsettled.Store(a.Tail().End + 1)
	a.publish(a.tail, a.epoch)
	// Only now: what the cache says of a stream must be there to be read.
	// All events of a run at once: no reader of the stream sees a part of a write.
	for first := 0; first < len(a.items); {
		end := a.endOfRun(first)
		it, last := a.items[first], a.items[end-1]
		if before, known := a.reads.streams.applied(a.entries[first].Hash, it.Stream(), it.Number(), last.Number()); !known {
			a.order.later(it.Position())
		} else if before != it.Number()-1 && !event.IsLate(it.Number(), it.Position()) {
			a.order.alarm(string(it.Stream()), it.Number(), it.Position(), before)
		}
		first = end
		if original, ok := bytes.CutPrefix(it.Stream(), []byte("$$")); ok {
			a.reads.streams.metadataApplied(original)
		}
	}
	a.unsettled.Store(0)
	a.reads.notify.wake(a.tail.End, a.entries, posted.Entries)
	a.names.grown(a.tail.End)
	a.metrics.writtenEvents.Add(uint64(len(a.entries)))
	a.metrics.commits.Inc()
	clear(a.items)
	a.entries, a.ids, a.items = a.entries[:0], a.ids[:0], a.items[:0]
	if a.tail.End-a.syncer.flushedEnd.Load() > flushEvery {
		a.syncer.wakeSyncer()
	}
	return nil
}

// endOfRun is the index after the last of the items from first on that follow one another in one
// stream.
func (a *appender) endOfRun(first int) int {
	end := first + 1
	for end < len(a.items) && a.items[end].Number() == a.items[end-1].Number()+1 && bytes.Equal(a.items[end].Stream(), a.items[first].Stream()) {
		end++
	}
	return end
}

// writeBuffer writes the buffer after the data of the active chunk.
func (a *appender) writeBuffer() error {
	if len(a.buf) == 0 {
		return nil
	}
	if err := a.write(a.buf); err != nil {
		return err
	}
	if cap(a.buf) > maxKeptBuffer {
		a.buf = nil
	}
	a.buf = a.buf[:0]
	return nil
}

// write writes whole frames after the data of the active chunk.
func (a *appender) write(b []byte) error {
	active := a.active
	if _, err := active.file.WriteAt(b, active.written); err != nil {
		return fmt.Errorf("write chunk: %w", err)
	}
	if _, err := active.sum.Write(b); err != nil {
		return err
	}
	a.metrics.writtenBytes.Add(uint64(len(b)))
	active.written += int64(len(b))
	return nil
}

const maxKeptBuffer = 4 << 20

// startChunk makes the file of the next chunk. Readers see it with the next commit. Its header is
// durable before the file has its name, and so is the chunk before it (completeActive). A crash
// therefore never leaves a chunk without a header, or one that lies after the end of the log: a
// start that finds such a chunk knows that something else happened.
func (a *appender) startChunk(number int) error {
	h := chunkfile.Header{First: number, Last: number, FileID: event.ID(uuid.New()), Cluster: a.cluster}
	path := filepath.Join(a.opts.Dir, chunkfile.FileName(number, 0))
	file, err := a.createChunk(path, h.Bytes())
	if err != nil {
		return fmt.Errorf("create chunk: %w", err)
	}
	active := &activeChunk{number: number, file: file, written: chunkfile.HeaderSize, sum: xxh3.New()}
	if _, err := active.sum.Write(h.Bytes()); err != nil {
		return errors.Join(err, file.Close())
	}
	c, err := chunkfile.OpenMapped(a.opts.FS, path, 0)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	a.syncer.dirty.mu.Lock()
	a.syncer.dirty.active, a.syncer.dirty.dir = file, true
	a.syncer.dirty.mu.Unlock()
	a.active = active
	c.Retain()
	a.setMu.Lock()
	defer a.setMu.Unlock()
	a.files = append(slices.Clone(a.files), c)
	a.filesChanged = true
	return nil
}

// createChunk makes a file with a durable header, and opens it under its name, which errors of the
// disk will give.
func (a *appender) createChunk(path string, header []byte) (vfs.File, error) {
	tmp := path + vfs.TempSuffix
	file, err := a.opts.FS.Create(tmp)
	if err != nil {
		return nil, err
	}
	_, err = file.WriteAt(header, 0)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	if err := a.opts.FS.Rename(tmp, path); err != nil {
		return nil, err
	}
	return a.opts.FS.OpenReadWrite(path)
}

// completeActive writes the footer of the active chunk. It opens the file again for readers,
// because readers of the published set still see it as growing.
func (a *appender) completeActive(byFrame bool) error {
	if err := a.writeBuffer(); err != nil {
		return err
	}
	end := chunkfile.ChunkStart(a.active.number) + a.active.written - chunkfile.HeaderSize
	f := chunkfile.Footer{
		LastCompletes: byFrame, Records: a.active.records, DataSize: a.active.written - chunkfile.HeaderSize, End: end,
		FirstIndex: a.active.first, LastIndex: a.tail.Index, LastTerm: a.tail.Term, LastTime: a.tail.Time, Chain: a.tail.Chain,
	}
	if err := writeFooter(a.active, &f); err != nil {
		return err
	}
	// Before the next chunk has its name (see startChunk). Little is left to sync: flushes went
	// before.
	if err := a.active.file.Sync(); err != nil {
		return fmt.Errorf("sync chunk: %w", err)
	}
	// Its own name must be durable then, too.
	if err := a.opts.FS.SyncDir(a.opts.Dir); err != nil {
		return fmt.Errorf("sync folder of chunks: %w", err)
	}
	a.setMu.Lock()
	old := a.files[len(a.files)-1] // Only the appender replaces the last one.
	a.setMu.Unlock()
	c, err := chunkfile.OpenMapped(a.opts.FS, old.Name, old.Version)
	if err != nil {
		return err
	}
	if !c.Complete {
		return errors.Join(c.Corrupt(a.active.written, "the footer just written cannot be read"), c.Close())
	}
	c.Retain()
	a.syncer.dirty.mu.Lock()
	a.syncer.dirty.complete = append(a.syncer.dirty.complete, a.active.file)
	a.syncer.dirty.active = nil
	a.syncer.dirty.mu.Unlock()
	a.active = nil
	a.setMu.Lock()
	a.files = slices.Clone(a.files)
	a.files[len(a.files)-1] = c
	a.filesChanged = true
	a.setMu.Unlock()
	a.logger.Info("chunk completed", logkey.Chunk, c.Header.Last, logkey.Records, f.Records, logkey.Bytes, f.DataSize)
	return old.Release()
}

func writeFooter(c *activeChunk, f *chunkfile.Footer) error {
	b, err := f.After(c.sum)
	if err != nil {
		return err
	}
	if _, err := c.file.WriteAt(b, c.written); err != nil {
		return fmt.Errorf("write chunk footer: %w", err)
	}
	return nil
}
