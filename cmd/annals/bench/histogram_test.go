package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestBucketsCoverAllValues(t *testing.T) {
	last := -1
	for i := range buckets {
		middle := bucketMiddle(i)
		if got := bucketOf(middle); got != i {
			t.Fatalf("the middle of bucket %d, %d, is in bucket %d", i, middle, got)
		}
	}
	for v := range uint64(1 << 20) {
		i := bucketOf(v)
		if i != last && i != last+1 {
			t.Fatalf("from bucket %d to %d at %d", last, i, v)
		}
		last = i
	}
	for _, v := range []uint64{1<<topBits - 1, 1 << topBits, math.MaxInt64} {
		if got := bucketOf(v); got != buckets-1 {
			t.Errorf("%d is in bucket %d of %d", v, got, buckets)
		}
	}
}

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
			var h histogram
			var all []time.Duration
			for range 20_000 {
				d := draw()
				h.record(d)
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
			if h.max != all[len(all)-1] || h.min != all[0] {
				t.Errorf("from %s to %s", h.min, h.max)
			}
		})
	}
}

func TestDrainMovesEverything(t *testing.T) {
	var a, b, want histogram
	for i := range 1000 {
		d := time.Duration(i*i) * time.Microsecond
		want.record(d)
		if i%3 == 0 {
			a.record(d)
		} else {
			b.record(d)
		}
		if i%100 == 0 {
			b.drainInto(&a)
		}
	}
	b.drainInto(&a)
	if a != want {
		t.Error("drained histogram differs")
	}
	if b != (histogram{}) {
		t.Error("something stayed behind")
	}
	if b.quantile(0.5) != 0 || b.mean() != 0 {
		t.Error("an empty histogram has quantiles")
	}
	b.record(-time.Second)
	if b.max != 0 || b.count != 1 {
		t.Errorf("a negative duration counts as %s", b.max)
	}
}
