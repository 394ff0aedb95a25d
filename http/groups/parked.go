package groups

import (
	"context"
	"math"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/subscription"
)

const (
	defaultParked    = 50
	maxParked        = 500
	maxParkedNumbers = 100
	maxNote          = 1000 // characters
	maxRate          = 10_000
)

var (
	errParkedFrom    = problem.Bad("from must be an event number")
	errParkedCount   = problem.Bad("count must be between 1 and 500 inclusive")
	errParkedNumbers = problem.Bad("numbers must be 1 to 100 event numbers with commas between them")
	errParkedNumber  = problem.Bad("number must be an event number")
	errRate          = problem.Bad("rate must be between 1 and 10000 messages a second")
	errRateOfSome    = problem.Bad("rate is for all parked messages, without numbers")
	errForwardTo     = problem.Bad("to must be the name of a stream that events can be appended to")
	errNote          = problem.Bad("The body must be a JSON object whose text is a text of at most 1000 characters.")
)

// parkedDocument is a page of parked messages. Its names are part of the wire: do not change.
type parkedDocument struct {
	Total    int64           `json:"total"`
	Messages []parkedMessage `json:"messages"`
	Next     *int64          `json:"next,omitempty"`
}

type parkedMessage struct {
	Number      int64              `json:"number"`
	Added       string             `json:"added"`
	Reason      string             `json:"reason"`
	RetryCount  *int64             `json:"retryCount"`
	StreamID    string             `json:"streamId"`
	EventNumber int64              `json:"eventNumber"`
	EventType   string             `json:"eventType"` // empty: the event is gone
	EventID     string             `json:"eventId"`
	IsJSON      bool               `json:"isJson"`
	Data        *string            `json:"data"` // null: gone, or embed=rich
	Metadata    *string            `json:"metadata"`
	Note        *subscription.Note `json:"note"`
}

// Parked answers with parked messages that are not settled. With embed=rich their payloads are
// left out.
func (g *Handlers) Parked(_ context.Context, x *request.Request) error {
	raw := x.R.URL.RawQuery
	var from int64
	if text, ok := args.Lookup(raw, "from"); ok {
		if from, ok = args.Number(text, math.MaxInt64); !ok {
			return errParkedFrom
		}
	}
	count, ok := args.Int(raw, "count", defaultParked, 1, maxParked)
	if !ok {
		return errParkedCount
	}
	payload := !strings.EqualFold(args.Value(raw, "embed"), "rich")
	return g.Way.Lead(x, func(ctx context.Context) error {
		page, err := g.Subscriptions.Parked(ctx, groupKey(x), from, count, payload, &x.Caller)
		if err != nil {
			return err
		}
		d := parkedDocument{Total: page.Total, Messages: make([]parkedMessage, len(page.Messages))}
		if page.Next >= 0 {
			d.Next = &page.Next
		}
		for i := range page.Messages {
			m := &page.Messages[i]
			p := &d.Messages[i]
			*p = parkedMessage{Number: m.Number, Added: m.Added, Reason: m.Reason, RetryCount: m.Retries, StreamID: m.Stream, EventNumber: m.EventNumber, Note: m.Note}
			if e := m.Event; e != nil {
				p.EventType, p.EventID, p.IsJSON = e.Type, e.ID.String(), e.Flags&event.FlagJSON != 0
				if payload {
					data, metadata := string(e.Data), string(e.Metadata)
					p.Data, p.Metadata = &data, &metadata
				}
			}
		}
		return x.SendFreshJSON(&d)
	})
}

// parkedNumbers returns the numbers of the messages that a request is about.
func parkedNumbers(x *request.Request) (numbers []int64, err error) {
	for one := range strings.SplitSeq(args.Value(x.R.URL.RawQuery, "numbers"), ",") {
		n, ok := args.Number(one, math.MaxInt64)
		if !ok || len(numbers) == maxParkedNumbers {
			return nil, errParkedNumbers
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// ReplaySome replays some messages, or all at a rate.
func (g *Handlers) ReplaySome(ctx context.Context, x *request.Request) error {
	_, isPaced := args.Lookup(x.R.URL.RawQuery, "rate")
	switch _, hasNumbers := args.Lookup(x.R.URL.RawQuery, "numbers"); {
	case isPaced && hasNumbers:
		return errRateOfSome
	case isPaced:
		return g.ReplayParked(ctx, x)
	}
	return g.Settle(api.Subscriptions.ReplayParked)(ctx, x)
}

// forwardDocument says what became of messages to be forwarded. Its names are part of the wire: do
// not change.
type forwardDocument struct {
	Forwarded int64  `json:"forwarded"`
	To        string `json:"to"`
	Gone      int64  `json:"gone,omitempty"`
	Next      *int64 `json:"next,omitempty"`
}

// Forward appends copies of messages to a stream that the caller may write to, and takes the
// messages out of the parked ones.
func (g *Handlers) Forward(_ context.Context, x *request.Request) error {
	raw := x.R.URL.RawQuery
	to := args.Value(raw, "to")
	k := groupKey(x)
	isOwn := to == k.ParkedStream() || to == k.DeskStream() || to == k.CheckpointStream()
	if to == "" || isOwn || !utf8.ValidString(to) || to == event.AllStream || event.IsMetaStream(to) || event.IsIndexStream(to) {
		return errForwardTo
	}
	if err := api.CheckName(len(to)); err != nil {
		return err
	}
	var numbers []int64
	if _, ok := args.Lookup(raw, "numbers"); ok {
		var err error
		if numbers, err = parkedNumbers(x); err != nil {
			return err
		}
	}
	var from int64
	if text, ok := args.Lookup(raw, "from"); ok {
		if from, ok = args.Number(text, math.MaxInt64); !ok {
			return errParkedFrom
		}
	}
	return g.Way.Lead(x, func(ctx context.Context) error {
		if err := x.Node.Permit(ctx, &api.Append.May, &x.Caller.Who, to, ""); err != nil {
			return err
		}
		f, err := g.Subscriptions.ForwardParked(ctx, k, to, numbers, from, &x.Caller)
		if err != nil {
			return groupFailed(x, err, noGroup(x))
		}
		d := forwardDocument{Forwarded: f.Count, To: to, Gone: f.Gone}
		if f.Next >= 0 {
			d.Next = &f.Next
		}
		return x.SendFreshJSON(&d)
	})
}

// Settle makes the handler that replays or drops some messages.
func (g *Handlers) Settle(do func(api.Subscriptions, context.Context, subscription.Key, []int64) error) request.Handler {
	return func(_ context.Context, x *request.Request) error {
		numbers, err := parkedNumbers(x)
		if err != nil {
			return err
		}
		return g.groupCommand(x, http.StatusOK, func(ctx context.Context, k subscription.Key) error {
			return do(g.Subscriptions, ctx, k, numbers)
		})
	}
}

// Note leaves a note at a message.
func (g *Handlers) Note(_ context.Context, x *request.Request) error {
	number, ok := args.Number(args.Value(x.R.URL.RawQuery, "number"), math.MaxInt64)
	if !ok {
		return errParkedNumber
	}
	return g.groupCommand(x, http.StatusOK, func(ctx context.Context, k subscription.Key) error {
		body, err := x.Upload.Read(request.MaxSettings, request.LargeSettings, errSettingsCut)
		if err != nil {
			return err
		}
		text := args.Object(body, errNote, "text").Values["text"]
		if text.Kind != jsontext.String || utf8.RuneCountInString(text.Text()) > maxNote {
			return errNote
		}
		return g.Subscriptions.NoteParked(ctx, k, number, text.Text(), x.Caller.Who.Login)
	})
}
