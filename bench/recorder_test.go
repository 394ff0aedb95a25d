package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestQuantilesAreWithinBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, draw := range map[string]func() time.Duration{
		"uniform":     func() time.Duration { return time.Duration(rng.Int64N(int64(10 * time.Millisecond))) },
		"exponential": func() time.Duration { return time.Duration(rng.ExpFloat64() * 5e5) },
		"log uniform": func() time.Duration { return time.Duration(math.Exp(rng.Float64() * 25)) },
		"constant":    func() time.Duration { return 123_457 },
		"tiny":        func() time.Duration { return time.Duration(rng.IntN(100)) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newTally()
			var all []time.Duration
			for range 20_000 {
				d := draw()
				h.add(outcome{}, d)
				all = append(all, d)
			}
			slices.Sort(all)
			for _, q := range []float64{0, 0.001, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999, 0.9999, 1} {
				rank := min(max(int(math.Ceil(q*float64(len(all)))), 1), len(all))
				want, got := float64(all[rank-1]), float64(h.quantile(q))
				if math.Abs(got-want) > want*0.008+0.5 {
					t.Errorf("quantile %g: %g, want %g", q, got, want)
				}
			}
			if h.max != all[len(all)-1] || h.count() != int64(len(all)) {
				t.Errorf("%d up to %s", h.count(), h.max)
			}
		})
	}
}

func TestDrainMovesEverything(t *testing.T) {
	a, b, want := newRecorder(1), newRecorder(1), newTally()
	for i := range 1000 {
		d := time.Duration(i*i) * time.Microsecond
		out := outcome{events: 1, bytes: int64(i)}
		want.add(out, d)
		if i%3 == 0 {
			a.add(out, d)
		} else {
			b.add(out, d)
		}
		if i%100 == 0 {
			b.drainInto(a)
		}
	}
	b.drainInto(a)
	if got := a.whole(1); !got.latency.Equals(want.latency) || got.events != want.events || got.bytes != want.bytes || got.mean() != want.mean() || got.max != want.max {
		t.Errorf("drained: %+v, want %+v", got, want)
	}
	rest := b.parts[0]
	if rest.count() != 0 || rest.events != 0 || rest.bytes != 0 || rest.quantile(0.5) != 0 || rest.mean() != 0 || rest.max != 0 {
		t.Errorf("something stayed behind: %+v", rest)
	}
	rest.add(outcome{}, -time.Second)
	if rest.max != 0 || rest.count() != 1 {
		t.Errorf("a negative duration counts as %s", rest.max)
	}
	rest.add(outcome{}, 24*time.Hour)
	if rest.max != 24*time.Hour || rest.count() != 2 {
		t.Errorf("a day counts as %s", rest.max)
	}
}
