package access

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/stats"
)

// Bounds of waiting for a hash. DESIGN.md says why they are what they are.
const (
	maxLine    = 16               // checks that wait in one line
	maxWaiting = 1000             // checks that wait in all lines together
	maxWait    = 10 * time.Second // how long a caller waits

	knownPlaces = 4096 // lines in which somebody logged in, remembered to be preferred
	knownTurns  = 3    // turns of known lines to one of the others while both wait

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
	// whoever has one of those has as many addresses as he likes. It is zero for
	// callers without an address, on a unix socket for example.
	addr       netip.Addr
	management bool // user management, whatever its address
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
	keepsSlot bool // the slot is released by somebody else, later
}

// outcome says what became of the credentials of a check.
type outcome uint8

const (
	notChecked outcome = iota
	wasRight
	wasWrong
)

// signal is what a waiting caller is told, once.
type signal uint8

const (
	nothing   signal = iota
	yourTurn         // compute
	isChecked        // somebody else has; the check holds the verdict
	pushedOut        // there was no room
)

// turns decides who computes the next hash. It is a fair waiting line in front
// of a number of slots; its waiters are the callers' own goroutines.
//
// There is a line for every place. Within a line it is first come, first served,
// one at a time; lines of one origin take turns, and so do origins. Those in
// which somebody logged in before are preferred, knownTurns to one.
type turns struct {
	seed    maphash.Seed // of the hashes of logins
	queue   *stats.Queue
	metrics *metrics

	mu      sync.Mutex // guards what follows and everything reachable from it; never held while anything is computed
	free    int        // slots
	waiting int        // checks
	last    uint64     // number of the newest check
	row     int        // turns of known lines since the last of another
	lines   map[place]*line
	sources map[origin]*source
	ready   [2]ring[*source] // by class: those with ready lines, in the order of their turns
	known   *lru[place, struct{}]
	failed  *lru[place, failure]
}

// class says in which ring a line waits.
type class uint8

const (
	unknown class = iota
	known
)

// source is an origin with its lines.
type source struct {
	from    origin
	lines   int
	waiting int            // checks
	ready   [2]ring[*line] // by class: lines whose first check only needs a slot, in the order of their turns
}

// line is a place where checks wait or are under way. It exists no longer than
// that; what outlives it is in turns.known and turns.failed.
type line struct {
	at      place
	source  *source
	queue   []*check    // waiting, oldest first
	running *check      // one at a time: a failure must be able to slow the next
	class   class       // while it is ready
	ready   bool        // it is in source.ready
	rest    *time.Timer // while it is slowed and checks wait
}

// check is one computation, with everybody who waits for it.
type check struct {
	line    *line
	number  uint64
	entered time.Time
	shared  bool // others with the same digest wait for this check
	digest  digest
	callers []chan signal // without the one who has the turn
	verdict verdict       // before callers are told isChecked
}

// failure is what is remembered of a line's failed checks.
type failure struct {
	row int // how many in a row
	at  time.Time
}

func newTurns(slots int, queue *stats.Queue, m *metrics) *turns {
	return &turns{
		seed: maphash.MakeSeed(), queue: queue, metrics: m, free: slots,
		lines: make(map[place]*line), sources: make(map[origin]*source),
		known: newLRU[place, struct{}](knownPlaces), failed: newLRU[place, failure](failedPlaces),
	}
}

// place returns the line of a login from an origin.
func (t *turns) place(from origin, login string) place {
	return place{from: from, login: maphash.String(t.seed, login)}
}

// do waits for a turn and calls work with a slot held, or returns what
// somebody else's work found in the meantime if that has the same digest; without
// a digest nothing is shared. It fails with event.ErrBusy when there is no
// room or the wait is too long, and with the error of ctx when that ends first:
// nothing was checked then. Work under way is not interrupted.
func (t *turns) do(ctx context.Context, at place, d *digest, kind *stats.Work, work func() result) (verdict, error) {
	c, told, err := t.enter(at, d)
	if err != nil {
		return verdict{}, err
	}
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	var s signal
	select {
	case s = <-told:
	case <-timer.C:
		if s = t.leave(c, told, true); s == nothing {
			t.metrics.tooLong.Inc()
			return verdict{}, busy("waited too long")
		}
	case <-ctx.Done():
		if s = t.leave(c, told, false); s == nothing {
			return verdict{}, fmt.Errorf("wait for a password to be checked: %w", ctx.Err())
		}
	}
	switch s {
	case isChecked:
		return c.verdict, nil
	case pushedOut:
		return verdict{}, busy("pushed out")
	}
	r := result{verdict: verdict{err: errInterrupted}} // Stands when work panics.
	defer func() { t.finish(c, &r) }()
	begun := kind.Begin(time.Since(c.entered))
	defer kind.End(begun, 1)
	r = work()
	return r.verdict, nil
}

var errInterrupted = errors.New("the check of a password was interrupted")

func busy(why string) error {
	return fmt.Errorf("wait for a password to be checked: %s: %w", why, event.ErrBusy)
}

// enter puts a check into its line, or joins the one that computes the same.
func (t *turns) enter(at place, d *digest) (*check, chan signal, error) {
	told := make(chan signal, 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[at]
	if l != nil && d != nil {
		if c := l.find(d); c != nil {
			c.callers = append(c.callers, told)
			return c, told, nil
		}
	}
	if l != nil && len(l.queue) >= maxLine {
		t.metrics.lineFull.Inc()
		return nil, nil, busy("line is full")
	}
	if l == nil {
		l = t.open(at)
	}
	t.last++
	c := &check{line: l, number: t.last, entered: time.Now(), callers: []chan signal{told}}
	if d != nil {
		c.shared, c.digest = true, *d
	}
	t.queue.Enter(1)
	l.queue = append(l.queue, c)
	t.count(l, 1)
	if l.running == nil && len(l.queue) == 1 {
		t.arrange(l)
	}
	t.dispatch()
	if t.waiting > maxWaiting {
		t.pushOut()
	}
	return c, told, nil
}

// leave takes away a caller who waits no longer, unless the caller was told
// something at that moment. A turn given is kept, or else passed on.
func (t *turns) leave(c *check, told chan signal, keepsTurn bool) signal {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case s := <-told:
		if s != yourTurn || keepsTurn {
			return s
		}
		if len(c.callers) > 0 {
			c.tellNext()
		} else {
			t.queue.Leave(1)
			t.end(c.line)
			t.free++
			t.dispatch()
		}
		return nothing
	default:
	}
	c.drop(told)
	if len(c.callers) == 0 && c.line.running != c {
		t.remove(c)
	}
	return nothing
}

// finish gives the verdict to all who wait for it, and the slot to the next.
func (t *turns) finish(c *check, r *result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := c.line.at
	switch r.outcome {
	case wasRight:
		t.failed.remove(at)
		t.known.put(at, struct{}{})
	case wasWrong:
		f := failure{row: 1, at: time.Now()}
		if before, ok := t.failed.get(at); ok && f.at.Sub(before.at) < failureMemory {
			f.row += before.row
		}
		t.failed.put(at, f)
	}
	c.verdict = r.verdict
	for _, told := range c.callers {
		told <- isChecked
	}
	t.end(c.line)
	if !r.keepsSlot {
		t.free++
	}
	t.dispatch()
}

// release frees a slot that was kept by the result of a check.
func (t *turns) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	t.dispatch()
}
