package access

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/simplelru"
	"golang.org/x/sync/semaphore"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/stats"
)

// Bounds of waiting for a hash. DESIGN.md says why they are what they are.
const (
	maxLine    = 16               // checks that wait in one line
	maxWaiting = 1000             // checks of one class, in all lines together
	maxWait    = 10 * time.Second // how long a caller waits

	knownPlaces = 4096 // lines with a successful login, remembered to be preferred
	knownTurns  = 3    // checks of known lines in front of the hall to one of the others

	failedPlaces  = 4096 // lines in which checks failed, remembered to be slowed
	failureMemory = time.Minute
	pauseUnit     = 50 * time.Millisecond // doubled by each failure in a row
	maxPause      = time.Second
)

// place names a line: where callers come from, and who they say they are.
type place struct {
	from  origin
	login uint64 // keyed hash of the login, which may be as long as a header
}

// origin is what callers from one network address have in common.
type origin struct {
	// addr is the address of an IPv4 client, and the first 64 bits of an IPv6 one:
	// who has one of those has as many addresses as he likes. It is zero for
	// callers without an address, on a unix socket for example.
	addr       netip.Addr
	management bool // user management, from any address
}

// originOf reads the RemoteAddr of a request.
func originOf(remote string) origin {
	var addr netip.Addr
	if ap, err := netip.ParseAddrPort(remote); err == nil {
		addr = ap.Addr().Unmap().WithZone("")
	}
	if addr.Is6() {
		if prefix, err := addr.Prefix(64); err == nil {
			addr = prefix.Addr()
		}
	}
	return origin{addr: addr}
}

// verdict is what a check found.
type verdict struct {
	principal Principal
	err       error
}

// result is a verdict with what it means for the line.
type result struct {
	verdict
	outcome   outcome
	keepsSlot bool // another goroutine releases the slot later
}

// outcome says what became of the credentials of a check.
type outcome uint8

const (
	notChecked outcome = iota
	wasRight
	wasWrong
)

// turns decides who computes the next hash. A check passes four gates, each a semaphore that serves
// in order of arrival, and holds them until it ends: the gate of its line, with the pause after
// failures; the gate of its origin; the gate of its class; and the slots. A line or an origin waits
// at the next gate only once. So lines of one origin take turns, origins take turns, and of the two
// classes known lines get knownTurns to one.
type turns struct {
	seed    maphash.Seed // of the hashes of logins
	queue   *stats.Queue
	metrics *metrics
	slots   int
	hall    *semaphore.Weighted
	classes [2]*semaphore.Weighted

	// guards what follows and everything reachable from it but gates; never held while anything is
	// waited for
	mu      sync.Mutex
	checks  [2]int // by class
	lines   map[place]*gate
	sources map[source]*gate
	shared  map[credentials]*check
	known   *simplelru.LRU // lines (place) with a successful login
	failed  *simplelru.LRU // their failures, by place
}

// class says with whom a line competes.
type class uint8

const (
	unknown class = iota
	known
)

// source is what an origin has in one class.
type source struct {
	from  origin
	class class
}

// credentials are what is checked once for all who wait for it.
type credentials struct {
	at     place
	digest digest
}

// gate is one of a line or of a source. It exists as long as checks wait at it or have passed it.
type gate struct {
	*semaphore.Weighted
	checks int
}

// check is one computation.
type check struct {
	line, source *gate
	of           source
	done         chan struct{} // closed when verdict and left are final
	verdict      verdict
	left         bool // the caller who would have computed it went away before its turn
}

// failure is what is remembered of a line's failed checks.
type failure struct {
	row int // how many in a row
	at  time.Time
}

func newTurns(slots int, queue *stats.Queue, m *metrics) *turns {
	// Only a size below 1 is an error.
	lucky, _ := simplelru.NewLRU(knownPlaces, nil)
	failed, _ := simplelru.NewLRU(failedPlaces, nil)
	return &turns{
		seed: maphash.MakeSeed(), queue: queue, metrics: m, slots: slots, hall: semaphore.NewWeighted(int64(slots)),
		classes: [2]*semaphore.Weighted{unknown: semaphore.NewWeighted(int64(slots)), known: semaphore.NewWeighted(int64(knownTurns * slots))},
		lines:   make(map[place]*gate), sources: make(map[source]*gate), shared: make(map[credentials]*check),
		known: lucky, failed: failed,
	}
}

// place returns the line of a login from an origin.
func (t *turns) place(from origin, login string) place {
	return place{from: from, login: maphash.String(t.seed, login)}
}

var (
	errInterrupted = errors.New("the check of a password was interrupted")
	errTooLong     = busy("waited too long")
)

func busy(why string) error {
	return fmt.Errorf("wait for a password to be checked: %s: %w", why, event.ErrBusy)
}

// do waits for a turn and calls work with a slot held. If other work with the same digest has ended
// in the meantime, do returns the result of that instead; without a digest nothing is shared. It
// fails with event.ErrBusy when there is no room or the wait is too long, and with the error of ctx
// when that ends first. In both cases nothing was checked. Running work is not interrupted.
func (t *turns) do(ctx context.Context, at place, d *digest, kind *stats.Work, work func() result) (verdict, error) {
	entered := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, maxWait, errTooLong)
	defer cancel()
	for {
		c, first, err := t.enter(at, d)
		switch {
		case err != nil:
			return verdict{}, err
		case first:
			return t.take(ctx, at, c, d, func() result {
				begun := kind.Begin(time.Since(entered))
				defer kind.End(begun, 1)
				return work()
			})
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			return verdict{}, t.gaveUp(ctx)
		}
		if !c.left {
			return c.verdict, nil
		}
	}
}

// gaveUp is the error of a wait that ended with its context.
func (t *turns) gaveUp(ctx context.Context) error {
	if err := context.Cause(ctx); err != errTooLong {
		return fmt.Errorf("wait for a password to be checked: %w", err)
	}
	t.metrics.tooLong.Inc()
	return errTooLong
}

// enter puts a check in front of the gate of its line, or finds the one of the same credentials.
func (t *turns) enter(at place, d *digest) (c *check, first bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d != nil {
		if c := t.shared[credentials{at, *d}]; c != nil {
			return c, false, nil
		}
	}
	of := source{from: at.from}
	if t.known.Contains(at) || at.from.management {
		of.class = known
	}
	if l := t.lines[at]; l != nil && l.checks > maxLine {
		t.metrics.lineFull.Inc()
		return nil, false, busy("line is full")
	}
	// As many as there is room left: who fills it leaves as much to each other origin.
	if s := t.sources[of]; t.checks[of.class] >= maxWaiting || s != nil && s.checks >= maxWaiting-t.checks[of.class] {
		t.metrics.noRoom.Inc()
		return nil, false, busy("no room")
	}
	c = &check{of: of, line: reach(t.lines, at, 1), source: reach(t.sources, of, t.slots), done: make(chan struct{})}
	t.checks[of.class]++
	if d != nil {
		t.shared[credentials{at, *d}] = c
	}
	t.queue.Enter(1)
	t.metrics.waiting.Add(1)
	return c, true, nil
}

// reach returns the gate of something with one more check.
func reach[K comparable](gates map[K]*gate, of K, width int) *gate {
	g := gates[of]
	if g == nil {
		g = &gate{Weighted: semaphore.NewWeighted(int64(width))}
		gates[of] = g
	}
	g.checks++
	return g
}

func leave[K comparable](gates map[K]*gate, of K) {
	if gates[of].checks--; gates[of].checks == 0 {
		delete(gates, of)
	}
}

// take takes a check through the gates and does its work.
func (t *turns) take(ctx context.Context, at place, c *check, d *digest, work func() result) (verdict, error) {
	passed, err := t.pass(ctx, at, c)
	t.metrics.waiting.Add(-1)
	r := result{verdict: verdict{err: errInterrupted}} // Stands when work panics.
	defer func() {
		t.finish(at, c, d, &r)
		if r.keepsSlot {
			passed = passed[:len(passed)-1]
		}
		for i := len(passed) - 1; i >= 0; i-- {
			passed[i].Release(1)
		}
	}()
	if err != nil {
		c.left = true
		t.queue.Leave(1)
		return verdict{}, t.gaveUp(ctx)
	}
	r = work()
	return r.verdict, nil
}

// pass waits at all gates and returns those that were passed.
func (t *turns) pass(ctx context.Context, at place, c *check) (passed []*semaphore.Weighted, err error) {
	for _, g := range [...]*semaphore.Weighted{c.line.Weighted, c.source.Weighted, t.classes[c.of.class], t.hall} {
		if g == c.source.Weighted {
			if pause := t.pause(at); pause > 0 {
				if err := clock.Sleep(ctx, pause); err != nil {
					return passed, err
				}
			}
		}
		if err := g.Acquire(ctx, 1); err != nil {
			return passed, err
		}
		passed = append(passed, g)
	}
	return passed, nil
}

// pause returns how long a line has to wait because of its failures.
func (t *turns) pause(at place) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	found, ok := t.failed.Peek(at)
	if !ok {
		return 0
	}
	f := found.(failure)
	since := time.Since(f.at)
	if since >= failureMemory {
		t.failed.Remove(at)
		return 0
	}
	return min(maxPause, pauseUnit<<min(f.row, 10)) - since
}

// finish gives the verdict to all who wait for it.
func (t *turns) finish(at place, c *check, d *digest, r *result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch r.outcome {
	case wasRight:
		t.failed.Remove(at)
		t.known.Add(at, nil)
	case wasWrong:
		f := failure{row: 1, at: time.Now()}
		if found, ok := t.failed.Peek(at); ok {
			if before := found.(failure); f.at.Sub(before.at) < failureMemory {
				f.row += before.row
			}
		}
		t.failed.Add(at, f)
	}
	c.verdict = r.verdict
	close(c.done)
	if d != nil {
		delete(t.shared, credentials{at, *d})
	}
	leave(t.lines, at)
	leave(t.sources, c.of)
	t.checks[c.of.class]--
}

// release frees a slot that was kept by the result of a check.
func (t *turns) release() { t.hall.Release(1) }
