package source_test

import (
	"errors"
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

const orderStream = "$projections-p-order"

func ordered(s *store, d *handler.Definition, from position.Position, v position.Version) source.Options {
	return source.Options{Store: s, Definition: d, From: from, Links: event.EveryLink, Order: &source.Order{Stream: orderStream, Version: v}}
}

var version = position.Version{Projection: 7, Epoch: -1, Version: 2}

// written is what the order holds.
func (s *store) written() (all []string) {
	for _, r := range s.All(orderStream) {
		all = append(all, fmt.Sprintf("%s %s %s", r.Type, r.Data, r.Metadata))
	}
	return all
}

func TestOrder(t *testing.T) {
	s := newStore(t)
	s.append("c", "A", "older", "")
	s.append("b", "A", "0", "")
	s.link("a", s.append("b", "A", "1", ""), "")
	s.append("a", "B", "passed over", "")
	s.append("a", "A", "2", "")
	d := handler.Definition{Streams: []string{"a", "b"}, Events: []string{"A"}}
	r := openWith(t, ordered(s, &d, zero(d), version))
	all := []string{"0@b A 0 | a: -1; b: 0; ", "1@b A 1 | a: -1; b: 1; ", "1@b A 1 by 0@a | a: 0; b: 1; ", "2@a A 2 | a: 2; b: 1; "}
	expect(t, r, all...)
	places := []string{
		`$> 0@b {"$v":"7:-1:2:4","$s":{"a":-1,"b":0}}`, `$> 1@b {"$v":"7:-1:2:4","$s":{"a":-1,"b":1}}`,
		`$> 0@a {"$v":"7:-1:2:4","$s":{"a":0,"b":1}}`, `$> 2@a {"$v":"7:-1:2:4","$s":{"a":2,"b":1}}`,
	}
	if got := s.written(); !slices.Equal(got, places) || s.Writes.Load() != 1 {
		t.Errorf("%d writes of\n%q", s.Writes.Load(), got)
	}

	// A new source has older events, and one is gone: what was written comes first, at the same
	// positions.
	s.remove(func(r *event.Record) bool { return r.Stream == "a" && r.Number == 0 })
	next := position.Version{Projection: 7, Epoch: -1, Version: 5}
	d.Streams = []string{"a", "b", "c"}
	s.append("a", "A", "3", "")
	r = openWith(t, ordered(s, &d, at("a", -1, "b", 0, "c", -1), next))
	got, err := drain(t, r)
	want := []string{"1@b A 1 | a: -1; b: 1; c: -1; ", "2@a A 2 | a: 2; b: 1; c: -1; ", "0@c A older | a: 2; b: 1; c: 0; ", "3@a A 3 | a: 3; b: 1; c: 0; "}
	check.Must(t, err)
	check.Slice(t, got, want)
	if got := s.written(); len(got) != 6 || got[5] != `$> 3@a {"$v":"7:-1:5:4","$s":{"a":3,"b":1,"c":0}}` {
		t.Errorf("%q", got)
	}
}

// TestOrderOfOthers: places that are not ours do not count, and an event that is not a place is a
// fault.
func TestOrderOfOthers(t *testing.T) {
	d := fromStreams("a", "b")
	fill := func() *store {
		s := newStore(t)
		s.append("a", "A", "0", "")
		s.append("b", "A", "1", "")
		return s
	}
	all := []string{"0@a A 0 | a: 0; b: -1; ", "0@b A 1 | a: 0; b: 0; "}
	for _, v := range []string{"6:-1:2:4", "7:-1:2:4"} {
		s := fill()
		s.append(orderStream, "$>", "0@b", `{"$v":"`+v+`","$s":{"a":-1,"b":0}}`)
		expect(t, openWith(t, ordered(s, &d, zero(d), position.Version{Projection: 7, Epoch: 3, Version: 4})), all...)
		if got := s.written(); len(got) != 3 {
			t.Errorf("%q", got)
		}
	}
	const foreign = "Order stream `" + orderStream + "` has been written to from the outside"
	for _, metadata := range []string{"", `{"$s":{"a":1}}`, `{"$v":"7:-1:2:4"}`} {
		s := fill()
		s.append(orderStream, "$>", "0@b", metadata)
		expectFault(t, openWith(t, ordered(s, &d, zero(d), version)), foreign)
	}
	s := fill()
	r := openWith(t, ordered(s, &d, zero(d), version))
	expect(t, r, all...)
	s.append(orderStream, "A", "", "")
	s.append("a", "A", "2", "")
	expectFault(t, r, foreign)
	s.hardDelete(orderStream)
	expectFault(t, openWith(t, ordered(s, &d, zero(d), version)), "Stream : "+orderStream+" is deleted. Cannot emit events to it")

	s = fill()
	expect(t, openWith(t, ordered(s, &d, zero(d), version)), all...)
	s.softDelete(orderStream)
	s.append("a", "A", "2", "")
	expect(t, openWith(t, ordered(s, &d, at("a", 0, "b", 0), version)), "1@a A 2 | a: 1; b: 0; ")
}

// TestOrderFails: nothing is handed out before its place is written, and places are written once.
func TestOrderFails(t *testing.T) {
	s := newStore(t)
	s.append("a", "A", "0", "")
	s.append("b", "A", "1", "")
	d := fromStreams("a", "b")
	r := openWith(t, ordered(s, &d, zero(d), version))
	fail := errors.New("not now")
	once(&s.BeforeWrite, fail)
	for _, late := range []bool{false, true} {
		if err := r.Fill(t.Context()); !errors.Is(err, fail) || r.Buffered() != 0 {
			t.Errorf("%d events, %v", r.Buffered(), err)
		}
		if _, ok := r.Next(); ok || !r.Position().IsZero() {
			t.Errorf("stands at %v", r.Position())
		}
		if !late {
			once(&s.AfterWrite, fail)
		}
	}
	expect(t, r, "0@a A 0 | a: 0; b: -1; ", "0@b A 1 | a: 0; b: 0; ")
	if got := s.written(); len(got) != 2 {
		t.Errorf("%q", got)
	}
	s.append("a", "A", strings.Repeat("x", 10), "")
	expect(t, r, "1@a A xxxxxxxxxx | a: 1; b: 0; ")
}

// TestOrderIsKept: wherever a reader starts again, events that were handed out come again in the
// same order, with the same positions.
func TestOrderIsKept(t *testing.T) {
	for range 100 {
		seed := rand.Uint64()
		rnd := rand.New(rand.NewPCG(seed, 2))
		s, d := newStore(t), randomDefinition(rnd)
		for d.AllStreams || len(d.Streams)+len(d.Categories) < 2 {
			d = randomDefinition(rnd)
		}
		open := func(from position.Position) *source.Reader {
			r, err := source.OpenBounded(t.Context(), ordered(s, &d, from, version), 1+rnd.IntN(50), 1+rnd.IntN(2000), 1, 1+rnd.IntN(20))
			check.Must(t, err)
			return r
		}
		var had []string
		positions := []position.Position{zero(d)} // before each of had, and after the last
		at, r := 0, open(zero(d))
		for range 20 {
			for range rnd.IntN(20) { // Nothing that was seen is deleted.
				name := []string{"a-1", "a-2", "b-1", "c", "links", "$ce-a", "$ce-b"}[rnd.IntN(7)]
				if to := len(s.log()); to > 0 && rnd.IntN(3) == 0 {
					s.link(name, &s.log()[rnd.IntN(to)], "{}")
				} else {
					s.append(name, "A", "", "")
				}
			}
			switch rnd.IntN(4) {
			case 0:
				once(&s.AfterWrite, event.ErrOutcomeUnknown)
			case 1:
				once(&s.BeforeWrite, event.ErrNotReady)
			}
			for n := rnd.IntN(60); n > 0; n-- {
				e, ok := r.Next()
				if !ok {
					if err := r.Fill(t.Context()); errors.Is(err, errIdle) {
						break
					} else if err != nil && !errors.Is(err, event.ErrOutcomeUnknown) && !errors.Is(err, event.ErrNotReady) {
						t.Fatalf("seed %d: %v", seed, err)
					}
					continue
				}
				got := show(e, r.Position())
				switch {
				case at == len(had):
					had, positions = append(had, got), append(positions, r.Position())
				case had[at] != got:
					t.Fatalf("seed %d: at %d %q, was %q", seed, at, got, had[at])
				}
				at++
			}
			if rnd.IntN(2) == 0 {
				at = rnd.IntN(len(positions))
				r = open(positions[at])
			}
		}
		if twice := slices.Compact(slices.Sorted(slices.Values(had))); len(twice) != len(had) {
			t.Fatalf("seed %d: events came twice", seed)
		}
	}
}
