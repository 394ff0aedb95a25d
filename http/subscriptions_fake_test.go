package httpapi_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/milestone"
	"github.com/annalsdb/annals/subscription"
)

// memSubscriptions are groups in memory that hand out what they are given, and
// remember what they were asked for.
type memSubscriptions struct {
	api.Subscriptions
	mu     sync.Mutex
	groups []*memGroup
	line   milestone.Line // how far all groups are
	calls  []string
	fail   error // what every call returns, when set
	block  bool  // every call waits for its context
}

type memGroup struct {
	subscription.Info
	messages []subscription.Message
}

// newSubscriber is a node with groups.
func newSubscriber(t testing.TB, change ...func(*httpapi.Options)) (*node, *memSubscriptions) {
	subs := &memSubscriptions{}
	set := func(o *httpapi.Options) { o.Subscriptions = subs }
	return newNode(t, append([]func(*httpapi.Options){set}, change...)...), subs
}

// define makes a group with default settings.
func (s *memSubscriptions) define(stream, group string) *memGroup {
	g := &memGroup{Info: subscription.Info{
		Key: subscription.Key{Stream: stream, Group: group}, Settings: subscription.DefaultSettings(), Status: "Live", Checkpoint: -1, LastKnown: -1,
	}}
	s.groups = append(s.groups, g)
	slices.SortStableFunc(s.groups, func(a, b *memGroup) int { return strings.Compare(a.Stream, b.Stream) })
	return g
}

// enter notes a call, and finds the group it is about.
func (s *memSubscriptions) enter(ctx context.Context, k subscription.Key, format string, args ...any) (*memGroup, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
	if s.block {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if s.fail != nil {
		return nil, s.fail
	}
	for _, g := range s.groups {
		if g.Key == k {
			return g, nil
		}
	}
	return nil, subscription.ErrNotFound
}

// made returns what was asked for since it was called last.
func (s *memSubscriptions) made() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := strings.Join(s.calls, "; ")
	s.calls = nil
	return calls
}

func (s *memSubscriptions) Create(ctx context.Context, k subscription.Key, settings subscription.Settings, by string) error {
	_, err := s.enter(ctx, k, "create %s by %s", k, by)
	switch {
	case err == nil:
		err = settings.Validate()
		if err == nil {
			err = subscription.ErrExists
		}
	case err == subscription.ErrNotFound:
		if err = settings.Validate(); err == nil {
			s.define(k.Stream, k.Group).Settings = settings
		}
	}
	return wrapped(err)
}

// wrapped is an error as a caller gets it from several layers below.
func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("wrapped: %w", err)
}

func (s *memSubscriptions) Update(ctx context.Context, k subscription.Key, settings subscription.Settings, by string) error {
	g, err := s.enter(ctx, k, "update %s by %s", k, by)
	if err == nil {
		err = settings.Validate()
	}
	if err == nil {
		g.Settings = settings
	}
	return wrapped(err)
}

func (s *memSubscriptions) SourceOf(k subscription.Key) (string, error) { return k.Stream, nil }

func (s *memSubscriptions) Delete(ctx context.Context, k subscription.Key, by string) error {
	g, err := s.enter(ctx, k, "delete %s by %s", k, by)
	if err == nil {
		s.groups = slices.DeleteFunc(s.groups, func(other *memGroup) bool { return other == g })
	}
	return wrapped(err)
}

func (s *memSubscriptions) Read(ctx context.Context, k subscription.Key, count int, _ event.LinkReader) ([]subscription.Message, error) {
	g, err := s.enter(ctx, k, "read %d of %s", count, k)
	if err != nil {
		return nil, wrapped(err)
	}
	count = min(count, len(g.messages))
	taken := g.messages[:count]
	g.messages = g.messages[count:]
	return taken, nil
}

func (s *memSubscriptions) Ack(ctx context.Context, k subscription.Key, ids []event.ID) error {
	_, err := s.enter(ctx, k, "ack %v of %s", ids, k)
	return wrapped(err)
}

func (s *memSubscriptions) Nack(ctx context.Context, k subscription.Key, ids []event.ID, action subscription.Action, reason string, after *time.Duration) error {
	text := ""
	if after != nil {
		text = ", after " + after.String()
	}
	_, err := s.enter(ctx, k, "nack %v of %s, action %d: %s%s", ids, k, action, reason, text)
	return wrapped(err)
}

func (s *memSubscriptions) Pause(ctx context.Context, k subscription.Key, by string) error {
	g, err := s.enter(ctx, k, "pause %s by %s", k, by)
	if err == nil {
		g.Status, g.Paused = "Paused", &subscription.Pause{By: by}
	}
	return wrapped(err)
}

func (s *memSubscriptions) Resume(ctx context.Context, k subscription.Key, by string) error {
	_, err := s.enter(ctx, k, "resume %s by %s", k, by)
	return wrapped(err)
}

func (s *memSubscriptions) Replay(ctx context.Context, k subscription.Key, stopAt int64, _ int) error {
	_, err := s.enter(ctx, k, "replay %s to %d", k, stopAt)
	return wrapped(err)
}

func (s *memSubscriptions) Parked(ctx context.Context, k subscription.Key, from int64, count int, payload bool, _ event.LinkReader) (subscription.ParkedPage, error) {
	_, err := s.enter(ctx, k, "parked of %s from %d, %d, %t", k, from, count, payload)
	return subscription.ParkedPage{Next: -1}, wrapped(err)
}

func (s *memSubscriptions) ReplayParked(ctx context.Context, k subscription.Key, numbers []int64) error {
	_, err := s.enter(ctx, k, "replay %v of %s", numbers, k)
	return wrapped(err)
}

func (s *memSubscriptions) DropParked(ctx context.Context, k subscription.Key, numbers []int64) error {
	_, err := s.enter(ctx, k, "drop %v of %s", numbers, k)
	return wrapped(err)
}

func (s *memSubscriptions) NoteParked(ctx context.Context, k subscription.Key, number int64, text, by string) error {
	_, err := s.enter(ctx, k, "note %q by %s at %d of %s", text, by, number, k)
	return wrapped(err)
}

func (s *memSubscriptions) Restart(ctx context.Context) error {
	_, err := s.enter(ctx, subscription.Key{}, "restart")
	if err == subscription.ErrNotFound {
		return nil
	}
	return wrapped(err)
}

func (s *memSubscriptions) Await(ctx context.Context, _ subscription.Key, position int64) error {
	return s.line.Wait(ctx, position, nil)
}

func (s *memSubscriptions) Done(subscription.Key) int64 { return s.line.End() }

func (s *memSubscriptions) Info(ctx context.Context, k subscription.Key) (subscription.Info, error) {
	g, err := s.enter(ctx, k, "info of %s", k)
	if err != nil {
		return subscription.Info{}, wrapped(err)
	}
	return g.Info, nil
}

func (s *memSubscriptions) List(ctx context.Context, stream string) ([]subscription.Info, error) {
	if _, err := s.enter(ctx, subscription.Key{}, "list %q", stream); err != subscription.ErrNotFound {
		return nil, wrapped(err)
	}
	var list []subscription.Info
	for _, g := range s.groups {
		if stream == "" || g.Stream == stream {
			list = append(list, g.Info)
		}
	}
	return list, nil
}

// someMessages are messages of every kind: in the order handed out a JSON event,
// one with bytes of metadata that was tried before, a link that was resolved, a
// link that leads nowhere, and a link that was left as it is.
func someMessages() []subscription.Message {
	at := time.Date(2024, 2, 3, 10, 11, 12, 345678900, time.UTC)
	record := func(stream string, number int64, typ, data, metadata string, flags event.Flags) event.Record {
		return event.Record{
			Stream: stream, Number: number, ID: event.ID{byte(number), 0xab, 15: stream[0]}, Type: typ, Flags: flags,
			Time: at.Add(time.Duration(number) * time.Second).UnixNano(), Data: []byte(data), Metadata: []byte(metadata),
		}
	}
	target := record("target & <co>", 7, "moved \"it\"", `{"to":"é"}`, `{"who":"jane"}`, event.FlagJSON)
	events := []event.Resolved{
		{Record: record("a b/c", 0, "opened", `{"n":0}`, "", event.FlagJSON)},
		{Record: record("a b/c", 1, "bytes", "\x01<x>", "not JSON", 0)},
		{Record: record("a b/c", 2, event.TypeLink, "7@target & <co>", `{"l":1}`, 0), Link: event.LinkResolved, Target: &target, TargetStream: "target & <co>", TargetNumber: 7},
		{Record: record("a b/c", 3, event.TypeLink, "9@gone", "", 0), Link: event.LinkDead, TargetStream: "gone", TargetNumber: 9},
		{Record: record("a b/c", 4, event.TypeLink, "7@target & <co>", "", 0)},
	}
	messages := make([]subscription.Message, len(events))
	for i, e := range events {
		messages[i] = subscription.Message{ID: e.ID, Event: &e, Retries: i % 3}
	}
	return messages
}
