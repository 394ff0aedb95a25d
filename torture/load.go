package torture

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/client"
)

// registerStream begins the names of the streams that all writers contend for, after the prefix of
// the run.
const registerStream = "register-"

const (
	// registers is the number of streams that everybody fights for at one time.
	registers = 4
	// operationsPerRegister bounds what is done on one of them before another
	// takes its place: the check of linearizability costs the square of it.
	operationsPerRegister = 1200
	// shortAge is so short that events get too old between two scavenges of a busy operator.
	shortAge = 2 * time.Second
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
	pace   time.Duration
	slow   float64 // as of the options
	spells spells
	// age is how old events of some streams may get.
	age time.Duration

	count tally
	gaps  *gapRecorder
	calls connections
	// indexers read indexes.
	indexers []*indexer

	// work is what workers do until stop is closed; then each ends after the attempt in flight.
	work []func(context.Context)
	stop chan struct{}

	mu       sync.Mutex
	register [registers + int(games) + banks]struct{ generation, used int }
	bank     [banks]*bank
	plain    []*stream // streams that are never deleted

	latest atomic.Pointer[stream] // plain, of the last acknowledged append; nil before the first
}

// tally counts the operations of a round, by group and kind. The words are part of the output. Any
// goroutine may call its methods.
type tally struct {
	mu     sync.Mutex
	counts map[string]map[string]int64
}

// What is counted belongs to one of these.
const (
	ofWrites        = "writes"
	ofReads         = "reads"
	ofSubscriptions = "subscriptions"
	ofScavenges     = "scavenges"
	ofProjections   = "projections"
	ofBackups       = "backups"
	ofRedactions    = "redactions"
	ofTransfers     = "transfers"
	ofIndexes       = "indexes"
	ofDecisions     = "decisions"
	ofUsers         = "users"
)

// written are the words for appends by their outcomes.
var written = [...]string{pending: "indeterminate", done: "ok", conflict: "wrongVersion", refused: "refused"}

func (t *tally) add(of, what string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]map[string]int64{}
	}
	if t.counts[of] == nil {
		t.counts[of] = map[string]int64{}
	}
	t.counts[of][what] += int64(n)
}

// of returns a copy of what belongs together, nil when nothing was done.
func (t *tally) of(what string) map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.counts[what])
}

func newLoad(seed uint64, http *client.Client, h *history, b *book, t *targets) *load {
	return &load{
		seed: seed, http: http, ids: b.ids, hist: h, book: b, find: b.find, targets: t, prefix: b.prefix,
		timeout: 3 * time.Second, age: shortAge, gaps: newGapRecorder(h.now()), stop: make(chan struct{}),
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

// rest waits, at most until the clients shall stop. It reports whether to continue.
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
func (l *load) place(t Target) place { return place{node: t.Name, at: l.hist.now()} }

// plainStream returns a stream that is never deleted, so that readers may visit it.
func (l *load) plainStream(name string) *stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keepPlain(name)
}

// keepPlain is plainStream for those who hold l.mu.
func (l *load) keepPlain(name string) *stream {
	s := l.book.stream(name)
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
	i := rng.IntN(registers)
	return fmt.Sprintf("%s%s%d-%d", l.prefix, registerStream, i, l.generation(i, operationsPerRegister))
}

// generation takes one of so many operations of a generation: the next one takes its place then.
func (l *load) generation(i, operations int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &l.register[i]
	if r.used == operations {
		r.generation, r.used = r.generation+1, 0
	}
	r.used++
	return r.generation
}

func (l *load) spread(i int) string { return fmt.Sprintf("%sspread-%d", l.prefix, i) }

// gapRecorder keeps the times in which no write succeeded.
type gapRecorder struct {
	spells spells

	mu   sync.Mutex
	last int64
	gaps []gap
}

// gap is a time without a successful write, less the quiet between spells.
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
	began, left := g.spells.at(at)
	if g.last = max(g.last, began); left > 0 {
		at = max(g.last, began+int64(g.spells.busy))
	}
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
