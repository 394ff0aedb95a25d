package eventlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math/bits"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

const testDir = "/db"

var testCluster = event.ID{0xc1, 1, 2, 3}

// colliding returns two names with the same hash, other ones for each n but 0.
func colliding(n uint64) (a, b string) { return collidingSeeded(n, 0) }

// collidingSeeded is colliding for the hash with a seed. XXH3 hashes 9 to 16 bytes by two words,
// each combined with a constant: where one of them becomes 0 their product is, and the hash hangs
// on the other word alone.
func collidingSeeded(n, seed uint64) (a, b string) {
	low, high := 0x1f67b3b7a4a44072^0x78e5c0cc4ee679cb+seed, 0x2172ffcc7dd05a82^0x8e2443f7744608b8-seed
	le := binary.LittleEndian
	a = string(le.AppendUint64(le.AppendUint64(nil, low), n^high))
	b = string(le.AppendUint64(le.AppendUint64(nil, bits.ReverseBytes64(n)^low), high))
	return a, b
}

// testEvent is an event of the model.
type testEvent struct {
	stream   string
	number   int64
	id       event.ID
	typ      string
	data     string
	metadata string
	flags    event.Flags
	position int64
	time     int64
}

// testFrame is a frame, its content, and the log's tail after it.
type testFrame struct {
	Frame
	events []testEvent
	tail   event.Tail
}

// model makes frames as a leader would, without a log, and remembers them.
type model struct {
	frames []testFrame
	tail   event.Tail
	term   uint64
	now    int64
	last   map[string]int64
}

func newModel() *model {
	return &model{tail: event.Tail{Chain: chunkfile.GenesisChain(testCluster)}, term: 1, now: 1, last: map[string]int64{}}
}

// ev is an event to be numbered by the model.
func ev(stream, data string) testEvent { return testEvent{stream: stream, typ: "t", data: data} }

// meta is a metadata event of a stream.
func meta(stream, document string) testEvent {
	return testEvent{stream: "$$" + stream, typ: event.TypeMetadata, data: document, flags: event.FlagJSON}
}

// tombstone is a hard deletion of a stream.
func tombstone(stream string) testEvent {
	return testEvent{stream: stream, typ: event.TypeStreamDeleted, flags: event.FlagDeleted, number: event.TombstoneNumber}
}

func (m *model) frame(completes bool, events ...testEvent) testFrame {
	size := 0
	proposed := make([]event.Proposed, len(events))
	for i := range events {
		e := &events[i]
		if e.id.IsZero() {
			chunkfile.Order.PutUint64(e.id[:], m.tail.Index+1)
			e.id[15] = byte(i + 1)
		}
		if e.number != event.TombstoneNumber {
			last, ok := m.last[e.stream]
			if !ok {
				last = -1
			}
			e.number = last + 1
			m.last[e.stream] = e.number
		}
		if e.time == 0 {
			e.time = m.now
		}
		m.now = e.time
		proposed[i] = event.Proposed{ID: e.id, Type: e.typ, Data: []byte(e.data), Metadata: []byte(e.metadata)}
		size += chunkfile.RecordSize(e.stream, &proposed[i])
	}
	f := testFrame{Frame: Frame{First: chunkfile.Place(m.tail.End, size), Completes: completes, Index: m.tail.Index + 1, Term: m.term}, events: events}
	for i := range events {
		e := &events[i]
		e.position = f.First + int64(len(f.Records))
		f.Records = chunkfile.AppendRecord(f.Records, e.position, e.stream, e.number, e.time, e.flags, &proposed[i])
	}
	m.tail = event.Tail{
		End: chunkfile.EndBehind(f.First, len(f.Records), completes), Chain: chunkfile.NextChain(m.tail.Chain, f.First, f.Records),
		Index: f.Index, Term: f.Term, Time: m.now,
	}
	f.tail = m.tail
	m.frames = append(m.frames, f)
	return f
}

func testOptions(fsys vfs.FS) Options {
	return Options{
		Dir: testDir, FS: fsys, ClusterID: testCluster, SkipVerify: true,
		Index: index.Options{ExistenceFilterMax: 4096},
		Now:   func() time.Time { return time.Unix(0, 1) },
	}
}

func mustOpen(t testing.TB, o Options) *Log {
	t.Helper()
	l := check.Value(Open(o)).Must(t)
	<-l.Reads.ids.loaded // The background reader has ended and holds no files.
	t.Cleanup(func() {
		if err := l.Close(); err != nil && l.Failed() == nil {
			t.Error(err)
		}
	})
	return l
}

// write appends frames, each committed by itself.
func write(t testing.TB, l *Log, frames ...testFrame) {
	t.Helper()
	for _, f := range frames {
		check.Must(t, errors.Join(l.Append(f.Frame), l.Commit()))
	}
}

func closeLog(t testing.TB, l *Log) {
	t.Helper()
	check.Must(t, l.Close())
}

// verify holds everything that a log says against the frames of the model. Of
// removed records (by position) nothing may be left.
func verify(t testing.TB, l *Log, frames []testFrame, removed map[int64]bool) {
	t.Helper()
	check.Must(t, holds(l, frames, removed))
}

// holds is verify without a test.
func holds(l *Log, frames []testFrame, removed map[int64]bool) error {
	want := event.Tail{Chain: chunkfile.GenesisChain(testCluster)}
	if len(frames) > 0 {
		want = frames[len(frames)-1].tail
	}
	if got := l.Tail(); got != want {
		return fmt.Errorf("tail is %+v, want %+v", got, want)
	}
	epoch := int64(-1)
	for i, f := range frames {
		if i == 0 || f.Term > frames[i-1].Term {
			epoch = f.First
		}
	}
	if got := l.EpochPosition(); got != epoch {
		return fmt.Errorf("epoch begins at %d, want %d", got, epoch)
	}
	return errors.Join(checkItems(l, frames, removed), checkPages(l, frames, removed), checkStreams(l, frames, removed))
}

// checkItems walks the log in both directions: every record and trailer in its
// place, every checksum right, the chain unbroken, the index naming every record.
func checkItems(l *Log, frames []testFrame, removed map[int64]bool) error {
	v, err := l.view()
	if err != nil {
		return err
	}
	defer v.release()
	type place struct {
		position int64
		item     string
	}
	var want, got, back []place
	var chain event.Chain
	for _, f := range frames {
		for at := 0; at < len(f.Records); {
			it, err := chunkfile.ParseItem(f.Records[at:])
			if err != nil {
				return err
			}
			position := f.First + int64(at)
			at += len(it)
			if removed[position] {
				continue
			}
			want = append(want, place{position, string(it)})
			found, err := l.index.Get(nil, chunkfile.HashStream(string(it.Stream())), it.Number())
			if err != nil {
				return err
			}
			if e, ok := only(found, position); !ok {
				return fmt.Errorf("index says %+v of event %d of %s at %d", e, it.Number(), it.Stream(), position)
			}
		}
		chain = f.tail.Chain // Of what was written, whatever is redacted since.
		tr := chunkfile.Trailer{First: f.First, Length: len(f.Records), Index: f.Index, Term: f.Term, Time: f.tail.Time, Chain: chain, Completes: f.Completes}
		want = append(want, place{f.First + int64(len(f.Records)), string(tr.Append(nil))})
		if c, ok, err := l.ChainAt(f.tail.End); !ok || c != chain || err != nil {
			return fmt.Errorf("chain at %d is %s (%v, %v), want %s", f.tail.End, c, ok, err, chain)
		}
	}
	cu := cursor{v: v}
	if err := cu.seekForward(0); err != nil {
		return err
	}
	for {
		it, at, err := cu.next()
		if err != nil {
			return err
		}
		if it == nil {
			break
		}
		if it.IsStub() && removed[at] {
			continue
		}
		got = append(got, place{at, string(it)})
	}
	if err := cu.seekBackward(v.tail.End); err != nil {
		return err
	}
	for {
		it, at, err := cu.prev()
		if err != nil {
			return err
		}
		if it == nil {
			break
		}
		if it.IsStub() && removed[at] {
			continue
		}
		back = append(back, place{at, string(it)})
	}
	slices.Reverse(back)
	if !slices.Equal(got, want) {
		return fmt.Errorf("the log holds %d items, want %d", len(got), len(want))
	}
	if !slices.Equal(back, want) {
		return fmt.Errorf("read backward the log holds %d items, want %d", len(back), len(want))
	}
	return nil
}

func only(entries []index.Entry, position int64) ([]index.Entry, bool) {
	return entries, len(entries) == 1 && entries[0].Position == position
}

// checkPages reads the whole log in pages, both ways.
func checkPages(l *Log, frames []testFrame, removed map[int64]bool) error {
	var want []int64
	for _, f := range frames {
		for _, e := range f.events {
			if !removed[e.position] && event.ShownInAll(e.stream) {
				want = append(want, e.position)
			}
		}
	}
	for _, backward := range []bool{false, true} {
		var got []int64
		r := event.AllRead{From: 0, Count: 7, Backward: backward}
		if backward {
			r.From = event.End
		}
		for {
			page, err := l.Reads.ReadAll(r)
			if err != nil {
				return err
			}
			for _, e := range page.Events {
				got = append(got, e.Position)
			}
			if !page.More {
				break
			}
			r.From = page.Next
		}
		if backward {
			slices.Reverse(got)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("read in pages (backward %v) the log holds %v, want %v", backward, got, want)
		}
	}
	return nil
}

// checkStreams asks for every event by its number, and for the facts of every stream.
func checkStreams(l *Log, frames []testFrame, removed map[int64]bool) error {
	type facts struct {
		last    int64
		deleted bool
	}
	streams := map[string]facts{}
	for _, f := range frames {
		for _, e := range f.events {
			s, ok := streams[e.stream]
			if !ok {
				s.last = -1
			}
			if e.number == event.TombstoneNumber {
				s.deleted = true
			} else {
				if e.number != s.last+1 {
					return fmt.Errorf("event %d of %s follows %d", e.number, e.stream, s.last)
				}
				s.last = e.number
			}
			streams[e.stream] = s
			id, ok, err := l.Reads.idAt(e.stream, e.number)
			if err != nil || ok == removed[e.position] || ok && id != e.id {
				return fmt.Errorf("event %d of %s has id %s (%v, %w), want %s", e.number, e.stream, id, ok, err, e.id)
			}
			if n, ok, err := l.Reads.FindID(e.stream, e.id); err != nil || !removed[e.position] && (!ok || n != e.number) {
				return fmt.Errorf("id of event %d of %s is found at %d (%v, %w)", e.number, e.stream, n, ok, err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(streams)) {
		s := streams[name]
		info, err := l.Reads.StreamInfo(name)
		if err != nil {
			return err
		}
		if info.Last != s.last || info.HardDeleted != s.deleted && !event.IsMetaStream(name) {
			return fmt.Errorf("facts of %s are %+v, want %+v", name, info, s)
		}
	}
	return nil
}

// rewrite makes a file in the folder of the log out of complete chunk files:
// their items for which keep says true, all trailers, a position map, a footer.
func rewrite(t testing.TB, fsys vfs.FS, tmp string, sources []string, keep func(chunkfile.Item) bool) {
	t.Helper()
	check.Must(t, rewriteChunks(fsys, testDir, tmp, sources, keep))
}

func rewriteChunks(fsys vfs.FS, dir, tmp string, sources []string, keep func(chunkfile.Item) bool) error {
	var data, places []byte
	var h chunkfile.Header
	var f chunkfile.Footer
	for i, name := range sources {
		c, err := chunkfile.OpenNamed(fsys, dir, name)
		if err != nil {
			return err
		}
		if !c.Complete {
			return errors.Join(errors.New("source is not complete"), c.Close())
		}
		raw := make([]byte, c.Footer.DataSize)
		if err := errors.Join(vfs.ReadFull(c.File, raw, chunkfile.HeaderSize), c.Close()); err != nil {
			return err
		}
		if i == 0 {
			h = c.Header
			h.Mapped, h.FileID = true, event.ID(uuid.New())
			f.FirstIndex = c.Footer.FirstIndex
		}
		h.Last = c.Header.Last
		first, records := f.FirstIndex, f.Records
		f = c.Footer
		f.FirstIndex, f.Records = first, records
		for at := 0; at < len(raw); {
			it, err := chunkfile.ParseItem(raw[at:])
			if err != nil {
				return err
			}
			at += len(it)
			if it.IsRecord() {
				if !keep(it) {
					continue
				}
				f.Records++
			}
			places = chunkfile.Order.AppendUint64(places, uint64(it.Position()))
			places = chunkfile.Order.AppendUint32(places, uint32(chunkfile.HeaderSize+len(data)))
			data = append(data, it...)
		}
	}
	f.Mapped, f.DataSize, f.MapSize = true, int64(len(data)), int64(len(places))
	file := append(append(h.Bytes(), data...), places...)
	foot := f.Bytes(func(part []byte) [16]byte {
		sum := xxh3.New()
		_, _ = sum.Write(file) // A hash takes everything.
		_, _ = sum.Write(part)
		return sum.Sum128().Bytes()
	})
	return vfs.WriteFileAtomic(fsys, filepath.Join(dir, tmp), append(file, foot...))
}

func keepAll(chunkfile.Item) bool { return true }

// edit changes the bytes of a file.
func edit(t testing.TB, fsys vfs.FS, name string, change func(b []byte) []byte) {
	t.Helper()
	path := filepath.Join(testDir, name)
	b := check.Value(vfs.ReadFile(fsys, path)).Must(t)
	check.Must(t, vfs.WriteFileAtomic(fsys, path, change(bytes.Clone(b))))
}

func setCheckpoint(t testing.TB, fsys vfs.FS, name string, value int64) {
	t.Helper()
	edit(t, fsys, name, func([]byte) []byte { return chunkfile.Order.AppendUint64(nil, uint64(value)) })
}

func chunkFiles(t testing.TB, fsys vfs.FS) []string {
	t.Helper()
	names := check.Value(fsys.List(testDir)).Must(t)
	return slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, "chunk-") })
}

// someFrames makes frames over a few streams; every fifth completes its chunk if chunks is set.
func (m *model) someFrames(n int, chunks bool) []testFrame {
	from := len(m.frames)
	for i := range n {
		a, b := fmt.Sprint("a", i%3), fmt.Sprint("b", i%2)
		first := ev(a, fmt.Sprint("data ", i))
		first.metadata = fmt.Sprint("meta ", i)
		m.frame(chunks && i%5 == 4, first, ev(b, strings.Repeat("x", i%40)), ev(a, ""))
	}
	return m.frames[from:]
}

func checksumOf(b []byte) []byte {
	return chunkfile.Order.AppendUint32(nil, crc32.Checksum(b, chunkfile.Castagnoli))
}

func hash128(b []byte) [16]byte { return xxh3.Hash128(b).Bytes() }
