package api

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
)

// JudgeEvery is how often callers are judged again for whom something is held open.
const JudgeEvery = time.Second

// Renewer knows what became of callers.
type Renewer interface {
	// Renew returns the caller as it is now: event.ErrNotAuthorized when the credentials
	// do not hold any more. Other errors say that this is not known at the moment. It is cheap.
	Renew(ctx context.Context, p access.Principal) (access.Principal, error)
}

// Leases are the callers for whom something is held open: a live tail, a long poll, a
// subscription. A timer has all of them judged every second while there are any, so that one at
// rest needs no goroutine and no timer of its own.
type Leases struct {
	callers Renewer
	judging sync.Mutex // held while all are judged
	all     []*Lease   // memory of that; guarded by judging

	mu     sync.Mutex // guards the fields below; may be taken with judging held
	held   map[*Lease]struct{}
	timer  *time.Timer // nil: it is not set
	closed bool
}

// NewLeases returns leases without any.
func NewLeases(callers Renewer) *Leases {
	return &Leases{callers: callers, held: map[*Lease]struct{}{}}
}

// May says whether a caller may keep the answer open: nil, event.ErrNotAuthorized, or the error of
// the check. nil: only the credentials count.
type May func(ctx context.Context, who *access.Principal) error

// Lease is one caller for whom something is held open. It must be closed.
type Lease struct {
	of  *Leases
	may May
	// ends with event.ErrNotAuthorized as its cause when the caller is refused
	ctx    context.Context
	end    context.CancelCauseFunc
	who    atomic.Pointer[access.Principal]
	judged atomic.Int64 // when, in nanoseconds of the process

	mu     sync.Mutex // held while may is called
	closed bool       // may must not be called any more
}

// Open begins a lease of a caller who was judged just now. Its context ends with the parent, and
// when the caller is refused.
func (ls *Leases) Open(parent context.Context, who access.Principal, may May) *Lease {
	l := &Lease{of: ls, may: may}
	l.ctx, l.end = context.WithCancelCause(parent)
	l.who.Store(&who)
	l.judged.Store(int64(time.Since(started)))
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		l.end(event.ErrClosed)
		return l
	}
	ls.held[l] = struct{}{}
	ls.setTimer()
	return l
}

// setTimer has all judged in a second, if there are any. The caller holds mu.
func (ls *Leases) setTimer() {
	if ls.timer == nil && len(ls.held) > 0 && !ls.closed {
		ls.timer = time.AfterFunc(JudgeEvery, ls.judgeAll)
	}
}

// started is what times of leases count from: so they are of the monotonic clock.
var started = time.Now()

// Close ends the contexts of the leases that are open, and waits until no caller is being judged.
func (ls *Leases) Close() {
	ls.mu.Lock()
	ls.closed = true
	if ls.timer != nil {
		ls.timer.Stop()
	}
	for l := range ls.held {
		l.end(event.ErrClosed)
	}
	ls.mu.Unlock()
	ls.judging.Lock()
	defer ls.judging.Unlock()
}

// judgeAll judges all callers.
func (ls *Leases) judgeAll() {
	ls.judging.Lock()
	defer ls.judging.Unlock()
	ls.mu.Lock()
	for l := range ls.held {
		ls.all = append(ls.all, l)
	}
	ls.mu.Unlock()
	for _, l := range ls.all {
		_ = l.Judge(l.ctx) // The context of the lease tells who holds it.
	}
	clear(ls.all)
	ls.all = ls.all[:0]
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.timer = nil
	ls.setTimer()
}

// Context ends with the parent of the lease, and when the caller is refused.
func (l *Lease) Context() context.Context { return l.ctx }

// Who is the caller as judged last.
func (l *Lease) Who() *access.Principal { return l.who.Load() }

// Refused returns event.ErrNotAuthorized when the caller was refused, else nil.
func (l *Lease) Refused() error {
	if cause := context.Cause(l.ctx); errors.Is(cause, event.ErrNotAuthorized) {
		return cause
	}
	return nil
}

// Require sets the right that the caller must have from now on.
func (l *Lease) Require(may May) {
	l.mu.Lock()
	l.may = may
	l.mu.Unlock()
}

// Check is Judge, unless the caller was judged within the last second.
func (l *Lease) Check(ctx context.Context) error {
	if int64(time.Since(started))-l.judged.Load() < int64(JudgeEvery) {
		return l.Refused()
	}
	return l.Judge(ctx)
}

// Judge judges the caller now: nil or event.ErrNotAuthorized, which ends the lease's context. If
// the rights cannot be checked at the moment, nothing changes.
func (l *Lease) Judge(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return l.Refused()
	}
	was := l.who.Load()
	is, err := l.of.callers.Renew(ctx, *was)
	if err == nil && l.may != nil {
		err = l.may(ctx, &is)
	}
	switch {
	case errors.Is(err, event.ErrNotAuthorized):
		l.end(event.ErrNotAuthorized)
	case err == nil:
		l.judged.Store(int64(time.Since(started)))
		l.who.Store(&is)
	}
	return l.Refused()
}

// Close ends the lease. When it returns, may is not called and will not be again.
func (l *Lease) Close() {
	ls := l.of
	ls.mu.Lock()
	delete(ls.held, l)
	ls.mu.Unlock()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.end(nil)
}
