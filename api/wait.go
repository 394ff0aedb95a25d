package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/projection"
	"github.com/annalsdb/annals/stats"
	"github.com/annalsdb/annals/subscription"
)

// How long a request waits for a position: if it does not say, and at most.
const (
	DefaultWait = 5 * time.Second
	MaxWait     = time.Minute
)

// Wait is what a request asks to wait for before it is answered.
type Wait struct {
	Position int64
	AtMost   time.Duration
}

// ParseWait reads a position in any form that answers have, and how long to wait for it, a duration
// or a number of seconds; empty: DefaultWait. It returns *event.BadRequest.
func ParseWait(position, atMost string) (w Wait, err error) {
	var ok bool
	if w.Position, ok = parsePosition(strings.TrimSpace(position)); !ok {
		return w, &event.BadRequest{Text: fmt.Sprintf("'%.100s' is not a position to wait for. Should be 123, C:123/P:123, 123/123 or 32 hexadecimal digits", position)}
	}
	w.AtMost = DefaultWait
	if atMost = strings.TrimSpace(atMost); atMost == "" {
		return w, nil
	}
	if strings.Trim(atMost, "0123456789") == "" {
		atMost += "s"
	}
	if w.AtMost, err = time.ParseDuration(atMost); err != nil || w.AtMost < 0 || w.AtMost > MaxWait {
		return w, &event.BadRequest{Text: fmt.Sprintf("'%.100s' is not how long to wait at most. Should be a duration like 250ms or 5s, up to %.0fs", atMost, MaxWait.Seconds())}
	}
	return w, nil
}

// parsePosition reads the commit position. The other one must only be of the right shape.
func parsePosition(s string) (int64, bool) {
	const digits = 16 // of one of two positions in hexadecimal
	base, commit, prepare := 10, s, "0"
	switch {
	case strings.HasPrefix(s, "{"): // How far a projection of the log was.
		var p struct {
			Commit *int64 `json:"$c"`
		}
		if json.Unmarshal([]byte(s), &p) != nil || p.Commit == nil {
			return 0, false
		}
		return *p.Commit, *p.Commit >= 0
	case len(s) == 2*digits:
		base, commit, prepare = 16, s[:digits], s[digits:]
	case strings.HasPrefix(s, "C:"):
		commit, prepare, _ = strings.Cut(s[len("C:"):], "/P:")
	case strings.Contains(s, "/"):
		commit, prepare, _ = strings.Cut(s, "/")
	}
	p, err := strconv.ParseUint(commit, base, 63)
	_, other := strconv.ParseUint(prepare, base, 64)
	return int64(p), err == nil && other == nil
}

// Awaited is what goes through the log, and is waited for: this node, or something that it runs.
type Awaited struct {
	name string
	// returns when it has done all up to a position, or the error of the context
	until func(ctx context.Context, position int64) error
	end   func() int64 // what lies before it is done
	isFed bool         // it may have to wait for others although it has come so far
}

// OwnLog is the log of this node, for reads of streams and indexes too.
func (n *Node) OwnLog() Awaited {
	return Awaited{name: "the log of this node", until: n.Store.WaitLog, end: n.Store.LogEnd}
}

// OfProjection is a projection, which runs on the leader alone.
func (n *Node) OfProjection(name string) Awaited {
	return Awaited{
		name:  "the projection " + name,
		until: func(ctx context.Context, position int64) error { return n.Projections.Await(ctx, name, position) },
		end:   func() int64 { return n.Projections.Done(name) },
		isFed: true,
	}
}

// OfGroup is a group, which runs on the leader alone.
func (n *Node) OfGroup(k subscription.Key) Awaited {
	return Awaited{
		name:  "the group " + k.String(),
		until: func(ctx context.Context, position int64) error { return n.Subscriptions.Await(ctx, k, position) },
		end:   func() int64 { return n.Subscriptions.Done(k) },
	}
}

// WaitedInVain says that a position was not reached in the time that a request had for that, or
// cannot be.
type WaitedInVain struct {
	Wait
	Name  string
	End   int64
	Rests *projection.Resting // why it cannot be reached; nil: the time was over
}

func (e *WaitedInVain) Error() string {
	if e.Rests != nil {
		return fmt.Sprintf("Position %d was not reached: %s %s", e.Position, e.Name, e.Rests)
	}
	return fmt.Sprintf("Position %d was not reached within %s: %s has come to %d", e.Position, e.AtMost, e.Name, e.End)
}

// Has reports whether a position is reached already.
func (a *Awaited) Has(w Wait) bool { return !a.isFed && w.Position < a.end() }

// Await waits until a position is reached, as a caller at an address host:port asks for. The error
// is *WaitedInVain, *NoShare, the cause for which ctx ended, or one of what is waited for.
func (n *Node) Await(ctx context.Context, who *access.Principal, from string, of *Awaited, w Wait) error {
	n.Waits.begin()
	release, err := n.Shares.Take(Held, *who, from)
	if err != nil {
		return err
	}
	defer release()
	bound := clock.NewDeadline(ctx, w.AtMost)
	defer bound.Release()
	err = of.until(bound, w.Position)
	rests, isResting := errors.AsType[*projection.Resting](err)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case isResting, errors.Is(err, context.DeadlineExceeded):
		n.Waits.inVain()
		return &WaitedInVain{w, of.name, of.end(), rests}
	}
	return err
}

// WaitMetrics count what waits for positions. A nil one counts nothing.
type WaitMetrics struct{ begun, late *stats.Counter }

// NewWaitMetrics registers them. How many wait at the moment is a share of its kind.
func NewWaitMetrics(r *stats.Registry) *WaitMetrics {
	return &WaitMetrics{
		begun: r.Counter("annals_waits_total", "Requests that waited for a position."),
		late:  r.Counter("annals_waits_timed_out_total", "Requests that waited for a position in vain."),
	}
}

func (m *WaitMetrics) begin() {
	if m != nil {
		m.begun.Inc()
	}
}

func (m *WaitMetrics) inVain() {
	if m != nil {
		m.late.Inc()
	}
}
