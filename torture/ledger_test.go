package torture

import (
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

// TestLedger feeds the checks with histories made by hand.
func TestLedger(t *testing.T) {
	cases := []struct {
		name string
		play func(s *scene)
		want []string
	}{
		{"clean", func(s *scene) {
			a, b := s.client(), s.client()
			x := s.wrote(a, "register-0-0", -1, 0, 10, 20)
			y := s.op(b, "register-0-0", op{outcome: done, expected: 0, number: 1, count: 2, call: 30, ret: 40})
			s.op(b, "register-0-0", op{outcome: conflict, expected: 0, number: 2, call: 50, ret: 60})
			s.op(a, "register-0-0", op{kind: opReadHead, outcome: done, number: 2, seen: y + 1, call: 50, ret: 60})
			s.op(a, "register-0-0", op{outcome: pending, expected: -2, call: 70, ret: never})
			s.log("node 0", s.shown(x, "register-0-0", 0), s.shown(y, "register-0-0", 1), s.shown(y+1, "register-0-0", 2))
		}, nil},
		{"indeterminate and there", func(s *scene) {
			a := s.client()
			x := s.op(a, "register-0-0", op{outcome: pending, expected: -2, count: 2, call: 70, ret: never})
			s.op(a, "register-0-0", op{kind: opReadHead, outcome: done, number: 1, seen: x + 1, call: 80, ret: 90})
			s.log("node 0", s.shown(x, "register-0-0", 0), s.shown(x+1, "register-0-0", 1))
		}, nil},
		{"acknowledged and lost", func(s *scene) {
			a := s.client()
			x := s.wrote(a, "s", -2, 0, 10, 20)
			s.wrote(a, "s", -2, 1, 30, 40)
			s.log("node 0", s.shown(x, "s", 0))
		}, []string{kindLost}},
		{"read and lost", func(s *scene) {
			a := s.client()
			x := s.wrote(a, "s", -2, 0, 10, 20)
			y := s.op(a, "s", op{outcome: pending, expected: -2, call: 30, ret: never})
			s.book.streamPage(place{node: "node 1"}, s.stream("s"), 0, []entry{s.shown(x, "s", 0), s.shown(y, "s", 1)})
			s.log("node 0", s.shown(x, "s", 0))
		}, []string{kindLost}},
		{"twice in the log", func(s *scene) {
			x := s.wrote(s.client(), "s", -2, 0, 10, 20)
			s.log("node 0", s.shown(x, "s", 0), s.shown(x, "s", 1))
		}, []string{kindDuplicate}},
		{"two events of one number", func(s *scene) {
			a := s.client()
			x := s.wrote(a, "s", -2, 0, 10, 20)
			y := s.op(a, "s", op{outcome: pending, expected: -2, call: 30, ret: never})
			s.log("node 0", s.shown(x, "s", 0), s.shown(y, "s", 0))
		}, []string{kindDuplicate}},
		{"acknowledged at another number", func(s *scene) {
			a := s.client()
			x := s.wrote(a, "s", -2, 0, 10, 20)
			y := s.wrote(a, "s", -2, 5, 30, 40)
			s.log("node 0", s.shown(x, "s", 0), s.shown(y, "s", 1))
		}, []string{kindOrder}},
		{"against real time", func(s *scene) {
			a := s.client()
			x := s.wrote(a, "s", -2, 0, 10, 20)
			y := s.wrote(a, "r", -2, 0, 30, 40)
			s.log("node 0", s.shown(y, "r", 0), s.shown(x, "s", 0))
		}, []string{kindOrder}},
		{"at the same time in any order", func(s *scene) {
			a, b := s.client(), s.client()
			x := s.wrote(a, "s", -2, 0, 10, 35)
			y := s.wrote(b, "r", -2, 0, 30, 40)
			s.log("node 0", s.shown(y, "r", 0), s.shown(x, "s", 0))
		}, nil},
		{"refused and there", func(s *scene) {
			x := s.op(s.client(), "s", op{outcome: refused, expected: -2, call: 10, ret: 20})
			s.log("node 0", s.shown(x, "s", 0))
		}, []string{kindUnwanted}},
		{"in part", func(s *scene) {
			x := s.op(s.client(), "s", op{outcome: pending, expected: -2, count: 3, call: 10, ret: never})
			s.log("node 0", s.shown(x, "s", 0), s.shown(x+1, "s", 1))
		}, []string{kindTorn}},
		{"no client wrote it", func(s *scene) {
			x := s.wrote(s.client(), "s", -2, 0, 10, 20)
			s.log("node 0", s.shown(x, "s", 0), s.shown(refOf(7, 7, 0), "s", 1))
		}, []string{kindUnknown}},
		{"in another stream", func(s *scene) {
			x := s.op(s.client(), "s", op{outcome: pending, expected: -2, call: 10, ret: never})
			s.log("node 0", s.shown(x, "other", 0))
		}, []string{kindUnknown}},
		{"leader shows an old end", func(s *scene) {
			a, b := s.client(), s.client()
			x := s.wrote(a, "spread-1", -2, 0, 10, 20)
			y := s.wrote(a, "spread-1", -2, 1, 30, 40)
			s.op(b, "spread-1", op{kind: opReadHead, outcome: done, number: 0, seen: x, call: 41, ret: 50})
			s.log("node 0", s.shown(x, "spread-1", 0), s.shown(y, "spread-1", 1))
		}, []string{kindStale}},
		{"leader shows an end older than another reading", func(s *scene) {
			a, b := s.client(), s.client()
			x := s.wrote(a, "spread-1", -2, 0, 10, 20)
			y := s.op(a, "spread-1", op{outcome: pending, expected: -2, call: 30, ret: never})
			s.op(b, "spread-1", op{kind: opReadHead, outcome: done, number: 1, seen: y, call: 41, ret: 50})
			s.op(b, "spread-1", op{kind: opReadHead, outcome: done, number: 0, seen: x, call: 51, ret: 60})
			s.log("node 0", s.shown(x, "spread-1", 0), s.shown(y, "spread-1", 1))
		}, []string{kindStale}},
		{"reading while the write is under way", func(s *scene) {
			a, b := s.client(), s.client()
			x := s.wrote(a, "spread-1", -2, 0, 10, 20)
			y := s.wrote(a, "spread-1", -2, 1, 30, 50)
			s.op(b, "spread-1", op{kind: opReadHead, outcome: done, number: 0, seen: x, call: 41, ret: 60})
			s.log("node 0", s.shown(x, "spread-1", 0), s.shown(y, "spread-1", 1))
		}, nil},
		{"refused with an old version", func(s *scene) {
			a, b := s.client(), s.client()
			x := s.wrote(a, "s", -2, 0, 10, 20)
			y := s.wrote(a, "s", -2, 1, 30, 40)
			s.op(b, "s", op{outcome: conflict, expected: 5, number: 0, call: 41, ret: 50})
			s.log("node 0", s.shown(x, "s", 0), s.shown(y, "s", 1))
		}, []string{kindStale}},
		{"seen before it was sent", func(s *scene) {
			a, b := s.client(), s.client()
			x := s.wrote(a, "spread-1", -2, 0, 30, 40)
			s.op(b, "spread-1", op{kind: opReadHead, outcome: done, number: 0, seen: x, call: 10, ret: 20})
			s.log("node 0", s.shown(x, "spread-1", 0))
			// A reader had seen the stream longer than this append found it.
		}, []string{kindFuture, kindStale}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			c.play(s)
			l := newLedger(s.hist, s.book)
			l.check()
			if got := l.linearizable(t.Context(), time.Minute, nil); got.Undecided > 0 {
				t.Errorf("undecided: %+v", got)
			}
			s.expect(c.want...)
		})
	}
}

// TestPowerless: in a time without a majority nothing that begins is done.
func TestPowerless(t *testing.T) {
	for _, c := range []struct {
		name      string
		outcome   outcome
		call, ret int64
		want      []string
	}{
		{"begun before", done, 90, 150, nil},
		{"done after", done, 150, 250, nil},
		{"refused", refused, 110, 120, nil},
		{"unknown", pending, 110, never, nil},
		{"done within", done, 110, 120, []string{kindMinority}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			s.op(s.client(), "s", op{outcome: c.outcome, call: c.call, ret: c.ret})
			newLedger(s.hist, s.book).powerless([]span{{100, 200}})
			s.expect(c.want...)
		})
	}
}

// TestLinearizable feeds the model with what only a search can judge.
func TestLinearizable(t *testing.T) {
	const stream = "register-0-0"
	cases := []struct {
		name string
		play func(s *scene)
		want []string
	}{
		{"two appends expect the same", func(s *scene) {
			// Each alone is possible, both together are not.
			x := s.wrote(s.client(), stream, -1, 0, 10, 50)
			s.op(s.client(), stream, op{outcome: conflict, expected: 0, number: 0, call: 20, ret: 40})
			s.log("node 0", s.shown(x, stream, 0))
		}, []string{kindLinear}},
		{"reading of the middle of a batch", func(s *scene) {
			x := s.op(s.client(), stream, op{outcome: done, expected: -2, number: 0, count: 3, call: 10, ret: 50})
			s.op(s.client(), stream, op{kind: opReadHead, outcome: done, number: 1, seen: x + 1, call: 20, ret: 40})
			s.log("node 0", s.shown(x, stream, 0), s.shown(x+1, stream, 1), s.shown(x+2, stream, 2))
		}, []string{kindLinear}},
		{"many indeterminate appends", func(s *scene) {
			var entries []entry
			for i := range 60 {
				x := s.op(s.client(), stream, op{outcome: pending, expected: anyVersion, call: int64(i), ret: never})
				if i%2 == 0 {
					entries = append(entries, s.shown(x, stream, int64(len(entries))))
				}
			}
			s.log("node 0", entries...)
		}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			c.play(s)
			l := newLedger(s.hist, s.book)
			sum := l.linearizable(t.Context(), time.Minute, nil)
			check.MustEqual(t, sum.Streams, 1, sum)
			check.Equal(t, sum.Undecided, 0, sum)
			s.expect(c.want...)
		})
	}
}
