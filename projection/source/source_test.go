package source_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
	"github.com/annalsdb/annals/projection/source"
)

// at is a position of streams.
func at(pairs ...any) (p position.Position) {
	for i := 0; i < len(pairs); i += 2 {
		p.Numbers = append(p.Numbers, position.Number{Name: pairs[i].(string), Number: int64(pairs[i+1].(int))})
	}
	return p
}

func TestAllEvents(t *testing.T) {
	s := newStore(t)
	s.append("a", "A", "1", "")
	s.append("$sys", "A", "no", "")
	s.SetMetadata("a", `{}`)
	s.SetMetadata("$sys", `{}`)
	s.link("l", &s.log()[0], "")
	s.append("b", "B", "2", "")
	s.hardDelete("b")
	s.append("$$$sys", "$metadata", "{}", "")
	end := s.log()[len(s.log())-1].Position

	d := fromAll()
	place := func(i int) string {
		return position.Position{Log: true, Commit: s.log()[i].Position, Prepare: s.log()[i].Position}.String()
	}
	r := open(t, s, d, zero(d))
	expect(t, r, "0@a A 1 | C:0/P:0", "0@$$a $metadata {} | "+place(2), "0@b B 2 | "+place(5), "9223372036854775807@b $streamDeleted  | "+place(6))
	if want := fmt.Sprintf("C:%d/P:%d", end, end); r.Position().String() != want || r.Passed() != s.LogEnd() {
		t.Errorf("at %v having passed %d, want %s and %d", r.Position(), r.Passed(), want, s.LogEnd())
	}
	d.IncludeLinks = true
	if got, _ := drain(t, open(t, s, d, zero(d))); len(got) != 5 || !strings.HasPrefix(got[2], "0@l $> 0@a |") {
		t.Errorf("with links %q", got)
	}
	d = fromAll("B", "$metadata", "$>")
	expect(t, open(t, s, d, zero(d)), "0@b B 2 | "+place(5)+"; B: -1; $metadata: -1; $>: -1; ")

	d.HandlesDeleted = true
	s.softDelete("a")
	expect(t, open(t, s, d, position.Position{Log: true, Commit: s.log()[5].Position, Prepare: s.log()[5].Position}),
		"9223372036854775807@b $streamDeleted  gone b only true | "+place(6)+"; B: -1; $metadata: -1; $>: -1; ",
		`1@$$a $metadata {"$tb":9223372036854775807} gone a only true | `+place(8)+"; B: -1; $metadata: -1; $>: -1; ")
	d = fromAll("B") // Deletions are found by the names of their types, too.
	d.HandlesDeleted = true
	if got, _ := drain(t, open(t, s, d, zero(d))); len(got) != 3 {
		t.Errorf("with deletions %q", got)
	}
}

func TestCategory(t *testing.T) {
	s := newStore(t)
	for i := range 3 {
		s.link("$ce-a", s.append("a-1", "A", fmt.Sprint(i), ""), `{"$o":"a-1"}`)
	}
	s.append("$ce-a", "A", "no link", "")
	s.link("$ce-a", &s.log()[1], `{"$o":"b-7"}`) // To a link: one step.
	s.SetMetadata("a-1", `{"$tb":1}`)
	s.append("$ce-a", "$>", "9223372036854775807@a-2", `{"$deleted":-1, "$o": "a-\u0032"}`)

	d := fromCategory("a")
	expect(t, open(t, s, d, zero(d)), "1@a-1 A 1 by 1@$ce-a in a | $ce-a: 1", "2@a-1 A 2 by 2@$ce-a in a | $ce-a: 2",
		"0@$ce-a $> 0@a-1 by 4@$ce-a in a | $ce-a: 4")
	d.HandlesDeleted = true
	expect(t, open(t, s, d, at("$ce-a", 4)), "5@$ce-a $> 9223372036854775807@a-2 by 5@$ce-a in a gone a-2 only true | $ce-a: 5")
}

func TestMergeByPosition(t *testing.T) {
	s := newStore(t)
	s.append("b", "A", "1", "")
	s.append("a", "A", "2", "")
	s.append("a", "B", "not selected", "")
	s.append("b", "A", "3", "")
	s.link("a", &s.log()[0], "")
	d := handler.Definition{Streams: []string{"a", "b", "none", "a"}, Events: []string{"A"}}
	r := open(t, s, d, zero(d))
	expect(t, r, "0@b A 1 | a: -1; b: 0; none: -1; ", "0@a A 2 | a: 0; b: 0; none: -1; ", "1@b A 3 | a: 1; b: 1; none: -1; ",
		"0@b A 1 by 2@a | a: 2; b: 1; none: -1; ")
	s.append("none", "A", "4", "")
	s.append("b", "A", "5", "")
	expect(t, r, "0@none A 4 | a: 2; b: 1; none: 0; ", "2@b A 5 | a: 2; b: 2; none: 0; ")
}

// TestCommitUnderWay: an event that is seen while others of its commit are not yet is
// neither handed out too early nor forgotten.
func TestCommitUnderWay(t *testing.T) {
	s := newStore(t)
	s.append("b", "A", "0", "")
	s.commit = s.LogEnd()
	s.append("a", "A", "1", "")
	d := fromStreams("a", "b")
	expect(t, open(t, s, d, zero(d)), "0@b A 0 | a: -1; b: 0; ", "0@a A 1 | a: 0; b: 0; ")
}

func TestGaps(t *testing.T) {
	for _, names := range [][]string{{"s"}, {"s", "other"}} {
		s := newStore(t)
		for i := range 10 {
			s.append("s", "A", fmt.Sprint(i), "")
		}
		s.SetMetadata("s", `{"$tb":3}`)
		s.scavenge()
		s.remove(func(r *event.Record) bool { return r.Stream == "s" && r.Number == 6 })
		d := fromStreams(names...)
		o := source.Options{Store: s, Definition: &d, From: zero(d), FaultOutOfOrder: true}
		const text = "Event number %d was expected in the stream s, but event number %d was received. " +
			"This may happen if events have been deleted from the beginning of your stream, please reset your projection."
		r := openWith(t, o)
		got, err := drain(t, r)
		if len(got) != 3 || err == nil || err.Error() != fmt.Sprintf(text, 6, 7) {
			t.Errorf("%v: %q, %v", names, got, err)
		}
		expectFault(t, r, fmt.Sprintf(text, 6, 7)) // Again.
		if n, _ := r.Position().Number("s"); n != 5 {
			t.Errorf("stands at %v", r.Position())
		}
		o.From = position.Of(names...)
		o.From.Numbers[0].Number = 0
		expectFault(t, openWith(t, o), fmt.Sprintf(text, 1, 3))
		o.FaultOutOfOrder = false
		if got, err := drain(t, openWith(t, o)); len(got) != 6 || err != nil {
			t.Errorf("%v: %q, %v", names, got, err)
		}
	}
}

func TestDeletedAndRecreated(t *testing.T) {
	s := newStore(t)
	d := fromStreams("s")
	r := open(t, s, d, zero(d))
	expect(t, r)
	s.append("s", "A", "0", "")
	expect(t, r, "0@s A 0 | s: 0")
	s.append("s", "A", "1", "")
	s.softDelete("s")
	expect(t, r)
	s.append("s", "A", "2", "")
	expect(t, r, "2@s A 2 | s: 2")
	s.hardDelete("s")
	expect(t, r)
	check.Equal(t, r.Progress(), 100, "progress")
}

// TestLargeEvents: what is buffered is bounded by bytes, and every event is whole.
func TestLargeEvents(t *testing.T) {
	s := newStore(t)
	const size = 3 << 20
	for i := range 6 {
		s.append("s", "A", fmt.Sprint(i)+strings.Repeat("x", size), "")
		s.link("$ce-s", &s.log()[2*i], `{}`)
	}
	for _, d := range []handler.Definition{fromAll(), fromStreams("s"), fromCategory("s"), fromStreams("s", "$ce-s")} {
		r := open(t, s, d, zero(d))
		n := 0
		for {
			if err := r.Fill(t.Context()); errors.Is(err, errIdle) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if r.Buffered() > 2 {
				t.Errorf("%d events are buffered", r.Buffered())
			}
			for e, ok := r.Next(); ok; e, ok = r.Next() {
				if len(e.Data) != size+1 || e.Bare {
					t.Errorf("event %d of %d bytes", e.Number, len(e.Data))
				}
				n++
			}
		}
		if n%6 != 0 || n == 0 {
			t.Errorf("%d events", n)
		}
	}
	if s.Payloads.Load() == 0 {
		t.Error("none was read by itself")
	}
}

func TestRights(t *testing.T) {
	s := newStore(t)
	var asked []string
	may := func(_ context.Context, stream string) error {
		if asked = append(asked, stream); stream == "$ce-b" || stream == "$all" {
			return fmt.Errorf("access list: %w", event.ErrNotAuthorized)
		}
		return nil
	}
	for _, d := range []handler.Definition{fromAll(), fromCategory("a", "b")} {
		_, err := source.Open(t.Context(), source.Options{Store: s, Definition: &d, From: zero(d), May: may})
		if !errors.Is(err, event.ErrNotAuthorized) || !strings.HasPrefix(err.Error(), "Projection cannot read its source. Not authorized.") {
			t.Error(err)
		}
	}
	check.Equal(t, fmt.Sprint(asked), "[$all $ce-a $ce-b]", "asked for", asked)
	d := fromStreams("a")
	other := errors.New("not now")
	_, err := source.Open(t.Context(), source.Options{Store: s, Definition: &d, From: zero(d), May: func(context.Context, string) error { return other }})
	if !errors.Is(err, other) || errors.Is(err, event.ErrNotAuthorized) {
		t.Error(err)
	}
	check.Is(t, check.Err(source.Open(t.Context(), source.Options{Store: s, Definition: &d, From: position.OfLog()})), position.ErrOtherSource)
}

// TestCancel: waiting ends with the context, and the reader can continue afterwards.
func TestCancel(t *testing.T) {
	for _, d := range []handler.Definition{fromAll(), fromStreams("s"), fromStreams("s", "t"), fromCategory("s")} {
		s := newStore(t)
		ctx, cancel := context.WithCancel(t.Context())
		s.wait = func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}
		r := open(t, s, d, zero(d))
		check.Is(t, r.Fill(ctx), context.Canceled)
		s.link("$ce-s", s.append("s", "A", "0", ""), "")
		if err := r.Fill(t.Context()); err != nil || r.Buffered() != 1 {
			t.Errorf("%d events, %v", r.Buffered(), err)
		}
		r.Close()
		if _, ok := r.Next(); ok {
			t.Error("an event after Close")
		}
	}
}

// TestFarPositions: a position that no event has is as good as any, and overflows nothing.
func TestFarPositions(t *testing.T) {
	s := newStore(t)
	s.append("s", "A", "", "")
	const most = 1<<63 - 1
	for _, c := range []struct {
		d     handler.Definition
		from  position.Position
		count int
	}{
		{fromAll(), position.Position{Log: true, Commit: most, Prepare: most}, 0},
		{fromAll(), position.Position{Log: true, Commit: -most - 1, Prepare: most}, 1},
		{fromAll(), position.Position{Log: true, Commit: -5, Prepare: -5}, 1},
		{fromStreams("s"), at("s", most), 0},
		{fromStreams("s"), at("s", -most-1), 1},
		{fromStreams("s", "t"), at("s", most, "t", 5), 0},
	} {
		for _, once := range []bool{false, true} {
			r := openWith(t, source.Options{Store: s, Definition: &c.d, From: c.from, Once: once, FaultOutOfOrder: true})
			if got, err := drain(t, r); len(got) != c.count || err != nil {
				t.Errorf("from %v: %q, %v", c.from, got, err)
			}
			check.Equal(t, r.Progress(), 100, "from", c.from, "progress")
		}
	}
}

func TestProgress(t *testing.T) {
	s := newStore(t)
	w := event.Write{Stream: "s", ExpectedVersion: event.AnyVersion}
	for i := range 1000 {
		w.Events = append(w.Events, event.Proposed{ID: event.ID{1, byte(i), byte(i >> 8)}, Type: "A"})
	}
	s.Put(w)
	for _, d := range []handler.Definition{fromAll(), fromStreams("s"), fromStreams("s", "t")} {
		r := open(t, s, d, zero(d))
		check.Equal(t, r.Progress(), -1, "at first")
		check.Must(t, r.Fill(t.Context()))
		for range 250 {
			r.Next()
		}
		p, passed := r.Progress(), r.Passed()
		n := r.Unread()
		if p < 24.9 || p > 25.1 || !d.AllStreams && n != 750 || passed < s.LogEnd()/6 || passed > s.LogEnd()/3 {
			t.Errorf("%v%%, %d behind, %d bytes passed", p, n, passed)
		}
	}
}

// TestIdle: a reader that waits holds on to nothing.
func TestIdle(t *testing.T) {
	for _, d := range []handler.Definition{fromAll(), fromStreams("s"), fromStreams("s", "t"), fromCategory("s")} {
		s := newStore(t)
		for range 1000 {
			s.link("$ce-s", s.append("s", "A", "", ""), "")
		}
		r := open(t, s, d, zero(d))
		if got, err := drain(t, r); len(got) != 1000 || err != nil {
			t.Errorf("%d events, %v", len(got), err)
		}
		if n := r.Held(); n > 48 {
			t.Errorf("room for %d events", n)
		}
		s.append("s", "A", "", "")
		s.link("$ce-s", &s.log()[0], "")
		if got, err := drain(t, r); len(got) != 1 || err != nil {
			t.Errorf("%d events, %v", len(got), err)
		}
	}
}

func TestPage(t *testing.T) {
	s := newStore(t)
	for i := range 5 {
		s.append("s", []string{"A", "B"}[i%2], fmt.Sprint(i), "")
	}
	d := handler.Definition{Streams: []string{"s"}, Events: []string{"A"}}
	o := source.Options{Store: s, Definition: &d, From: zero(d)}
	page, next, err := source.Page(t.Context(), o, 2)
	if err != nil || len(page) != 2 || page[1].Event().Number != 2 || page[1].Position.String() != "s: 2" || next.String() != "s: 2" {
		t.Errorf("%+v, %v, %v", page, next, err)
	}
	o.From = next
	page, next, err = source.Page(t.Context(), o, 2)
	if err != nil || len(page) != 1 || page[0].Event().Number != 4 || next.String() != "s: 4" {
		t.Errorf("%+v, %v, %v", page, next, err)
	}
	o.From = next
	if page, next, err = source.Page(t.Context(), o, 2); err != nil || len(page) != 0 || next.String() != "s: 4" {
		t.Errorf("%+v, %v, %v", page, next, err)
	}
	for i := range 40 {
		s.append("big", "A", fmt.Sprint(i)+strings.Repeat("x", 1<<20), "")
	}
	d.Streams, o.From = []string{"big"}, position.Of("big")
	if page, next, err = source.Page(t.Context(), o, 1000); err != nil || len(page) < 15 || len(page) > 20 || next.Numbers[0].Number != int64(len(page))-1 {
		t.Errorf("%d large events, %v, %v", len(page), next, err)
	}
}

func TestStateReason(t *testing.T) {
	s := newStore(t)
	s.link("$ce-a", s.append("a-1", "A", "", ""), "")
	for _, c := range []struct {
		d    handler.Definition
		want string
	}{
		{fromAll("A"), ""},
		{fromCategory("a"), ""},
		{fromStreams("none"), ""},
		{fromCategory("a", "b"), "Waiting for the stream '$ce-b', which the projection $by_category writes when it is enabled."},
		{fromStreams("$et-A"), "Waiting for the stream '$et-A', which the projection $by_event_type writes when it is enabled."},
	} {
		if got, err := source.StateReason(t.Context(), s, &c.d); got != c.want || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
}
