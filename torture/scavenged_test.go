package torture

import (
	"math"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

// sparse lets a node show the log with some of the events.
func (s *scene) sparse(node string, entries ...entry) {
	s.book.logForward(place{node: node}, 0, entries, int64(len(entries))*eventSize, false)
}

// TestFluid: events of limited streams may be missing here and there, and must not
// differ or change places.
func TestFluid(t *testing.T) {
	// fluid is a run that wrote two events that stay and two that may be removed. The entries are
	// the same each time.
	fluid := func(t *testing.T) (s *scene, a, x, b, y entry) {
		s = newScene(t)
		j := s.client()
		refs := []ref{s.wrote(j, "a", anyVersion, 0, 10, 20), s.wrote(j, "shed-1", noStream, 0, 30, 40), s.wrote(j, "a", anyVersion, 1, 50, 60), s.wrote(j, "shed-1", 0, 1, 70, 80)}
		return s, s.shown(refs[0], "a", 0), s.shown(refs[1], "shed-1", 0), s.shown(refs[2], "a", 1), s.shown(refs[3], "shed-1", 1)
	}
	_, a, x, b, y := fluid(t)
	other := y
	other.Number = 0
	cases := []struct {
		name string
		log  []entry
		want []string
	}{
		{"the same", []entry{a, x, b, y}, nil},
		{"scavenged", []entry{a, b, y}, nil},
		{"scavenged to the end", []entry{a, b}, nil},
		// What follows it stands too early.
		{"an event that stays is missing", []entry{a, x, y}, []string{kindOrder}},
		{"another one that stays is missing", []entry{x, b, y}, []string{kindDivergence, kindOrder}},
		{"it has moved", []entry{a, b, x, y}, []string{kindOrder}},
		{"another event", []entry{a, other, b}, []string{kindDivergence}},
		{"numbers that fall", []entry{a, b, y, x}, []string{kindOrder}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			s.sparse("node 0", a, x, b, y)
			s.sparse("node 1", c.log...)
			s.expect(c.want...)
		})
	}
	t.Run("seen late", func(t *testing.T) {
		s, a, x, b, y := fluid(t)
		s.sparse("node 0", a, b)
		s.sparse("node 1", a, x, b, y)
		newLedger(s.hist, s.book).check()
		s.expect()
	})
	t.Run("lost", func(t *testing.T) {
		for _, may := range []bool{true, false} {
			s, a, _, b, y := fluid(t)
			s.sparse("node 0", a, b, y)
			s.stream("shed-1").shed = &shed{lost: map[bool]int64{true: 1}[may]}
			newLedger(s.hist, s.book).check()
			if may {
				s.expect()
			} else {
				s.expect(kindLost)
			}
		}
	})
	t.Run("in the wrong place in time", func(t *testing.T) {
		s, a, x, b, y := fluid(t)
		s.sparse("node 0", a, b, x, y)
		newLedger(s.hist, s.book).check()
		s.expect(kindOrder)
	})
}

// TestLimits: what the limits of a stream say of each of its events.
func TestLimits(t *testing.T) {
	ten := make([]ref, 10)
	cases := []struct {
		name                    string
		shed                    shed
		visible, discard, lacks int64 // lacks: events below may be gone
	}{
		{"no limits", shed{refs: ten}, 0, 0, 0},
		{"count", shed{refs: ten, maxCount: 3}, 7, 7, 7},
		{"count of one", shed{refs: ten, maxCount: 1}, 9, 9, 9},
		{"before", shed{refs: ten, before: 4}, 4, 4, 4},
		{"before the end", shed{refs: ten, before: 10}, 10, 9, 9},
		{"deleted", shed{refs: ten, deleted: true}, math.MaxInt64, 9, 9},
		{"deleted for good", shed{refs: ten, hard: true}, math.MaxInt64, math.MaxInt64, 10},
		{"loosened", shed{refs: ten, lost: 6}, 0, 0, 6},
		{"age", shed{refs: ten, maxAge: time.Second}, 0, 0, 9},
		{"age of a month", shed{style: shedMonth, refs: ten, maxAge: 30 * 24 * time.Hour}, 0, 0, 0},
		{"not known", shed{refs: ten, unsure: true}, 0, 0, 10},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := c.shed
			s.changed()
			if s.visible() != c.visible || s.discard() != c.discard {
				t.Errorf("visible from %d, discarded below %d, want %d, %d", s.visible(), s.discard(), c.visible, c.discard)
			}
			for n := range int64(10) {
				check.Equal(t, s.mayLack(n), n < c.lacks, "number", n, "may be gone")
			}
		})
	}
}

// TestCompareScavenged holds logs of scavenged nodes against limits and against each other.
func TestCompareScavenged(t *testing.T) {
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cases := []struct {
		name  string
		shed  shed
		left  []int64 // numbers that one node shows; the other shows what it should
		right []int64
		metas int
		want  []string
	}{
		{"exact", shed{maxCount: 2, metas: 1}, []int64{3, 4}, []int64{3, 4}, 1, nil},
		{"one too many removed", shed{maxCount: 2, metas: 1}, []int64{4}, []int64{3, 4}, 1, []string{kindRemoved, kindDivergence}},
		{"the last removed", shed{deleted: true, metas: 1}, []int64{}, []int64{4}, 1, []string{kindRemoved, kindDivergence}},
		{"one too few removed", shed{maxCount: 2, metas: 1}, []int64{2, 3, 4}, []int64{3, 4}, 1, []string{kindRemains, kindDivergence}},
		{"no metadata", shed{maxCount: 2, metas: 1}, []int64{3, 4}, []int64{3, 4}, 0, []string{kindRemoved}},
		{"all metadata", shed{maxCount: 2, metas: 2}, []int64{3, 4}, []int64{3, 4}, 2, []string{kindRemains}},
		{"for good", shed{hard: true, metas: 1}, []int64{math.MaxInt64}, []int64{math.MaxInt64}, 0, nil},
		{"no tombstone", shed{hard: true, metas: 1}, nil, []int64{math.MaxInt64}, 0, []string{kindRemoved, kindDivergence}},
		{"too old", shed{maxAge: 3 * time.Second, metas: 1}, []int64{2, 3, 4}, []int64{2, 3, 4}, 1, nil},
		{"just not too old", shed{maxAge: 3 * time.Second, metas: 1}, []int64{3, 4}, []int64{2, 3, 4}, 1, []string{kindRemoved, kindDivergence}},
		{"removed by a wrong clock", shed{style: shedMonth, maxAge: 30 * 24 * time.Hour, metas: 1}, []int64{3, 4}, []int64{0, 1, 2, 3, 4}, 1, []string{kindRemoved, kindDivergence}},
		{"loosened", shed{style: shedLoose, lost: 3, metas: 1}, []int64{3, 4}, []int64{0, 2, 3, 4}, 1, nil},
		{"loosened, and more is gone", shed{style: shedLoose, lost: 3, metas: 1}, []int64{4}, []int64{3, 4}, 1, []string{kindRemoved, kindDivergence}},
		{"not known", shed{unsure: true, metas: 1}, nil, []int64{3}, 0, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			l := newLoad(1, nil, s.hist, s.book, &targets{})
			sh := c.shed
			sh.stream = s.stream("shed-1")
			events := map[int64]entry{}
			var all []entry
			for n := range int64(5) {
				r := refOf(1, int(n), 0)
				e := s.shown(r, "shed-1", n)
				e.Time = begun.Add(time.Duration(n) * time.Second)
				sh.refs, events[n], all = append(sh.refs, r), e, append(all, e)
			}
			sh.changed()
			s.sparse("subscriber", all...)
			events[math.MaxInt64] = entry{ID: "t", Type: "tombstone", Number: math.MaxInt64, Stream: sh.name, Time: then}
			r := &round{load: l, find: s.find, shedders: []*shedder{{writer: newWriter(l, s.client())}}}
			r.shedders[0].streams = []shed{sh}
			sh.stream.shed = &sh
			show := func(node string, numbers []int64) nodeLog {
				var entries []entry
				for i := range c.metas {
					entries = append(entries, entry{ID: "m", Type: "$metadata", Number: int64(i), Stream: "$$" + sh.name, Time: then})
				}
				for _, n := range numbers {
					entries = append(entries, events[n])
				}
				entries = append(entries, entry{ID: "p", Type: "$scavengePoint", Stream: pointsStream, Time: then})
				return nodeLog{Target{Name: node}, s.book.see(entries, place{node: node})}
			}
			r.compareScavenged([]nodeLog{show("node 0", c.right), show("node 1", c.left)}, &scavengePoint{Now: begun.Add(5 * time.Second)})
			s.expect(c.want...)
		})
	}
	t.Run("no point", func(t *testing.T) {
		s := newScene(t)
		r := &round{load: newLoad(1, nil, s.hist, s.book, &targets{}), find: s.find}
		r.compareScavenged([]nodeLog{{node: Target{Name: "node 0"}}}, &scavengePoint{})
		s.expect(kindLost)
	})
}
