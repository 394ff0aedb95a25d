package torture

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/client"
)

// registerStream begins the names of the streams that everybody fights for, behind the prefix of the run.
const registerStream = "register-"

const (
	// registers is the number of streams that everybody fights for at one time.
	registers = 4
	// operationsPerRegister bounds what is done on one of them before another
	// takes its place: the check of linearizability costs the square of it.
	operationsPerRegister = 1200
	// spreadStreams is the number of streams that get events without conditions.
	spreadStreams = 150
)

// load is what all clients of one round share.
type load struct {
	seed    uint64
	http    *client.Client
	ids     identity
	hist    *history
	book    *book
	find    *findings
	targets *targets
	prefix  string
	timeout time.Duration
	// pace is the mean pause of a writer between two operations.
	pace time.Duration

	count counters
	gaps  *gapRecorder

	// work is what workers do until stop is closed; then each ends after the attempt under way.
	work []func(context.Context)
	stop chan struct{}

	mu       sync.Mutex
	register [registers]struct{ generation, used int }
	plain    []*stream // streams that are never deleted

	latest atomic.Pointer[stream] // plain, of the last acknowledged append; nil before the first
}

// counters are the numbers of a round.
type counters struct {
	writes  [4]atomic.Int64 // appends by outcome
	events  atomic.Int64    // acknowledged
	reads   atomic.Int64    // on the leader, answered
	pages   atomic.Int64    // read anywhere without asking for the leader
	replays atomic.Int64    // acknowledged appends that were sent again
	deletes atomic.Int64    // acknowledged
	limits  atomic.Int64    // metadata records that limit streams, acknowledged
	failed  atomic.Int64    // readings and deletions without a useful answer
	hops    atomic.Int64    // redirects followed
	latency histogram       // of acknowledged appends
}

func newLoad(seed uint64, http *client.Client, h *history, b *book, t *targets) *load {
	return &load{
		seed: seed, http: http, ids: b.ids, hist: h, book: b, find: b.find, targets: t, prefix: b.prefix,
		timeout: 3 * time.Second, gaps: newGapRecorder(h.now()), stop: make(chan struct{}),
	}
}

func (l *load) stopped() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// rest waits, at most until the clients shall stop. It reports whether to go on.
func (l *load) rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return !l.stopped() && ctx.Err() == nil
	case <-l.stop:
	case <-ctx.Done():
	}
	return false
}

// place says where an answer came from.
func (l *load) place(t target) place { return place{node: t.name, at: l.hist.now()} }

// plainStream returns a stream that is never deleted, so that readers may visit it.
func (l *load) plainStream(name string) *stream {
	s := l.book.stream(name)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.plain {
		s.plain = true
		l.plain = append(l.plain, s)
	}
	return s
}

// somePlain returns any stream that is never deleted, nil if there is none yet.
func (l *load) somePlain(rng *rand.Rand) *stream {
	all := l.plainStreams()
	if len(all) == 0 {
		return nil
	}
	return all[rng.IntN(len(all))]
}

// plainStreams returns all of them so far.
func (l *load) plainStreams() []*stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.plain[:len(l.plain):len(l.plain)]
}

// nextRegister takes one operation of a contested stream.
func (l *load) nextRegister(rng *rand.Rand) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := rng.IntN(registers)
	r := &l.register[i]
	if r.used == operationsPerRegister {
		r.generation, r.used = r.generation+1, 0
	}
	r.used++
	return fmt.Sprintf("%s%s%d-%d", l.prefix, registerStream, i, r.generation)
}

func (l *load) spread(i int) string { return fmt.Sprintf("%sspread-%d", l.prefix, i) }

// acknowledged notes a success of a writer.
func (l *load) acknowledged(o *op) {
	l.count.events.Add(int64(o.count))
	l.count.latency.add(time.Duration(o.ret - o.call))
	l.gaps.success(o.ret)
}

// gapRecorder keeps the times in which no write succeeded.
type gapRecorder struct {
	mu   sync.Mutex
	last int64
	gaps []gap
}

// gap is a time without a successful write.
type gap struct{ from, to int64 }

const (
	// shortestGap is what is worth a note.
	shortestGap = int64(100 * time.Millisecond)
	keptGaps    = 100_000
)

func newGapRecorder(now int64) *gapRecorder { return &gapRecorder{last: now} }

func (g *gapRecorder) success(at int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at-g.last >= shortestGap && len(g.gaps) < keptGaps {
		g.gaps = append(g.gaps, gap{g.last, at})
	}
	g.last = max(g.last, at)
}

// known returns the gaps between successes.
func (g *gapRecorder) known() []gap {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gaps
}

// histogram counts durations in steps of a quarter of a doubling.
type histogram struct{ buckets [120]atomic.Int64 }

const shortestLatency = 10 * time.Microsecond

func (h *histogram) add(d time.Duration) {
	i := 0
	if d > shortestLatency {
		i = min(int(4*math.Log2(float64(d)/float64(shortestLatency)))+1, len(h.buckets)-1)
	}
	h.buckets[i].Add(1)
}

// quantile returns the upper end of the step in which the quantile lies, zero when nothing was counted.
func (h *histogram) quantile(q float64) time.Duration {
	var counts [120]int64
	var total int64
	for i := range h.buckets {
		counts[i] = h.buckets[i].Load()
		total += counts[i]
	}
	want := int64(math.Ceil(q * float64(total)))
	for i, n := range counts {
		if want -= n; want <= 0 && total > 0 {
			return time.Duration(float64(shortestLatency) * math.Exp2(float64(i)/4))
		}
	}
	return 0
}
