package torture

import (
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// TestBook shows nodes that disagree, and some that lag.
func TestBook(t *testing.T) {
	type three struct {
		*scene
		x, y, z entry
	}
	cases := []struct {
		name string
		play func(s three)
		want []string
	}{
		{"same on both", func(s three) {
			s.log("node 0", s.x, s.y, s.z)
			s.log("node 1", s.x, s.y, s.z)
		}, nil},
		{"lagging node", func(s three) {
			s.log("node 0", s.x, s.y, s.z)
			s.book.logForward(place{node: "node 1"}, 0, []entry{s.x, s.y}, 2*eventSize, true)
			// Its log ends there, and that is behind what it writes between events.
			s.book.logForward(place{node: "node 1"}, 2, []entry{s.z}, 3*eventSize+40, false)
			s.book.logForward(place{node: "node 1"}, 3, nil, 3*eventSize, false)
		}, nil},
		{"other event", func(s three) {
			s.log("node 0", s.x, s.y)
			s.log("node 1", s.x, s.z)
		}, []string{kindDivergence}},
		{"event left out by a follower", func(s three) {
			s.log("node 0", s.x, s.y, s.z)
			s.log("node 1", s.x, s.z)
		}, []string{kindDivergence}},
		{"one node changes its mind", func(s three) {
			s.log("node 0", s.x, s.y)
			s.log("node 0", s.x, s.z)
		}, []string{kindPrefix}},
		{"other position", func(s three) {
			s.log("node 0", s.x, s.y)
			s.book.logForward(place{node: "node 1"}, 0, []entry{s.x, s.y}, 777, true)
		}, []string{kindDivergence}},
		{"other time", func(s three) {
			s.log("node 0", s.x)
			s.x.Time = then.Add(1)
			s.log("node 1", s.x)
		}, []string{kindDivergence}},
		{"other data", func(s three) {
			s.x.Data = `{"id":"forged"}`
			s.log("node 0", s.x)
		}, []string{kindData}},
		{"other metadata event", func(s three) {
			foreign := entry{ID: "00000000-0000-0000-0000-000000000001", Type: "$metadata", Stream: "$$" + scenePrefix + "s", Data: "{}"}
			s.log("node 0", foreign)
			foreign.Data = `{"$tb":1}`
			s.log("node 1", foreign)
		}, []string{kindDivergence}},
		{"gap in a stream", func(s three) {
			s.log("node 0", s.x, s.z)
		}, []string{kindGap}},
		{"positions fall", func(s three) {
			s.book.logForward(place{node: "node 0"}, 0, []entry{s.x}, 200, true)
			s.book.logForward(place{node: "node 0"}, 1, []entry{s.y}, 150, true)
		}, []string{kindOrder}},
		{"stream differs from the log", func(s three) {
			s.log("node 0", s.x, s.y)
			s.book.streamPage(place{node: "node 1"}, s.stream("s"), 0, []entry{s.x, {
				ID: s.z.ID, Type: s.z.Type, Stream: s.z.Stream, Data: s.z.Data, Number: 1,
			}})
		}, []string{kindDivergence}},
		{"log differs from the stream", func(s three) {
			s.book.streamPage(place{node: "node 1"}, s.stream("s"), 0, []entry{s.x})
			s.z.Number = 0
			s.log("node 0", s.z)
		}, []string{kindDivergence}},
		{"hole in a page of a stream", func(s three) {
			s.book.streamPage(place{node: "node 1"}, s.stream("s"), 0, []entry{s.x, s.z})
		}, []string{kindGap}},
		{"wild number", func(s three) {
			s.z.Number = 1 << 60
			s.book.streamPage(place{node: "node 1"}, s.stream("s"), 1<<60, []entry{s.z})
		}, []string{kindGap}},
		{"backward", func(s three) {
			s.log("node 0", s.x, s.y, s.z)
			s.book.logBackward(place{node: "node 1"}, 3, []entry{s.z, s.y}, true)
			// A lagging node begins at its own end.
			s.book.logBackward(place{node: "node 1"}, 3, []entry{s.y, s.x}, false)
		}, nil},
		{"backward with a hole", func(s three) {
			s.log("node 0", s.x, s.y, s.z)
			s.book.logBackward(place{node: "node 0"}, 3, []entry{s.z, s.x}, true)
		}, []string{kindPrefix}},
		{"backward and not to the beginning", func(s three) {
			s.log("node 0", s.x, s.y, s.z)
			s.book.logBackward(place{node: "node 0"}, 3, []entry{s.z, s.y}, false)
		}, []string{kindGap}},
		{"backward into what was there before", func(s three) {
			s.book.origin = 1000
			s.book.logBackward(place{node: "node 0"}, 0, []entry{{ID: "00000000-0000-0000-0000-000000000001", Stream: "earlier", Number: 7}}, false)
		}, nil},
		{"backward something unheard of", func(s three) {
			s.log("node 0", s.x, s.y)
			s.book.logBackward(place{node: "node 1"}, 2, []entry{s.z, s.y}, true)
		}, []string{kindPrefix}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			j := s.client()
			var refs [3]ref
			for i := range refs {
				refs[i] = s.wrote(j, "s", anyVersion, int64(i), int64(10*i), int64(10*i+5))
			}
			c.play(three{s, s.shown(refs[0], "s", 0), s.shown(refs[1], "s", 1), s.shown(refs[2], "s", 2)})
			s.expect(c.want...)
		})
	}
}

func TestSpots(t *testing.T) {
	s := newScene(t)
	j := s.client()
	from := place{node: "node 0"}
	for i := range 6 {
		r := s.wrote(j, "s", anyVersion, int64(i), int64(i), int64(i))
		s.book.logForward(from, i, []entry{s.shown(r, "s", int64(i))}, int64(i+1)*eventSize, i%2 == 0)
	}
	for ordinal, want := range []spot{{0, 0}, {1, 100}, {2, 200}, {3, 300}} {
		check.Equal(t, s.book.near(ordinal), want, "near", ordinal)
	}
	check.Equal(t, s.book.near(100), spot{6, 600}, "near the end")
	s.expect()
}

// TestMissing reports a node whose log is too short.
func TestMissing(t *testing.T) {
	s := newScene(t)
	j := s.client()
	x, y := s.wrote(j, "s", -2, 0, 1, 2), s.wrote(j, "s", -2, 1, 3, 4)
	s.log("node 0", s.shown(x, "s", 0), s.shown(y, "s", 1))
	s.book.missing(Target{Name: "node 1"}, 1, 2)
	s.expect(kindLost)
}
