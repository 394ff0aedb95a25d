//lint:file-ignore SA1019 Clients send the fields of former versions too.

package grpcapi_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/persistent"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/subscription"
)

// groups calls the service as a user.
type groups struct {
	persistent.PersistentSubscriptionsClient
	t       testing.TB
	ctx     context.Context
	address string
}

// newGroups returns the service of a new node as the administrator has it, once groups are loaded.
func newGroups(t testing.TB) *groups {
	address := newNode(t)
	g := &groups{persistent.NewPersistentSubscriptionsClient(dial(t, address)), t, as(t, "admin"), address}
	g.loaded()
	return g
}

// loaded waits until groups are.
func (g *groups) loaded() {
	g.t.Helper()
	all := &persistent.ListReq{Options: &persistent.ListReq_Options{ListOption: &persistent.ListReq_Options_ListAllSubscriptions{}}}
	testkit.Eventually(g.t, 10*time.Second, func() error {
		_, err := g.List(g.ctx, all)
		return err
	})
}

// on is the same service for a test within another one.
func (g *groups) on(t testing.TB) *groups {
	login := ""
	if md, _ := metadata.FromOutgoingContext(g.ctx); md.Get("authorization") != nil {
		login = "admin"
	}
	return &groups{g.PersistentSubscriptionsClient, t, as(t, login), g.address}
}

func named(stream string) *shared.StreamIdentifier {
	return &shared.StreamIdentifier{StreamName: []byte(stream)}
}

// plainSettings are settings that are right.
func plainSettings() *persistent.CreateReq_Settings {
	return &persistent.CreateReq_Settings{
		MaxRetryCount: 2, MinCheckpointCount: 1, MaxCheckpointCount: 1, LiveBufferSize: 500, ReadBatchSize: 20, HistoryBufferSize: 500,
		NamedConsumerStrategy: persistent.CreateReq_RoundRobin, MessageTimeout: &persistent.CreateReq_Settings_MessageTimeoutMs{MessageTimeoutMs: 30_000},
	}
}

// fromStart is a stream from its first event on.
func fromStart(stream string) *persistent.CreateReq_Options_Stream {
	return &persistent.CreateReq_Options_Stream{Stream: &persistent.CreateReq_StreamOptions{
		StreamIdentifier: named(stream), RevisionOption: &persistent.CreateReq_StreamOptions_Start{Start: &shared.Empty{}},
	}}
}

// create makes the group g of a stream with settings, and changes, that are right.
func (g *groups) create(stream string, change ...func(*persistent.CreateReq_Settings)) {
	g.t.Helper()
	s := plainSettings()
	for _, c := range change {
		c(s)
	}
	_, err := g.Create(g.ctx, &persistent.CreateReq{Options: &persistent.CreateReq_Options{GroupName: "g", Settings: s, StreamOption: fromStart(stream)}})
	if err != nil {
		g.t.Fatal(err)
	}
}

// update updates the group g of a stream.
func (g *groups) update(stream string) error {
	_, err := g.Update(g.ctx, &persistent.UpdateReq{Options: &persistent.UpdateReq_Options{
		GroupName: "g", Settings: updateOf(plainSettings()), StreamOption: &persistent.UpdateReq_Options_Stream{Stream: &persistent.UpdateReq_StreamOptions{
			StreamIdentifier: named(stream), RevisionOption: &persistent.UpdateReq_StreamOptions_Start{Start: &shared.Empty{}},
		}},
	}})
	return err
}

// updateOf returns the settings of a creation as those of an update.
func updateOf(s *persistent.CreateReq_Settings) *persistent.UpdateReq_Settings {
	raw, err := proto.Marshal(s)
	u := &persistent.UpdateReq_Settings{}
	if err == nil {
		err = proto.Unmarshal(raw, u)
	}
	if err != nil {
		panic(err)
	}
	return u
}

func (g *groups) remove(stream string, opts ...grpc.CallOption) error {
	_, err := g.Delete(g.ctx, &persistent.DeleteReq{Options: &persistent.DeleteReq_Options{
		GroupName: "g", StreamOption: &persistent.DeleteReq_Options_StreamIdentifier{StreamIdentifier: named(stream)},
	}}, opts...)
	return err
}

// info returns what is known of the group g of a stream when it has read all there is.
func (g *groups) info(stream string) (i *persistent.SubscriptionInfo) {
	g.t.Helper()
	testkit.Eventually(g.t, 10*time.Second, func() error {
		r, err := g.GetInfo(g.ctx, infoReq(stream))
		if i = r.GetSubscriptionInfo(); err == nil && i.Status != "Live" {
			err = fmt.Errorf("status %s", i.Status)
		}
		return err
	})
	return i
}

func infoReq(stream string) *persistent.GetInfoReq {
	return &persistent.GetInfoReq{Options: &persistent.GetInfoReq_Options{
		GroupName: "g", StreamOption: &persistent.GetInfoReq_Options_StreamIdentifier{StreamIdentifier: named(stream)},
	}}
}

func listReq(stream string) *persistent.ListReq {
	return &persistent.ListReq{Options: &persistent.ListReq_Options{ListOption: &persistent.ListReq_Options_ListForStream{
		ListForStream: &persistent.ListReq_StreamOption{StreamOption: &persistent.ListReq_StreamOption_Stream{Stream: named(stream)}},
	}}}
}

// same compares two messages.
func same(t testing.TB, what string, got, want proto.Message) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", what, prototext.Format(got), prototext.Format(want))
	}
}

// TestPersistentSettings: info shows what was created and updated, in every shape that clients
// send.
func TestPersistentSettings(t *testing.T) {
	g := newGroups(t)
	plain := persistent.SubscriptionInfo{
		GroupName: "g", Status: "Live", StartFrom: "0", MessageTimeoutMilliseconds: 30_000, MaxRetryCount: 2, LiveBufferSize: 500,
		BufferSize: 500, ReadBatchSize: 20, MinCheckPointCount: 1, MaxCheckPointCount: 1, NamedConsumerStrategy: "RoundRobin",
	}
	stream := func(o *persistent.CreateReq_StreamOptions) func(*persistent.CreateReq_Options) {
		return func(to *persistent.CreateReq_Options) {
			o.StreamIdentifier = to.GetStream().StreamIdentifier
			to.StreamOption = &persistent.CreateReq_Options_Stream{Stream: o}
		}
	}
	former := func(revision uint64) func(*persistent.CreateReq_Options) {
		return func(o *persistent.CreateReq_Options) {
			o.StreamIdentifier, o.StreamOption, o.Settings.Revision = o.GetStream().StreamIdentifier, nil, revision
		}
	}
	for name, c := range map[string]struct {
		change func(*persistent.CreateReq_Options)
		want   func(*persistent.SubscriptionInfo)
	}{
		"plain":        {func(*persistent.CreateReq_Options) {}, func(*persistent.SubscriptionInfo) {}},
		"revision":     {stream(&persistent.CreateReq_StreamOptions{RevisionOption: &persistent.CreateReq_StreamOptions_Revision{Revision: 7}}), func(i *persistent.SubscriptionInfo) { i.StartFrom = "7" }},
		"end":          {stream(&persistent.CreateReq_StreamOptions{RevisionOption: &persistent.CreateReq_StreamOptions_End{End: &shared.Empty{}}}), func(i *persistent.SubscriptionInfo) { i.StartFrom = "-1" }},
		"former start": {former(0), func(*persistent.SubscriptionInfo) {}},
		"former shape": {former(5), func(i *persistent.SubscriptionInfo) { i.StartFrom = "5" }},
		"former end":   {former(1<<64 - 1), func(i *persistent.SubscriptionInfo) { i.StartFrom = "-1" }},
		"all": {func(o *persistent.CreateReq_Options) {
			o.Settings = &persistent.CreateReq_Settings{
				ResolveLinks: true, Revision: 1, ExtraStatistics: true, MaxRetryCount: 3, MinCheckpointCount: 4, MaxCheckpointCount: 5,
				MaxSubscriberCount: 6, LiveBufferSize: 7, ReadBatchSize: 8, HistoryBufferSize: 9, NamedConsumerStrategy: persistent.CreateReq_Pinned,
				MessageTimeout:  &persistent.CreateReq_Settings_MessageTimeoutTicks{MessageTimeoutTicks: 12_345_678},
				CheckpointAfter: &persistent.CreateReq_Settings_CheckpointAfterTicks{CheckpointAfterTicks: 20_000},
			}
		}, func(i *persistent.SubscriptionInfo) {
			i.ResolveLinkTos, i.ExtraStatistics, i.MaxRetryCount, i.MinCheckPointCount, i.MaxCheckPointCount = true, true, 3, 4, 5
			i.MaxSubscriberCount, i.LiveBufferSize, i.ReadBatchSize, i.BufferSize, i.NamedConsumerStrategy = 6, 7, 8, 9, "Pinned"
			i.MessageTimeoutMilliseconds, i.CheckPointAfterMilliseconds = 1234, 2
		}},
		"least": {func(o *persistent.CreateReq_Options) {
			o.Settings = &persistent.CreateReq_Settings{LiveBufferSize: 1, ReadBatchSize: 1, HistoryBufferSize: 2}
		}, func(i *persistent.SubscriptionInfo) {
			*i = persistent.SubscriptionInfo{GroupName: "g", Status: "Live", StartFrom: "0", LiveBufferSize: 1, ReadBatchSize: 1, BufferSize: 2, NamedConsumerStrategy: "DispatchToSingle"}
		}},
		"milliseconds": {func(o *persistent.CreateReq_Options) {
			o.Settings.CheckpointAfter = &persistent.CreateReq_Settings_CheckpointAfterMs{CheckpointAfterMs: 3}
		}, func(i *persistent.SubscriptionInfo) { i.CheckPointAfterMilliseconds = 3 }},
		"strategy as text": {func(o *persistent.CreateReq_Options) { o.Settings.ConsumerStrategy = "PinnedByCorrelation" },
			func(i *persistent.SubscriptionInfo) { i.NamedConsumerStrategy = "PinnedByCorrelation" }},
	} {
		t.Run(name, func(t *testing.T) {
			source := "settings-" + name
			o := &persistent.CreateReq_Options{GroupName: "g", Settings: plainSettings(), StreamOption: fromStart(source)}
			c.change(o)
			if _, err := g.Create(g.ctx, &persistent.CreateReq{Options: o}); err != nil {
				t.Fatal(err)
			}
			want := proto.Clone(&plain).(*persistent.SubscriptionInfo)
			c.want(want)
			want.EventSource = source
			same(t, "created", g.info(source), want)
			list, err := g.List(g.ctx, listReq(source))
			if err != nil {
				t.Fatal(err)
			}
			same(t, "list", list, &persistent.ListResp{Subscriptions: []*persistent.SubscriptionInfo{want}})

			if err := g.update(source); err != nil {
				t.Fatal(err)
			}
			same(t, "updated plainly", g.info(source), func() proto.Message {
				want := proto.Clone(&plain).(*persistent.SubscriptionInfo)
				want.EventSource = source
				return want
			}())
			raw, err := proto.Marshal(o)
			u := &persistent.UpdateReq_Options{}
			if err == nil {
				err = proto.Unmarshal(raw, u)
			}
			if err == nil {
				_, err = g.Update(g.ctx, &persistent.UpdateReq{Options: u})
			}
			if err != nil {
				t.Fatal(err)
			}
			if name == "strategy as text" {
				want.NamedConsumerStrategy = "RoundRobin" // Updates have the number alone.
			}
			same(t, "updated", g.info(source), want)
			if err := g.remove(source); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestUpdateKeepsPinnedByCorrelation: updates have no number for that strategy.
func TestUpdateKeepsPinnedByCorrelation(t *testing.T) {
	g := newGroups(t)
	g.create("kept", func(s *persistent.CreateReq_Settings) { s.ConsumerStrategy = "PinnedByCorrelation" })
	for _, step := range []struct {
		number persistent.UpdateReq_ConsumerStrategy
		want   string
	}{{0, "PinnedByCorrelation"}, {2, "Pinned"}, {0, "DispatchToSingle"}} {
		s := updateOf(plainSettings())
		s.NamedConsumerStrategy = step.number
		_, err := g.Update(g.ctx, &persistent.UpdateReq{Options: &persistent.UpdateReq_Options{GroupName: "g", Settings: s, StreamIdentifier: named("kept")}})
		if err != nil {
			t.Fatal(err)
		}
		check.Equal(t, g.info("kept").NamedConsumerStrategy, step.want, "strategy")
	}
}

// TestUpdateKeepsDelays: updates have no fields for them.
func TestUpdateKeepsDelays(t *testing.T) {
	n := newFakeNode(t)
	want := subscription.DefaultSettings()
	want.RetryDelay, want.RetryBackoff, want.CheckpointAtLeastEvery = time.Second, subscription.Backoff{Factor: 2}, time.Minute
	k := subscription.Key{Stream: "s", Group: "g"}
	check.Must(t, n.service.Update(t.Context(), k, want, ""))
	check.Must(t, n.update("s"))
	info, err := n.service.Info(t.Context(), k)
	check.Must(t, err)
	is := info.Settings
	check.Equal(t, is.RetryDelay, want.RetryDelay, "delay")
	check.Equal(t, is.RetryBackoff, want.RetryBackoff, "backoff")
	check.Equal(t, is.CheckpointAtLeastEvery, want.CheckpointAtLeastEvery, "checkpoints")
}

// TestUpdateIsACreation: the options of an update are read as those of a creation, so their fields
// must be the same.
func TestUpdateIsACreation(t *testing.T) {
	seen := map[protoreflect.FullName]bool{}
	var compare func(u, c protoreflect.MessageDescriptor)
	compare = func(u, c protoreflect.MessageDescriptor) {
		if seen[u.FullName()] {
			return
		}
		seen[u.FullName()] = true
		for i := range u.Fields().Len() {
			f := u.Fields().Get(i)
			other := c.Fields().ByNumber(f.Number())
			if other == nil || other.Name() != f.Name() || other.Kind() != f.Kind() || other.Cardinality() != f.Cardinality() {
				t.Errorf("%s has no counterpart: %v", f.FullName(), other)
			} else if f.Message() != nil {
				compare(f.Message(), other.Message())
			} else if e := f.Enum(); e != nil {
				for j := range e.Values().Len() {
					v := e.Values().Get(j)
					if w := other.Enum().Values().ByNumber(v.Number()); w == nil || w.Name() != v.Name() {
						t.Errorf("%s has no counterpart", v.FullName())
					}
				}
			}
		}
	}
	compare((&persistent.UpdateReq_Options{}).ProtoReflect().Descriptor(), (&persistent.CreateReq_Options{}).ProtoReflect().Descriptor())
}

// TestPersistentErrors: status and trailers say what cannot be done.
func TestPersistentErrors(t *testing.T) {
	g := newGroups(t)
	g.create("there")
	create := func(change func(o *persistent.CreateReq_Options)) func(...grpc.CallOption) error {
		return func(opts ...grpc.CallOption) error {
			o := &persistent.CreateReq_Options{GroupName: "g", Settings: plainSettings(), StreamOption: fromStart("not there")}
			change(o)
			_, err := g.Create(g.ctx, &persistent.CreateReq{Options: o}, opts...)
			return err
		}
	}
	update := func(stream string, change func(s *persistent.CreateReq_Settings)) func(...grpc.CallOption) error {
		return func(opts ...grpc.CallOption) error {
			s := plainSettings()
			change(s)
			_, err := g.Update(g.ctx, &persistent.UpdateReq{Options: &persistent.UpdateReq_Options{GroupName: "g", Settings: updateOf(s), StreamIdentifier: named(stream)}}, opts...)
			return err
		}
	}
	replay := func(o *persistent.ReplayParkedReq_Options) func(...grpc.CallOption) error {
		return func(opts ...grpc.CallOption) error {
			_, err := g.ReplayParked(g.ctx, &persistent.ReplayParkedReq{Options: o}, opts...)
			return err
		}
	}
	absent := ended{codes.NotFound, "Subscription group g on stream not there does not exist.",
		"exception=persistent-subscription-does-not-exist;group-name=g;stream-name=not there;"}
	failed := func(reason string) ended {
		return ended{codes.Internal, "Subscription group g on stream not there failed: '" + reason + "'",
			"exception=persistent-subscription-failed;group-name=g;reason=" + reason + ";stream-name=not there;"}
	}
	wrong := func(text string) ended { return ended{code: codes.InvalidArgument, text: text} }
	notThere := &persistent.ReplayParkedReq_Options_StreamIdentifier{StreamIdentifier: named("not there")}
	for name, c := range map[string]struct {
		call func(...grpc.CallOption) error
		want ended
	}{
		"exists": {create(func(o *persistent.CreateReq_Options) { o.StreamOption = fromStart("there") }), ended{codes.AlreadyExists,
			"Subscription group g on stream there exists.", "exception=persistent-subscription-exists;group-name=g;stream-name=there;"}},
		"buffer size": {create(func(o *persistent.CreateReq_Options) { o.Settings.HistoryBufferSize = 0 }), failed("Buffer Size (0) must be positive")},
		"no settings": {create(func(o *persistent.CreateReq_Options) { o.Settings = nil }), failed("Buffer Size (0) must be positive")},
		"live buffer": {create(func(o *persistent.CreateReq_Options) { o.Settings.LiveBufferSize = -1 }), failed("Live Buffer Size (-1) must be positive")},
		"batch size":  {create(func(o *persistent.CreateReq_Options) { o.Settings.ReadBatchSize = 0 }), failed("Read Batch Size (0) must be positive")},
		"large batch": {create(func(o *persistent.CreateReq_Options) { o.Settings.ReadBatchSize = 500 }), failed("BufferSize (500) must be larger than ReadBatchSize (500)")},
		"strategy":    {create(func(o *persistent.CreateReq_Options) { o.Settings.ConsumerStrategy = "pinned" }), failed("Consumer strategy pinned does not exist.")},
		"number":      {create(func(o *persistent.CreateReq_Options) { o.Settings.NamedConsumerStrategy = 7 }), failed("Consumer strategy 7 does not exist.")},
		"no start":    {create(func(o *persistent.CreateReq_Options) { o.GetStream().RevisionOption = nil }), wrong("the start position of the group is missing")},
		"large start": {create(func(o *persistent.CreateReq_Options) {
			o.GetStream().RevisionOption = &persistent.CreateReq_StreamOptions_Revision{Revision: 1 << 63}
		}),
			wrong("the revision 9223372036854775808 is too large")},
		"no stream": {create(func(o *persistent.CreateReq_Options) { o.GetStream().StreamIdentifier = nil }), wrong("the name of the stream is missing")},
		"no source": {create(func(o *persistent.CreateReq_Options) { o.StreamOption = nil }), wrong("the name of the stream is missing")},
		"no group":  {create(func(o *persistent.CreateReq_Options) { o.GroupName = "" }), wrong("the name of the group is missing")},
		"long wait": {create(func(o *persistent.CreateReq_Options) {
			o.Settings.MessageTimeout = &persistent.CreateReq_Settings_MessageTimeoutTicks{MessageTimeoutTicks: 1 << 62}
		}),
			wrong("a wait of 4611686018427387904 ticks is too long")},
		"long names": {create(func(o *persistent.CreateReq_Options) { o.GroupName = strings.Repeat("g", 1<<16) }),
			wrong("the names of the stream and the group are too long for the streams of the group")},
		"update of what is not there":       {update("not there", func(*persistent.CreateReq_Settings) {}), absent},
		"wrong update, sizes":               {update("not there", func(s *persistent.CreateReq_Settings) { s.LiveBufferSize = 0 }), failed("Live Buffer Size (0) must be positive")},
		"wrong update of what is not there": {update("not there", func(s *persistent.CreateReq_Settings) { s.NamedConsumerStrategy = 9 }), absent},
		"delete":                            {func(opts ...grpc.CallOption) error { return g.remove("not there", opts...) }, absent},
		"info": {func(opts ...grpc.CallOption) error {
			_, err := g.GetInfo(g.ctx, infoReq("not there"), opts...)
			return err
		}, absent},
		"list": {func(opts ...grpc.CallOption) error {
			_, err := g.List(g.ctx, listReq("not there"), opts...)
			return err
		}, ended{codes.NotFound,
			"Subscription group  on stream not there does not exist.", "exception=persistent-subscription-does-not-exist;group-name=;stream-name=not there;"}},
		"list of nothing": {func(opts ...grpc.CallOption) error {
			_, err := g.List(g.ctx, &persistent.ListReq{}, opts...)
			return err
		}, wrong("the groups to list are missing")},
		"replay": {replay(&persistent.ReplayParkedReq_Options{GroupName: "g", StreamOption: notThere, StopAtOption: &persistent.ReplayParkedReq_Options_NoLimit{}}), absent},
		"replay without an end": {replay(&persistent.ReplayParkedReq_Options{GroupName: "g", StreamOption: notThere}),
			wrong("the number of parked messages to replay is missing")},
		"replay to nowhere": {replay(&persistent.ReplayParkedReq_Options{GroupName: "g", StreamOption: notThere, StopAtOption: &persistent.ReplayParkedReq_Options_StopAt{StopAt: -1}}),
			wrong("stop_at is -1, it must not be negative")},
	} {
		t.Run(name, func(t *testing.T) {
			var trailers metadata.MD
			err := c.call(grpc.Trailer(&trailers))
			check.Equal(t, endOf(err, trailers), c.want, "end")
		})
	}
}

// TestPersistentRights: each method asks for its right before anything else.
func TestPersistentRights(t *testing.T) {
	g := newGroups(t)
	g.newUser("jane")
	denied := ended{codes.PermissionDenied, "Access Denied", "exception=access-denied;"}
	methods := map[string]func(ctx context.Context, opts ...grpc.CallOption) error{
		"Create": func(ctx context.Context, opts ...grpc.CallOption) error {
			_, err := g.Create(ctx, &persistent.CreateReq{}, opts...)
			return err
		},
		"Update": func(ctx context.Context, opts ...grpc.CallOption) error {
			_, err := g.Update(ctx, &persistent.UpdateReq{}, opts...)
			return err
		},
		"Delete": func(ctx context.Context, opts ...grpc.CallOption) error {
			_, err := g.Delete(ctx, &persistent.DeleteReq{}, opts...)
			return err
		},
		"ReplayParked": func(ctx context.Context, opts ...grpc.CallOption) error {
			_, err := g.ReplayParked(ctx, &persistent.ReplayParkedReq{}, opts...)
			return err
		},
		"GetInfo": func(ctx context.Context, opts ...grpc.CallOption) error {
			_, err := g.GetInfo(ctx, &persistent.GetInfoReq{}, opts...)
			return err
		},
		"List": func(ctx context.Context, opts ...grpc.CallOption) error {
			_, err := g.List(ctx, &persistent.ListReq{}, opts...)
			return err
		},
	}
	for name, method := range methods {
		for _, login := range []string{"", "jane", "ops"} {
			var trailers metadata.MD
			err := method(as(t, login), grpc.Trailer(&trailers))
			may := login == "ops" || login == "jane" && (name == "GetInfo" || name == "List")
			if got := endOf(err, trailers); (got == denied) == may || may && got.code != codes.InvalidArgument {
				t.Errorf("%s as %q: %#v", name, login, got)
			}
		}
	}
	var trailers metadata.MD
	_, err := g.RestartSubsystem(as(t, "jane"), &shared.Empty{}, grpc.Trailer(&trailers))
	check.Equal(t, endOf(err, trailers), denied, "restart")

	g.create("read by jane")
	g.create("$kept from jane")
	g.create("with another source")
	moved, err := overHTTP(t, g.address).Do(g.ctx, testkit.Request{
		Method: "POST", Path: "/subscriptions/with%20another%20source/g", Admin: true,
		Header: map[string]string{"Content-Type": "application/json"}, Body: []byte(`{"source":"$kept from jane"}`),
	})
	if err != nil || moved.Status != 200 {
		t.Fatal(moved.Status, err)
	}
	for _, c := range []struct {
		login, stream string
		want          ended
	}{
		{"", "read by jane", denied}, {"jane", "read by jane", ended{}}, {"jane", "$kept from jane", denied}, {"jane", "with another source", denied}, {"jane", "$all", denied}, {"ops", "$kept from jane", denied},
	} {
		r := g.reads(as(t, c.login), c.stream, 1)
		if c.want == (ended{}) {
			r.confirmed(c.stream)
			continue
		}
		check.Equal(t, r.end(), c.want, c.login+" reads "+c.stream)
	}
}

// newUser adds a user without groups.
func (g *groups) newUser(login string) {
	g.t.Helper()
	r, err := overHTTP(g.t, g.address).Do(g.ctx, testkit.Request{
		Method: "POST", Path: "/users/", Admin: true, Header: map[string]string{"Content-Type": "application/json"},
		Body: []byte(`{"loginName":"` + login + `","fullName":"` + login + `","password":"changeit","groups":[]}`),
	})
	if err != nil || r.Status != 201 {
		g.t.Fatalf("%v %v", r, err)
	}
}
