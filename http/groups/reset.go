package groups

import (
	"context"
	"math"
	"strings"

	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/subscription"
)

var errTarget = problem.Bad("to must be start, end, an event number, a position or a time (RFC 3339)")

// resetDocument says what a reset did or would do. Its names are part of the wire: do not change.
type resetDocument struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Again   int64  `json:"again"`
	LeftOut int64  `json:"leftOut"`
	AtLeast bool   `json:"atLeast,omitempty"`
}

// targetOf reads where a group is to be moved.
func targetOf(text string) (to subscription.Target, err error) {
	switch {
	case strings.EqualFold(text, "start"):
		return subscription.Target{Kind: subscription.ToStart}, nil
	case strings.EqualFold(text, "end"):
		return subscription.Target{Kind: subscription.ToEnd}, nil
	}
	n, ok := subscription.ParsePosition(text)
	if !ok {
		n, ok = atom.ParsePosition(text) // Before numbers: it may be nothing but digits.
	}
	if ok && n >= 0 {
		return subscription.Target{Kind: subscription.ToPosition, At: n}, nil
	}
	if n, ok := args.Number(text, math.MaxInt64-1); ok {
		return subscription.Target{Kind: subscription.ToNumber, At: n}, nil
	}
	if n, ok := args.Moment(text); ok {
		return subscription.Target{Kind: subscription.ToTime, At: n}, nil
	}
	return to, errTarget
}

// PreviewReset answers with what a reset would do.
func (g *Handlers) PreviewReset(_ context.Context, x *request.Request) error {
	return g.reset(x, g.Subscriptions.Preview)
}

// Reset moves a group to another place.
func (g *Handlers) Reset(_ context.Context, x *request.Request) error {
	return g.reset(x, func(ctx context.Context, k subscription.Key, to subscription.Target) (subscription.Reset, error) {
		return g.Subscriptions.Reset(ctx, k, to, x.Caller.Who.Login)
	})
}

func (g *Handlers) reset(x *request.Request, do func(context.Context, subscription.Key, subscription.Target) (subscription.Reset, error)) error {
	to, err := targetOf(args.Value(x.R.URL.RawQuery, "to"))
	if err != nil {
		return err
	}
	return g.Way.Lead(x, func(ctx context.Context) error {
		r, err := do(ctx, groupKey(x), to)
		if err != nil {
			return groupFailed(x, err, noGroup(x))
		}
		return x.SendFreshJSON(&resetDocument{From: r.Reads.Position(r.From), To: r.Reads.Position(r.To), Again: r.Again, LeftOut: r.LeftOut, AtLeast: r.AtLeast})
	})
}
