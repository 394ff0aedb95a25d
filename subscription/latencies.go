package subscription

import (
	"slices"
	"time"
)

// latencyWindow is how many of a consumer's newest answers its latencies are about.
const latencyWindow = 1000

// latencies are how long a consumer took for its newest messages.
type latencies struct {
	newest []time.Duration // a ring once it is full
	at     int
}

func (l *latencies) add(d time.Duration) {
	if len(l.newest) < latencyWindow {
		l.newest = append(l.newest, d)
		return
	}
	l.newest[l.at] = d
	l.at = (l.at + 1) % latencyWindow
}

// percentiles are in the order in which they are shown, as parts
// of all answers that took no longer. The names are part of the wire: do not change.
var percentiles = []struct {
	name string
	part float64
}{
	{"Median", 0.5}, {"Fastest", 0}, {"Quintile 1", 0.2}, {"Quintile 2", 0.4}, {"Quintile 3", 0.6}, {"Quintile 4", 0.8},
	{"Quintile 5", 1}, {"90%", 0.9}, {"95%", 0.95}, {"99%", 0.99}, {"99.5%", 0.995}, {"99.9%", 0.999}, {"Highest", 1},
}

func (l *latencies) statistics() []Latency {
	if len(l.newest) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(l.newest))
	var sum time.Duration
	for _, d := range sorted {
		sum += d
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	all := []Latency{{"Mean", ms(sum) / float64(len(sorted))}}
	for _, f := range percentiles {
		at := int(f.part * float64(len(sorted)))
		all = append(all, Latency{f.name, ms(sorted[min(at, len(sorted)-1)])})
	}
	return all
}
