package grpcapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/persistent"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// groupReader is one call of Read.
type groupReader struct {
	persistent.PersistentSubscriptions_ReadClient
	t      testing.TB
	cancel context.CancelFunc
}

// opens begins a call of Read.
func (g *groups) opens(ctx context.Context) *groupReader {
	g.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	stream, err := g.Read(ctx)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(cancel)
	return &groupReader{stream, g.t, cancel}
}

// reads begins to consume the group g of a stream. Ids are texts.
func (g *groups) reads(ctx context.Context, stream string, bufferSize int32) *groupReader {
	g.t.Helper()
	r := g.opens(ctx)
	r.sends(&persistent.ReadReq{Content: &persistent.ReadReq_Options_{Options: &persistent.ReadReq_Options{
		GroupName: "g", BufferSize: bufferSize, StreamOption: &persistent.ReadReq_Options_StreamIdentifier{StreamIdentifier: named(stream)},
		UuidOption: &persistent.ReadReq_Options_UUIDOption{Content: &persistent.ReadReq_Options_UUIDOption_String_{String_: &shared.Empty{}}},
	}}})
	return r
}

// consumes is reads, up to the confirmation.
func (g *groups) consumes(stream string, bufferSize int32) *groupReader {
	g.t.Helper()
	r := g.reads(g.ctx, stream, bufferSize)
	r.confirmed(stream)
	return r
}

func (r *groupReader) sends(m *persistent.ReadReq) {
	r.t.Helper()
	if err := r.Send(m); err != nil {
		r.t.Fatal(err)
	}
}

func (r *groupReader) receives() *persistent.ReadResp {
	r.t.Helper()
	m, err := r.Recv()
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

func (r *groupReader) confirmed(stream string) {
	r.t.Helper()
	same(r.t, "first message", r.receives(), &persistent.ReadResp{Content: &persistent.ReadResp_SubscriptionConfirmation_{
		SubscriptionConfirmation: &persistent.ReadResp_SubscriptionConfirmation{SubscriptionId: stream + "::g"},
	}})
}

// takes receives messages and compares the numbers in their data, and retries, "0/0 1/0". It
// returns the ids by which they are answered.
func (r *groupReader) takes(want string) (ids []string) {
	r.t.Helper()
	var got []string
	for range strings.Fields(want) {
		e := r.receives().GetEvent()
		id := e.GetLink().GetId()
		if id == nil {
			id = e.GetEvent().GetId()
		}
		ids = append(ids, id.GetString_())
		got = append(got, fmt.Sprintf("%s/%d", bytes.Trim(e.GetEvent().GetData(), `{"n:}`), e.GetRetryCount()))
	}
	check.Equal(r.t, strings.Join(got, " "), want, "messages")
	return ids
}

func uuids(ids []string) (all []*shared.UUID) {
	for _, id := range ids {
		all = append(all, &shared.UUID{Value: &shared.UUID_String_{String_: id}})
	}
	return all
}

func ackOf(ids ...string) *persistent.ReadReq {
	return &persistent.ReadReq{Content: &persistent.ReadReq_Ack_{Ack: &persistent.ReadReq_Ack{Id: []byte("ignored"), Ids: uuids(ids)}}}
}

func nackOf(action persistent.ReadReq_Nack_Action, reason string, ids ...string) *persistent.ReadReq {
	return &persistent.ReadReq{Content: &persistent.ReadReq_Nack_{Nack: &persistent.ReadReq_Nack{Action: action, Reason: reason, Ids: uuids(ids)}}}
}

// end receives until the call ends.
func (r *groupReader) end() ended {
	for {
		if _, err := r.Recv(); err != nil {
			return endOf(err, r.Trailer())
		}
	}
}

// appends appends events with the data first, first+1 and so on.
func (g *groups) appends(stream string, first, count int) {
	g.t.Helper()
	events := make([]testkit.Event, count)
	for i := range events {
		events[i] = testkit.Event{Type: "T", Data: fmt.Appendf(nil, `{"n":%d}`, first+i)}
	}
	g.append(stream, events...)
}

func (g *groups) append(stream string, events ...testkit.Event) {
	g.t.Helper()
	for i := range events {
		if events[i].ID == "" {
			events[i].ID = uuid.NewString()
		}
	}
	if r, err := overHTTP(g.t, g.address).Append(g.ctx, stream, -2, false, events...); err != nil || r.Status != 201 {
		g.t.Fatalf("append to %s: %d %s, %v", stream, r.Status, r.Body, err)
	}
}

// until waits until the group g of a stream is as a test wants it.
func (g *groups) until(stream string, want func(i *persistent.SubscriptionInfo) bool) {
	g.t.Helper()
	testkit.Eventually(g.t, 10*time.Second, func() error {
		if i := g.info(stream); !want(i) {
			return fmt.Errorf("the group is %v", i)
		}
		return nil
	})
}

// TestPersistentMessages: messages are whole: events, links and what they point at, and links that
// point at nothing.
func TestPersistentMessages(t *testing.T) {
	g := newGroups(t)
	id := "01020304-0506-0708-f9fa-fbfcfdfeff00"
	g.append("target", testkit.Event{ID: id, Type: "Happened", Data: []byte(`{"a":1}`), Metadata: []byte(`{"b":2}`)})
	links := []string{"11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"}
	for i, data := range []string{"0@target", "7@target"} {
		r, err := overHTTP(t, g.address).Append(g.ctx, "links", -2, true, testkit.Event{ID: links[i], Type: "$>", Data: []byte(data), Binary: true})
		if err != nil || r.Status != 201 {
			t.Fatalf("%d %s, %v", r.Status, r.Body, err)
		}
	}
	for _, source := range []string{"target", "links"} {
		g.create(source, func(s *persistent.CreateReq_Settings) { s.ResolveLinks = true })
	}
	text := func(id string) *shared.UUID { return &shared.UUID{Value: &shared.UUID_String_{String_: id}} }
	link := func(i int, data string) *persistent.ReadResp_ReadEvent_RecordedEvent {
		return &persistent.ReadResp_ReadEvent_RecordedEvent{
			Id: text(links[i]), StreamIdentifier: named("links"), StreamRevision: uint64(i), Data: []byte(data),
			Metadata: map[string]string{"type": "$>", "content-type": "application/octet-stream"},
		}
	}
	happened := &persistent.ReadResp_ReadEvent_RecordedEvent{
		Id: text(id), StreamIdentifier: named("target"), Data: []byte(`{"a":1}`), CustomMetadata: []byte(`{"b":2}`),
		Metadata: map[string]string{"type": "Happened", "content-type": "application/json"},
	}
	message := func(event, link *persistent.ReadResp_ReadEvent_RecordedEvent) *persistent.ReadResp_ReadEvent {
		return &persistent.ReadResp_ReadEvent{Event: event, Link: link, Count: &persistent.ReadResp_ReadEvent_RetryCount{}}
	}
	// check compares a message after it looked at what is different in each run: positions and
	// times.
	check := func(what string, got, want *persistent.ReadResp_ReadEvent) {
		t.Helper()
		last := got.GetEvent()
		for _, r := range []*persistent.ReadResp_ReadEvent_RecordedEvent{got.GetEvent(), got.GetLink()} {
			if r == nil {
				continue
			}
			last = r
			var created int64
			if _, err := fmt.Sscan(r.Metadata["created"], &created); err != nil || time.Since(time.Unix(0, created*100)).Abs() > time.Hour {
				t.Errorf("%s: created %q, %v", what, r.Metadata["created"], err)
			}
			delete(r.Metadata, "created")
		}
		check.Equal(t, got.GetCommitPosition(), last.GetCommitPosition(), what+": position")
		check.Equal(t, last.GetPreparePosition(), last.GetCommitPosition(), what+": prepare position")
		got.Position = nil
		for _, r := range []*persistent.ReadResp_ReadEvent_RecordedEvent{got.Event, got.Link} {
			if r != nil {
				r.PreparePosition, r.CommitPosition = 0, 0
			}
		}
		same(t, what, got, want)
	}
	check("event", g.consumes("target", 1).receives().GetEvent(), message(happened, nil))
	r := g.consumes("links", 10)
	check("resolved link", r.receives().GetEvent(), message(happened, link(0, "0@target")))
	check("dead link", r.receives().GetEvent(), message(nil, link(1, "7@target")))

	g.create("structured")
	g.append("structured", testkit.Event{ID: id, Type: "T"})
	r = g.opens(g.ctx)
	r.sends(&persistent.ReadReq{Content: &persistent.ReadReq_Options_{Options: &persistent.ReadReq_Options{
		GroupName: "g", StreamOption: &persistent.ReadReq_Options_StreamIdentifier{StreamIdentifier: named("structured")},
	}}})
	r.confirmed("structured")
	got := r.receives().GetEvent().GetEvent().GetId()
	same(t, "structured id", got, &shared.UUID{Value: &shared.UUID_Structured_{Structured: &shared.UUID_Structured{
		MostSignificantBits: 0x0102030405060708, LeastSignificantBits: -0x0605040302010100,
	}}})
	r.sends(&persistent.ReadReq{Content: &persistent.ReadReq_Ack_{Ack: &persistent.ReadReq_Ack{Ids: []*shared.UUID{got}}}})
	g.until("structured", func(i *persistent.SubscriptionInfo) bool { return i.OutstandingMessagesCount == 0 })
}

// TestCompetingConsumers: each message goes to one of them, none gets more than it takes, and what
// one has not answered others get.
func TestCompetingConsumers(t *testing.T) {
	g := newGroups(t)
	g.create("competing", func(s *persistent.CreateReq_Settings) { s.ExtraStatistics = true })
	a, b := g.consumes("competing", 2), g.consumes("competing", 0)
	g.appends("competing", 0, 5)
	ofA, ofB := a.takes("0/0 2/0"), b.takes("1/0")
	g.until("competing", func(i *persistent.SubscriptionInfo) bool { return i.ReadBufferCount == 2 })
	i := g.info("competing")
	for j, c := range i.Connections {
		if !strings.HasPrefix(c.From, "127.0.0.1:") || c.AverageItemsPerSecond < 0 || len(c.ObservedMeasurements) != 0 {
			t.Errorf("connection %d: %v", j, c)
		}
		c.From, c.AverageItemsPerSecond, c.CountSinceLastMeasurement = "", 0, 0
	}
	i.AveragePerSecond, i.CountSinceLastMeasurement = 0, 0
	same(t, "info", i, &persistent.SubscriptionInfo{
		EventSource: "competing", GroupName: "g", Status: "Live", TotalItems: 3, LastKnownEventPosition: "4", StartFrom: "0", MessageTimeoutMilliseconds: 30_000,
		ExtraStatistics: true, MaxRetryCount: 2, LiveBufferSize: 500, BufferSize: 500, ReadBatchSize: 20, MinCheckPointCount: 1, MaxCheckPointCount: 1,
		ReadBufferCount: 2, TotalInFlightMessages: 3, OutstandingMessagesCount: 3, NamedConsumerStrategy: "RoundRobin",
		Connections: []*persistent.SubscriptionInfo_ConnectionInfo{
			{Username: "admin", TotalItems: 2, InFlightMessages: 2, ConnectionName: "<unknown>"},
			{Username: "admin", TotalItems: 1, InFlightMessages: 1, ConnectionName: "<unknown>"},
		},
	})
	b.sends(ackOf(ofB...))
	ofB = b.takes("3/0")
	// One is unknown.
	a.sends(ackOf(append([]string{"00000000-0000-0000-0000-000000000001"}, ofA...)...))
	ofA = a.takes("4/0")
	g.until("competing", func(i *persistent.SubscriptionInfo) bool { return i.LastCheckpointedEventPosition == "2" })
	for _, c := range g.info("competing").Connections {
		if m := c.ObservedMeasurements; len(m) == 0 || m[0].Key != "Mean" || m[0].Value < 0 {
			t.Errorf("measurements of %s: %v", c.From, m)
		}
	}
	b.cancel()
	a.takes("3/1")
	a.sends(ackOf(append(ofA, ofB...)...)) // Any consumer may answer.
	g.until("competing", func(i *persistent.SubscriptionInfo) bool {
		return i.LastCheckpointedEventPosition == "4" && i.OutstandingMessagesCount == 0 && len(i.Connections) == 1
	})
	if err := a.CloseSend(); err != nil {
		t.Fatal(err)
	}
	g.appends("competing", 5, 2)
	a.takes("5/0 6/0")
}

// TestNacks: what becomes of messages that could not be processed, and of those that are parked.
func TestNacks(t *testing.T) {
	g := newGroups(t)
	g.create("nacked")
	r := g.consumes("nacked", 10)
	g.appends("nacked", 0, 5)
	ids := r.takes("0/0 1/0 2/0 3/0 4/0")
	r.sends(nackOf(persistent.ReadReq_Nack_Skip, "", ids[0]))
	r.sends(nackOf(persistent.ReadReq_Nack_Stop, "", ids[1]))
	r.sends(nackOf(persistent.ReadReq_Nack_Retry, "", ids[2]))
	r.takes("2/1")
	r.sends(nackOf(persistent.ReadReq_Nack_Unknown, "", ids[2]))
	r.takes("2/2")
	r.sends(nackOf(persistent.ReadReq_Nack_Retry, "", ids[2])) // At the limit.
	r.sends(nackOf(persistent.ReadReq_Nack_Park, "no more", ids[3], ids[4]))
	g.until("nacked", func(i *persistent.SubscriptionInfo) bool {
		return i.ParkedMessageCount == 3 && i.OutstandingMessagesCount == 0
	})
	const parked = "$persistentsubscription-nacked::g-parked"
	g.create(parked)
	ofParked := g.consumes(parked, 10)
	for _, want := range []string{"Reached retry count of 2", "Client explicitly NAK'ed message.\nno more", "Client explicitly NAK'ed message.\nno more"} {
		var metadata struct{ Reason string }
		if err := json.Unmarshal(ofParked.receives().GetEvent().GetEvent().GetCustomMetadata(), &metadata); err != nil {
			t.Fatal(err)
		}
		check.Equal(t, metadata.Reason, want, "reason")
	}

	replay := func(o *persistent.ReplayParkedReq_Options) {
		t.Helper()
		o.GroupName, o.StreamOption = "g", &persistent.ReplayParkedReq_Options_StreamIdentifier{StreamIdentifier: named("nacked")}
		if _, err := g.ReplayParked(g.ctx, &persistent.ReplayParkedReq{Options: o}); err != nil {
			t.Fatal(err)
		}
	}
	replay(&persistent.ReplayParkedReq_Options{StopAtOption: &persistent.ReplayParkedReq_Options_StopAt{StopAt: 2}})
	r.sends(ackOf(r.takes("2/0 3/0")...))
	replay(&persistent.ReplayParkedReq_Options{StopAtOption: &persistent.ReplayParkedReq_Options_NoLimit{NoLimit: &shared.Empty{}}})
	r.sends(ackOf(r.takes("4/0")...))
	g.until("nacked", func(i *persistent.SubscriptionInfo) bool {
		return i.ParkedMessageCount == 0 && i.OutstandingMessagesCount == 0 && i.RetryBufferCount == 0
	})
}

// TestPersistentPause: a call stays open while its group is paused, takes answers, and gets the
// rest afterwards.
func TestPersistentPause(t *testing.T) {
	g := newGroups(t)
	g.appends("paused", 0, 3)
	g.create("paused")
	c := overHTTP(t, g.address)
	does := func(what string) {
		t.Helper()
		if r, err := c.Do(g.ctx, testkit.Request{Method: "POST", Path: "/subscriptions/paused/g/" + what, Admin: true}); err != nil || r.Status != 200 {
			t.Fatalf("%s: %d %s, %v", what, r.Status, r.Body, err)
		}
	}
	r := g.consumes("paused", 2)
	ids := r.takes("0/0 1/0")
	does("pause")
	r.sends(ackOf(ids[0]))
	r.sends(nackOf(persistent.ReadReq_Nack_Retry, "", ids[1]))
	testkit.Eventually(t, 10*time.Second, func() error {
		a, err := g.GetInfo(g.ctx, infoReq("paused"))
		if i := a.GetSubscriptionInfo(); i.GetStatus() != "Paused" || i.OutstandingMessagesCount != 0 || i.TotalItems != 2 || i.RetryBufferCount != 1 || len(i.Connections) != 1 {
			return fmt.Errorf("%v, %w", i, err)
		}
		return err
	})
	does("resume")
	r.takes("1/1 2/0")
}

// TestPersistentEnds: how calls end that end by the node.
func TestPersistentEnds(t *testing.T) {
	g := newGroups(t)
	of := func(stream, exception string) string {
		return "exception=" + exception + ";group-name=g;stream-name=" + stream + ";"
	}
	t.Run("deleted", func(t *testing.T) {
		g.create("ends deleted")
		r := g.consumes("ends deleted", 1)
		if err := g.remove("ends deleted"); err != nil {
			t.Fatal(err)
		}
		check.Equal(t, r.end(), ended{codes.NotFound, "Subscription group g on stream ends deleted does not exist.", of("ends deleted", "persistent-subscription-does-not-exist")}, "end")
		check.Equal(t, g.reads(g.ctx, "ends deleted", 1).end(), ended{codes.NotFound, "Subscription group g on stream ends deleted does not exist.", of("ends deleted", "persistent-subscription-does-not-exist")}, "next")
	})
	dropped := ended{codes.Canceled, "Subscription group g on stream ends dropped was dropped.", of("ends dropped", "persistent-subscription-dropped")}
	t.Run("updated", func(t *testing.T) {
		g.create("ends dropped")
		r := g.consumes("ends dropped", 1)
		if err := g.update("ends dropped"); err != nil {
			t.Fatal(err)
		}
		check.Equal(t, r.end(), dropped, "end")
	})
	t.Run("restarted", func(t *testing.T) {
		r := g.consumes("ends dropped", 1)
		if _, err := g.RestartSubsystem(g.ctx, &shared.Empty{}); err != nil {
			t.Fatal(err)
		}
		check.Equal(t, r.end(), dropped, "end")
		g.info("ends dropped") // Loaded again.
	})
	t.Run("too many", func(t *testing.T) {
		g.create("full", func(s *persistent.CreateReq_Settings) { s.MaxSubscriberCount = 1 })
		first := g.consumes("full", 1)
		check.Equal(t, g.reads(g.ctx, "full", 1).end(), ended{codes.FailedPrecondition,
			"Maximum subscriptions reached for subscription group g on stream full.", of("full", "maximum-subscribers-reached")}, "end")
		first.cancel()
		g.until("full", func(i *persistent.SubscriptionInfo) bool { return len(i.Connections) == 0 })
		g.consumes("full", 1)
	})
	t.Run("right withdrawn", func(t *testing.T) {
		g := g.on(t)
		g.newUser("joe")
		g.create("withdrawn")
		r := g.reads(as(t, "joe"), "withdrawn", 5)
		r.confirmed("withdrawn")
		g.appends("withdrawn", 0, 1)
		r.takes("0/0")
		g.append("$$withdrawn", testkit.Event{Type: "$metadata", Data: []byte(`{"$acl":{"$r":"$admins"}}`)})
		g.appends("withdrawn", 1, 1)
		check.Equal(t, r.end(), ended{codes.PermissionDenied, "Access Denied", "exception=access-denied;"}, "end")
	})
	t.Run("by the client", func(t *testing.T) {
		g.create("canceled")
		r := g.consumes("canceled", 1)
		r.cancel()
		if _, err := r.Recv(); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		g.until("canceled", func(i *persistent.SubscriptionInfo) bool { return len(i.Connections) == 0 })
	})
}

// TestOddReads: a wrong message ends the call, and is the caller's fault.
func TestOddReads(t *testing.T) {
	g := newGroups(t)
	g.create("odd")
	options := func(change func(o *persistent.ReadReq_Options)) *persistent.ReadReq {
		o := &persistent.ReadReq_Options{GroupName: "g", StreamOption: &persistent.ReadReq_Options_StreamIdentifier{StreamIdentifier: named("odd")}}
		change(o)
		return &persistent.ReadReq{Content: &persistent.ReadReq_Options_{Options: o}}
	}
	right := options(func(*persistent.ReadReq_Options) {})
	for name, c := range map[string]struct {
		messages []*persistent.ReadReq
		text     string
	}{
		"nothing":       {nil, "the options are missing"},
		"empty message": {[]*persistent.ReadReq{{}}, "the first message must have the options"},
		"ack first":     {[]*persistent.ReadReq{ackOf()}, "the first message must have the options"},
		"no group":      {[]*persistent.ReadReq{options(func(o *persistent.ReadReq_Options) { o.GroupName = "" })}, "the name of the group is missing"},
		"no stream":     {[]*persistent.ReadReq{options(func(o *persistent.ReadReq_Options) { o.StreamOption = nil })}, "the name of the stream is missing"},
		"no text": {[]*persistent.ReadReq{options(func(o *persistent.ReadReq_Options) {
			o.StreamOption = &persistent.ReadReq_Options_StreamIdentifier{StreamIdentifier: named("\xff")}
		})}, "the name of the stream is not UTF-8"},
		"options twice": {[]*persistent.ReadReq{right, right}, "a message after the first must be an ack or a nack"},
		"empty second":  {[]*persistent.ReadReq{right, {}}, "a message after the first must be an ack or a nack"},
		"no id":         {[]*persistent.ReadReq{right, {Content: &persistent.ReadReq_Ack_{Ack: &persistent.ReadReq_Ack{Ids: []*shared.UUID{{}}}}}}, "a UUID is missing"},
		"no UUID":       {[]*persistent.ReadReq{right, nackOf(persistent.ReadReq_Nack_Park, "", "17")}, `"17" is not a UUID`},
	} {
		t.Run(name, func(t *testing.T) {
			r := g.opens(g.ctx)
			for _, m := range c.messages {
				if r.Send(proto.Clone(m).(*persistent.ReadReq)) != nil {
					break // It has ended.
				}
			}
			if err := r.CloseSend(); err != nil {
				t.Fatal(err)
			}
			check.Equal(t, r.end(), ended{code: codes.InvalidArgument, text: c.text}, "end")
		})
	}
}
