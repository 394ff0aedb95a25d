package source_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
	"github.com/annalsdb/annals/projection/source"
)

var seedFlag = flag.Uint64("seed", 0, "run the model test with this seed alone")

// model is what a projection should get, as a fold over all records of a store.
type model struct {
	s  *store
	d  handler.Definition
	at position.Position
}

func (m *model) named(eventType string) bool {
	return m.d.AllEvents || slices.Contains(m.d.Events, eventType)
}

// rest returns what is to come now, and moves past it.
func (m *model) rest() []string {
	if m.d.AllStreams {
		return m.restOfLog()
	}
	return m.restOfStreams()
}

func (m *model) restOfLog() (all []string) {
	for i := range m.s.log() {
		r := &m.s.records[i]
		if m.s.gone[r.Position] || r.Position < m.at.Commit || r.Position == m.at.Commit && m.at.Prepare >= 0 {
			continue
		}
		m.at.Commit, m.at.Prepare = r.Position, r.Position
		e := handler.Event{Record: r}
		of, isMeta := strings.CutPrefix(r.Stream, "$$")
		isOn := !isSystem(r.Stream) && (r.Type != "$>" || m.d.IncludeLinks) && m.named(r.Type)
		if isMeta && !isSystem(of) {
			isOn = m.d.AllEvents
		}
		if m.d.HandlesDeleted {
			switch {
			case r.Type == "$streamDeleted" && !isSystem(r.Stream):
				e.Gone, isOn = r.Stream, slices.Contains(m.d.Events, r.Type)
			case isMeta && !isSystem(of) && r.Type == "$metadata" && strings.Contains(string(r.Data), "9223372036854775807"):
				e.Gone = of
			}
		}
		if e.GoneOnly = !isOn; isOn || e.Gone != "" {
			all = append(all, show(&e, m.at))
		}
	}
	return all
}

func (m *model) restOfStreams() (all []string) {
	m.s.log()
	numbers := slices.Clone(m.at.Numbers)
	type record struct {
		*event.Record
		of int
	}
	var records []record
	for i, n := range numbers {
		for number := n.Number + 1; number < int64(len(m.s.streams[n.Name])); number++ {
			if r := m.s.at(n.Name, number); r != nil {
				records = append(records, record{r, i})
			}
		}
	}
	slices.SortFunc(records, func(a, b record) int { return cmp.Compare(a.Position, b.Position) })
	for _, r := range records {
		numbers[r.of].Number = r.Number
		m.at = position.Position{Numbers: slices.Clone(numbers)}
		res := m.s.resolve(r.Record)
		e := handler.Event{Record: res.Event()}
		if res.Target != nil {
			e.Link = r.Record
		}
		isOn := res.Link != event.LinkDead && m.named(e.Type)
		if len(m.d.Categories) > 0 {
			e.Category = strings.TrimPrefix(r.Stream, "$ce-")
			if strings.Contains(string(r.Metadata), `"$deleted":-1`) {
				e.Record, e.Link, e.GoneOnly, isOn = r.Record, r.Record, true, m.d.HandlesDeleted
				_, o, _ := strings.Cut(string(r.Metadata), `"$o":"`)
				e.Gone, _, _ = strings.Cut(o, `"`)
			} else if e.Link == nil {
				isOn = false
			}
		}
		if isOn {
			all = append(all, show(&e, m.at))
		}
	}
	return all
}

// randomly does something to the streams.
func (s *store) randomly(rnd *rand.Rand) {
	pick := func(of ...string) string { return of[rnd.IntN(len(of))] }
	writable := func(stream string) string {
		if s.Info(stream).HardDeleted {
			return "$ce-a" // It is never deleted for good.
		}
		return stream
	}
	ordinary := pick("a-1", "a-2", "b-1", "c")
	any := pick(ordinary, ordinary, ordinary, "$sys", "$ce-a", "$ce-b", "links")
	if s.Info(any).HardDeleted {
		return
	}
	switch n := rnd.IntN(100); {
	case n < 55:
		metadata := pick("", `{"m":1}`)
		for range 1 + rnd.IntN(6) {
			s.append(any, pick("A", "A", "B", "C"), fmt.Sprintf(`{"n":%d%s}`, len(s.log()), strings.Repeat(" ", rnd.IntN(2)*rnd.IntN(400))), metadata)
		}
	case n < 80 && len(s.log()) > 0: // A link to anything, also to links and to what is gone.
		to := &s.log()[rnd.IntN(len(s.records))]
		s.link(writable(pick("$ce-a", "$ce-a", "$ce-b", "links", ordinary)), to, fmt.Sprintf(`{"$o":"%s"}`, to.Stream))
	case n < 82:
		s.append(writable(pick("links", "$ce-a")), event.TypeLink, "not a link", "")
	case n < 85:
		s.append("$ce-a", event.TypeLink, "9223372036854775807@"+ordinary, `{"$o":"`+ordinary+`","$deleted":-1}`)
	case n < 91:
		if m := s.Info(any).Metadata; !m.SoftDeleted() {
			s.SetMetadata(any, fmt.Sprintf(`{"$maxCount":%d,"$tb":%d}`, 1+rnd.IntN(20), s.hiddenBefore(any)))
		}
	case n < 94:
		if m := s.Info(any).Metadata; !m.SoftDeleted() {
			s.SetMetadata(any, fmt.Sprintf(`{"$tb":%d}`, max(s.hiddenBefore(any), rnd.Int64N(int64(len(s.streams[any])+2)))))
		}
	case n < 97:
		s.softDelete(any)
	case n < 98 && any != "a-1" && any != "$ce-a":
		s.hardDelete(any)
	case n < 99:
		s.scavenge()
	}
}

// hiddenBefore is below what number events are hidden: what was hidden is never shown again here.
func (s *store) hiddenBefore(stream string) int64 {
	i := s.Info(stream)
	return i.Metadata.MinVisible(i.Last)
}

func randomDefinition(rnd *rand.Rand) (d handler.Definition) {
	names := []string{"a-1", "a-2", "b-1", "c", "links", "$ce-a", "$sys", "none"}
	rnd.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	switch rnd.IntN(4) {
	case 0:
		d.AllStreams = true
	case 1:
		d.Streams = names[:1]
	case 2:
		d.Streams = names[:2+rnd.IntN(5)]
	case 3:
		d.Categories = []string{"a", "b", "none"}[:1+rnd.IntN(3)]
	}
	d.HandlesDeleted = d.AllStreams && rnd.IntN(2) == 0 || len(d.Categories) == 1 && rnd.IntN(2) == 0
	d.IncludeLinks = d.AllStreams && rnd.IntN(2) == 0
	if d.AllEvents = rnd.IntN(2) == 0; !d.AllEvents {
		d.Events = []string{"A", "B", "$>", "$streamDeleted", "$metadata"}[rnd.IntN(3):][:1+rnd.IntN(3)]
	}
	return d
}

// TestModel: after any changes of the streams, a reader that starts again at random gets what the
// fold says, with the same positions.
func TestModel(t *testing.T) {
	seeds := []uint64{*seedFlag}
	if *seedFlag == 0 {
		seeds = seeds[:0]
		for range 100 {
			seeds = append(seeds, rand.Uint64())
		}
	}
	for _, seed := range seeds {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { runModel(t, seed) }) {
			t.Fatalf("replay with -seed %d", seed)
		}
	}
}

func runModel(t *testing.T, seed uint64) bool {
	rnd := rand.New(rand.NewPCG(seed, 1))
	s, d := newStore(t), randomDefinition(rnd)
	m := &model{s: s, d: d, at: zero(d)}
	events, bytes, records := 1+rnd.IntN(50), 1+rnd.IntN(2000), 1+rnd.IntN(100)
	open := func(from position.Position) *source.Reader {
		r, err := source.OpenBounded(t.Context(), source.Options{Store: s, Definition: &d, From: from, Links: event.EveryLink}, events, bytes, records, 1)
		check.Must(t, err)
		return r
	}
	r := open(zero(d))
	for range 25 {
		for range rnd.IntN(40) {
			s.randomly(rnd)
		}
		want := m.rest()
		if rnd.IntN(6) == 0 {
			once(&s.BeforeRead, event.ErrNotReady)
			once(&s.BeforeReadAll, event.ErrNotReady)
		}
		for {
			// Some events are taken one by one, with the reader replaced between them.
			for n := rnd.IntN(30); n > 0; n-- {
				e, ok := r.Next()
				if !ok {
					break
				}
				if len(want) == 0 || show(e, r.Position()) != want[0] {
					t.Errorf("%+v: got %q, want %q", d, show(e, r.Position()), slices.Concat(want, []string{"nothing"})[0])
					return false
				}
				want = want[1:]
			}
			if rnd.IntN(4) == 0 {
				r.Close()
				r = open(r.Position())
			}
			if r.Buffered() > 0 {
				continue
			}
			err := r.Fill(t.Context())
			if err == errIdle {
				break
			}
			if err != nil && !errors.Is(err, event.ErrNotReady) {
				t.Errorf("%+v: %v", d, err)
				return false
			}
		}
		r.Next()
		if len(want) > 0 || !r.Position().Equal(m.at) {
			t.Errorf("%+v: at %v, want %v; missing %q", d, r.Position(), m.at, want)
			return false
		}
		if p := r.Progress(); p != 100 {
			t.Errorf("%+v: progress %v", d, p)
			return false
		}
		if n := r.Unread(); n != 0 {
			t.Errorf("%+v: %d behind", d, n)
			return false
		}
	}
	// A query gets all there is now, and ends.
	m.at = zero(d)
	s.BeforeRead.Set(nil)
	want := m.rest()
	q := openWith(t, source.Options{Store: s, Definition: &d, From: zero(d), Once: true})
	// What is appended now is not its input any more. It may hide some of that: by a limit of the
	// stream, or where it revives a deleted stream, whose metadata event then hides the one before.
	hides := false
	for _, stream := range []string{"a-1", "b-1"} {
		m := s.Info(stream).Metadata
		hides = hides || m.MaxCount > 0 || m.SoftDeleted()
	}
	s.append("a-1", "A", "later", "")
	if !s.Info("b-1").HardDeleted {
		s.append("b-1", "A", "later", "")
	}
	got, err := drain(t, q)
	if hides {
		return err == nil
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v: read once\n%q, %v, want\n%q", d, got, err, want)
		return false
	}
	return true
}
