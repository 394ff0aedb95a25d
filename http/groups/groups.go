// Package groups answers requests about groups of competing consumers, and hands out their
// messages.
package groups

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/caching"
	"github.com/annalsdb/annals/http/leader"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/page"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/subscription"
)

// Handlers answer requests about groups.
type Handlers struct {
	Subscriptions api.Subscriptions
	Way           *leader.Way
}

const (
	subscriptionsPath = "/subscriptions"

	segInfo    = "info"
	segReplay  = "replayParked"
	SegRestart = "restart"

	maxMessages = 100
	// nackReason is what a parked message says of who gave it up.
	nackReason = "Nacked from HTTP"
)

var (
	errMessageID   = problem.Bad("messageid should be a properly formed guid")
	errMessageIDs  = problem.Bad("ids should be a comma separated list of properly formed guids")
	errStopAt      = problem.Bad("stopAt should be a properly formed positive long")
	errAll         = problem.Bad("Persistent subscriptions to $all are only supported over gRPC through gRPC clients")
	errAfter       = problem.Bad("after should be a duration from 0s to 24h, such as 5s")
	errAfterAction = problem.Bad("after is for the action Retry alone")
	errNotRunning  = problem.Bad("Persistent subscriptions are not running.")
)

// groupKey is the group that the path names.
func groupKey(x *request.Request) subscription.Key {
	return subscription.Key{Stream: x.Route.Stream, Group: x.Route.Group}
}

// Awaited is the group that the path names.
func Awaited(x *request.Request) api.Awaited { return x.Node.OfGroup(groupKey(x)) }

// leadGroup does something on the leader with the group that the path names, which must not be one
// of the log: those are made, changed and consumed over gRPC only.
func (g *Handlers) leadGroup(x *request.Request, do func(context.Context) error) error {
	if x.Route.Stream == event.AllStream {
		return groupFailed(x, errAll, "")
	}
	return g.Way.Lead(x, do)
}

// groupCommand does something to the group that the path names, and answers what came of it.
func (g *Handlers) groupCommand(x *request.Request, status int, do func(context.Context, subscription.Key) error) error {
	return g.Way.Lead(x, func(ctx context.Context) error {
		if err := do(ctx, groupKey(x)); err != nil {
			return groupFailed(x, err, noGroup(x))
		}
		commandResult(x, status, commandSuccess, "")
		return nil
	})
}

// noGroup is the reason of a command for a group that is not there.
func noGroup(x *request.Request) string { return "Group '" + x.Route.Group + "' does not exist." }

// Create makes a group, unless its own streams would have names that are too long, or its names
// could not be kept: they are in a JSON document.
func (g *Handlers) Create(_ context.Context, x *request.Request) error {
	if err := api.CheckName(len(event.MetaStreamOf(groupKey(x).CheckpointStream()))); err != nil {
		return err
	}
	if !utf8.ValidString(groupKey(x).String()) {
		return problem.Bad("The names of the stream and the group must be UTF-8.")
	}
	status := http.StatusOK
	if x.Node.ReferenceStatusCodes {
		status = http.StatusCreated
	}
	return g.defineGroup(x, status, api.Subscriptions.Create)
}

// Update replaces all settings of a group.
func (g *Handlers) Update(_ context.Context, x *request.Request) error {
	return g.defineGroup(x, http.StatusOK, api.Subscriptions.Update)
}

// defineGroup does something with the settings in the body.
func (g *Handlers) defineGroup(x *request.Request, status int, do func(api.Subscriptions, context.Context, subscription.Key, subscription.Settings, string) error) error {
	if x.Route.Stream == event.AllStream && x.R.Method == http.MethodPut {
		return groupFailed(x, errAll, "")
	}
	return g.groupCommand(x, status, func(ctx context.Context, k subscription.Key) error {
		settings, isOwn, err := readSettings(x)
		switch {
		case k.Stream == event.AllStream && !isOwn:
			return errAll // It is made and changed over gRPC, as far as there are fields for that.
		case err != nil:
			return err
		}
		return do(g.Subscriptions, ctx, k, settings, x.Caller.Who.Login)
	})
}

// Command makes the handler of something that is done to a group in the caller's name.
func (g *Handlers) Command(do func(api.Subscriptions, context.Context, subscription.Key, string) error) request.Handler {
	return func(_ context.Context, x *request.Request) error {
		return g.groupCommand(x, http.StatusOK, func(ctx context.Context, k subscription.Key) error {
			return do(g.Subscriptions, ctx, k, x.Caller.Who.Login)
		})
	}
}

// ReplayParked hands parked messages out again.
func (g *Handlers) ReplayParked(_ context.Context, x *request.Request) error {
	stopAt := int64(-1)
	if text, ok := args.Lookup(x.R.URL.RawQuery, "stopAt"); ok {
		if stopAt, ok = args.Number(text, math.MaxInt64); !ok {
			return errStopAt
		}
	}
	rate, ok := args.Int(x.R.URL.RawQuery, "rate", 0, 1, maxRate)
	if !ok {
		return errRate
	}
	return g.Way.Lead(x, func(ctx context.Context) error {
		if err := g.Subscriptions.Replay(ctx, groupKey(x), stopAt, rate); err != nil {
			return groupFailed(x, err, "Unable to locate '"+groupKey(x).String()+"'")
		}
		commandResult(x, http.StatusOK, commandSuccess, "")
		return nil
	})
}

// Restart loads all groups again.
func (g *Handlers) Restart(_ context.Context, x *request.Request) error {
	return g.Way.Lead(x, func(ctx context.Context) error {
		switch err := g.Subscriptions.Restart(ctx); {
		case errors.Is(err, event.ErrNotReady):
			return errNotRunning
		case err != nil:
			return err
		}
		sendWord(x, http.StatusOK, "Restarting")
		return nil
	})
}

// HandOut hands out messages to the caller. It does not wait for messages.
func (g *Handlers) HandOut(_ context.Context, x *request.Request) error {
	count := 1
	if text := x.Route.Count; text != "" {
		n, ok := args.Number(text, maxMessages)
		if !ok || n == 0 {
			return problem.Bad("Message count must be an integer between 1 and 100 'count' ='" + text + "'")
		}
		count = int(n)
	}
	return g.leadGroup(x, func(ctx context.Context) error {
		messages, err := g.takeMessages(ctx, x, count)
		switch {
		case errors.Is(err, subscription.ErrNotFound):
			sendWord(x, problem.NoGroup.Status, problem.NoGroup.Text)
			return nil
		case err != nil:
			return err
		}
		doc := x.Atom().Messages(messages, groupKey(x), count)
		return x.Write(&doc)
	})
}

// takeMessages takes messages, but none for an answer without a body, which would lose them.
func (g *Handlers) takeMessages(ctx context.Context, x *request.Request, count int) ([]subscription.Message, error) {
	if x.R.Method == http.MethodHead {
		_, err := g.Subscriptions.Info(ctx, groupKey(x))
		return nil, err
	}
	if err := g.mayRead(ctx, x); err != nil {
		return nil, err
	}
	return g.Subscriptions.Read(ctx, groupKey(x), count, &x.Caller)
}

// mayRead returns event.ErrNotAuthorized if the group reads another source than its own stream, and
// the caller may not. For its own stream that was asked before.
func (g *Handlers) mayRead(ctx context.Context, x *request.Request) error {
	source, err := g.Subscriptions.SourceOf(groupKey(x))
	if err != nil || source == x.Route.Stream {
		return err
	}
	return x.Node.Permit(ctx, &api.Consume.May, &x.Caller.Who, source, "")
}

func (g *Handlers) Ack(_ context.Context, x *request.Request) error {
	return g.answerMessages(x, func(ctx context.Context, ids []event.ID) error {
		return g.Subscriptions.Ack(ctx, groupKey(x), ids)
	})
}

func (g *Handlers) Nack(_ context.Context, x *request.Request) error {
	action := nackAction(args.Value(x.R.URL.RawQuery, "action"))
	var after *time.Duration
	if text, ok := args.Lookup(x.R.URL.RawQuery, "after"); ok {
		d, err := time.ParseDuration(text)
		switch {
		case err != nil || d < 0 || d > subscription.MaxDelay:
			return errAfter
		case action != subscription.Retry:
			return errAfterAction
		}
		after = &d
	}
	return g.answerMessages(x, func(ctx context.Context, ids []event.ID) error {
		return g.Subscriptions.Nack(ctx, groupKey(x), ids, action, nackReason, after)
	})
}

// nackAction reads the action of a nack. An unknown action means retry.
func nackAction(word string) subscription.Action {
	switch word = strings.TrimSpace(word); {
	case strings.EqualFold(word, "park"):
		return subscription.Park
	case strings.EqualFold(word, "skip"):
		return subscription.Skip
	case strings.EqualFold(word, "stop"):
		return subscription.Stop
	}
	return subscription.Retry
}

// answerMessages answers messages. The caller does not learn whether they were known.
func (g *Handlers) answerMessages(x *request.Request, do func(context.Context, []event.ID) error) error {
	ids, err := messageIDs(x)
	if err != nil {
		return err
	}
	if x.Route.Stream == event.AllStream {
		return errAll
	}
	return g.Way.Lead(x, func(ctx context.Context) error {
		err := g.mayRead(ctx, x)
		if err == nil {
			err = do(ctx, ids)
		}
		if err != nil && !errors.Is(err, subscription.ErrNotFound) {
			return err
		}
		status := http.StatusOK
		if x.Node.ReferenceStatusCodes {
			status = http.StatusAccepted
		}
		x.W.Header()[request.KeyContentType] = media.Text.ContentType
		x.Send(status, nil)
		return nil
	})
}

// messageIDs returns the messages that the path or the query names.
func messageIDs(x *request.Request) ([]event.ID, error) {
	if x.Route.ID != "" {
		id, ok := messageID(x.Route.ID)
		if !ok {
			return nil, errMessageID
		}
		return []event.ID{id}, nil
	}
	text, ok := args.Lookup(x.R.URL.RawQuery, "ids")
	if !ok {
		return nil, errMessageIDs
	}
	ids := make([]event.ID, 0, 1+strings.Count(text, ","))
	for one := range strings.SplitSeq(text, ",") {
		id, ok := messageID(one)
		if !ok {
			return nil, errMessageIDs
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// messageID reads a GUID with dashes or of nothing but digits.
func messageID(text string) (event.ID, bool) {
	id, err := event.ParseID(text)
	return id, err == nil && (len(text) == 32 || len(text) == 36)
}

// ParkedPage makes the handler of pages of the messages that a group gave up. Every node has them.
func (g *Handlers) ParkedPage(backward bool) request.Handler {
	return func(_ context.Context, x *request.Request) error {
		return page.Serve(x, groupKey(x).ParkedStream(), backward, g.sendParked)
	}
}

// sendParked answers with a page without the messages that were settled at the desk. Until a
// message was settled it is the page of the stream. It must not be cached, because more messages
// can be settled at any time.
func (g *Handlers) sendParked(ctx context.Context, x *request.Request, p *page.Request) error {
	record, err := x.Node.Store.ReadEvent(ctx, groupKey(x).DeskStream(), event.Head, nil)
	switch {
	case errors.Is(err, event.ErrStreamNotFound) || errors.Is(err, event.ErrEventNotFound) || errors.Is(err, event.ErrStreamDeleted):
		p.Changes = true
		return page.Feed(ctx, x, p)
	case err != nil:
		return err
	}
	isSettled, err := subscription.SettledIn(&record.Record)
	if err != nil {
		return err
	}
	page, err := page.Read(ctx, x, p)
	if err != nil {
		return err
	}
	page.Events = slices.DeleteFunc(page.Events, func(e event.Resolved) bool { return isSettled(e.Number) })
	// It changes while the stream does not.
	x.W.Header()[caching.KeyControl] = caching.Never
	x.Copies().OfCaller(page.Events...)
	doc := x.Atom().Stream(&page, &p.StreamRead)
	return x.Write(&doc)
}
