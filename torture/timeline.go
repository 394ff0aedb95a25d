package torture

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Kinds of happenings. The words are part of the output.
const (
	happenedFault  = "fault"
	happenedLeader = "leader"
	happenedNode   = "node"
	happenedPhase  = "phase"
)

// happening is something on the timeline. A fault has a length.
type happening struct {
	At    int64  `json:"atNanoseconds"`
	Until int64  `json:"untilNanoseconds,omitempty"`
	Kind  string `json:"kind"`
	Fault string `json:"fault,omitempty"` // the name of the fault
	What  string `json:"what"`
}

// timeline is what happened around the clients. Its methods may be called from anywhere.
type timeline struct {
	start time.Time

	mu  sync.Mutex
	all []happening
}

// keptHappenings bounds a timeline: a cluster whose leader changes without end must not fill the
// memory.
const keptHappenings = 20_000

func (t *timeline) now() int64 { return int64(time.Since(t.start)) }

func (t *timeline) add(kind, format string, args ...any) {
	t.put(happening{At: t.now(), Kind: kind, What: fmt.Sprintf(format, args...)})
}

func (t *timeline) put(h happening) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) < keptHappenings {
		t.all = append(t.all, h)
	}
}

// list returns everything in the order of beginnings.
func (t *timeline) list() []happening {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.Clone(t.all)
	slices.SortStableFunc(all, func(a, b happening) int { return cmp.Compare(a.At, b.At) })
	return all
}

// outage is what one kind of fault did to the writers.
type outage struct {
	Fault string `json:"fault"`
	Times int    `json:"times"`
	// LongestGap is the longest time without a successful write that touched
	// such a fault, MeanGap the mean of the longest of each, in seconds.
	LongestGap float64 `json:"longestGapSeconds"`
	MeanGap    float64 `json:"meanGapSeconds"`
}

// outages finds the longest gap of each fault. A fault answers for gaps that
// touch the time from its beginning to its end and a little longer, in which its
// cure works, unless the next fault has begun by then. all is in order of time.
func outages(all []happening, gaps []gap, after int64) []outage {
	var list []outage
	for i, h := range all {
		if h.Kind != happenedFault || h.Fault == "" {
			continue
		}
		until := h.Until + after
		for _, next := range all[i+1:] {
			if next.Kind == happenedFault && next.At > h.Until {
				until = min(until, next.At)
				break
			}
		}
		var longest int64
		for _, g := range gaps {
			if g.to > h.At && g.from < until {
				longest = max(longest, g.to-max(g.from, h.At))
			}
		}
		at := slices.IndexFunc(list, func(o outage) bool { return o.Fault == h.Fault })
		if at < 0 {
			at, list = len(list), append(list, outage{Fault: h.Fault})
		}
		o, length := &list[at], time.Duration(longest).Seconds()
		o.MeanGap = (o.MeanGap*float64(o.Times) + length) / float64(o.Times+1)
		o.LongestGap = max(o.LongestGap, length)
		o.Times++
	}
	slices.SortFunc(list, func(a, b outage) int { return cmp.Compare(a.Fault, b.Fault) })
	return list
}
