package api

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/stats"
)

// Kind is what callers hold for a while, each of which costs the node something.
type Kind uint8

// The kinds of things that are shared. Calls that end by themselves are not.
const (
	Tail     Kind = iota // live tails, and subscriptions over gRPC
	Scan                 // filters of live tails that look through old events
	Search               // reads and pages of the log through a filter
	Query                // transient projections
	Batch                // calls of BatchAppend
	Poll                 // long polls that wait
	Consumer             // consumers of persistent subscriptions, over gRPC
	Held                 // requests that wait for a position
	kinds
)

// rule says how many of a kind there may be, and how many of them a single caller may have.
type rule struct {
	name string // of the metric
	text string // begins the text of a refusal
	many string
	most int
	// times is how many times as much as is left for others a caller may have. So that there is
	// always something left: with 1 one caller gets a half and two get a third each, with 3 one
	// gets three quarters.
	times int
}

var rules = [kinds]rule{
	Tail:     {"tail", "Too many live connections", "live tails and subscriptions", 1024, 3},
	Scan:     {"scan", "Too many filters look through old events", "filters", 6, 1},
	Search:   {"search", "Too many filtered reads", "filtered reads", 64, 1},
	Query:    {"query", "Too many transient queries", "transient queries", 64, 1},
	Batch:    {"batch", "Too many open batches", "open batches", 4096, 3},
	Poll:     {"poll", "Too many long polls", "long polls", 4096, 3},
	Held:     {"wait", "Too many requests wait for a position", "waits", 4096, 3},
	Consumer: {"consumer", "Too many consumers", "consumers", 4096, 3},
}

const (
	// forOperators is the part of each kind that is kept for operators.
	forOperators = 8
	// leastShared is how many of a kind there must be at least to be shared. Fewer an operator
	// chose to have so few.
	leastShared = 6
)

// DefaultTails is how many live tails and subscriptions there may be at once.
const DefaultTails = 1024

// SharesOptions say what there is to share. The zero value works.
type SharesOptions struct {
	Tails    int  // live tails and subscriptions; default DefaultTails
	Insecure bool // users are not known: addresses alone count
	Stats    *stats.Registry
}

// Shares is the one accountant of what callers hold, over both interfaces together. Nothing of a
// kind is given to a user, nor to an address, that has much of it already, and the last eighth only
// to operators.
//
// A share is not a number but a part of what is left: a single application may have most of a kind,
// and the next caller still finds some.
type Shares struct {
	insecure bool
	pools    [kinds]pool
}

// pool is what there is of a kind.
type pool struct {
	*rule
	most    int
	refused *stats.Counter

	mu        sync.Mutex // guards the fields below
	size      int
	users     map[string]int
	addresses map[netip.Addr]int
	freed     chan struct{} // closed at the next release, when a caller waits; nil: no caller waits
}

// NewShares returns an accountant of which no caller holds anything yet.
func NewShares(o SharesOptions) *Shares {
	s := &Shares{insecure: o.Insecure}
	for k := range s.pools {
		p := &s.pools[k]
		p.rule = &rules[k]
		p.most, p.users, p.addresses = p.rule.most, map[string]int{}, map[netip.Addr]int{}
		if Kind(k) == Tail && o.Tails > 0 {
			p.most = o.Tails
		}
		kind := stats.Label{Name: "kind", Value: p.name}
		p.refused = o.Stats.Counter("annals_shares_refused_total", "Requests refused because their caller, or all callers together, hold too much of a kind.", kind)
		o.Stats.GaugeFunc("annals_shares_held", "What callers hold of a kind.", func() float64 { return float64(p.held()) }, kind)
	}
	return s
}

// NoShare says that nothing of a kind was left for a caller. It is an event.ErrBusy.
type NoShare struct{ Text string }

func (e *NoShare) Error() string { return e.Text }

// Is makes errors.Is(err, event.ErrBusy) hold.
func (e *NoShare) Is(target error) bool { return target == event.ErrBusy }

// Take gives a caller, at an address host:port, one of a kind until release is called, which may be
// more than once. The error is a *NoShare.
func (s *Shares) Take(k Kind, who access.Principal, from string) (release func(), err error) {
	p := &s.pools[k]
	release, err = p.take(s.holder(who, from))
	if err != nil {
		p.refused.Inc()
	}
	return release, err
}

// Wait takes one of a kind when there is one, or returns the context's error.
func (s *Shares) Wait(ctx context.Context, k Kind, who access.Principal, from string) (release func(), err error) {
	p, h := &s.pools[k], s.holder(who, from)
	for {
		freed := p.awaited()
		if release, err := p.take(h); err == nil {
			return release, nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Held is how much of a kind is held.
func (s *Shares) Held(k Kind) int { return s.pools[k].held() }

// holder is a caller as shares know it.
type holder struct {
	user     string // empty: addresses alone count
	addr     netip.Addr
	operator bool
}

func (s *Shares) holder(who access.Principal, from string) holder {
	h := holder{addr: Source(from)}
	if !s.insecure {
		h.user, h.operator = who.Login, who.IsOps()
	}
	return h
}

// Source is what counts as one address of a host:port: of IPv6 a network of 64 bits, which one host
// has as a rule.
func Source(hostPort string) netip.Addr {
	at, err := netip.ParseAddrPort(hostPort)
	if err != nil {
		return netip.Addr{}
	}
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is6() {
		if p, err := addr.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return addr
}

func (p *pool) take(h holder) (release func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.admits(h); err != nil {
		return nil, err
	}
	p.size++
	p.addresses[h.addr]++
	if h.user != "" {
		p.users[h.user]++
	}
	return sync.OnceFunc(func() { p.release(h) }), nil
}

// admits says why a caller gets nothing. Operators are bound by what there is alone.
func (p *pool) admits(h holder) error {
	if p.size >= p.most {
		return p.none("all %d %s are taken", p.most, p.many)
	}
	if h.operator || p.most < leastShared {
		return nil
	}
	kept := max(1, p.most/forOperators)
	left := p.most - kept - p.size
	switch {
	case left <= 0:
		return p.none("%d of %d %s are taken, the rest is kept for operators", p.size, p.most, p.many)
	case h.user != "" && p.users[h.user] >= p.times*left:
		return p.none("user %s has %d of %d %s", h.user, p.users[h.user], p.most, p.many)
	case p.addresses[h.addr] >= p.times*left:
		return p.none("address %s has %d of %d %s", h.addr, p.addresses[h.addr], p.most, p.many)
	}
	return nil
}

func (p *pool) none(format string, args ...any) error {
	return &NoShare{Text: p.text + ": " + fmt.Sprintf(format, args...)}
}

func (p *pool) release(h holder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size--
	if p.addresses[h.addr]--; p.addresses[h.addr] == 0 {
		delete(p.addresses, h.addr)
	}
	if h.user != "" {
		if p.users[h.user]--; p.users[h.user] == 0 {
			delete(p.users, h.user)
		}
	}
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}

// awaited returns a channel that is closed at the next release.
func (p *pool) awaited() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.freed == nil {
		p.freed = make(chan struct{})
	}
	return p.freed
}

func (p *pool) held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size
}
