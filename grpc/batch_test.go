package grpcapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	grpcapi "github.com/annalsdb/annals/grpc"
	"github.com/annalsdb/annals/internal/check"
)

// batchCall is a call of BatchAppend that ends with its test.
type batchCall struct {
	t testing.TB
	streams.Streams_BatchAppendClient
}

func openBatch(t testing.TB, c streams.StreamsClient) *batchCall {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	call, err := c.BatchAppend(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &batchCall{t, call}
}

func (b *batchCall) send(requests ...*streams.BatchAppendReq) {
	b.t.Helper()
	for _, r := range requests {
		if err := b.Send(r); err != nil {
			b.t.Fatal(err)
		}
	}
}

// next is the correlation id of the next answer, and what it says.
func (b *batchCall) next() string {
	b.t.Helper()
	answer, err := b.Recv()
	if err != nil {
		b.t.Fatal(err)
	}
	return answer.CorrelationId.GetString_() + " " + batchWord(answer, err)
}

// end closes the client's half and tells how the call ended.
func (b *batchCall) end() string {
	b.t.Helper()
	if err := b.CloseSend(); err != nil {
		b.t.Fatal(err)
	}
	return b.ended()
}

func (b *batchCall) ended() string {
	answer, err := b.Recv()
	if err == io.EOF {
		return "OK"
	}
	if err == nil {
		return answer.String()
	}
	return endOfWrite(err, b.Trailer())
}

// id is a correlation id of a number.
func id(n int) *shared.UUID { return textID(fmt.Sprintf("00000000-0000-0000-0000-%012d", n)) }

// begunUpTo waits until so many writes were begun.
func (s *writeStore) begunUpTo(t testing.TB, n int) {
	t.Helper()
	for s.begunNow() < n {
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-s.more:
		}
	}
}

func unanswered(*event.Write, bool) (event.Written, error, bool) { return event.Written{}, nil, false }

// Answers come as writes are decided, each with its id in the form in which that came.
func TestBatchAnswers(t *testing.T) {
	s := newWriteStore(unanswered)
	b := openBatch(t, writeClient(t, s, grpcapi.Options{}))
	structured := &shared.UUID{Value: &shared.UUID_Structured_{Structured: &shared.UUID_Structured{MostSignificantBits: 1, LeastSignificantBits: -1}}}
	upper := textID(strings.ToUpper(someText))
	b.send(batchOf(structured, batchOptions("a", anyVersion), "1"), batchOf(upper, batchOptions("b", 7), "2", "3"), batchOf(id(3), batchOptions("c", noStream)))
	s.begunUpTo(t, 3)
	var got []*streams.BatchAppendResp
	for _, answer := range []struct {
		write int
		is    event.Written
	}{{1, event.Written{First: 8, Last: 9, Position: 70}}, {2, event.Written{Last: -1, Position: -1}}, {0, event.Written{}}} {
		s.resolve(answer.write, answer.is, nil)
		r, err := b.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r)
	}
	success := func(id *shared.UUID, stream string, s *streams.BatchAppendResp_Success) *streams.BatchAppendResp {
		return &streams.BatchAppendResp{CorrelationId: id, StreamIdentifier: identifier(stream), Result: &streams.BatchAppendResp_Success_{Success: s}}
	}
	want := []*streams.BatchAppendResp{
		success(upper, "b", &streams.BatchAppendResp_Success{
			CurrentRevisionOption: &streams.BatchAppendResp_Success_CurrentRevision{CurrentRevision: 9},
			PositionOption:        &streams.BatchAppendResp_Success_Position{Position: &shared.AllStreamPosition{CommitPosition: 70, PreparePosition: 70}},
		}),
		success(id(3), "c", &streams.BatchAppendResp_Success{
			CurrentRevisionOption: &streams.BatchAppendResp_Success_NoStream{NoStream: &emptypb.Empty{}},
			PositionOption:        &streams.BatchAppendResp_Success_NoPosition{NoPosition: &emptypb.Empty{}},
		}),
		success(structured, "a", &streams.BatchAppendResp_Success{
			CurrentRevisionOption: &streams.BatchAppendResp_Success_CurrentRevision{},
			PositionOption:        &streams.BatchAppendResp_Success_Position{Position: &shared.AllStreamPosition{}},
		}),
	}
	if !slices.EqualFunc(got, want, func(a, b *streams.BatchAppendResp) bool { return proto.Equal(a, b) }) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	check.Equal(t, b.end(), "OK", "end")
	check.Equal(t, strings.Join(s.noted(), "; "), "a 1; b 2 3; c", "writes")
}

// The requests of several writes may come between each other; what comes last decides the order.
func TestBatchParts(t *testing.T) {
	s := newWriteStore(written(4))
	b := openBatch(t, writeClient(t, s, grpcapi.Options{}))
	part := func(n int, stream string, final bool, data ...string) *streams.BatchAppendReq {
		r := batchOf(id(n), nil, data...)
		if r.IsFinal = final; stream != "" {
			r.Options = batchOptions(stream, anyVersion)
		}
		return r
	}
	b.send(
		part(9, "", false, "nobody"), part(9, "", true), // Nothing is known of these.
		part(1, "a", false, "1"), part(2, "b", false), part(1, "x", false, "2", "3"), part(2, "", true, "4"), part(1, "", true),
		part(2, "", true, "late"), part(2, "a", true, "5"),
	)
	for _, want := range []int{2, 1, 2} {
		check.Equal(t, b.next(), id(want).GetString_()+" ok 4", "answer")
	}
	b.send(part(3, "a", false, "never whole"))
	check.Equal(t, b.end(), "OK", "end")
	check.Equal(t, strings.Join(s.noted(), "; "), "b 4; a 1 2 3; a 5", "writes")
}

// A wrong write is answered, and the call continues.
func TestBatchFailures(t *testing.T) {
	s := newWriteStore(nil)
	b := openBatch(t, writeClient(t, s, grpcapi.Options{Node: api.Node{MaxEventBytes: 8, MaxAppendBytes: 12}}))
	wrong := func(expected, current int64) error {
		return &event.WrongExpectedVersion{Stream: "s", Expected: expected, Current: current}
	}
	bad := func(text string) proto.Message { return &shared.BadRequest{Message: text} }
	propose := func(m *streams.BatchAppendReq_ProposedMessage) *streams.BatchAppendReq {
		r := batchOf(nil, batchOptions("s", anyVersion))
		r.ProposedMessages = []*streams.BatchAppendReq_ProposedMessage{m}
		return r
	}
	until := func(o *streams.BatchAppendReq_Options) *streams.BatchAppendReq { return batchOf(nil, o, "x") }
	late, invalid, past := batchOptions("s", 0), batchOptions("s", 0), batchOptions("s", 0)
	late.DeadlineOption = &streams.BatchAppendReq_Options_Deadline{Deadline: &durationpb.Duration{}}
	invalid.DeadlineOption = &streams.BatchAppendReq_Options_Deadline{Deadline: &durationpb.Duration{Nanos: -1, Seconds: 1}}
	past.DeadlineOption = &streams.BatchAppendReq_Options_Deadline_21_10_0{Deadline_21_10_0: timestamppb.New(time.Now().Add(-time.Second))}
	sound := until(batchOptions("s", 0))
	type conflict = shared.WrongExpectedVersion
	for _, test := range []struct {
		request *streams.BatchAppendReq
		err     error // of the store
		code    codes.Code
		detail  proto.Message
	}{
		{sound, wrong(3, 5), codes.AlreadyExists, &conflict{
			ExpectedStreamPositionOption: &shared.WrongExpectedVersion_ExpectedStreamPosition{ExpectedStreamPosition: 3},
			CurrentStreamRevisionOption:  &shared.WrongExpectedVersion_CurrentStreamRevision{CurrentStreamRevision: 5},
		}},
		{sound, wrong(noStream, 0), codes.AlreadyExists, &conflict{
			ExpectedStreamPositionOption: &shared.WrongExpectedVersion_ExpectedNoStream{ExpectedNoStream: &emptypb.Empty{}},
			CurrentStreamRevisionOption:  &shared.WrongExpectedVersion_CurrentStreamRevision{},
		}},
		{sound, wrong(exists, -1), codes.AlreadyExists, &conflict{
			ExpectedStreamPositionOption: &shared.WrongExpectedVersion_ExpectedStreamExists{ExpectedStreamExists: &emptypb.Empty{}},
			CurrentStreamRevisionOption:  &shared.WrongExpectedVersion_CurrentNoStream{CurrentNoStream: &emptypb.Empty{}},
		}},
		{sound, wrong(anyVersion, 1), codes.AlreadyExists, &conflict{
			ExpectedStreamPositionOption: &shared.WrongExpectedVersion_ExpectedAny{ExpectedAny: &emptypb.Empty{}},
			CurrentStreamRevisionOption:  &shared.WrongExpectedVersion_CurrentStreamRevision{CurrentStreamRevision: 1},
		}},
		{sound, event.ErrStreamDeleted, codes.NotFound, &shared.StreamDeleted{StreamIdentifier: identifier("s")}},
		{sound, event.ErrWriteTimeout, codes.DeadlineExceeded, &shared.Timeout{}},
		{sound, event.ErrOutcomeUnknown, codes.DeadlineExceeded, &shared.Timeout{}},
		{sound, event.ErrTooLarge, codes.InvalidArgument, &shared.MaximumAppendSizeExceeded{MaxAppendSize: 12}},
		{sound, event.ErrNotAuthorized, codes.PermissionDenied, &shared.AccessDenied{}},
		{sound, &event.BadRequest{Text: "$tags: x"}, codes.InvalidArgument, bad("$tags: x")},
		{until(batchOptions("secret", 0)), nil, codes.PermissionDenied, &shared.AccessDenied{}},
		{until(batchOptions("$all", 0)), nil, codes.PermissionDenied, &shared.AccessDenied{}},
		{until(late), nil, codes.DeadlineExceeded, &shared.Timeout{}},
		{until(past), nil, codes.DeadlineExceeded, &shared.Timeout{}},
		{until(invalid), nil, codes.InvalidArgument, bad("the deadline is not valid")},
		{until(&streams.BatchAppendReq_Options{}), nil, codes.InvalidArgument, bad("the name of the stream is missing")},
		{until(&streams.BatchAppendReq_Options{StreamIdentifier: identifier("s")}), nil, codes.InvalidArgument, bad("the expected revision is missing")},
		{until(batchOptions("s", -7)), nil, codes.InvalidArgument, bad("the revision 18446744073709551609 is too large")},
		{propose(&streams.BatchAppendReq_ProposedMessage{}), nil, codes.InvalidArgument, bad("Required Metadata Property 'type' is missing")},
		{propose(&streams.BatchAppendReq_ProposedMessage{Metadata: map[string]string{"type": "t"}}), nil, codes.InvalidArgument, bad("Required Metadata Property 'content-type' is missing")},
		{propose(&streams.BatchAppendReq_ProposedMessage{Metadata: mapOf("t", "")}), nil, codes.InvalidArgument, bad("a UUID is missing")},
		{batchOf(nil, batchOptions("s", 0), "123456789"), nil, codes.InvalidArgument, &shared.MaximumAppendSizeExceeded{MaxAppendSize: 8}},
		{batchOf(nil, batchOptions("s", 0), "12345678", "12345"), nil, codes.InvalidArgument, &shared.MaximumAppendSizeExceeded{MaxAppendSize: 12}},
	} {
		s.answerWith(failing(test.err))
		test.request.CorrelationId = newID()
		b.send(test.request)
		got, err := b.Recv()
		if err != nil {
			t.Fatal(err)
		}
		detail, err := anypb.New(test.detail)
		if err != nil {
			t.Fatal(err)
		}
		want := &streams.BatchAppendResp{
			CorrelationId: test.request.CorrelationId, StreamIdentifier: test.request.Options.StreamIdentifier,
			Result: &streams.BatchAppendResp_Error{Error: &rpc.Status{
				Code: int32(test.code), Message: string(test.detail.ProtoReflect().Descriptor().Name()), Details: []*anypb.Any{detail},
			}},
		}
		if !proto.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
		if test.err == nil { // The rest of it is ignored, what is new is not.
			test.request.IsFinal = false
			b.send(test.request, test.request)
			if got, err := b.Recv(); err != nil || !proto.Equal(got, want) {
				t.Errorf("got  %v, %v\nwant %v", got, err, want)
			}
			test.request.IsFinal = true
			b.send(test.request)
		}
	}
	s.answerWith(written(0))
	b.send(batchOf(id(1), batchOptions("s", 0), "x"))
	check.Equal(t, b.next(), id(1).GetString_()+" ok 0", "after all that")
	check.Equal(t, b.end(), "OK", "end")
}

// A write that is not whole in time is answered, and the rest of it is ignored.
func TestBatchPartsInTime(t *testing.T) {
	s := newWriteStore(written(0))
	b := openBatch(t, writeClient(t, s, grpcapi.Options{Node: api.Node{WriteTimeout: 50 * time.Millisecond}}))
	first := batchOf(id(1), batchOptions("s", anyVersion), "x")
	first.IsFinal = false
	b.send(first)
	check.Equal(t, b.next(), id(1).GetString_()+" Timeout", "answer")
	first.IsFinal = true
	b.send(first, batchOf(id(2), batchOptions("s", anyVersion), "y"))
	check.Equal(t, b.next(), id(2).GetString_()+" ok 0", "answer")
	check.Equal(t, b.end(), "OK", "end")
	check.Equal(t, strings.Join(s.noted(), "; "), "s y", "writes")
}

// A write that is not decided in time, by the node's clock, is answered, however many others are in
// flight.
func TestBatchDeadlines(t *testing.T) {
	s := newWriteStore(unanswered)
	now := func() time.Time { return time.Now().Add(time.Hour) }
	b := openBatch(t, writeClient(t, s, grpcapi.Options{Node: api.Node{WriteTimeout: time.Hour, Now: now}}))
	passed := batchOptions("s", anyVersion)
	passed.DeadlineOption = &streams.BatchAppendReq_Options_Deadline_21_10_0{Deadline_21_10_0: timestamppb.New(time.Now().Add(time.Hour / 2))}
	b.send(batchOf(id(3), passed, "z"))
	check.Equal(t, b.next(), id(3).GetString_()+" Timeout", "answer")
	brief := batchOptions("s", anyVersion)
	brief.DeadlineOption = &streams.BatchAppendReq_Options_Deadline{Deadline: durationpb.New(50 * time.Millisecond)}
	b.send(batchOf(id(1), batchOptions("s", anyVersion), "x"), batchOf(id(2), brief, "y"))
	check.Equal(t, b.next(), id(2).GetString_()+" Timeout", "answer")
	s.resolve(0, event.Written{Last: 3}, nil)
	check.Equal(t, b.next(), id(1).GetString_()+" ok 3", "answer")
	check.Equal(t, b.end(), "OK", "end")
}

// Never more than the bounds is in flight, and all writes are done in the end.
func TestBatchBounds(t *testing.T) {
	for _, test := range []struct {
		name          string
		writes, most  int
		bytes, answer int
	}{
		{"writes", 2500, 1000, 1, 700},
		{"bytes", 9, 3, 4 << 20, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newWriteStore(unanswered)
			b := openBatch(t, writeClient(t, s, grpcapi.Options{Node: api.Node{WriteTimeout: time.Hour}}))
			data := strings.Repeat("x", test.bytes)
			sent := make(chan error, 1)
			go func() {
				for i := range test.writes {
					if err := b.Send(batchOf(id(i), batchOptions("s", anyVersion), data)); err != nil {
						sent <- err
						return
					}
				}
				sent <- b.CloseSend()
			}()
			for answered := 0; answered < test.writes; {
				n := min(test.most, test.writes-answered)
				s.begunUpTo(t, answered+n)
				if most := s.begunNow() - answered; most > test.most {
					t.Fatalf("%d are under way", most)
				}
				for range min(test.answer, n) {
					s.resolve(answered, event.Written{Last: int64(answered)}, nil)
					check.Equal(t, b.next(), fmt.Sprintf("%s ok %d", id(answered).GetString_(), answered), "answer")
					answered++
				}
			}
			check.Equal(t, b.ended(), "OK", "end")
			if err := <-sent; err != nil {
				t.Error(err)
			}
		})
	}
}

// Incomplete writes are bounded as well.
func TestBatchTooManyParts(t *testing.T) {
	b := openBatch(t, writeClient(t, newWriteStore(unanswered), grpcapi.Options{}))
	for i := range 1001 {
		part := batchOf(id(i), batchOptions("s", anyVersion), "x")
		part.IsFinal = false
		b.send(part)
	}
	check.Equal(t, b.ended(), "Unavailable: Server Is Too Busy", "end")
}

// An answer that sends a client elsewhere ends the call, with other writes in flight, with more of
// them coming, or at once.
func TestBatchEnds(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{event.ErrNotReady, "Unavailable: Server Is Not Ready"},
		{event.ErrBusy, "Unavailable: Server Is Too Busy"},
		{event.ErrDiskFull, "Unavailable: Server Is Out Of Disk Space"},
		{&event.NotLeader{Address: "http://a:1"}, "NotFound: Leader info available; exception=not-leader; leader-endpoint-host=a; leader-endpoint-port=1"},
		{errors.New("strange"), "Internal: Internal Server Error"},
	} {
		s := newWriteStore(unanswered)
		b := openBatch(t, writeClient(t, s, grpcapi.Options{}))
		b.send(batchOf(id(1), batchOptions("s", anyVersion), "x"), batchOf(id(2), batchOptions("s", anyVersion), "x"))
		s.begunUpTo(t, 2)
		s.resolve(1, event.Written{}, test.err)
		check.Equal(t, b.ended(), test.want, "decided")
		s.refuseWith(test.err)
		b = openBatch(t, writeClient(t, s, grpcapi.Options{}))
		b.send(batchOf(id(1), batchOptions("s", anyVersion), "x"))
		check.Equal(t, b.ended(), test.want, "begun")
	}
	t.Run("a write without an id", func(t *testing.T) {
		b := openBatch(t, writeClient(t, newWriteStore(unanswered), grpcapi.Options{}))
		b.send(batchOf(id(1), batchOptions("s", anyVersion), "x"), batchOf(nil, batchOptions("s", anyVersion), "x"))
		check.Equal(t, b.ended(), "InvalidArgument: a UUID is missing", "end")
	})
	t.Run("with the bound reached", func(t *testing.T) {
		s := newWriteStore(unanswered)
		b := openBatch(t, writeClient(t, s, grpcapi.Options{}))
		for i := range 1001 {
			b.send(batchOf(id(i), batchOptions("s", anyVersion), "x"))
		}
		s.begunUpTo(t, 1000)
		s.resolve(999, event.Written{}, event.ErrBusy)
		check.Equal(t, b.ended(), "Unavailable: Server Is Too Busy", "end")
	})
	t.Run("the client leaves", func(t *testing.T) {
		s := newWriteStore(unanswered)
		ctx, cancel := context.WithCancel(t.Context())
		call, err := writeClient(t, s, grpcapi.Options{}).BatchAppend(ctx)
		if err != nil {
			t.Fatal(err)
		}
		b := &batchCall{t, call}
		b.send(batchOf(id(1), batchOptions("s", anyVersion), "x"))
		s.begunUpTo(t, 1)
		cancel()
		check.Equal(t, status.Code(call.RecvMsg(new(streams.BatchAppendResp))), codes.Canceled, "end")
		s.gaveUpTo(t, 1)
	})
}

// On a follower writes to one stream go to the leader one after the other, and others at the same
// time.
func TestBatchForwards(t *testing.T) {
	cluster := &writeCluster{role: "follower", leader: "http://a:1"}
	release := map[string]chan struct{}{"a": make(chan struct{}, 9), "b": make(chan struct{}, 9)}
	s := newWriteStore(func(w *event.Write, anywhere bool) (event.Written, error, bool) {
		if anywhere {
			<-release[w.Stream]
		}
		return event.Written{Last: 1}, nil, true
	})
	b := openBatch(t, writeClient(t, s, grpcapi.Options{Node: api.Node{Cluster: cluster}}))
	for i, stream := range []string{"a", "a", "b", "a"} {
		b.send(batchOf(id(i), batchOptions(stream, anyVersion), fmt.Sprint(i)))
	}
	for _, step := range []struct {
		stream string
		answer int
	}{{"b", 2}, {"a", 0}, {"a", 1}, {"a", 3}} {
		release[step.stream] <- struct{}{}
		check.Equal(t, b.next(), id(step.answer).GetString_()+" ok 1", "answer")
	}
	got := s.noted()
	if slices.Sort(got[:2]); !slices.Equal(got, []string{"anywhere a 0", "anywhere b 2", "anywhere a 1", "anywhere a 3"}) {
		t.Errorf("%q", got)
	}
	cluster.set("leader", "")
	b.send(batchOf(id(4), batchOptions("a", anyVersion), "4"))
	check.Equal(t, b.next(), id(4).GetString_()+" ok 1", "answer")
	check.Equal(t, s.noted()[4], "a 4", "the last write")
	cluster.set("readonlyreplica", "http://a:1")
	s.answerWith(failing(&event.NotLeader{Address: "http://a:1"}))
	b.send(batchOf(id(5), batchOptions("a", anyVersion), "5"))
	check.Equal(t, b.ended(), "NotFound: Leader info available; exception=not-leader; leader-endpoint-host=a; leader-endpoint-port=1", "end")
}

// A node that stops answers the writes in flight and ends the call. The client would not end it.
func TestBatchDrained(t *testing.T) {
	s := newWriteStore(unanswered)
	c, server := writeServer(t, s, grpcapi.Options{Node: api.Node{WriteTimeout: time.Hour}})
	idle, busy := openBatch(t, c), openBatch(t, c)
	busy.send(batchOf(id(1), batchOptions("s", anyVersion), "x"))
	s.begunUpTo(t, 1)
	server.Drain()
	check.Equal(t, idle.ended(), "Unavailable: Server Is Not Ready", "idle")
	_ = busy.Send(batchOf(id(2), batchOptions("s", anyVersion), "y")) // It may be gone.
	s.resolve(0, event.Written{Last: 3}, nil)
	check.Equal(t, busy.next(), id(1).GetString_()+" ok 3", "answer")
	check.Equal(t, busy.ended(), "Unavailable: Server Is Not Ready", "busy")
}

// A client that takes no answers does not hold a node up that stops.
func TestBatchDrainedWithoutReader(t *testing.T) {
	s := newWriteStore(written(0))
	c, server := writeServer(t, s, grpcapi.Options{})
	b := openBatch(t, c)
	const writes = 800 // fit into the window, which is not enlarged while answers are stuck
	for i := range writes {
		b.send(batchOf(id(i), batchOptions(strings.Repeat("s", 1000), anyVersion), "x"))
	}
	s.begunUpTo(t, writes)
	server.Drain()
	allEnded(t, server)
}

// The end waits for methods whose requests are gone.
func TestCloseWaitsForMethods(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	s := newWriteStore(func(*event.Write, bool) (event.Written, error, bool) {
		close(asked)
		<-answer
		return event.Written{}, nil, true
	})
	c, server := writeServer(t, s, grpcapi.Options{})
	ctx, leave := context.WithCancel(t.Context())
	go func() { _, _ = c.Delete(ctx, deletion("s", anyVersion)) }()
	<-asked
	leave()
	closed := make(chan struct{})
	go func() {
		server.Close()
		close(closed)
	}()
	select {
	case <-closed:
		t.Error("a method still runs")
	case <-time.After(50 * time.Millisecond):
	}
	close(answer)
	<-closed
}
