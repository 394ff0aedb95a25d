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
func leadGroup(x *exchange, do func(context.Context) error) error {
	if x.route.stream == event.AllStream {
		return groupFailed(x, errAll, "")
	}
	return x.lead(do)
}

// groupCommand does something to the group that the path names, and answers what came of it.
func groupCommand(x *exchange, status int, do func(context.Context, subscription.Key) error) error {
	return x.lead(func(ctx context.Context) error {
		if err := do(ctx, groupKey(x)); err != nil {
			return groupFailed(x, err, "Group '"+x.route.group+"' does not exist.")
		}
		commandResult(x, status, commandSuccess, "")
		return nil
	})
}

// createGroup makes a group, unless its own streams would have names that are too long.
func createGroup(x *exchange) error {
	if len(event.MetaStreamOf(groupKey(x).CheckpointStream())) > event.MaxNameBytes {
		return problemLongName
	}
	status := http.StatusOK
	if x.s.opts.ReferenceStatusCodes {
		status = http.StatusCreated
	}
	return defineGroup(x, status, Subscriptions.Create)
}

// updateGroup replaces all settings of a group.
func updateGroup(x *exchange) error { return defineGroup(x, http.StatusOK, Subscriptions.Update) }

// defineGroup does something with the settings in the body.
func defineGroup(x *exchange, status int, do func(Subscriptions, context.Context, subscription.Key, subscription.Settings, string) error) error {
	if x.route.stream == event.AllStream {
		return groupFailed(x, errAll, "")
	}
	return groupCommand(x, status, func(ctx context.Context, k subscription.Key) error {
		settings, err := readSettings(x)
		if err != nil {
			return err
		}
		return do(x.s.opts.Subscriptions, ctx, k, settings, x.who.Login)
	})
}

func deleteGroup(x *exchange) error {
	return groupCommand(x, http.StatusOK, func(ctx context.Context, k subscription.Key) error {
		return x.s.opts.Subscriptions.Delete(ctx, k, x.who.Login)
	})
}

// replayParked hands parked messages out again.
func replayParked(x *exchange) error {
	stopAt := int64(-1)
	if text, ok := queryLookup(x.r.URL.RawQuery, "stopAt"); ok {
		if stopAt, ok = parseNumber(text, math.MaxInt64); !ok {
			return errStopAt
		}
	}
	return x.lead(func(ctx context.Context) error {
		if err := x.s.opts.Subscriptions.Replay(ctx, groupKey(x), stopAt); err != nil {
			return groupFailed(x, err, "Unable to locate '"+groupKey(x).String()+"'")
		}
		commandResult(x, http.StatusOK, commandSuccess, "")
		return nil
	})
}

// restartGroups loads all groups again.
func restartGroups(x *exchange) error {
	return x.lead(func(ctx context.Context) error {
		switch err := x.s.opts.Subscriptions.Restart(ctx); {
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
func handOutMessages(x *exchange) error {
	count := 1
	if text := x.route.count; text != "" {
		n, ok := parseNumber(text, maxMessages)
		if !ok || n == 0 {
			return badRequest("Message count must be an integer between 1 and 100 'count' ='" + text + "'")
		}
		count = int(n)
	}
	return leadGroup(x, func(ctx context.Context) error {
		messages, err := takeMessages(x, ctx, count)
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
func takeMessages(x *exchange, ctx context.Context, count int) ([]subscription.Message, error) {
	if x.r.Method == http.MethodHead {
		_, err := x.s.opts.Subscriptions.Info(ctx, groupKey(x))
		return nil, err
	}
	return x.s.opts.Subscriptions.Read(ctx, groupKey(x), count, (*callerLinks)(x))
}

func ackMessages(x *exchange) error {
	return answerMessages(x, func(ctx context.Context, ids []event.ID) error {
		return x.s.opts.Subscriptions.Ack(ctx, groupKey(x), ids)
	})
}

func nackMessages(x *exchange) error {
	action := nackAction(queryValue(x.r.URL.RawQuery, "action"))
	return answerMessages(x, func(ctx context.Context, ids []event.ID) error {
		return x.s.opts.Subscriptions.Nack(ctx, groupKey(x), ids, action, nackReason)
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
func answerMessages(x *exchange, do func(context.Context, []event.ID) error) error {
	ids, err := messageIDs(x)
	if err != nil {
		return err
	}
	if x.route.stream == event.AllStream {
		return errAll
	}
	return x.lead(func(ctx context.Context) error {
		if err := do(ctx, ids); err != nil && !errors.Is(err, subscription.ErrNotFound) {
			return err
		}
		status := http.StatusOK
		if x.s.opts.ReferenceStatusCodes {
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
func parkedBackward(x *exchange) error {
	return serveBackward(x, groupKey(x).ParkedStream(), sendParked)
}

func parkedForward(x *exchange) error {
	return serveForward(x, groupKey(x).ParkedStream(), sendParked)
}

// sendParked answers with a page without the messages that were settled at the desk. Until a
// message was settled it is the page of the stream. It must not be cached, because more messages
// can be settled at any time.
func sendParked(x *exchange, ctx context.Context, p *pageRequest) error {
	record, err := x.s.store.ReadEvent(ctx, groupKey(x).DeskStream(), event.Head, nil)
	switch {
	case errors.Is(err, event.ErrStreamNotFound) || errors.Is(err, event.ErrEventNotFound) || errors.Is(err, event.ErrStreamDeleted):
		p.changes = true
		return sendFeed(x, ctx, p)
	case err != nil:
		return err
	}
	isSettled, err := subscription.SettledIn(&record.Record)
	if err != nil {
		return err
	}
	page, err := readStream(x, ctx, p)
	if err != nil {
		return err
	}
	page.Events = slices.DeleteFunc(page.Events, func(e event.Resolved) bool { return isSettled(e.Number) })
	x.w.Header()[keyCacheControl] = cacheNever // It changes while the stream does not.
	ofCaller(x, page.Events...)
	doc := x.atom().Stream(&page, &p.StreamRead)
	return x.write(&doc)
}
