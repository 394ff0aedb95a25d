package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
	"github.com/annalsdb/annals/projection/source"
)

func put(t testing.TB, s *store, w *event.Write) {
	t.Helper()
	w.ExpectedVersion = event.AnyVersion
	check.NoError(t, check.Err(s.Write(context.Background(), w)))
}

// putEvents appends n events of a type to a stream, links to another stream if that is named.
func putEvents(t testing.TB, s *store, stream, eventType, linkTo string, n int) {
	t.Helper()
	for at := 0; at < n; at += 500 {
		w := &event.Write{Stream: stream}
		for i := at; i < min(n, at+500); i++ {
			p := event.Proposed{ID: event.ID(uuid.New()), Type: eventType, Flags: event.FlagJSON, Data: fmt.Appendf(nil, `{"number":%d,"text":"a body of about a hundred and twenty bytes, as events of applications tend to have them"}`, i)}
			if linkTo != "" {
				p.Flags, p.Data, p.Metadata = 0, fmt.Appendf(nil, "%d@%s", i, linkTo), fmt.Appendf(nil, `{"$v":"3:-1:0:4","$c":%d,"$p":%d,"$o":"%s","$causedBy":"%s"}`, i, i, linkTo, p.ID)
			}
			w.Events = append(w.Events, p)
		}
		put(t, s, w)
	}
}

func openSource(t testing.TB, s *store, d handler.Definition, from position.Position, once bool) *source.Reader {
	t.Helper()
	r, err := source.Open(t.Context(), source.Options{Store: s, Definition: &d, From: from, Once: once, Links: event.EveryLink})
	check.Must(t, err)
	return r
}

func line(e *handler.Event, p position.Position) string {
	text := fmt.Sprintf("%d@%s %s", e.Number, e.Stream, e.Data)
	if e.Link != nil {
		text += fmt.Sprintf(" by %d@%s", e.Link.Number, e.Link.Stream)
	}
	return text + " | " + p.String()
}

// all reads once from a position on; with the lines it returns the position after each.
func readAll(t testing.TB, s *store, d handler.Definition, from position.Position) (lines []string, behind []position.Position) {
	t.Helper()
	r := openSource(t, s, d, from, true)
	defer r.Close()
	for {
		if err := r.Fill(t.Context()); errors.Is(err, source.ErrEnd) {
			return lines, behind
		} else if err != nil {
			t.Fatal(err)
		}
		for e, ok := r.Next(); ok; e, ok = r.Next() {
			lines, behind = append(lines, line(e, r.Position())), append(behind, r.Position())
		}
	}
}

var sourceDefinitions = []handler.Definition{
	{AllStreams: true, AllEvents: true},
	{AllStreams: true, Events: []string{"B", "C"}, Options: handler.Options{HandlesDeleted: true}},
	{Streams: []string{"s-1"}, AllEvents: true},
	{Streams: []string{"s-1", "s-0", "links", "s-2"}, AllEvents: true},
	{Categories: []string{"s"}, AllEvents: true},
	{Categories: []string{"s", "t"}, Events: []string{"A"}},
}

// TestSourceOnLog: over a real log, with deletions and a scavenge, a reader that starts again after
// any event resumes with the next one.
func TestSourceOnLog(t *testing.T) {
	n := openReady(t)
	s, seed := n.store, rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 3))
	t.Logf("seed %d", seed)
	for range 150 {
		stream := fmt.Sprint("s-", rnd.IntN(4))
		switch k := rnd.IntN(20); {
		case k < 12:
			putEvents(t, s, stream, []string{"A", "B", "C"}[rnd.IntN(3)], "", 1+rnd.IntN(5))
		case k < 17:
			info := check.Value(s.StreamInfo(t.Context(), stream)).Must(t)
			put(t, s, &event.Write{Stream: []string{"$ce-s", "$ce-t", "links"}[rnd.IntN(3)], Events: []event.Proposed{{ID: event.ID(uuid.New()), Type: event.TypeLink,
				Data: fmt.Appendf(nil, "%d@%s", max(0, info.Last-rnd.Int64N(30)), stream), Metadata: fmt.Appendf(nil, `{"$o":"%s"}`, stream)}}})
		case k < 18:
			putEvents(t, s, "s-2", "A", "", 2)
			put(t, s, &event.Write{Kind: event.SoftDelete, Stream: "s-2"})
			putEvents(t, s, "s-2", "A", "", 2)
		case k < 19:
			putEvents(t, s, stream, "B", "", 1)
			put(t, s, &event.Write{Stream: event.MetaStreamOf(stream), Events: []event.Proposed{{ID: event.ID(uuid.New()), Type: event.TypeMetadata, Flags: event.FlagJSON,
				Data: fmt.Appendf(nil, `{"$maxCount":%d}`, 20+rnd.IntN(20))}}})
		}
	}
	put(t, s, &event.Write{Kind: event.HardDelete, Stream: "s-3"})
	putEvents(t, s, "s-0", "A", "", 1) // Every definition selects something.
	info := check.Value(s.StreamInfo(t.Context(), "s-0")).Must(t)
	put(t, s, &event.Write{Stream: "$ce-s", Events: []event.Proposed{{ID: event.ID(uuid.New()), Type: event.TypeLink, Data: fmt.Appendf(nil, "%d@s-0", info.Last)}}})

	before := make([][]position.Position, len(sourceDefinitions))
	for i, d := range sourceDefinitions {
		var lines []string
		lines, before[i] = readAll(t, s, d, source.Zero(&d))
		if len(lines) == 0 {
			t.Errorf("%+v: no events", d)
		}
		for k, p := range before[i] {
			if k%7 != 0 {
				continue
			}
			if rest, _ := readAll(t, s, d, p); !slices.Equal(rest, lines[k+1:]) {
				t.Fatalf("%+v: behind %v comes %q, want %q", d, p, rest, lines[k+1:])
			}
		}
	}
	if merged, _ := readAll(t, s, sourceDefinitions[3], source.Zero(&sourceDefinitions[3])); !slices.Equal(merged, mergedByHand(t, s, sourceDefinitions[3].Streams)) {
		t.Errorf("merged %q", merged)
	}

	id := check.Value(n.scavenge.runs.Start(scavenge.Request{})).Must(t)
	if status, err := n.scavenge.runs.Wait(t.Context(), id); err != nil {
		t.Fatal(status, err)
	}
	for i, d := range sourceDefinitions {
		lines, behind := readAll(t, s, d, source.Zero(&d))
		if len(lines) == 0 || len(lines) > len(before[i]) {
			t.Errorf("%+v: %d events of %d", d, len(lines), len(before[i]))
		}
		for k, p := range before[i] {
			// What is behind a position is what was there behind it before, as far as it still is.
			at := slices.IndexFunc(behind, func(q position.Position) bool {
				c, ok := position.Compare(q, p)
				return ok && c > 0
			})
			if at < 0 {
				at = len(behind)
			}
			if !d.AllStreams && len(p.Numbers) > 1 || k%7 != 0 {
				continue // Numbers of streams that were passed over may be gone from positions.
			}
			if rest, _ := readAll(t, s, d, p); !slices.Equal(rest, lines[at:]) {
				t.Fatalf("%+v: scavenged, behind %v comes %q, want %q", d, p, rest, lines[at:])
			}
		}
	}
}

// mergedByHand reads streams event by event, and sorts.
func mergedByHand(t testing.TB, s *store, streams []string) (lines []string) {
	type one struct {
		r  event.Resolved
		of int
	}
	var all []one
	for i, name := range streams {
		info := check.Value(s.StreamInfo(t.Context(), name)).Must(t)
		for n := range info.Last + 1 {
			if r, err := s.ReadEvent(t.Context(), name, n, event.EveryLink); err == nil {
				all = append(all, one{r, i})
			}
		}
	}
	slices.SortFunc(all, func(a, b one) int { return cmp.Compare(a.r.Position, b.r.Position) })
	p := position.Of(streams...)
	for _, o := range all {
		p.Numbers[o.of].Number = o.r.Number
		if o.r.Link == event.LinkDead {
			continue
		}
		e := handler.Event{Record: o.r.Event()}
		if o.r.Target != nil {
			e.Link = &o.r.Record
		}
		lines = append(lines, line(&e, p))
	}
	return lines
}

// TestSourceLive: several streams are merged by log position while they are written.
func TestSourceLive(t *testing.T) {
	s := openStore(t)
	names := []string{"s-0", "s-1", "s-2", "s-3", "never"}
	d := handler.Definition{Streams: names, AllEvents: true}
	const writers, each = 4, 150
	var writing sync.WaitGroup
	for i := range writers {
		writing.Go(func() {
			for n := range each {
				putEvents(t, s, names[i], "A", "", 1+n%3)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		writing.Wait()
		putEvents(t, s, "s-0", "last", "", 1)
		cancel()
	}()
	defer writing.Wait()
	r := openSource(t, s, d, source.Zero(&d), false)
	var got []string
	for last := false; !last; {
		check.Must(t, r.Fill(t.Context()))
		for e, ok := r.Next(); ok; e, ok = r.Next() {
			got = append(got, line(e, r.Position()))
			last = e.Type == "last"
		}
	}
	<-ctx.Done()
	if want := mergedByHand(t, s, names); !slices.Equal(got, want) {
		t.Errorf("%d events, want %d", len(got), len(want))
		for i := range want {
			if i >= len(got) || got[i] != want[i] {
				t.Fatalf("event %d is %q, want %q", i, slices.Concat(got, []string{"missing"})[min(i, len(got))], want[i])
			}
		}
	}
	check.Is(t, r.Fill(ctx), context.Canceled)
}

// BenchmarkSource reads once; events per second of what is selected, and of what is looked at.
func BenchmarkSource(b *testing.B) {
	s := openStore(b)
	const streams, each = 10, 20_000
	for i := range streams {
		putEvents(b, s, fmt.Sprint("many-", i), "A", "", each)
		putEvents(b, s, fmt.Sprint("many-", i), "Rare", "", 20)
	}
	putEvents(b, s, "$ce-many", event.TypeLink, "many-1", each)
	many := make([]string, streams)
	for i := range many {
		many[i] = fmt.Sprint("many-", i)
	}
	total := streams * (each + 20)
	for _, c := range []struct {
		name   string
		d      handler.Definition
		events int
		passed int // records
	}{
		{"all", handler.Definition{AllStreams: true, AllEvents: true}, 0, total + each},
		{"rare", handler.Definition{AllStreams: true, Events: []string{"Rare", "Other"}}, streams * 20, total + each},
		{"one", handler.Definition{Streams: many[:1], AllEvents: true}, each + 20, each + 20},
		{"ten", handler.Definition{Streams: many, AllEvents: true}, total, total},
		{"category", handler.Definition{Categories: []string{"many"}, AllEvents: true}, each, each},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				r := openSource(b, s, c.d, source.Zero(&c.d), true)
				n := 0
				for {
					if err := r.Fill(b.Context()); errors.Is(err, source.ErrEnd) {
						break
					} else if err != nil {
						b.Fatal(err)
					}
					for _, ok := r.Next(); ok; _, ok = r.Next() {
						n++
					}
				}
				if n != c.events && c.events > 0 {
					b.Fatalf("%d events, want %d", n, c.events)
				}
				r.Close()
			}
			b.ReportMetric(float64(b.N)*float64(c.passed)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
