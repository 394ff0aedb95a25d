package scavenge_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/chunkfile"
)

// model knows the whole history of a log, decides what scavenges remove by the
// plain rules, and so what readers must find.
type model struct {
	cluster event.ID
	tail    event.Tail
	frames  []eventlog.Frame
	clock   int64 // nanoseconds
	records []*record
	streams map[string][]*record // of each stream, by number; tombstones left out
	points  []*record
	dead    map[string]bool
	ids     uint32
}

// record is one event of the model.
type record struct {
	stream   string
	number   int64
	position int64
	size     int
	time     int64
	id       event.ID
	typ      string
	flags    event.Flags
	data     []byte
	decided  bool // a run had to remove it
	removed  bool // it was seen to be gone
}

func newModel() *model {
	cluster := event.ID{7}
	return &model{
		cluster: cluster, tail: event.Tail{Chain: chunkfile.GenesisChain(cluster)}, clock: int64(1_700_000_000_000_000_000),
		streams: map[string][]*record{}, dead: map[string]bool{},
	}
}

// proposed is an event that is to be written.
type proposed struct {
	stream string
	typ    string
	flags  event.Flags
	data   []byte
	meta   []byte
}

func (m *model) id() (id event.ID) {
	m.ids++
	id[0], id[12], id[13], id[14], id[15] = 0xe, byte(m.ids>>24), byte(m.ids>>16), byte(m.ids>>8), byte(m.ids)
	return id
}

// write makes a frame of events and returns it; the holder of a log appends it.
func (m *model) write(events ...proposed) eventlog.Frame {
	size := 0
	made := make([]event.Proposed, len(events))
	for i, e := range events {
		made[i] = event.Proposed{ID: m.id(), Type: e.typ, Flags: e.flags & event.FlagJSON, Data: e.data, Metadata: e.meta}
		size += chunkfile.RecordSize(e.stream, &made[i])
	}
	f := eventlog.Frame{First: chunkfile.Place(m.tail.End, size), Index: m.tail.Index + 1, Term: 1}
	for i, e := range events {
		r := &record{
			stream: e.stream, number: int64(len(m.streams[e.stream])), position: f.First + int64(len(f.Records)), size: chunkfile.RecordSize(e.stream, &made[i]),
			time: m.clock, id: made[i].ID, typ: e.typ, flags: e.flags, data: e.data,
		}
		switch {
		case e.flags&event.FlagDeleted != 0:
			r.number = event.TombstoneNumber
			m.dead[e.stream] = true
		case event.IsMetaStream(e.stream) && m.dead[event.RootOf(e.stream)]:
			r.number = r.position
			fallthrough
		default:
			m.streams[e.stream] = append(m.streams[e.stream], r)
		}
		if e.stream == event.ScavengePointsStream {
			m.points = append(m.points, r)
			f.Completes = true
		}
		m.records = append(m.records, r)
		f.Records = chunkfile.AppendRecord(f.Records, r.position, r.stream, r.number, r.time, r.flags, &made[i])
	}
	m.tail = event.Tail{
		End: chunkfile.EndBehind(f.First, len(f.Records), f.Completes), Chain: chunkfile.NextChain(m.tail.Chain, f.First, f.Records), Index: f.Index, Term: 1, Time: m.clock,
	}
	m.frames = append(m.frames, f)
	return f
}

// below returns the newest record of a stream below a position, nil when there is none.
func (m *model) below(stream string, position int64) *record {
	all := m.streams[stream]
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].position < position {
			return all[i]
		}
	}
	return nil
}

// deadBelow reports whether a stream has its tombstone below a position.
func (m *model) deadBelow(stream string, position int64) bool {
	return slices.ContainsFunc(m.records, func(r *record) bool {
		return r.stream == stream && r.number == event.TombstoneNumber && r.position < position
	})
}

// decide notes what a scavenge for a point has to remove, by the rules.
func (m *model) decide(point *record) {
	p := point.position
	type facts struct {
		dead, rootDead bool
		last           int64
		meta           event.Metadata
	}
	known := map[string]*facts{}
	for _, r := range m.records {
		if r.position >= p || r.number == event.TombstoneNumber {
			continue
		}
		f := known[r.stream]
		if f == nil {
			f = &facts{last: m.below(r.stream, p).number, dead: m.deadBelow(r.stream, p)}
			if event.IsMetaStream(r.stream) {
				f.rootDead = m.deadBelow(event.OriginalOf(r.stream), p)
			} else if meta := m.below(event.MetaStreamOf(r.stream), p); meta != nil {
				f.meta = event.ParseMetadata(meta.data)
			}
			known[r.stream] = f
		}
		switch {
		case event.IsMetaStream(r.stream):
			r.decided = r.decided || r.number < f.last || f.rootDead
		case f.dead:
			r.decided = true
		case r.number < f.last:
			r.decided = r.decided || r.number < f.meta.TruncateBefore ||
				f.meta.MaxCount > 0 && r.number <= f.last-f.meta.MaxCount ||
				f.meta.MaxAge > 0 && r.time < point.time-int64(f.meta.MaxAge)
		}
	}
}

// view is what readers find of a stream.
type view struct {
	err     error
	numbers []int64
	last    int64
}

// read says what a reader of a stream has to find now.
func (m *model) read(stream string, now int64) view {
	if m.dead[stream] {
		return view{err: event.ErrStreamDeleted}
	}
	root := stream
	for event.IsMetaStream(root) {
		root = event.OriginalOf(root)
	}
	if m.dead[root] {
		return view{err: event.ErrStreamDeleted}
	}
	all := m.streams[stream]
	if len(all) == 0 {
		return view{err: event.ErrStreamNotFound}
	}
	meta := event.Metadata{Retention: event.Retention{MaxCount: 1}}
	if !event.IsMetaStream(stream) {
		meta = event.Metadata{}
		if metas := m.streams[event.MetaStreamOf(stream)]; len(metas) > 0 {
			meta = event.ParseMetadata(metas[len(metas)-1].data)
		}
	}
	if meta.SoftDeleted() {
		return view{err: event.ErrStreamNotFound}
	}
	v := view{last: all[len(all)-1].number}
	low := meta.MinVisible(v.last)
	for _, r := range all {
		if r.number >= low && (meta.MaxAge == 0 || r.time >= now-int64(meta.MaxAge)) && !r.decided {
			v.numbers = append(v.numbers, r.number)
		}
	}
	return v
}

// check holds a log against the model: every stream, every event by itself, and
// the log from both ends. strict says that everything that was decided must be gone.
func (m *model) check(t *testing.T, l *eventlog.Log, strict bool) {
	t.Helper()
	found := m.checkAll(t, l)
	for _, r := range m.records {
		there := found[r.position]
		switch {
		case !there && !r.decided:
			t.Fatalf("event %d of %s at %d is gone", r.number, r.stream, r.position)
		case there && r.removed:
			t.Fatalf("event %d of %s at %d is back", r.number, r.stream, r.position)
		case there && r.decided && strict:
			t.Fatalf("event %d of %s at %d is still there", r.number, r.stream, r.position)
		}
		r.removed = !there
	}
	for stream := range m.streams {
		m.checkStream(t, l, stream)
	}
}

// checkAll reads the whole log in both directions and returns the positions of what is there.
func (m *model) checkAll(t *testing.T, l *eventlog.Log) map[int64]bool {
	t.Helper()
	byPosition := map[int64]*record{}
	for _, r := range m.records {
		byPosition[r.position] = r
	}
	found := map[int64]bool{}
	var forward, backward []int64
	for from := int64(0); ; {
		page, err := l.Reads.ReadAll(event.AllRead{From: from, Count: 7})
		check.Must(t, err, "read the log from", from)
		for i := range page.Events {
			got := &page.Events[i].Record
			want := byPosition[got.Position]
			if want == nil {
				t.Fatalf("nothing was ever written at %d", got.Position)
			}
			if got.Stream != want.stream || got.Number != want.number || got.ID != want.id || got.Type != want.typ || got.Time != want.time ||
				got.Flags != want.flags || string(got.Data) != string(want.data) {
				t.Fatalf("event at %d is %v, was written as %+v", got.Position, got, want)
			}
			found[got.Position] = true
			forward = append(forward, got.Position)
		}
		if !page.More {
			break
		}
		from = page.Next
	}
	for from := event.End; ; {
		page, err := l.Reads.ReadAll(event.AllRead{From: from, Count: 5, Backward: true})
		check.Must(t, err, "read the log backward from", from)
		for i := range page.Events {
			backward = append(backward, page.Events[i].Position)
		}
		if !page.More {
			break
		}
		from = page.Next
	}
	slices.Reverse(backward)
	check.MustSlice(t, forward, backward, "forward ..., backward")
	return found
}

func (m *model) checkStream(t *testing.T, l *eventlog.Log, stream string) {
	t.Helper()
	want := m.read(stream, m.clock)
	for _, backward := range []bool{false, true} {
		got, err := readStream(l, stream, backward)
		check.MustEqual(t, err, want.err, "read", stream)
		if backward {
			slices.Reverse(got)
		}
		if !slices.Equal(got, want.numbers) {
			t.Fatalf("read %s (backward: %v): %v, want %v", stream, backward, got, want.numbers)
		}
	}
	info := check.Value(l.Reads.StreamInfo(stream)).Must(t)
	if last := int64(len(m.streams[stream]) - 1); want.err != event.ErrStreamDeleted && info.Last != last {
		t.Fatalf("last of %s is %d, want %d", stream, info.Last, last)
	}
	check.MustEqual(t, want.err == event.ErrStreamDeleted, info.HardDeleted, stream, "deleted is")
	// Retries: the ids of all that was ever written are known still.
	for _, r := range m.streams[stream] {
		if ok, err := l.Reads.HasID(stream, r.number, r.id); err != nil || !ok {
			t.Fatalf("id of event %d of %s is not known (%v): decided %v, removed %v", r.number, stream, err, r.decided, r.removed)
		}
	}
}

// readStream pages through a stream.
func readStream(l *eventlog.Log, stream string, backward bool) (numbers []int64, err error) {
	from, count := int64(0), 3
	if backward {
		from = event.Head
	}
	for range 10_000 {
		page, err := l.Reads.ReadStream(event.StreamRead{Stream: stream, From: from, Count: count, Backward: backward})
		if err != nil {
			return nil, err
		}
		for i := range page.Events {
			numbers = append(numbers, page.Events[i].Number)
		}
		switch {
		case backward && (page.From-int64(count) < page.Min || page.From < 0):
			return numbers, nil
		case backward:
			from = page.From - int64(count)
		case page.End || page.From > page.Last:
			return numbers, nil
		default:
			from = max(page.From+int64(count), page.Min)
		}
	}
	return nil, fmt.Errorf("stream %s has no end", stream)
}

func (m *model) advance(d time.Duration) { m.clock = min(m.clock+int64(d), math.MaxInt64) }
