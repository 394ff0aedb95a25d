package scavenge

import (
	"cmp"
	"slices"
)

// tallyMost is how many streams a tally knows at most. Beyond, those with the
// fewest bytes are forgotten, so that sums of streams that were forgotten once are too low.
const tallyMost = 1 << 16

// tally adds up events and bytes by stream, in bounded memory.
type tally struct{ sums map[string]*sum }

type sum struct {
	name    string
	events  int64
	bytes   int64
	reasons map[string]int64 // events by reason
}

func newTally() tally { return tally{map[string]*sum{}} }

func (t *tally) add(name string, events, bytes int64, why string) {
	s := t.sums[name]
	if s == nil {
		if len(t.sums) == tallyMost {
			t.shrink()
		}
		s = &sum{name: name}
		t.sums[name] = s
	}
	s.events += events
	s.bytes += bytes
	if why != "" {
		if s.reasons == nil {
			s.reasons = map[string]int64{}
		}
		s.reasons[why] += events
	}
}

// shrink forgets the smaller half.
func (t *tally) shrink() {
	for _, s := range t.top(len(t.sums))[len(t.sums)/2:] {
		delete(t.sums, s.name)
	}
}

// top returns the streams with most bytes, at most n, the largest first.
func (t *tally) top(n int) []*sum {
	all := make([]*sum, 0, len(t.sums))
	for _, s := range t.sums {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *sum) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.name, b.name))
	})
	return all[:min(n, len(all))]
}

// why is the reason that most events of the stream go for.
func (s *sum) why() string {
	best := ""
	for why, events := range s.reasons {
		if best == "" || events > s.reasons[best] || events == s.reasons[best] && why < best {
			best = why
		}
	}
	return best
}
