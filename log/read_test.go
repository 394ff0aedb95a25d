package eventlog

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

const second = int64(time.Second)

// numbers makes the list from..to, in either direction.
func numbers(from, to int64) (list []int64) {
	for n := from; ; {
		list = append(list, n)
		if n == to {
			return list
		}
		if n < to {
			n++
		} else {
			n--
		}
	}
}

func TestStreamPages(t *testing.T) {
	// 25 events, one a second, with "now" at the time of the last one.
	cases := []struct {
		name     string
		metadata string
		removed  []int64 // scavenged
		from     int64
		count    int
		backward bool
		want     []int64
		end      bool
	}{
		{"head", "", nil, event.Head, 20, true, numbers(24, 5), false},
		{"second page backward", "", nil, 4, 20, true, numbers(4, 0), true},
		{"backward to exactly the first", "", nil, 19, 20, true, numbers(19, 0), true},
		{"backward from above the last", "", nil, 30, 20, true, numbers(24, 11), false},
		{"backward from far above the last", "", nil, 1000, 20, true, nil, false},
		{"backward from the greatest number", "", nil, math.MaxInt64, 20, true, nil, false},
		{"backward from the least number", "", nil, math.MinInt64, 20, true, nil, true},
		{"backward, greatest count", "", nil, event.Head, math.MaxInt, true, numbers(24, 0), true},
		{"first page", "", nil, 0, 20, false, numbers(0, 19), false},
		{"forward to exactly the last", "", nil, 0, 25, false, numbers(0, 24), true},
		{"second page forward", "", nil, 20, 20, false, numbers(20, 24), true},
		{"the page to poll", "", nil, 25, 20, false, nil, true},
		{"forward from far above the last", "", nil, 1000, 20, false, nil, true},
		{"forward from the greatest number", "", nil, math.MaxInt64, 20, false, nil, true},
		{"forward, greatest count", "", nil, 3, math.MaxInt, false, numbers(3, 24), true},

		{"$tb, head", `{"$tb":10}`, nil, event.Head, 20, true, numbers(24, 10), true},
		{"$tb, head, short of it", `{"$tb":10}`, nil, event.Head, 14, true, numbers(24, 11), false},
		{"$tb, backward below it", `{"$tb":10}`, nil, 9, 5, true, nil, true},
		{"$tb, first page", `{"$tb":10}`, nil, 0, 20, false, numbers(10, 19), false},
		{"$tb, page all hidden", `{"$tb":10}`, nil, 0, 10, false, nil, false},
		{"$tb, page half hidden", `{"$tb":10}`, nil, 8, 5, false, numbers(10, 12), false},
		{"$tb above the last, head", `{"$tb":25}`, nil, event.Head, 20, true, nil, true},
		{"$tb above the last, forward", `{"$tb":25}`, nil, 0, 25, false, nil, false},
		{"$tb above the last, forward beyond", `{"$tb":25}`, nil, 25, 20, false, nil, true},

		{"$maxCount, head", `{"$maxCount":3}`, nil, event.Head, 20, true, numbers(24, 22), true},
		{"$maxCount, forward", `{"$maxCount":3}`, nil, 10, 20, false, numbers(22, 24), true},
		{"maxCount, head", `{"maxCount":3}`, nil, event.Head, 20, true, numbers(24, 22), true},
		{"$maxCount over maxCount", `{"maxCount":3,"$maxCount":2,"truncateBefore":"5"}`, nil, event.Head, 20, true, numbers(24, 23), true},
		{"$maxCount beyond 64 bits", `{"$maxCount":99999999999999999999}`, nil, 0, 5, false, numbers(0, 4), false},
		{"$maxCount above all", `{"$maxCount":300}`, nil, 0, 5, false, numbers(0, 4), false},
		{"$maxCount and $tb", `{"$maxCount":10,"$tb":20}`, nil, event.Head, 20, true, numbers(24, 20), true},

		{"$maxAge, head", `{"$maxAge":4}`, nil, event.Head, 20, true, numbers(24, 20), true},
		{"$maxAge, head, short of it", `{"$maxAge":4}`, nil, event.Head, 5, true, numbers(24, 20), false},
		{"$maxAge, backward below it", `{"$maxAge":4}`, nil, 15, 5, true, nil, true},
		{"$maxAge, first page", `{"$maxAge":4}`, nil, 0, 10, false, nil, false},
		{"$maxAge, page half expired", `{"$maxAge":4}`, nil, 15, 8, false, numbers(20, 22), false},
		{"$maxAge, all to the end", `{"$maxAge":4}`, nil, 15, 20, false, numbers(20, 24), true},

		{"scavenged start, head", "", numbers(0, 9), event.Head, 20, true, numbers(24, 10), true},
		{"scavenged start, forward", "", numbers(0, 9), 0, 5, false, nil, false},
		{"hole, forward", "", numbers(3, 6), 0, 10, false, []int64{0, 1, 2, 7, 8, 9}, false},
		{"hole, backward", "", numbers(3, 6), 9, 9, true, []int64{9, 8, 7, 2, 1}, false},
		{"hole, backward into it", "", numbers(3, 6), 9, 6, true, []int64{9, 8, 7}, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := newModel()
			for n := range int64(25) {
				e := ev("s", fmt.Sprint(n))
				e.time = (n + 1) * second
				m.frame(n == 24, e, ev("other", "x"))
			}
			if c.metadata != "" {
				m.frame(false, meta("s", c.metadata))
			}
			fsys := vfs.NewMem()
			o := testOptions(fsys)
			o.Now = func() time.Time { return time.Unix(25, 0) }
			l := mustOpen(t, o)
			write(t, l, m.frames...)
			if c.removed != nil {
				rewrite(t, fsys, "x.tmp", []string{chunkfile.FileName(0, 0)}, func(it chunkfile.Item) bool {
					return string(it.Stream()) != "s" || !slices.Contains(c.removed, it.Number())
				})
				check.Must(t, l.SwitchChunk("x.tmp"))
			}
			page, err := l.Reads.ReadStream(event.StreamRead{Stream: "s", From: c.from, Count: c.count, Backward: c.backward, Links: event.EveryLink})
			check.Must(t, err)
			var got []int64
			for _, e := range page.Events {
				got = append(got, e.Number)
				if string(e.Data) != fmt.Sprint(e.Number) || e.Stream != "s" || e.Type != "t" || e.Time != (e.Number+1)*second {
					t.Errorf("event %+v", e)
				}
			}
			if !slices.Equal(got, c.want) || page.End != c.end || page.Last != 24 {
				t.Fatalf("events %v, end %v, last %d; want %v, end %v", got, page.End, page.Last, c.want, c.end)
			}
			if c.from == event.Head && page.From != 24 || c.from != event.Head && page.From != c.from {
				t.Fatalf("from %d", page.From)
			}
			checkGaps(t, l)
		})
	}
}

// checkGaps reads a stream with pages that look for their events through gaps. Together they are
// one large page.
func checkGaps(t *testing.T, l *Log) {
	t.Helper()
	for _, backward := range []bool{false, true} {
		r := event.StreamRead{Stream: "s", Count: 1000, Backward: backward}
		if backward {
			r.From = event.Head
		}
		whole := check.Value(l.Reads.ReadStream(r)).Must(t)
		for _, r.Count = range []int{1, 3, 40} {
			for _, r.MaxScan = range []int{2, 7, 1000} {
				r.From = whole.From
				var got []event.Resolved
				for isOver, pages := false, 0; !isOver; pages++ {
					page := check.Value(l.Reads.ReadStream(r)).Must(t)
					got = append(got, page.Events...)
					if len(page.Events) > r.Count || pages > 30 || page.Next == r.From && !page.End {
						t.Fatalf("%+v: %+v", r, page)
					}
					r.From, isOver = page.Next, page.Next < 0 || page.Next > page.Last
				}
				check.Deep(t, got, whole.Events, r)
			}
		}
	}
}

func TestMaxAgeAllExpired(t *testing.T) {
	m := newModel()
	for range 5 {
		m.frame(false, ev("s", "x"))
	}
	m.frame(false, meta("s", `{"$maxAge":1}`))
	o := testOptions(vfs.NewMem())
	o.Now = func() time.Time { return time.Unix(10, 0) }
	l := mustOpen(t, o)
	write(t, l, m.frames...)
	page, err := l.Reads.ReadStream(event.StreamRead{Stream: "s", From: 0, Count: 2})
	if err != nil || len(page.Events) != 0 || !page.End {
		t.Fatalf("%+v, %v", page, err)
	}
	check.MustBe(t, check.Err(l.Reads.ReadEvent("s", event.Head, nil)), event.ErrEventNotFound)
	if rec, err := l.Reads.LastRecord("s"); err != nil || rec.Number != 4 {
		t.Fatalf("%+v, %v", rec, err)
	}
}

func TestEventsAndLinks(t *testing.T) {
	m := newModel()
	m.frame(false, ev("s", "0"), ev("s", "1"), ev("s", "2"))
	m.frame(false, ev("soft", "0"), ev("hard", "0"), ev("cut", "0"), ev("cut", "1"), ev("a@b", "at"))
	m.frame(false, meta("soft", `{"$tb":9223372036854775807}`), tombstone("hard"), meta("cut", `{"$tb":1}`), meta("bare", `{}`), meta("hard", `{}`))
	links := []string{"1@s", "7@s", "0@soft", "0@hard", "0@cut", "1@cut", "0@nobody", "0@a@b", "text", "-1@s", "@s", "1@", "9223372036854775807@hard", "0@l"}
	for _, to := range links {
		e := ev("l", to)
		e.typ = event.TypeLink
		m.frame(false, e)
	}
	l := mustOpen(t, testOptions(vfs.NewMem()))
	write(t, l, m.frames...)
	for _, c := range []struct {
		stream string
		number int64
		want   error
	}{
		{"s", 0, nil}, {"s", 2, nil}, {"s", event.Head, nil}, {"s", 3, event.ErrEventNotFound}, {"s", -2, event.ErrEventNotFound},
		{"s", math.MaxInt64, event.ErrEventNotFound}, {"soft", 0, event.ErrStreamNotFound}, {"hard", 0, event.ErrStreamDeleted},
		{"hard", event.TombstoneNumber, event.ErrStreamDeleted}, {"cut", 0, event.ErrEventNotFound}, {"cut", 1, nil},
		{"nobody", 0, event.ErrStreamNotFound}, {"bare", 0, event.ErrStreamNotFound}, {"$$bare", 0, nil}, {"$$hard", 0, event.ErrStreamDeleted},
		{"$$$$hard", 0, event.ErrStreamDeleted}, {"$$soft", event.Head, nil}, {"", 0, event.ErrStreamNotFound},
	} {
		r, err := l.Reads.ReadEvent(c.stream, c.number, event.EveryLink)
		if !errors.Is(err, c.want) || err == nil && r.Stream != c.stream {
			t.Errorf("event %d of %q: %+v, %v", c.number, c.stream, r, err)
		}
	}
	states := []event.LinkState{event.LinkResolved, event.LinkDead, event.LinkDead, event.LinkDead, event.LinkDead, event.LinkResolved,
		event.LinkDead, event.LinkResolved, event.NotLink, event.NotLink, event.NotLink, event.LinkDead, event.LinkDead, event.LinkResolved}
	page, err := l.Reads.ReadStream(event.StreamRead{Stream: "l", Count: 100, Links: event.EveryLink})
	check.Must(t, err)
	for i, e := range page.Events {
		if e.Link != states[i] || (e.Target != nil) != (states[i] == event.LinkResolved) || e.Number != int64(i) {
			t.Errorf("link to %s: state %d, target %+v", links[i], e.Link, e.Target)
		}
	}
	if e := page.Events[7]; e.TargetStream != "a@b" || e.TargetNumber != 0 || string(e.Event().Data) != "at" {
		t.Errorf("%+v", e)
	}
	all, err := l.Reads.ReadAll(event.AllRead{From: 0, Count: 100, Links: event.EveryLink, Filter: func(stream, _ string) (bool, error) { return stream == "l", nil }})
	check.Must(t, err)
	if len(all.Events) != len(links) || all.Events[0].Link != event.LinkResolved || all.Events[1].Link != event.LinkDead {
		t.Errorf("%+v", all.Events)
	}
	for stream, want := range map[string]struct {
		number int64
		err    error
	}{"hard": {0, nil}, "soft": {0, nil}, "$$soft": {0, nil}, "nobody": {0, event.ErrStreamNotFound}, "bare": {0, event.ErrStreamNotFound}} {
		rec, err := l.Reads.LastRecord(stream)
		if !errors.Is(err, want.err) || err == nil && rec.Number != want.number {
			t.Errorf("last record of %s: %+v, %v", stream, rec, err)
		}
	}
	for stream, want := range map[string]error{"hard": nil, "soft": event.ErrEventNotFound, "$$hard": event.ErrEventNotFound, "nobody": event.ErrEventNotFound} {
		rec, err := l.Reads.Tombstone(stream)
		if !errors.Is(err, want) || err == nil && (rec.Number != event.TombstoneNumber || rec.Stream != stream) {
			t.Errorf("tombstone of %s: %+v, %v", stream, rec, err)
		}
	}
	info, err := l.Reads.StreamInfo("hard")
	if err != nil || !info.HardDeleted || info.Last != 0 || info.MetaLast != 0 {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestReadAll(t *testing.T) {
	m := newModel()
	m.someFrames(7, true)
	m.frame(false, ev("$epoch-information", "hidden"), ev("$persistentsubscription-$all::g-checkpoint", "hidden"),
		ev("$persistentsubscription-$all::g-parked", "hidden"), ev("$persistentsubscription-s::g-parked", "shown"))
	m.someFrames(2, false)
	l := mustOpen(t, testOptions(vfs.NewMem()))
	write(t, l, m.frames...)
	verify(t, l, m.frames, nil)

	// A filter counts only what it lets through; MaxScan counts all.
	only := func(stream, typ string) (bool, error) { return stream == "a1" && typ == "t", nil }
	var got []event.Resolved
	pages := 0
	for from := int64(0); ; pages++ {
		page, err := l.Reads.ReadAll(event.AllRead{From: from, Count: 3, Filter: only, MaxScan: 4})
		check.Must(t, err)
		got = append(got, page.Events...)
		if !page.More {
			check.MustEqual(t, page.Next, m.tail.End, page)
			check.MustEqual(t, page.LogEnd, m.tail.End, page)
			break
		}
		from = page.Next
	}
	if len(got) != 6 || pages != 31/4 {
		t.Fatalf("%d events in %d pages", len(got), pages)
	}
	for i, e := range got {
		check.MustEqual(t, e.Number, int64(i), "event ... in place", i)
	}
	page, err := l.Reads.ReadAll(event.AllRead{From: event.End, Count: 2, Backward: true, MaxScan: 1})
	if err != nil || len(page.Events) != 1 || !page.More || page.Next != page.Events[0].Position {
		t.Fatalf("%+v, %v", page, err)
	}
}

// TestReadAllFilterFails: a page ends before the record at which its filter failed.
func TestReadAllFilterFails(t *testing.T) {
	m := newModel()
	m.frame(false, ev("a", "t"), ev("a", "t"), ev("b", "t"), ev("a", "t"))
	l := mustOpen(t, testOptions(vfs.NewMem()))
	write(t, l, m.frames...)
	events := m.frames[0].events
	broken := errors.New("broken")
	filter := func(stream, _ string) (bool, error) {
		if stream == "b" {
			return true, broken
		}
		return true, nil
	}
	for _, c := range []struct {
		from, next int64
		backward   bool
		events     int
	}{
		{0, events[2].position, false, 2}, {events[2].position, events[2].position, false, 0},
		{event.End, events[3].position, true, 1}, {events[3].position, events[3].position, true, 0},
	} {
		page, err := l.Reads.ReadAll(event.AllRead{From: c.from, Count: 9, Backward: c.backward, Filter: filter})
		check.Must(t, err)
		if page.Next != c.next || len(page.Events) != c.events || page.Looked != c.events || !page.More || page.Failed != broken {
			t.Errorf("from %d: %+v", c.from, page)
		}
	}
}

// TestReadAllLooked: a page says how many records were looked at and which one was the last,
// whatever was chosen among them.
func TestReadAllLooked(t *testing.T) {
	m := newModel()
	m.someFrames(7, true)
	m.frame(false, ev("$epoch-information", "hidden"), ev("$epoch-information", "hidden"))
	m.someFrames(2, false)
	l := mustOpen(t, testOptions(vfs.NewMem()))
	write(t, l, m.frames...)
	var all []int64 // positions of all records, hidden ones too
	check.Must(t, l.Chunks.Scan(background, 0, m.tail.End, func(s *Stored) error { all = append(all, s.Position); return nil }))
	for name, filter := range map[string]func(stream, typ string) (bool, error){
		"all": nil, "none": func(string, string) (bool, error) { return false, nil }, "some": func(stream, _ string) (bool, error) { return stream == "a1", nil },
	} {
		for _, backward := range []bool{false, true} {
			for _, count := range []int{1, 3, 1000} {
				for _, most := range []int{0, 1, 4, len(all), len(all) + 1} {
					from, left := int64(0), all
					if backward {
						from, left = event.End, slices.Clone(all)
						slices.Reverse(left)
					}
					for more := true; more; {
						page, err := l.Reads.ReadAll(event.AllRead{From: from, Count: count, Backward: backward, Filter: filter, MaxScan: most})
						check.Must(t, err)
						last := int64(-1)
						if page.Looked > 0 && page.Looked <= len(left) {
							last = left[page.Looked-1]
						}
						if page.Last != last || page.Looked < len(page.Events) || page.Looked > len(left) || most > 0 && page.Looked > most ||
							page.More && len(page.Events) < count && page.Looked != most || !page.More && page.Looked != len(left) {
							t.Fatalf("%s, backward %v, count %d, at most %d of %d: %d looked at, last %d, %d events, more %v",
								name, backward, count, most, len(left), page.Looked, page.Last, len(page.Events), page.More)
						}
						left, from, more = left[page.Looked:], page.Next, page.More
					}
				}
			}
		}
	}
}

func TestReadAllPositions(t *testing.T) {
	m := newModel()
	m.someFrames(7, true)
	l := mustOpen(t, testOptions(vfs.NewMem()))
	write(t, l, m.frames...)
	starts := map[int64]bool{} // of items
	for _, f := range m.frames {
		for _, e := range f.events {
			starts[e.position] = true
		}
		starts[f.First+int64(len(f.Records))] = true
		starts[f.First+int64(len(f.Records))+chunkfile.TrailerSize] = true
	}
	firstEnd := m.frames[4].First + int64(len(m.frames[4].Records)) + chunkfile.TrailerSize
	var probes []int64
	for p := int64(-300); p < 400; p++ {
		probes = append(probes, p, firstEnd+p, chunkfile.ChunkSize+p, m.tail.End+p)
	}
	probes = append(probes, math.MaxInt64, math.MaxInt64-1, math.MinInt64, 7*chunkfile.ChunkSize)
	for _, from := range probes {
		if from == event.End {
			continue
		}
		for _, backward := range []bool{false, true} {
			bad := from < 0 || from > 0 && from < m.tail.End && !starts[from] && (from < firstEnd || from > chunkfile.ChunkSize)
			page, err := l.Reads.ReadAll(event.AllRead{From: from, Count: 1, Backward: backward})
			if bad != errors.Is(err, event.ErrBadPosition) || !bad && err != nil {
				t.Fatalf("from %d, backward %v: %v", from, backward, err)
			}
			if from > m.tail.End && !backward && (page.Next != from || page.More || len(page.Events) > 0) {
				t.Fatalf("from %d beyond the end: %+v", from, page)
			}
			if from > m.tail.End && backward && (page.From != m.tail.End || len(page.Events) != 1) {
				t.Fatalf("back from %d beyond the end: %+v", from, page)
			}
		}
	}
	for p := int64(-300); p < m.tail.End+300; p += 1 {
		if p == firstEnd+100 {
			p = chunkfile.ChunkSize - 100
		}
		_, ok, err := l.ChainAt(p)
		want := p == 0 || slices.ContainsFunc(m.frames, func(f testFrame) bool {
			return p == f.tail.End || p == f.First+int64(len(f.Records))+chunkfile.TrailerSize
		})
		if ok != want || err != nil {
			t.Fatalf("chain at %d: %v (%v), want %v", p, ok, err, want)
		}
	}
}

// TestDamageIsNotABadPosition: a position that is one, with damaged bytes, is corruption.
func TestDamageIsNotABadPosition(t *testing.T) {
	fsys, m := madeLog(t, func(m *model) { m.someFrames(7, true) })
	at := m.frames[2].events[1].position
	edit(t, fsys, chunkfile.FileName(0, 0), func(b []byte) []byte { b[chunkfile.HeaderSize+at+60] ^= 1; return b })
	o := testOptions(fsys)
	l := mustOpen(t, o)
	var c *event.Corruption
	if _, err := l.Reads.ReadAll(event.AllRead{From: at, Count: 1}); !errors.As(err, &c) || filepath.Base(c.File) != chunkfile.FileName(0, 0) || c.Offset != chunkfile.HeaderSize+at {
		t.Fatal(err)
	}
	check.MustBe(t, check.Err(l.Reads.ReadAll(event.AllRead{From: at + 8, Count: 1})), event.ErrBadPosition)
	if _, err := l.Reads.ReadAll(event.AllRead{From: m.frames[2].events[2].position, Count: 1, Backward: true}); !event.IsCorruption(err) {
		t.Fatal(err)
	}
	check.Must(t, check.Err(l.Reads.ReadAll(event.AllRead{From: m.frames[2].events[2].position, Count: 1})))
}

// TestHashCollisions: two streams share a hash, and each is read as if it were alone.
func TestHashCollisions(t *testing.T) {
	for odd := range 2 {
		t.Run(fmt.Sprint(odd), func(t *testing.T) {
			m := newModel()
			a, b := colliding(1)
			for i := range 30 {
				m.frame(false, ev(b, fmt.Sprint("b", i)))
				m.frame(false, ev(a, fmt.Sprint("a", i)))
			}
			m.frame(false, ev(b, "more"), ev(b, "and more"), tombstone(b), ev("x", ""))
			o := testOptions(vfs.NewMem())
			o.StreamCache = 64
			l := mustOpen(t, o)
			write(t, l, m.frames[:len(m.frames)-1]...)
			var foreign []index.Entry
			for _, e := range m.frames[len(m.frames)-1].events {
				if e.stream == b {
					foreign = append(foreign, index.Entry{Hash: chunkfile.HashStream(a), Number: e.number, Position: e.position})
				}
			}
			// Before their records are published, as a commit does it.
			check.Must(t, l.index.Add(foreign, m.tail.End, m.tail.Chain))
			check := func() {
				t.Helper()
				l.Reads.streams.shard(chunkfile.HashStream(a)).streams = map[uint64]*cachedStream{}
				info, err := l.Reads.StreamInfo(a)
				if err != nil || info.Last != 29 || info.HardDeleted {
					t.Fatalf("%+v, %v", info, err)
				}
				for count := 1; count < 40; count++ {
					for _, backward := range []bool{false, true} {
						page, err := l.Reads.ReadStream(event.StreamRead{Stream: a, From: int64(odd + 29*b2i(backward)), Count: count, Backward: backward})
						check.Must(t, err)
						want := numbers(int64(odd), min(29, int64(odd+count-1)))
						if backward {
							want = numbers(int64(29), max(0, int64(29-count+1)))
							if odd == 1 {
								want = numbers(int64(29), max(0, int64(30-count+1)))
							}
							if odd == 1 && count == 1 {
								want = nil
							}
						}
						var got []int64
						for _, e := range page.Events {
							if got = append(got, e.Number); string(e.Data) != fmt.Sprint("a", e.Number) {
								t.Fatalf("event %d is %s", e.Number, e.Data)
							}
						}
						check.MustSlice(t, got, want, count, "events, backward", backward)
					}
				}
			}
			check()
			write(t, l, m.frames[len(m.frames)-1])
			check()
			if l.Statistics().HashCollisions == 0 {
				t.Fatal("no collision was met")
			}
		})
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
