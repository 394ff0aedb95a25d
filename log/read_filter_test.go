package eventlog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/dlclark/regexp2/v2"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/match"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/index"
)

// filtering writes random events and reads them with random filters, by the index and without it.
type filtering struct {
	*rand.Rand
	t    *testing.T
	m    *model
	l    *Log
	kept []filterCase

	places []int64 // of all records, from the first read after a change on
}

type filterCase struct {
	filter match.Filter
	about  string
	names  *event.FilterNames
	fails  string // the filter fails for this name
}

func (c *filterCase) takes(stream, eventType string) (bool, error) {
	ok, err := c.filter.Takes(stream, eventType)
	if name := eventType; c.fails != "" {
		if c.filter.OfStream {
			name = stream
		}
		if ok && name == c.fails {
			return false, errors.New("too long")
		}
	}
	return ok, err
}

func (h *filtering) pick(of []string) string { return of[h.IntN(len(of))] }

func (h *filtering) stream() string {
	switch h.IntN(12) {
	case 0:
		return h.pick([]string{"order", "-1", "-", "$ce-order", "$persistentsubscription-$all::g", "$epoch-information"})
	case 1:
		return fmt.Sprintf("plain%d", h.IntN(30))
	}
	return fmt.Sprintf("%s-%d", h.pick([]string{"order", "orders", "account", "or"}), h.IntN(6))
}

func (h *filtering) typ() string {
	switch h.IntN(20) {
	case 0:
		return h.pick([]string{"$>", "$note", "$@", ""})
	case 1:
		return fmt.Sprintf("Rare%d", h.IntN(40))
	case 2:
		return h.pick([]string{sameA, sameB})
	}
	return h.pick([]string{"Placed", "Paid", "PaidBack"})
}

func (h *filtering) write(frames int) {
	h.places = nil
	for range frames {
		stream := h.stream()
		var events []testEvent
		switch h.IntN(30) {
		case 0:
			events = append(events, meta(stream, fmt.Sprintf(`{"$maxCount":%d}`, 1+h.IntN(3))))
		case 1:
			events = append(events, meta(stream, `{"$tb":9223372036854775807}`))
		case 2:
			if h.m.last[stream] < event.TombstoneNumber {
				events = append(events, tombstone(stream))
				h.m.last[stream] = event.TombstoneNumber
			}
		}
		for range h.IntN(6) {
			if h.m.last[stream] < event.TombstoneNumber {
				events = append(events, testEvent{stream: stream, typ: h.typ(), data: "d", metadata: "{}"})
			}
		}
		if len(events) > 0 {
			check.Must(h.t, h.l.Append(h.m.frame(h.IntN(60) == 0, events...).Frame))
			check.Must(h.t, h.l.Commit())
		}
	}
}

func (h *filtering) filterCase() filterCase {
	if len(h.kept) > 0 && h.IntN(3) > 0 {
		return h.kept[h.IntN(len(h.kept))]
	}
	var c filterCase
	c.filter.OfStream = h.IntN(2) == 0
	var err error
	if h.IntN(3) == 0 {
		c.about = h.pick([]string{"^Rare1", "Back$", "^[^$].*", "a", "^$|x", "^(?!Pa)", "nothing"})
		c.filter.Names, err = match.Expression(c.about)
	} else {
		of := []string{"Rare", "Rare3", "Pa", "$", "nothing", sameA, "Placed"}
		if c.filter.OfStream {
			of = []string{"order-", "order", "or", "account-3", "plain1", "-", "$ce-", "-1", "none-", "o"}
		}
		list := []string{h.pick(of), h.pick(of)}[:1+h.IntN(2)]
		c.about = strings.Join(list, ",")
		c.filter.Names, err = match.Prefixes(list)
	}
	check.Must(h.t, err)
	c.names = &event.FilterNames{NameFilter: c.filter.Names, OfStream: c.filter.OfStream}
	if h.IntN(6) == 0 {
		c.fails = h.pick([]string{"Paid", "Rare17", "order-1", "plain12"})
	}
	h.kept = append(h.kept, c)
	return c
}

// pages reads from a position, so many pages; without a rule by a look at each record.
func (h *filtering) pages(r event.AllRead, c *filterCase, pages int, rule func() bool) (all []event.AllPage) {
	part := []int64{1 << 8, 1 << 12, 1 << 30}[h.IntN(3)]
	r.Filter = c.takes
	if rule != nil {
		h.l.Reads.choosing = choosing{part: part, pays: func(int64, int64) bool { return rule() }}
		r.Names = c.names
	}
	for range pages {
		page := check.Value(h.l.Reads.ReadAll(r)).Must(h.t)
		all = append(all, page)
		if r.From, r.After = page.Next, false; page.Failed != nil || !page.More {
			break
		}
	}
	return all
}

func (h *filtering) compare() {
	c := h.filterCase()
	r := event.AllRead{Count: 1 + h.IntN(20), Backward: h.IntN(2) == 0, After: h.IntN(2) == 0}
	if h.places == nil {
		for _, e := range check.Value(h.l.Reads.ReadAll(event.AllRead{Count: 100_000})).Must(h.t).Events {
			h.places = append(h.places, e.Position)
		}
	}
	if r.From = h.places[h.IntN(len(h.places))]; h.IntN(3) == 0 {
		r.From = 0
	}
	if r.Backward && h.IntN(3) == 0 {
		r.From = event.End
	}
	what := fmt.Sprintf("%s (streams %t, fails for %q) %+v", c.about, c.filter.OfStream, c.fails, r)
	const compared = 50 // pages, as a whole
	want := h.pages(r, &c, 1<<20, nil)
	var wanted []int64
	for _, page := range want {
		for _, e := range page.Events {
			wanted = append(wanted, e.Position)
		}
	}
	want = want[:min(compared, len(want))]
	for _, rule := range []func() bool{func() bool { return true }, func() bool { return h.IntN(2) == 0 }} {
		got := h.pages(r, &c, compared, rule)
		for i := range max(len(got), len(want)) {
			if i < len(got) && i < len(want) {
				got[i].Looked, got[i].Spared = want[i].Looked, 0
				if reflect.DeepEqual(got[i], want[i]) || fmt.Sprintf("%+v", got[i]) == fmt.Sprintf("%+v", want[i]) {
					continue
				}
			}
			h.t.Fatalf("%s, page %d:\n%+v\nwant\n%+v", what, i, got[min(i, len(got)-1)], want[min(i, len(want)-1)])
		}
		// With a bound of the records that are looked at, the pages end elsewhere.
		bounded := r
		bounded.MaxScan = 1 + h.IntN(5)
		var positions []int64
		for _, page := range h.pages(bounded, &c, 1<<20, rule) {
			for _, e := range page.Events {
				positions = append(positions, e.Position)
			}
		}
		check.MustEqual(h.t, fmt.Sprint(positions), fmt.Sprint(wanted), what, "in small looks")
	}
}

// scavenge removes random records of complete chunks, and sometimes their postings.
func (h *filtering) scavenge() {
	h.places = nil
	check.Must(h.t, h.l.Sync())
	newest := map[string]int64{}
	for _, f := range h.m.frames {
		for _, e := range f.events {
			newest[e.stream] = max(newest[e.stream], e.position)
		}
	}
	for _, c := range check.Value(h.l.Chunks.List()).Must(h.t) {
		if c.Complete && h.IntN(2) == 0 {
			_, err := h.l.Chunks.Rewrite(h.t.Context(), Rewrite{First: c.First, Last: c.Last, Keep: func(s *Stored) bool {
				return s.Position == newest[string(s.Stream)] || s.Flags&event.FlagDeleted != 0 || h.IntN(3) > 0
			}})
			check.Must(h.t, err)
		}
	}
	if h.IntN(3) > 0 {
		check.Must(h.t, h.l.postings.Scavenge(h.t.Context(), index.ScavengeOptions{Keep: h.l.Chunks.Backs}))
	}
}

// A filtered page that is found by the index is that of a look at each record, whatever was
// deleted, scavenged, and written between two pages.
func TestFilteredReadsAgainstScans(t *testing.T) {
	defer regexp2.StopTimeoutClock()
	for seed := range uint64(testkit.Fewer(1, 3)) {
		o := testOptions(vfs.NewMem())
		if seed%2 == 0 {
			o.PostingsMemory = 10 << 10
		}
		h := &filtering{Rand: rand.New(rand.NewPCG(seed, 2)), t: t, m: newModel(), l: mustOpen(t, o)}
		rounds := testkit.Fewer(2, 8)
		for round := range rounds {
			h.write(40)
			what := h.IntN(5)
			if round == 0 {
				what = 3 // The race detector looks at this one above all.
			}
			switch what {
			case 0, 1:
				h.scavenge()
			case 2:
				check.Must(t, h.l.postings.Flush(-1))
			case 3:
				check.Must(t, h.l.postings.Rebuild()) // It is built while it is read.
			}
			for i := range 40 {
				if i == 10 {
					allPosted(t, h.l)
				}
				h.compare()
				if i%8 == 0 {
					h.write(2)
				}
			}
		}
		check.Equal(t, h.l.metrics.filtered.Value() > 60*uint64(rounds), true, "pages found by the index")
		check.Must(t, h.l.Close())
		inspected(t, o)
	}
}

// What is rare is found by the index, without a look at what lies between, and others are not.
func TestFilterChoosesTheCheaperWay(t *testing.T) {
	defer regexp2.StopTimeoutClock()
	l, m := emptyLog(t), newModel()
	var events []testEvent
	for i := range 20_000 {
		e := testEvent{stream: fmt.Sprintf("order-%d", i%50), typ: "Placed", data: strings.Repeat("d", 100), metadata: "{}"}
		switch {
		case i%5000 == 700:
			e.typ, e.stream = "Rare", "rare-1"
		case i%3 == 0:
			e.typ = "Third"
		case i%10 == 1:
			e.typ = fmt.Sprintf("Tenth%d", i%8)
		}
		if events = append(events, e); len(events) == 200 {
			write(t, l, m.frame(false, events...))
			events = nil
		}
	}
	allPosted(t, l)
	l.Reads.choosing.first = 100
	for _, c := range []struct {
		name    string
		names   *event.FilterNames
		byIndex bool
	}{
		{"a rare type", types(prefixes("Ra")), true},
		{"a rare category", streams(prefixes("rare-1")), true},
		{"categories of a prefix", streams(prefixes("ra", "none")), true},
		{"no type", types(prefixes("none")), true},
		{"several types", types(prefixes("Tenth")), true},
		{"an expression", types(expression(t, "enth[12]$")), true},
		{"an expression that backtracks", types(expression(t, "^Tenth(?!3)")), true},
		{"a frequent type", types(prefixes("Third")), false},
		{"most types", types(expression(t, "^[^$]")), false},
		{"an expression that takes no name", types(expression(t, "^Rare|^$")), false},
		{"system streams", streams(prefixes("$")), false},
		{"streams without a category", streams(prefixes("-")), false},
		{"an expression for streams", streams(expression(t, "^rare")), false},
	} {
		takes := (&match.Filter{Names: c.names.NameFilter.(*match.Names), OfStream: c.names.OfStream}).Takes
		for _, backward := range []bool{false, true} {
			r := event.AllRead{Count: 1 << 20, Filter: takes, Backward: backward}
			if backward {
				r.From = event.End
			}
			want := check.Value(l.Reads.ReadAll(r)).Must(t)
			before := l.metrics.filtered.Value()
			r.Names = c.names
			got := check.Value(l.Reads.ReadAll(r)).Must(t)
			check.Equal(t, l.metrics.filtered.Value() > before, c.byIndex, c.name, "by the index")
			check.Equal(t, got.Looked < want.Looked/4, c.byIndex, c.name, "looked at", got.Looked)
			check.Equal(t, got.Spared > l.Tail().End*3/4, c.byIndex, c.name, "bytes that were passed over", got.Spared)
			got.Looked, got.Spared = want.Looked, 0
			check.Equal(t, fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want), c.name)
		}
	}
	closeLog(t, l)
}

// A filter that fails for the record after the one that is left out ends the page between them.
func TestFilterFailsAtOnce(t *testing.T) {
	l, m := emptyLog(t), newModel()
	write(t, l, m.frame(false, ev("a-1", "d"), testEvent{stream: "a-1", typ: "Slow"}))
	l.Reads.choosing = choosing{part: 1 << 30, pays: func(int64, int64) bool { return true }}
	r := event.AllRead{Count: 10, After: true, Filter: func(_, eventType string) (bool, error) { return false, errors.New("too long") }}
	want := check.Value(l.Reads.ReadAll(r)).Must(t)
	r.Names = types(prefixes("Slow"))
	got := check.Value(l.Reads.ReadAll(r)).Must(t)
	check.Equal(t, l.metrics.filtered.Value(), 1, "pages found by the index")
	check.Equal(t, fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want))
	closeLog(t, l)
}

func types(names *match.Names) *event.FilterNames { return &event.FilterNames{NameFilter: names} }

func streams(names *match.Names) *event.FilterNames {
	return &event.FilterNames{NameFilter: names, OfStream: true}
}

func prefixes(list ...string) *match.Names {
	names, _ := match.Prefixes(list)
	return names
}

func expression(t testing.TB, text string) *match.Names {
	return check.Value(match.Expression(text)).Must(t)
}

// What is written later, or comes back from another node, may have names that were not there.
func TestFilterFindsNewNames(t *testing.T) {
	m := newModel()
	var frames []testFrame
	for i := range 41 {
		e := testEvent{stream: "a-1", typ: "T", data: "d", metadata: "{}"}
		if i == 20 {
			e.typ = "Gone"
		}
		frames = append(frames, m.frame(i == 40, e))
	}
	from, to := emptyLog(t), emptyLog(t)
	write(t, from, frames...)
	write(t, to, frames...)
	to.Reads.choosing = choosing{part: 1 << 30, pays: func(int64, int64) bool { return true }}
	check.Must(t, to.Sync())
	_, err := to.Chunks.Rewrite(t.Context(), Rewrite{Keep: func(s *Stored) bool { return string(s.Type) != "Gone" }})
	check.Must(t, err)
	check.Must(t, to.postings.Scavenge(t.Context(), index.ScavengeOptions{Keep: to.Chunks.Backs}))
	r := event.AllRead{Count: 10, Filter: func(_, eventType string) (bool, error) { return strings.HasPrefix(eventType, "Gone"), nil }, Names: types(prefixes("Gone"))}
	read := func() int { return len(check.Value(to.Reads.ReadAll(r)).Must(t).Events) }
	check.Equal(t, read(), 0, "events")
	check.Equal(t, to.metrics.filtered.Value(), 1, "pages found by the index")
	names, ok := to.postings.Find(label.Type, []string{"Gone"})
	check.Equal(t, ok, true, "the names can be looked up")
	check.Equal(t, len(names), 0, "names")
	check.Must(t, to.Transfer.InstallChunk(chunkFrom(t, from, to, 0)))
	check.Equal(t, read(), 1, "events that came back")
	write(t, to, m.frame(false, testEvent{stream: "a-1", typ: "GoneToo", metadata: "{}"}))
	check.Equal(t, read(), 2, "events with the one that was written")
	check.Equal(t, to.metrics.filtered.Value(), 3, "pages found by the index")
	closeLog(t, from)
	closeLog(t, to)
}

// BenchmarkFilteredRead reads all events of a type that has 10 among 200,000, found by the index of
// postings and by a look at each record.
func BenchmarkFilteredRead(b *testing.B) {
	m := newModel()
	l := mustOpen(b, benchOptions(b))
	for range 10 {
		write(b, l, benchFrames(m, 80, 256)...)
		write(b, l, m.frame(false, testEvent{stream: "rare-1", typ: "Rare", metadata: "{}"}))
	}
	check.Must(b, l.postings.Flush(-1))
	names := prefixes("Rare")
	for _, way := range []struct {
		name  string
		names *event.FilterNames
	}{{"index", types(names)}, {"scan", nil}} {
		b.Run(way.name, func(b *testing.B) {
			for b.Loop() {
				r := event.AllRead{Count: 100, Filter: (&match.Filter{Names: names}).Takes, Names: way.names}
				check.Equal(b, len(check.Value(l.Reads.ReadAll(r)).Must(b).Events), 10)
				if way.names != nil {
					way.names.Kept = nil // As of a request of its own.
				}
			}
		})
	}
}

// TestFilterWithDamagedNames has a file of names change, or not be delivered by the system, while
// a node runs: filters find their events, checks do not end the process, and names are made again.
func TestFilterWithDamagedNames(t *testing.T) {
	damages := map[string]func(file string){
		"a bit changes": func(file string) {
			if at := bytes.Index(check.Value(os.ReadFile(file)).Must(t), []byte("Rare")); at >= 0 {
				f := check.Value(os.OpenFile(file, os.O_WRONLY, 0)).Must(t)
				check.Must(t, check.Err(f.WriteAt([]byte("S"), int64(at))))
				check.Must(t, f.Close())
			}
		},
		"it cannot be read": func(file string) { check.Must(t, os.Truncate(file, 0)) },
	}
	finds := map[string]func(l *Log){
		"by a filter": func(*Log) {},
		"by a check":  func(l *Log) { check.Must(t, l.postings.Check(func(int64) error { return nil })) },
	}
	for what, damage := range damages {
		for who, find := range finds {
			t.Run(what+", found "+who, func(t *testing.T) {
				o := testOptions(vfs.OS)
				o.Dir = t.TempDir()
				o.IndexDir = filepath.Join(o.Dir, "index")
				l, m := mustOpen(t, o), newModel()
				write(t, l, m.frame(false, testEvent{stream: "a-1", typ: "Placed"}), m.frame(false, testEvent{stream: "a-1", typ: "Rare"}))
				allPosted(t, l)
				l.Reads.choosing = choosing{part: 1 << 30, pays: func(int64, int64) bool { return true }}
				check.Must(t, l.postings.Flush(-1))
				for _, file := range check.Value(filepath.Glob(filepath.Join(o.IndexDir, "postings", "names", "*"))).Must(t) {
					if check.Value(os.Stat(file)).Must(t).Mode().IsRegular() {
						damage(file)
					}
				}
				find(l)
				names := prefixes("Rare")
				page := check.Value(l.Reads.ReadAll(event.AllRead{Count: 100, Filter: (&match.Filter{Names: names}).Takes, Names: &event.FilterNames{NameFilter: names}})).Must(t)
				check.Equal(t, len(page.Events), 1, "events of a type whose name is damaged")
				allPosted(t, l)
				found, ok := l.postings.Find(label.Type, []string{""})
				check.Equal(t, fmt.Sprint(found, ok), "[Placed Rare] true", "names after that")
				closeLog(t, l)
			})
		}
	}
}

// matchHook is called once, with a name that a filter is to match.
type matchHook struct {
	*match.Names
	hook func()
}

func (h *matchHook) Match(name string) (bool, error) {
	if hook := h.hook; hook != nil {
		h.hook = nil
		hook()
	}
	return h.Names.Match(name)
}

// TestFilterWhileNamesAreCleared has all names go away while a filter looks them up.
func TestFilterWhileNamesAreCleared(t *testing.T) {
	m := newModel()
	var frames []testFrame
	for i := range 80 {
		e := testEvent{stream: "a-1", typ: "T", data: strings.Repeat("d", 100)}
		if i == 20 {
			e.typ = "Rare"
		}
		frames = append(frames, m.frame(i == 40 || i == 79, e))
	}
	from, to := emptyLog(t), emptyLog(t)
	write(t, from, frames...)
	write(t, to, frames[:41]...)
	check.Must(t, from.Sync())
	to.Reads.choosing = choosing{part: 1 << 30, pays: func(int64, int64) bool { return true }}
	file := chunkFrom(t, from, to, 1)
	h := &matchHook{Names: prefixes("Rare"), hook: func() {
		release := to.postings.Hold()
		defer release()
		check.Must(t, to.Transfer.InstallChunk(file))
		check.Must(t, to.postings.Scavenge(t.Context(), index.ScavengeOptions{Keep: to.Chunks.Backs}))
	}}
	page := check.Value(to.Reads.ReadAll(event.AllRead{Count: 1000, Filter: (&match.Filter{Names: h.Names}).Takes, Names: &event.FilterNames{NameFilter: h}})).Must(t)
	check.Equal(t, len(page.Events), 1, "events that are found meanwhile")
	closeLog(t, from)
	closeLog(t, to)
}
