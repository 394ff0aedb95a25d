package eventlog

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/index"
)

// history writes random events, deletions and limits.
type history struct {
	*rand.Rand
	t       *testing.T
	m       *model
	l       *Log
	deleted map[string]bool

	withdrawn map[int64]bool // positions of events whose metadata the log says to be redacted
}

var (
	oneName, other = colliding(3)
	queryStreams   = []string{"order-1", "order-2", "order", "account-1", "account-2", "plain", "$system-1", oneName, other}
	sameA, sameB   = collidingSeeded(1, uint64(label.Type))
	queryTypes     = []string{"Placed", "Paid", "$note", sameA, sameB}
	queryTags      = []string{"show:1", "show:2", "seat:7"}
)

func (h *history) pick(of []string) string { return of[h.IntN(len(of))] }

func (h *history) step() {
	stream := h.pick(queryStreams)
	if h.deleted[stream] {
		return
	}
	var events []testEvent
	switch h.IntN(20) {
	case 0:
		events = append(events, meta(stream, fmt.Sprintf(`{"$maxCount":%d}`, 1+h.IntN(3))))
	case 1:
		events = append(events, meta(stream, fmt.Sprintf(`{"$tb":%d}`, h.IntN(8))))
	case 2:
		events = append(events, meta(stream, `{"$tb":9223372036854775807}`))
	case 3:
		events = append(events, meta(stream, `{}`))
	case 4:
		if h.IntN(3) == 0 {
			h.deleted[stream] = true
			events = append(events, tombstone(stream))
		}
	}
	for range h.IntN(4) {
		if h.deleted[stream] {
			break
		}
		e := testEvent{stream: stream, typ: h.pick(queryTypes), data: "d"}
		var tags []string
		for range h.IntN(3) {
			tags = append(tags, `"`+h.pick(queryTags)+`"`)
		}
		e.metadata = `{"$tags":[` + strings.Join(slices.Compact(tags), ",") + `],"$correlationId":"c` + fmt.Sprint(h.IntN(3)) + `"}`
		events = append(events, e)
	}
	if len(events) == 0 {
		return
	}
	if h.IntN(8) == 0 {
		events = append(events, h.redacted())
	}
	f := h.m.frame(h.IntN(40) == 0, events...)
	check.Must(h.t, h.l.Append(f.Frame))
	check.Must(h.t, h.l.Commit())
}

// redacted is what the log says of an event, past or not, whose metadata is redacted.
func (h *history) redacted() testEvent {
	const format = `{"metadata":%t,"events":[{"stream":%q,"number":%d,"position":%d,"eventId":%q}]}`
	e := testEvent{stream: event.RedactionsStream, typ: event.TypeRedacted, data: "{}"}
	if len(h.m.frames) == 0 {
		return e
	}
	f := h.m.frames[h.IntN(len(h.m.frames))]
	of := f.events[h.IntN(len(f.events))]
	of.stream = strings.ToValidUTF8(of.stream, "?") // as encoding/json does
	switch h.IntN(8) {
	case 0: // the data alone
		e.data = fmt.Sprintf(format, false, of.stream, of.number, of.position, of.id)
	case 1: // of the log that this one was copied from
		e.data = fmt.Sprintf(format, true, of.stream, of.number, of.position, event.ID{1})
	default:
		e.data = fmt.Sprintf(format, true, of.stream, of.number, of.position, of.id)
		h.withdrawn[of.position] = true
	}
	return e
}

// blank blanks such events in all complete chunks, and removes what they are posted for.
func (h *history) blank() {
	check.Must(h.t, h.l.Sync())
	all := slices.Sorted(maps.Keys(h.withdrawn))
	var blanked []int64
	for _, c := range check.Value(h.l.Chunks.List()).Must(h.t) {
		if !c.Complete {
			continue
		}
		check.Must(h.t, check.Err(h.l.Chunks.Rewrite(h.t.Context(), Rewrite{First: c.First, Last: c.Last, Redact: all, RedactMetadata: all})))
		for _, at := range all {
			if at >= c.Start && at < c.End {
				blanked = append(blanked, at)
			}
		}
	}
	if h.IntN(3) == 0 {
		return // The power was cut.
	}
	check.Must(h.t, h.l.postings.Scavenge(h.t.Context(), index.ScavengeOptions{Keep: h.l.Chunks.Backs}))
	for _, at := range blanked {
		var tags []label.Label
		for _, tag := range queryTags {
			tags = append(tags, label.Label{Kind: label.Tag, Key: tag})
		}
		check.Equal(h.t, len(check.Value(h.l.postings.Lacking(tags, at)).Must(h.t)), len(queryTags), "tags that are gone")
	}
}

// visible are the positions of all events that reads of their streams show, and what they say.
func (h *history) visible() (list []event.Record) {
	shown := map[string]bool{}
	for _, stream := range queryStreams {
		page, err := h.l.Reads.ReadStream(event.StreamRead{Stream: stream, Count: 100_000})
		if err != nil {
			continue
		}
		for _, e := range page.Events {
			shown[fmt.Sprint(e.Stream, "@", e.Number)] = true
		}
	}
	all := check.Value(h.l.Reads.ReadAll(event.AllRead{Count: 100_000})).Must(h.t)
	for _, e := range all.Events {
		if h.withdrawn[e.Position] {
			e.Metadata = nil
		}
		if shown[fmt.Sprint(e.Stream, "@", e.Number)] {
			list = append(list, e.Record)
		}
	}
	return list
}

func (h *history) query() *event.Query {
	some := func(of []string) (list []string) {
		for _, s := range of {
			if h.IntN(2) == 0 {
				list = append(list, s)
			}
		}
		return list
	}
	q := &event.Query{}
	if h.IntN(10) == 0 {
		q.All = true
		return q
	}
	for range 1 + h.IntN(3) {
		var i event.QueryItem
		if h.IntN(2) == 0 {
			i.Types = some(queryTypes)
		}
		if h.IntN(2) == 0 {
			i.Tags = some(queryTags)
		}
		if h.IntN(3) == 0 {
			i.Categories = some([]string{"order", "account", "plain"})
		}
		if h.IntN(3) == 0 {
			i.Streams = some(queryStreams)
		}
		if h.IntN(3) == 0 {
			i.Correlation = "c1"
		}
		if len(i.Types)+len(i.Tags)+len(i.Categories)+len(i.Streams)+len(i.Correlation) > 0 {
			q.Items = append(q.Items, i)
		}
	}
	if len(q.Items) == 0 {
		q.All = true
	}
	return q
}

// asked says independently of Query.Matches whether a record is asked for.
func asked(q *event.Query, r *event.Record) bool {
	if r.Stream[0] == '$' || r.Type[0] == '$' {
		return false
	}
	for _, i := range q.Items {
		ok := true
		one := func(of []string, what string) {
			ok = ok && (len(of) == 0 || strings.Contains("\n"+strings.Join(of, "\n")+"\n", "\n"+what+"\n"))
		}
		one(i.Types, r.Type)
		one(i.Streams, r.Stream)
		one(i.Categories, strings.Split(r.Stream, "-")[0])
		for _, tag := range i.Tags {
			ok = ok && strings.Contains(string(r.Metadata), `"`+tag+`"`)
		}
		if ok && (i.Correlation == "" || strings.Contains(string(r.Metadata), `Id":"`+i.Correlation+`"`)) {
			return true
		}
	}
	return q.All
}

// compare asks one query, of a log in which some events are visible.
func (h *history) compare(visible []event.Record) {
	q := h.query()
	from := h.Int64N(h.l.Tail().End + 10)
	for _, backward := range []bool{false, true} {
		var want, got []int64
		for i := range visible {
			if r := &visible[i]; asked(q, r) && (r.Position >= from) != backward {
				want = append(want, r.Position)
			}
		}
		if backward {
			slices.Reverse(want)
		}
		for at, more := from, true; more; {
			page := check.Value(h.l.Reads.ReadAll(event.AllRead{Query: q, From: at, Backward: backward, Count: 1 + h.IntN(5), MaxScan: h.IntN(10)})).Must(h.t)
			for _, e := range page.Events {
				got = append(got, e.Position)
			}
			at, more = page.Next, page.More
		}
		check.MustEqual(h.t, fmt.Sprint(got), fmt.Sprint(want), fmt.Sprintf("%+v from %d, backward %t", q, from, backward))
		if backward {
			continue
		}
		hit := check.Value(h.l.Facts.FirstMatch(q, from, func(hit *event.Hit) (bool, error) {
			return slices.ContainsFunc(visible, func(r event.Record) bool { return r.Position == hit.Position }), nil
		})).Must(h.t)
		if first := append(want, -1)[0]; hit == nil && first >= 0 || hit != nil && hit.Position != first {
			h.t.Fatalf("%+v from %d: the first is %+v, want %d", q, from, hit, first)
		}
	}
}

// Queries find what a look at the whole log finds, whatever was deleted, limited and scavenged, and
// wherever the postings are.
func TestQueriesAgainstTheLog(t *testing.T) {
	a, b := label.Label{Kind: label.Type, Key: sameA}, label.Label{Kind: label.Type, Key: sameB}
	check.Equal(t, a.Hash(), b.Hash(), "hashes that collide")
	for seed := range uint64(testkit.Fewer(1, 8)) {
		mem := vfs.NewCrashMem()
		o := testOptions(mem)
		if seed%2 == 0 {
			o.PostingsMemory = 10 << 10 // Tables are written and merged.
		}
		h := &history{rand.New(rand.NewPCG(seed, 1)), t, newModel(), mustOpen(t, o), map[string]bool{}, map[int64]bool{}}
		for round := range 12 {
			for range 30 {
				h.step()
			}
			what := h.IntN(6)
			if round < 2 {
				what = 2 + round // The race detector looks at these above all.
			}
			switch what {
			case 4:
				h.blank()
			case 0:
				check.Must(t, h.l.postings.Flush(-1))
			case 1: // a crash
				check.Must(t, h.l.Sync())
				o.FS = mem.CrashClone(vfs.CrashOptions{})
				mem = o.FS.(*vfs.Mem)
				check.Must(t, h.l.Close())
				h.l = mustOpen(t, o)
			case 2: // built again
				check.Must(t, h.l.postings.Rebuild())
			case 3: // a version without postings wrote the folder, or a restore had none
				check.Must(t, h.l.Close())
				dir := filepath.Join(h.l.opts.IndexDir, postingsFolder)
				for _, name := range check.Value(o.FS.List(dir)).Must(t) {
					if strings.Contains(name, "-") || name == "indexmap" {
						check.Must(t, o.FS.Remove(filepath.Join(dir, name)))
					}
				}
				h.l = mustOpen(t, o)
			}
			allPosted(t, h.l)
			visible := h.visible()
			for range testkit.Fewer(3, 20) {
				h.compare(visible)
			}
		}
		check.Must(t, h.l.Close())
		inspected(t, o)
	}
}

// A query that names streams looks at their events alone, however many others their category has,
// and leaps over those that lie before what else is asked for.
func TestQueryOfStreams(t *testing.T) {
	l, m := emptyLog(t), newModel()
	one, other := colliding(1) // All events of other are passed over.
	for i := range 3000 {
		e := testEvent{stream: []string{"order-1", "order-2", other}[i%3], typ: "t", metadata: "{}"}
		if i == 10 || i == 2500 {
			e.stream = one
		}
		if i >= 2900 {
			e.metadata = `{"$tags":["late"]}`
		}
		f := m.frame(i%700 == 699, e)
		check.Must(t, l.Append(f.Frame))
	}
	check.Must(t, l.Commit())
	for _, c := range []struct {
		item         event.QueryItem
		want, looked int
	}{
		{event.QueryItem{Streams: []string{one}}, 2, 2},
		{event.QueryItem{Streams: []string{"order-1"}, Tags: []string{"late"}}, 33, 33},
		{event.QueryItem{Streams: []string{one, other}, Tags: []string{"late"}}, 34, 34},
		{event.QueryItem{Streams: []string{"none"}}, 0, 0},
	} {
		for _, backward := range []bool{false, true} {
			r := event.AllRead{Query: &event.Query{Items: []event.QueryItem{c.item}}, Count: 5000, Backward: backward}
			if backward {
				r.From = event.End
			}
			r.Plan = &event.Plan{}
			page := check.Value(l.Reads.ReadAll(r)).Must(t)
			check.Equal(t, len(page.Events), c.want, c.item, backward)
			last := r.Plan.Lists[len(r.Plan.Lists)-1]
			check.Equal(t, last.Kind+last.Name, "stream"+c.item.Streams[len(c.item.Streams)-1], "planned")
			check.Equal(t, page.Looked, c.looked, "looked at", c.item, backward)
		}
	}
	closeLog(t, l)
}

// Malformed tags that were written before they were refused are none, and counted. Reads of
// postings are counted, too.
func TestPostingsAreCounted(t *testing.T) {
	o := testOptions(vfs.NewMem())
	l, m := mustOpen(t, o), newModel()
	for _, metadata := range []string{`{"$tags":["a"]}`, `{"$tags":7}`} {
		f := m.frame(false, testEvent{stream: "s", typ: "t", metadata: metadata})
		check.Must(t, errors.Join(l.Append(f.Frame), l.Commit()))
	}
	check.Equal(t, l.metrics.malformedTags.Value(), 1, "malformed tags at commit")
	q := &event.Query{Items: []event.QueryItem{{Tags: []string{"a"}}}}
	page := check.Value(l.Reads.ReadAll(event.AllRead{Query: q, Count: 10})).Must(t)
	check.Equal(t, len(page.Events), 1, "events with the tag")
	hit := check.Value(l.Facts.FirstMatch(q, 0, func(*event.Hit) (bool, error) { return true, nil })).Must(t)
	check.Equal(t, hit.Number, 0, "the first event")
	check.Equal(t, l.metrics.queried.Value(), 1, "queries")
	check.Equal(t, l.metrics.conditioned.Value(), 1, "conditions")
	done, total := l.postings.Progress()
	check.Equal(t, done, total, "bytes of log that are posted")
	check.Equal(t, total, l.Tail().End, "bytes of log")
	check.Must(t, l.postings.Flush(-1))
	check.Must(t, l.postings.Clear())
	allPosted(t, l)
	check.Equal(t, l.metrics.malformedTags.Value(), 2, "malformed tags, posted again")
	check.Must(t, l.Close())
}

// A record was removed from its file before its postings were in a table, and the index of streams
// was written before. When the file of another node brings the record back, queries find it.
func TestRecordsThatComeBackArePosted(t *testing.T) {
	m := newModel()
	first, second := m.frame(false, ev("s", "gone")), m.frame(true, ev("s", "stays"))
	from := emptyLog(t)
	write(t, from, first, second)
	mem := vfs.NewCrashMem()
	o := testOptions(mem)
	to := mustOpen(t, o)
	write(t, to, first, second)
	check.Must(t, to.index.Flush())
	_, err := to.Chunks.Rewrite(t.Context(), Rewrite{Keep: func(s *Stored) bool { return s.Number > 0 }})
	check.Must(t, errors.Join(err, to.Sync()))
	o.FS = mem.CrashClone(vfs.CrashOptions{})
	to = mustOpen(t, o)
	check.Must(t, to.Transfer.InstallChunk(chunkFrom(t, from, to, 0)))
	q := &event.Query{Items: []event.QueryItem{{Categories: []string{"s"}}}}
	page := check.Value(to.Reads.ReadAll(event.AllRead{Query: q, Count: 10})).Must(t)
	check.Equal(t, len(page.Events), 2, "events of the category")
	closeLog(t, to)
	inspected(t, o)
}

// An index that is cleared while its builder looks at it is built again at once.
func TestRebuildWhileItIsBuilt(t *testing.T) {
	l, m := emptyLog(t), newModel()
	write(t, l, m.someFrames(20, false)...)
	for range 300 {
		l.postings.Covers(math.MaxInt64) // It wakes the builder.
		if err := l.postings.Rebuild(); err != nil {
			check.Is(t, err, event.ErrIndexBuilding)
		}
		allPosted(t, l)
	}
	closeLog(t, l)
}

// allPosted waits until the builder has posted all of a log, names included, or the log has
// stopped.
func allPosted(t *testing.T, l *Log) {
	t.Helper()
	tick, late := time.NewTicker(time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for l.Failed() == nil {
		if _, _, err := l.postings.Names(t.Context(), label.Type, "", "", 1); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("the log is never posted whole")
		}
	}
}
