package source_test

import (
	"errors"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
	"github.com/annalsdb/annals/projection/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// show is an event in one line, with the position after it.
func show(e *handler.Event, p position.Position) string {
	text := fmt.Sprintf("%d@%s %s %s", e.Number, e.Stream, e.Type, e.Data)
	if e.Link != nil {
		text += fmt.Sprintf(" by %d@%s", e.Link.Number, e.Link.Stream)
	}
	if e.Category != "" {
		text += " in " + e.Category
	}
	if e.Gone != "" {
		text += fmt.Sprintf(" gone %s only %t", e.Gone, e.GoneOnly)
	}
	return text + " | " + p.String()
}

func open(t testing.TB, s *store, d handler.Definition, from position.Position) *source.Reader {
	t.Helper()
	return openWith(t, source.Options{Store: s, Definition: &d, From: from})
}

func openWith(t testing.TB, o source.Options) *source.Reader {
	t.Helper()
	if o.Links == nil {
		o.Links = event.EveryLink
	}
	r := check.Value(source.Open(t.Context(), o)).Must(t)
	return r
}

// drain reads all there is now, and returns the error that ended it if that is neither idleness nor
// the end.
func drain(t testing.TB, r *source.Reader) (all []string, err error) {
	t.Helper()
	for {
		for e, ok := r.Next(); ok; e, ok = r.Next() {
			all = append(all, show(e, r.Position()))
		}
		err := r.Fill(t.Context())
		if errors.Is(err, errIdle) || errors.Is(err, source.ErrEnd) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
	}
}

func expect(t testing.TB, r *source.Reader, want ...string) {
	t.Helper()
	got := check.Value(drain(t, r)).Must(t)
	check.Slice(t, got, want)
}

func expectFault(t testing.TB, r *source.Reader, text string) {
	t.Helper()
	_, err := drain(t, r)
	var f *handler.Fault
	if !errors.As(err, &f) || f.Message != text {
		t.Errorf("%v, want the fault %q", err, text)
	}
}

func fromAll(types ...string) handler.Definition {
	return handler.Definition{AllStreams: true, AllEvents: len(types) == 0, Events: types}
}

func fromStreams(names ...string) handler.Definition {
	return handler.Definition{Streams: names, AllEvents: true}
}

func fromCategory(names ...string) handler.Definition {
	return handler.Definition{Categories: names, AllEvents: true}
}

func zero(d handler.Definition) position.Position { return source.Zero(&d) }
