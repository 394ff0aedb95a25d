package bench

import (
	"math"
	"math/bits"
	"time"
)

// The buckets of a histogram: values below 2*subBuckets nanoseconds are exact, every
// further power of two is cut in subBuckets parts. A bucket is thus at most
// 1/64 of its values wide, and its middle at most 0.8 % away from any of them.
const (
	subBits    = 6
	subBuckets = 1 << subBits
	topBits    = 40 // values from 2^40 ns (18 minutes) on share the last bucket
	buckets    = (topBits-subBits-1)*subBuckets + 2*subBuckets
)

// histogram counts durations. The zero value is empty and ready.
type histogram struct {
	counts [buckets]uint64
	count  uint64
	sum    time.Duration
	min    time.Duration
	max    time.Duration
}

func bucketOf(v uint64) int {
	if v >= 1<<topBits {
		return buckets - 1
	}
	exp := max(0, bits.Len64(v)-subBits-1)
	return exp<<subBits + int(v>>exp)
}

// bucketMiddle returns the value that stands for all of a bucket.
func bucketMiddle(i int) uint64 {
	if i < 2*subBuckets {
		return uint64(i)
	}
	exp := i>>subBits - 1
	low := uint64(i-exp<<subBits) << exp
	return low + 1<<exp/2
}

// record adds one duration; a negative one, as a clock that was set back gives, counts as zero.
func (h *histogram) record(d time.Duration) {
	d = max(0, d)
	h.counts[bucketOf(uint64(d))]++
	if h.count == 0 || d < h.min {
		h.min = d
	}
	h.max = max(h.max, d)
	h.count++
	h.sum += d
}

// drainInto moves everything counted here to another histogram.
func (h *histogram) drainInto(to *histogram) {
	if h.count == 0 {
		return
	}
	for i := bucketOf(uint64(h.min)); i <= bucketOf(uint64(h.max)); i++ {
		to.counts[i] += h.counts[i]
		h.counts[i] = 0
	}
	if to.count == 0 || h.min < to.min {
		to.min = h.min
	}
	to.max = max(to.max, h.max)
	to.count += h.count
	to.sum += h.sum
	h.count, h.sum, h.min, h.max = 0, 0, 0, 0
}

// quantile returns the duration that the share q of all durations does not exceed, zero when nothing was counted.
func (h *histogram) quantile(q float64) time.Duration {
	if h.count == 0 {
		return 0
	}
	rank := uint64(math.Ceil(min(max(q, 0), 1) * float64(h.count)))
	if rank >= h.count {
		return h.max
	}
	rank = max(rank, 1)
	var seen uint64
	for i := bucketOf(uint64(h.min)); i < buckets; i++ {
		if seen += h.counts[i]; seen >= rank {
			return min(max(time.Duration(bucketMiddle(i)), h.min), h.max)
		}
	}
	return h.max
}

func (h *histogram) mean() time.Duration {
	if h.count == 0 {
		return 0
	}
	return h.sum / time.Duration(h.count)
}
