package stats

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"sync/atomic"
	"time"
)

// Counter is a metric that only grows.
type Counter struct{ n atomic.Uint64 }

// Inc adds one.
func (c *Counter) Inc() { c.n.Add(1) }

// Add adds n.
func (c *Counter) Add(n uint64) { c.n.Add(n) }

// Value returns the count.
func (c *Counter) Value() uint64 { return c.n.Load() }

// Gauge is a metric that goes up and down.
type Gauge struct{ n atomic.Int64 }

// Set replaces the value.
func (g *Gauge) Set(n int64) { g.n.Store(n) }

// Add adds n, which may be negative.
func (g *Gauge) Add(n int64) { g.n.Add(n) }

// Value returns the value.
func (g *Gauge) Value() int64 { return g.n.Load() }

// A recent maximum looks back over the current slot of time and all but one of
// those before it, so it covers 16 to 20 seconds: longer than the interval at
// which metrics are usually collected, so that no peak is missed.
const (
	maxSlots     = 5
	maxSlotNanos = int64(4 * time.Second)
)

// Max is the greatest value of the last 16 to 20 seconds, 0 when there was none.
// Values are expected to be zero or more.
type Max struct {
	slots [maxSlots]atomic.Pointer[maxSlot]
}

// maxSlot is the maximum of one slot of time. A slot whose time is over is
// replaced and not reset, so that no late value gets lost or into the wrong time.
type maxSlot struct {
	epoch int64         // number of the slot since the process began
	bits  atomic.Uint64 // of the float; zero or more, so it orders as the bits do
}

func epochNow() int64 { return moment(time.Now()) / maxSlotNanos }

// started is what moments are counted from.
var started = time.Now()

// moment returns the nanoseconds from started to t on the monotonic clock, which
// setting the wall clock does not move.
func moment(t time.Time) int64 { return int64(t.Sub(started)) }

// raise makes a value at least as great as to.
func raise(v *atomic.Int64, to int64) {
	for have := v.Load(); to > have; have = v.Load() {
		if v.CompareAndSwap(have, to) {
			return
		}
	}
}

// Observe takes a value into account.
func (m *Max) Observe(v float64) {
	if !(v > 0) {
		return
	}
	epoch := epochNow()
	place := &m.slots[uint64(epoch)%maxSlots]
	slot := place.Load()
	for slot == nil || slot.epoch != epoch {
		if slot != nil && slot.epoch > epoch {
			return // This goroutine slept for a whole round.
		}
		fresh := &maxSlot{epoch: epoch}
		if place.CompareAndSwap(slot, fresh) {
			slot = fresh
			break
		}
		slot = place.Load()
	}
	bits := math.Float64bits(v)
	for have := slot.bits.Load(); bits > have; have = slot.bits.Load() {
		if slot.bits.CompareAndSwap(have, bits) {
			return
		}
	}
}

// Value returns the maximum.
func (m *Max) Value() float64 {
	epoch := epochNow()
	var bits uint64
	for i := range m.slots {
		if s := m.slots[i].Load(); s != nil && s.epoch > epoch-maxSlots {
			bits = max(bits, s.bits.Load())
		}
	}
	return math.Float64frombits(bits)
}

// DurationBounds are buckets for durations in seconds, from 50 microseconds to 10 seconds.
var DurationBounds = []float64{
	0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
}

// Histogram counts values by size, and remembers the greatest recent one.
type Histogram struct {
	bounds []float64
	counts []atomic.Uint64 // one per bound, and one for what is above the last
	sum    atomic.Uint64   // bits of a float
	recent Max
}

// Distribution is a histogram as it stood at one moment.
type Distribution struct {
	Bounds    []float64 // upper bounds, included; must not be changed
	Counts    []uint64  // values in each bucket (not cumulative), one more than there are bounds
	Count     uint64    // all of Counts
	Sum       float64
	RecentMax float64 // as Max
}

func newHistogram(name string, bounds []float64) *Histogram {
	for i, b := range bounds {
		if math.IsNaN(b) || math.IsInf(b, 0) || i > 0 && b <= bounds[i-1] {
			panic(fmt.Sprintf("stats: bounds of histogram %s do not rise", name))
		}
	}
	return &Histogram{bounds: slices.Clone(bounds), counts: make([]atomic.Uint64, len(bounds)+1)}
}

// Observe counts a value. It leaves out NaN.
func (h *Histogram) Observe(v float64) {
	if math.IsNaN(v) {
		return
	}
	h.counts[sort.SearchFloat64s(h.bounds, v)].Add(1)
	for {
		have := h.sum.Load()
		if h.sum.CompareAndSwap(have, math.Float64bits(math.Float64frombits(have)+v)) {
			break
		}
	}
	h.recent.Observe(v)
}

// ObserveSince counts the seconds since begin.
func (h *Histogram) ObserveSince(begin time.Time) { h.Observe(time.Since(begin).Seconds()) }

// Snapshot returns the distribution. Values that arrive meanwhile may be in some of its numbers
// only.
func (h *Histogram) Snapshot() *Distribution {
	d := &Distribution{Bounds: h.bounds, Counts: make([]uint64, len(h.counts))}
	for i := range h.counts {
		d.Counts[i] = h.counts[i].Load()
		d.Count += d.Counts[i]
	}
	d.Sum = math.Float64frombits(h.sum.Load())
	d.RecentMax = h.recent.Value()
	return d
}
