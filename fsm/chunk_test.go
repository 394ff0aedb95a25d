package fsm_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/fsm"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// longLog is a log that ends wherever a test wants it to, with no stream in it.
type longLog struct{ tail event.Tail }

func (l *longLog) Tail() event.Tail { return l.tail }
func (l *longLog) StreamInfo(string) (event.StreamInfo, error) {
	return event.StreamInfo{Last: -1, MetaLast: -1}, nil
}
func (l *longLog) FindID(string, event.ID) (int64, bool, error) { return 0, false, nil }
func (l *longLog) HasID(string, int64, event.ID) (bool, error)  { return false, nil }
func (l *longLog) FirstMatch(*event.Query, int64, func(*event.Hit) (bool, error)) (*event.Hit, error) {
	return nil, nil
}
func (l *longLog) Around(int64, int, int) ([]event.Hit, error) { return nil, nil }
func (l *longLog) PositionOf(string, int64) (int64, error)     { return -1, nil }
func (l *longLog) LastRecord(string) (event.Record, error) {
	return event.Record{}, event.ErrStreamNotFound
}

// decideAt returns a decider over a log that ends so many bytes before the end of its second chunk.
func decideAt(t *testing.T, room int64) (d *fsm.Decider, end int64) {
	t.Helper()
	end = 2*chunkfile.ChunkSize - room
	clock := &leader{}
	d = fsm.NewDecider(&longLog{event.Tail{End: end, Chain: event.Chain{7}, Index: 9, Term: 1}}, clock.now)
	check.Must(t, d.Reset())
	return d, end
}

// sized returns an append of one event whose record takes so many bytes.
func sized(t *testing.T, stream string, size int) *event.Write {
	t.Helper()
	w := appending(stream, -2, size)
	w.Events[0].Data = nil
	w.Events[0].Data = make([]byte, size-chunkfile.RecordSize(stream, &w.Events[0]))
	return w
}

func sealed(t *testing.T, d *fsm.Decider) fsm.Entry {
	t.Helper()
	e := check.Value(fsm.ParseEntry(d.Seal())).Must(t)
	return e
}

func TestPlacesAtChunkBorders(t *testing.T) {
	const trailer, border = chunkfile.TrailerSize, 2 * chunkfile.ChunkSize
	for _, c := range []struct {
		name   string
		room   int64
		writes []int   // bytes of the records of each
		firsts []int64 // where the frames begin: below 0 before the border, else after it
		ends   int64   // the end of the last frame, the same way
	}{
		{"fits exactly", 1000 + trailer, []int{1000}, []int64{-1000 - trailer}, 0},
		{"one byte too long", 999 + trailer, []int{1000}, []int64{0}, 1000 + trailer},
		{"no room for a trailer", trailer - 1, []int{100}, []int64{0}, 100 + trailer},
		{"one byte left", 1, []int{100}, []int64{0}, 100 + trailer},
		{"at the border", 0, []int{100}, []int64{0}, 100 + trailer},
		{"two fit exactly", 1500 + trailer, []int{1000, 500}, []int64{-1500 - trailer}, 0},
		{"the second does not fit", 1499 + trailer, []int{1000, 500}, []int64{-1499 - trailer, 0}, 500 + trailer},
		{"the third does not fit", 1000 + trailer, []int{400, 500, 200}, []int64{-1000 - trailer, 0}, 200 + trailer},
		{"both after the border", 500, []int{1000, 1000}, []int64{0}, 2000 + trailer},
		{"the largest", 100, []int{fsm.MaxRecords}, []int64{0}, fsm.MaxRecords + trailer},
		{"the largest fits exactly", fsm.MaxRecords + trailer, []int{fsm.MaxRecords}, []int64{-fsm.MaxRecords - trailer}, 0},
		{"the largest after a small one", 20 << 20, []int{100, fsm.MaxRecords}, []int64{-20 << 20, 100 + trailer - 20<<20}, 100 + fsm.MaxRecords + 2*trailer - 20<<20},
		{"small ones up to the limit", 20 << 20, []int{fsm.EntryLimit - 100, 100, 100}, []int64{-20 << 20, fsm.EntryLimit + trailer - 20<<20}, fsm.EntryLimit + 100 + 2*trailer - 20<<20},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, end := decideAt(t, c.room)
			chain := event.Chain{7}
			var firsts []int64
			var last event.Written // of the entry being built
			done := 0              // writes decided
			check := func() {
				t.Helper()
				e := sealed(t, d)
				if e.End != end || e.Chain != chain || e.Completes || e.Applied != 2*chunkfile.ChunkSize-c.room {
					t.Fatalf("entry %+v after %d", fsm.Entry{End: e.End, Chain: e.Chain, Completes: e.Completes, Applied: e.Applied}, end)
				}
				if size := int64(c.writes[done-1]); last.Position != e.First+int64(len(e.Records))-size {
					t.Fatalf("write %d is at %d, of an entry at %d with %d bytes", done-1, last.Position, e.First, len(e.Records))
				}
				firsts = append(firsts, e.First-border)
				end = chunkfile.EndBehind(e.First, len(e.Records), false)
				chain = chunkfile.NextChain(chain, e.First, e.Records)
			}
			for i, size := range c.writes {
				w := sized(t, fmt.Sprint("stream-", i), size)
				got := d.Decide(w)
				if got.Full {
					check()
					got = d.Decide(w)
				}
				if got.Err != nil || got.Full || got.Written.First != 0 {
					t.Fatalf("write %d: %+v", i, got)
				}
				last, done = got.Written, i+1
			}
			check()
			if !equal(firsts, c.firsts) || end-border != c.ends {
				t.Fatalf("frames at %v, end %d; want %v, %d", firsts, end-border, c.firsts, c.ends)
			}
			if d.Seal() != nil {
				t.Fatal("sealed nothing, and got an entry")
			}
		})
	}
}

func TestScavengePointCompletesChunk(t *testing.T) {
	l := startLeader(t)
	follower := startNode(t, vfs.NewMem())
	l.write(appending("s", -2, 1))
	l.write(scavengePoint(50))
	for _, w := range []*event.Write{
		appending("s", -2, 2), describing("s", -2, 3, `{}`), scavengePoint(51),
		deleting(event.SoftDelete, "s", -2), deleting(event.HardDelete, "s", -2),
	} {
		if d := l.d.Decide(w); !d.Full {
			t.Fatalf("decided after a scavenge point: %+v", d)
		}
	}
	// What needs no room is answered.
	expect(t, l, appending("s", -2, 1), before(0, 0))
	expect(t, l, appending("s", 7, 1), conflict(0))
	expect(t, l, appending("s", -2, 2), wrote(1, 1)) // in the next entry
	expect(t, l, appending(event.ScavengePointsStream, 0, 52), wrote(1, 1))
	middle := appending(event.ScavengePointsStream, 1, 53, 54, 55)
	middle.Events[1].Type = event.TypeScavengePoint
	elsewhere := scavengePoint(56)
	elsewhere.Stream = "s"
	expect(t, l, elsewhere, wrote(2, 2)) // only the stream of points completes chunks
	expect(t, l, middle, wrote(2, 4))
	l.seal()
	expect(t, l, appending("s", 2, 60), wrote(3, 3))
	l.flush()

	var positions []int64
	for _, r := range l.all() {
		positions = append(positions, r.Position/chunkfile.ChunkSize)
	}
	if want := []int64{0, 0, 1, 1, 1, 1, 1, 1, 2}; !equal(positions, want) {
		t.Fatalf("chunks %v, want %v", positions, want)
	}
	for _, e := range l.history {
		mustAnswer(t, []any{follower.m.Apply(e)}, "ok")
	}
	check.MustEqual(t, l.log.Tail(), follower.log.Tail(), "tails ...")
	mustFail(t, follower, commands(l.index+1, 1, remake(entriesOf(l, scavengePoint(99))[0], func(e *fsm.Entry) { e.Completes = false })), "completes its chunk")
}

// A chunk fills up, and the log continues in the next one, on all nodes alike.
func TestChunkFillsUp(t *testing.T) {
	if testing.Short() {
		t.Skip("writes more than a whole chunk")
	}
	l := startLeader(t)
	data := make([]byte, fsm.MaxRecords-1000)
	large := 0
	for ; l.log.Tail().End+fsm.MaxRecords < chunkfile.ChunkSize; large++ {
		w := appending("large", int64(large)-1, large)
		w.Events[0].Data = data
		l.write(w)
		l.flush()
		l.history = nil
	}
	room := chunkfile.ChunkSize - l.log.Tail().End
	fill := sized(t, "fill", int(room)-chunkfile.TrailerSize-300)
	l.write(fill)
	l.seal()
	for i := range 5 { // some of them fit
		l.write(appending("small", int64(i)-1, i))
		l.seal()
	}
	l.apply(2)
	l.apply(100)
	l.write(appending("large", -4, 1000))
	l.flush()
	records := l.all()
	var behind int
	for _, r := range records {
		if r.Position >= chunkfile.ChunkSize {
			if behind == 0 && r.Position != chunkfile.ChunkSize {
				t.Fatalf("the chunk begins with a record at %d", r.Position)
			}
			behind++
		}
	}
	if behind != 5 || len(records) != large+1+5+1 {
		t.Fatalf("%d records, %d of them after the border", len(records), behind)
	}
	if shown := numbers(l, "small"); !equal(shown, []int64{0, 1, 2, 3, 4}) {
		t.Fatalf("shown %v", shown)
	}
}

func TestTooLarge(t *testing.T) {
	tooLarge := outcome{err: "too large"}
	l := startLeader(t)
	l.write(appending("s", -2, 1))
	expect(t, l, sized(t, "s", fsm.MaxRecords+1), tooLarge)
	half := make([]byte, fsm.MaxRecords/2)
	batch := appending("s", -2, 5, 6)
	batch.Events[0].Data, batch.Events[1].Metadata = half, half
	expect(t, l, batch, tooLarge)
	expect(t, l, appending("s", -2, 1), before(0, 0))
	expect(t, l, appending("s", -2, 5), wrote(1, 1)) // its id is not known
	// The metadata that revive a stream count too.
	l.write(deleting(event.SoftDelete, "s", -2))
	l.flush()
	expect(t, l, sized(t, "s", fsm.MaxRecords-50), tooLarge)
	expect(t, l, sized(t, "new", fsm.MaxRecords), wrote(0, 0))
	l.seal()
	if n := len(l.sealed[0]); n > chunkfile.MaxFrameBytes {
		t.Fatalf("entry of %d bytes", n)
	}
	l.apply(1)
	expect(t, l, appending("s", -1, 7), wrote(2, 2))
	l.flush()
	if shown := numbers(l, "s"); !equal(shown, []int64{2}) {
		t.Fatalf("shown %v", shown)
	}
}

// What cannot be read is an answer to the write, and changes nothing.
func TestLogFails(t *testing.T) {
	broken := errors.New("broken")
	l := startLeader(t)
	l.write(appending("s", -2, 1))
	l.write(describing("t", -2, 2, softDeleted))
	l.write(deleting(event.HardDelete, "u", -2))
	l.flush()
	failing := &failingLog{Log: l.log.Facts}
	d := fsm.NewDecider(failing, l.now)
	check.Must(t, d.Reset())
	writes := []*event.Write{
		appending("s", -2, 3), appending("s", -1, 3), appending("s", -1, 1), appending("t", -2, 3), deleting(event.SoftDelete, "t", -2), appending("u", -2, 1),
		describing("t", -2, 3, `{}`), deleting(event.SoftDelete, "s", -2), deleting(event.HardDelete, "s", -2),
	}
	failures := 0
	for ask := range 4 {
		for _, w := range writes {
			failing.left, failing.err = ask, broken
			if got := d.Decide(w); errors.Is(got.Err, broken) {
				failures++
				if got.Full || !reflect.DeepEqual(got.Written, event.Written{}) {
					t.Fatalf("%+v", got)
				}
			} else if ask == 0 {
				t.Fatalf("%s: %+v", w.Stream, got)
			}
			check.Must(t, d.Reset())
		}
	}
	if failures < 10 {
		t.Fatalf("only %d failures", failures)
	}
}

// failingLog fails the question after the next so many.
type failingLog struct {
	fsm.Log
	left int
	err  error
}

func (f *failingLog) ask() error {
	f.left--
	if f.left < 0 {
		return f.err
	}
	return nil
}

func (f *failingLog) StreamInfo(stream string) (event.StreamInfo, error) {
	if err := f.ask(); err != nil {
		return event.StreamInfo{}, err
	}
	return f.Log.StreamInfo(stream)
}

func (f *failingLog) FindID(stream string, id event.ID) (int64, bool, error) {
	if err := f.ask(); err != nil {
		return 0, false, err
	}
	return f.Log.FindID(stream, id)
}

func (f *failingLog) HasID(stream string, number int64, id event.ID) (bool, error) {
	if err := f.ask(); err != nil {
		return false, err
	}
	return f.Log.HasID(stream, number, id)
}

func (f *failingLog) PositionOf(stream string, number int64) (int64, error) {
	if err := f.ask(); err != nil {
		return 0, err
	}
	return f.Log.PositionOf(stream, number)
}

func (f *failingLog) LastRecord(stream string) (event.Record, error) {
	if err := f.ask(); err != nil {
		return event.Record{}, err
	}
	return f.Log.LastRecord(stream)
}

// Facts leave the decider with the entries that they belong to.
func TestPendingIsForgotten(t *testing.T) {
	l := startLeader(t)
	const entries, each = 50, 40
	n := 0
	for i := range entries {
		for range each {
			n++
			l.write(appending("hot", -2, n)) // in every entry
			l.write(appending(fmt.Sprint("cold-", n), -2, n))
		}
		l.write(describing("hot", -2, n, `{}`))
		l.seal()
		if i > 0 {
			l.apply(1)
		}
		// The last entry: its cold streams, the hot one and its metadata stream.
		if streams, ids := l.d.Pending(); streams != each+2 || ids != 2*each+1 && ids != each+1+2*each {
			t.Fatalf("entry %d: %d streams and %d ids are pending", i, streams, ids)
		}
	}
	l.apply(1)
	if streams, ids := l.d.Pending(); streams != 0 || ids != 0 {
		t.Fatalf("%d streams and %d ids are pending", streams, ids)
	}
	l.d.Applied() // One more changes nothing.
	expect(t, l, appending("hot", -2, n+1), wrote(int64(n), int64(n)))
	l.reset()
	if streams, ids := l.d.Pending(); streams != 0 || ids != 0 {
		t.Fatalf("%d streams and %d ids after a reset", streams, ids)
	}
	expect(t, l, appending("hot", -2, n+1), wrote(int64(n), int64(n)))
	l.flush()
}

// Times never fall, whatever the clock does, whatever node leads.
func TestTimes(t *testing.T) {
	l := startLeader(t)
	for i, clock := range []int64{5000, 3000, 4000, 6000} {
		l.clock = clock
		l.write(appending("s", -2, 2*i))
		l.seal()
		l.clock -= 1000
		l.write(appending("s", -2, 2*i+1))
		l.flush()
		l.clock -= 1000
		l.lead()
	}
	var times []int64
	for _, r := range l.all() {
		times = append(times, r.Time)
	}
	if want := []int64{5001, 5001, 5001, 5001, 5001, 5001, 6001, 6001}; !equal(times, want) {
		t.Fatalf("times %v, want %v", times, want)
	}

	// All events of one write have the same, the metadata that show a stream again too.
	l.clock, times = 7000, nil
	l.write(appending("s", -2, 20, 21, 22))
	l.write(deleting(event.SoftDelete, "s", -2))
	l.write(gathered(nil, appending("s", -2, 23, 24), appending("t", -2, 25)))
	l.flush()
	for _, r := range l.all()[8:] {
		times = append(times, r.Time)
	}
	if want := []int64{7001, 7001, 7001, 7002, 7003, 7003, 7003, 7003}; !equal(times, want) {
		t.Fatalf("times of writes %v, want %v", times, want)
	}
}

// A scavenge point says what the leader's clock showed, where its time is the log's. Nothing else
// does.
func TestScavengePointKeepsTheClock(t *testing.T) {
	l := startLeader(t)
	for i, c := range []struct {
		clock int64
		want  string
	}{
		{5000, ""},
		{3000, `{"effectiveNow":"1970-01-01T00:00:00.000003001Z"}`},
		{4_000_000_000, ""},
		{-1, `{"effectiveNow":"1970-01-01T00:00:00Z"}`},
	} {
		l.clock = c.clock
		w := scavengePoint(10 * i)
		w.Events = append(w.Events, appending("", 0, 10*i+1).Events...)
		l.write(w)
		l.write(appending("s", -2, 10*i+2))
		l.flush()
		all := l.all()
		all = all[len(all)-3:]
		if point, beside, other := string(all[0].Metadata), string(all[1].Metadata), string(all[2].Metadata); point != c.want || beside != "" || other != "" {
			t.Errorf("clock %d: metadata of the point %q, next to it %q, after it %q; want %q and none", c.clock, point, beside, other, c.want)
		}
		if w.Events[0].Metadata != nil {
			t.Error("the write that was decided is changed")
		}
	}
}

// Flags that only the database sets are not taken from a client.
func TestFlags(t *testing.T) {
	l := startLeader(t)
	w := appending("s", -2, 1)
	w.Events[0].Flags = 0xffff
	l.write(w)
	l.flush()
	check.MustEqual(t, l.all()[0].Flags, event.FlagJSON, "flags")
	if a := l.m.ApplyBatch([]*raft.Log{{Index: l.index + 1, Term: 1, Type: raft.LogConfiguration}}); a[0] != nil {
		t.Fatal(a)
	}
}
