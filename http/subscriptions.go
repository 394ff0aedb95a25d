package httpapi

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/subscription"
)

const (
	subscriptionsPath = "/subscriptions"

	segInfo    = "info"
	segReplay  = "replayParked"
	segRestart = "restart"

	maxMessages = 100
	// nackReason is what a parked message says of who gave it up.
	nackReason = "Nacked from HTTP"
)

var (
	errMessageID  = badRequest("messageid should be a properly formed guid")
	errMessageIDs = badRequest("ids should be a comma separated list of properly formed guids")
	errStopAt     = badRequest("stopAt should be a properly formed positive long")
	errAll        = badRequest("Persistent subscriptions to $all are only supported over gRPC through gRPC clients")
	errNotRunning = badRequest("Persistent subscriptions are not running.")
)

// groupKey is the group that the path names.
func groupKey(x *exchange) subscription.Key {
	return subscription.Key{Stream: x.route.stream, Group: x.route.group}
}

// leadGroup does something on the leader with the group that the path names, which must not be one
// of the log: those are made, changed and consumed over gRPC only.
func (g *groupHandlers) leadGroup(x *exchange, do func(context.Context) error) error {
	if x.route.stream == event.AllStream {
		return groupFailed(x, errAll, "")
	}
	return g.way.lead(x, do)
}

// groupCommand does something to the group that the path names, and answers what came of it.
func (g *groupHandlers) groupCommand(x *exchange, status int, do func(context.Context, subscription.Key) error) error {
	return g.way.lead(x, func(ctx context.Context) error {
		if err := do(ctx, groupKey(x)); err != nil {
			return groupFailed(x, err, "Group '"+x.route.group+"' does not exist.")
		}
		commandResult(x, status, commandSuccess, "")
		return nil
	})
}

// createGroup makes a group, unless its own streams would have names that are too long.
func (g *groupHandlers) createGroup(_ context.Context, x *exchange) error {
	if len(event.MetaStreamOf(groupKey(x).CheckpointStream())) > event.MaxNameBytes {
		return problemLongName
	}
	status := http.StatusOK
	if x.node.referenceStatusCodes {
		status = http.StatusCreated
	}
	return g.defineGroup(x, status, Subscriptions.Create)
}

// updateGroup replaces all settings of a group.
func (g *groupHandlers) updateGroup(_ context.Context, x *exchange) error {
	return g.defineGroup(x, http.StatusOK, Subscriptions.Update)
}

// defineGroup does something with the settings in the body.
func (g *groupHandlers) defineGroup(x *exchange, status int, do func(Subscriptions, context.Context, subscription.Key, subscription.Settings, string) error) error {
	if x.route.stream == event.AllStream {
		return groupFailed(x, errAll, "")
	}
	return g.groupCommand(x, status, func(ctx context.Context, k subscription.Key) error {
		settings, err := readSettings(x)
		if err != nil {
			return err
		}
		return do(g.groups, ctx, k, settings, x.who.Login)
	})
}

func (g *groupHandlers) deleteGroup(_ context.Context, x *exchange) error {
	return g.groupCommand(x, http.StatusOK, func(ctx context.Context, k subscription.Key) error {
		return g.groups.Delete(ctx, k, x.who.Login)
	})
}

// replayParked hands parked messages out again.
func (g *groupHandlers) replayParked(_ context.Context, x *exchange) error {
	stopAt := int64(-1)
	if text, ok := queryLookup(x.r.URL.RawQuery, "stopAt"); ok {
		if stopAt, ok = parseNumber(text, math.MaxInt64); !ok {
			return errStopAt
		}
	}
	return g.way.lead(x, func(ctx context.Context) error {
		if err := g.groups.Replay(ctx, groupKey(x), stopAt); err != nil {
			return groupFailed(x, err, "Unable to locate '"+groupKey(x).String()+"'")
		}
		commandResult(x, http.StatusOK, commandSuccess, "")
		return nil
	})
}

// restartGroups loads all groups again.
func (g *groupHandlers) restartGroups(_ context.Context, x *exchange) error {
	return g.way.lead(x, func(ctx context.Context) error {
		switch err := g.groups.Restart(ctx); {
		case errors.Is(err, event.ErrNotReady):
			return errNotRunning
		case err != nil:
			return err
		}
		sendWord(x, http.StatusOK, "Restarting")
		return nil
	})
}

// handOutMessages hands out messages to the caller. It does not wait for messages.
func (g *groupHandlers) handOutMessages(_ context.Context, x *exchange) error {
	count := 1
	if text := x.route.count; text != "" {
		n, ok := parseNumber(text, maxMessages)
		if !ok || n == 0 {
			return badRequest("Message count must be an integer between 1 and 100 'count' ='" + text + "'")
		}
		count = int(n)
	}
	return g.leadGroup(x, func(ctx context.Context) error {
		messages, err := g.takeMessages(ctx, x, count)
		switch {
		case errors.Is(err, subscription.ErrNotFound):
			sendWord(x, problemNoGroup.status, problemNoGroup.text)
			return nil
		case err != nil:
			return err
		}
		doc := x.atom().Messages(messages, groupKey(x), count)
		return x.write(&doc)
	})
}

// takeMessages takes messages, but none for an answer without a body, which would lose them.
func (g *groupHandlers) takeMessages(ctx context.Context, x *exchange, count int) ([]subscription.Message, error) {
	if x.r.Method == http.MethodHead {
		_, err := g.groups.Info(ctx, groupKey(x))
		return nil, err
	}
	return g.groups.Read(ctx, groupKey(x), count, (*callerLinks)(x))
}

func (g *groupHandlers) ackMessages(_ context.Context, x *exchange) error {
	return g.answerMessages(x, func(ctx context.Context, ids []event.ID) error {
		return g.groups.Ack(ctx, groupKey(x), ids)
	})
}

func (g *groupHandlers) nackMessages(_ context.Context, x *exchange) error {
	action := nackAction(queryValue(x.r.URL.RawQuery, "action"))
	return g.answerMessages(x, func(ctx context.Context, ids []event.ID) error {
		return g.groups.Nack(ctx, groupKey(x), ids, action, nackReason)
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
func (g *groupHandlers) answerMessages(x *exchange, do func(context.Context, []event.ID) error) error {
	ids, err := messageIDs(x)
	if err != nil {
		return err
	}
	if x.route.stream == event.AllStream {
		return errAll
	}
	return g.way.lead(x, func(ctx context.Context) error {
		if err := do(ctx, ids); err != nil && !errors.Is(err, subscription.ErrNotFound) {
			return err
		}
		status := http.StatusOK
		if x.node.referenceStatusCodes {
			status = http.StatusAccepted
		}
		x.w.Header()[keyContentType] = typeText.contentType
		x.send(status, nil)
		return nil
	})
}

// messageIDs returns the messages that the path or the query names.
func messageIDs(x *exchange) ([]event.ID, error) {
	if x.route.id != "" {
		id, ok := messageID(x.route.id)
		if !ok {
			return nil, errMessageID
		}
		return []event.ID{id}, nil
	}
	text, ok := queryLookup(x.r.URL.RawQuery, "ids")
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

// parkedBackward and parkedForward show the messages that a group gave up. Every
// node has them.
func (g *groupHandlers) parkedBackward(_ context.Context, x *exchange) error {
	return g.pages.serveBackward(x, groupKey(x).ParkedStream(), g.sendParked)
}

func (g *groupHandlers) parkedForward(_ context.Context, x *exchange) error {
	return g.pages.serveForward(x, groupKey(x).ParkedStream(), g.sendParked)
}

// sendParked answers with a page without the messages that were settled at the desk. Until a
// message was settled it is the page of the stream. It must not be cached, because more messages
// can be settled at any time.
func (g *groupHandlers) sendParked(ctx context.Context, x *exchange, p *pageRequest) error {
	record, err := g.store.ReadEvent(ctx, groupKey(x).DeskStream(), event.Head, nil)
	switch {
	case errors.Is(err, event.ErrStreamNotFound) || errors.Is(err, event.ErrEventNotFound) || errors.Is(err, event.ErrStreamDeleted):
		p.changes = true
		return g.pages.sendFeed(ctx, x, p)
	case err != nil:
		return err
	}
	isSettled, err := subscription.SettledIn(&record.Record)
	if err != nil {
		return err
	}
	page, err := g.pages.readStream(ctx, x, p)
	if err != nil {
		return err
	}
	page.Events = slices.DeleteFunc(page.Events, func(e event.Resolved) bool { return isSettled(e.Number) })
	x.w.Header()[keyCacheControl] = cacheNever // It changes while the stream does not.
	ofCaller(x, page.Events...)
	doc := x.atom().Stream(&page, &p.StreamRead)
	return x.write(&doc)
}
