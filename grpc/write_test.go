package grpcapi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	grpcapi "github.com/annalsdb/annals/grpc"
	"github.com/annalsdb/annals/internal/check"
)

// proposal is an event of one call of Append, of all its parts.
func proposal(id *shared.UUID, properties map[string]string, metadata, data string) *streams.AppendReq {
	return &streams.AppendReq{Content: &streams.AppendReq_ProposedMessage_{ProposedMessage: &streams.AppendReq_ProposedMessage{
		Id: id, Metadata: properties, CustomMetadata: []byte(metadata), Data: []byte(data),
	}}}
}

const (
	someText    = "0f9fad5b-d9cb-469f-a165-70867728950e"
	tooLargeEnd = "InvalidArgument: Maximum Append Size of 16777216 Exceeded.; exception=maximum-append-size-exceeded; maximum-append-size=16777216"
	deniedEnd   = "PermissionDenied: Access Denied; exception=access-denied"
)

// What is wrong with an append is found in the order of the contract, and nothing is written.
func TestAppendChecks(t *testing.T) {
	good := message(textID(someText), "t", nil)
	options := func(stream string, revision uint64) *streams.AppendReq {
		return &streams.AppendReq{Content: &streams.AppendReq_Options_{Options: &streams.AppendReq_Options{
			StreamIdentifier: identifier(stream), ExpectedStreamRevision: &streams.AppendReq_Options_Revision{Revision: revision},
		}}}
	}
	unset := &streams.AppendReq{Content: &streams.AppendReq_Options_{Options: &streams.AppendReq_Options{StreamIdentifier: identifier("s")}}}
	missing := func(name string) string {
		return "InvalidArgument: Required Metadata Property '" + name + "' is missing; exception=missing-required-metadata-property; required-metadata-properties=type,content-type"
	}
	large := strings.Repeat("x", event.MaxEventBytes)
	ok := appendOptions("s", anyVersion)
	many := []*streams.AppendReq{ok}
	for range 4 {
		many = append(many, proposal(newID(), mapOf("t", ""), "", large))
	}
	c := writeClient(t, &writeStore{answer: failing(fmt.Errorf("it was written"))}, grpcapi.Options{})
	for _, test := range []struct {
		name     string
		messages []*streams.AppendReq
		want     string
	}{
		{"nothing", nil, "InvalidArgument: the first message has no options"},
		{"an event first", []*streams.AppendReq{good}, "InvalidArgument: the first message has no options"},
		{"an empty message first", []*streams.AppendReq{{}}, "InvalidArgument: the first message has no options"},
		{"no stream", []*streams.AppendReq{appendOptions("", anyVersion)}, "InvalidArgument: the name of the stream is missing"},
		{"no UTF-8", []*streams.AppendReq{appendOptions("\xff", anyVersion)}, "InvalidArgument: the name of the stream is not UTF-8"},
		{"no version", []*streams.AppendReq{unset}, "InvalidArgument: the expected revision is missing"},
		{"large version", []*streams.AppendReq{options("s", 1<<63)}, "InvalidArgument: the revision 9223372036854775808 is too large"},
		{"options before rights", []*streams.AppendReq{options("secret", 1<<63)}, "InvalidArgument: the revision 9223372036854775808 is too large"},
		{"rights before events", []*streams.AppendReq{appendOptions("secret", 0), {}}, deniedEnd},
		{"rights to the log", []*streams.AppendReq{appendOptions("$all", anyVersion), good}, deniedEnd},
		{"options twice", []*streams.AppendReq{ok, ok}, "InvalidArgument: a message after the first is not an event"},
		{"an empty message", []*streams.AppendReq{ok, good, {}}, "InvalidArgument: a message after the first is not an event"},
		{"no properties", []*streams.AppendReq{ok, proposal(nil, nil, "", "")}, missing("type")},
		{"no content type", []*streams.AppendReq{ok, proposal(nil, map[string]string{"type": ""}, "", "")}, missing("content-type")},
		{"no type", []*streams.AppendReq{ok, proposal(nil, mapOf("", ""), "", "")}, "InvalidArgument: the type of an event is empty"},
		{"long type", []*streams.AppendReq{ok, proposal(nil, mapOf(large[:event.MaxNameBytes+1], ""), "", "")},
			"InvalidArgument: the type of an event has 61441 bytes, at most 61440 are possible"},
		{"no id", []*streams.AppendReq{ok, proposal(nil, mapOf("t", ""), "", large+"x")}, "InvalidArgument: a UUID is missing"},
		{"bad id", []*streams.AppendReq{ok, proposal(textID("x"), mapOf("t", ""), "", "")}, `InvalidArgument: "x" is not a UUID`},
		{"zero id", []*streams.AppendReq{ok, proposal(&shared.UUID{Value: &shared.UUID_Structured_{}}, mapOf("t", ""), "", "")}, "InvalidArgument: the id of an event is zero"},
		{"large event", []*streams.AppendReq{ok, proposal(textID(someText), mapOf("t", ""), "x", large)},
			"InvalidArgument: Event with Id: " + someText + ", Size: 4194305, exceeds Maximum Append Event Size of 4194304.; event-id=" + someText +
				"; exception=maximum-append-event-size-exceeded; maximum-append-event-size=4194304; proposed-append-event-size=4194305"},
		{"large append", many, tooLargeEnd},
	} {
		if _, end, _ := appendTo(t.Context(), c, test.messages...); end != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.name, end, test.want)
		}
	}
	t.Run("by the operator's bound", func(t *testing.T) {
		c := writeClient(t, &writeStore{answer: written(0)}, grpcapi.Options{Node: api.Node{MaxAppendBytes: 10}})
		five := proposal(newID(), mapOf("t", ""), "12", "345")
		if _, end, _ := appendTo(t.Context(), c, ok, five, five); end != "OK" {
			t.Error(end)
		}
		want := "InvalidArgument: Maximum Append Size of 10 Exceeded.; exception=maximum-append-size-exceeded; maximum-append-size=10"
		if _, end, _ := appendTo(t.Context(), c, ok, five, five, proposal(newID(), mapOf("t", ""), "", "6")); end != want {
			t.Error(end)
		}
	})
}

// What the store gets is what was sent, and what it says is answered.
func TestAppended(t *testing.T) {
	var got event.Write
	s := &writeStore{}
	c := writeClient(t, s, grpcapi.Options{})
	s.answer = func(w *event.Write, _ bool) (event.Written, error, bool) {
		got = event.Write{Kind: w.Kind, Stream: w.Stream, ExpectedVersion: w.ExpectedVersion, Events: slices.Clone(w.Events)}
		return event.Written{First: 7, Last: 8, Position: 900}, nil, true
	}
	structured := &shared.UUID{Value: &shared.UUID_Structured_{Structured: &shared.UUID_Structured{MostSignificantBits: -2, LeastSignificantBits: 1}}}
	properties := mapOf("u", "application/json")
	properties["created"] = "no number"
	answer, end, _ := appendTo(t.Context(), c, appendOptions("ströme", 6),
		proposal(structured, properties, "m", "no JSON"), proposal(textID(strings.ToUpper(someText)), mapOf("v", "Application/json"), "", "{}"))
	id, err := event.ParseID(someText)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint(event.Write{Stream: "ströme", ExpectedVersion: 6, Events: []event.Proposed{
		{ID: event.ID{255, 255, 255, 255, 255, 255, 255, 254, 15: 1}, Type: "u", Flags: event.FlagJSON, Metadata: []byte("m"), Data: []byte("no JSON")},
		{ID: id, Type: "v", Data: []byte("{}")},
	}})
	if fmt.Sprint(got) != want {
		t.Errorf("%s: written\n%v, want\n%v", end, got, want)
	}
	wantAnswer := &streams.AppendResp{Result: &streams.AppendResp_Success_{Success: &streams.AppendResp_Success{
		CurrentRevisionOption: &streams.AppendResp_Success_CurrentRevision{CurrentRevision: 8},
		PositionOption:        &streams.AppendResp_Success_Position{Position: &streams.AppendResp_Position{CommitPosition: 900, PreparePosition: 900}},
	}}}
	if !proto.Equal(answer, wantAnswer) {
		t.Errorf("%v, want %v", answer, wantAnswer)
	}
}

// A wrong version is an answer, in the fields of today and those of 20.6.0.
func TestAppendConflicts(t *testing.T) {
	none := &shared.Empty{}
	type conflict = streams.AppendResp_WrongExpectedVersion
	s := &writeStore{}
	c := writeClient(t, s, grpcapi.Options{})
	for _, test := range []struct {
		expected, current int64
		want              *conflict
	}{
		{3, 4, &conflict{
			ExpectedRevisionOption:        &streams.AppendResp_WrongExpectedVersion_ExpectedRevision{ExpectedRevision: 3},
			ExpectedRevisionOption_20_6_0: &streams.AppendResp_WrongExpectedVersion_ExpectedRevision_20_6_0{ExpectedRevision_20_6_0: 3},
			CurrentRevisionOption:         &streams.AppendResp_WrongExpectedVersion_CurrentRevision{CurrentRevision: 4},
			CurrentRevisionOption_20_6_0:  &streams.AppendResp_WrongExpectedVersion_CurrentRevision_20_6_0{CurrentRevision_20_6_0: 4},
		}},
		{noStream, 0, &conflict{
			ExpectedRevisionOption:        &streams.AppendResp_WrongExpectedVersion_ExpectedNoStream{ExpectedNoStream: none},
			ExpectedRevisionOption_20_6_0: &streams.AppendResp_WrongExpectedVersion_ExpectedRevision_20_6_0{ExpectedRevision_20_6_0: 1<<64 - 1},
			CurrentRevisionOption:         &streams.AppendResp_WrongExpectedVersion_CurrentRevision{},
			CurrentRevisionOption_20_6_0:  &streams.AppendResp_WrongExpectedVersion_CurrentRevision_20_6_0{},
		}},
		{exists, -1, &conflict{
			ExpectedRevisionOption:        &streams.AppendResp_WrongExpectedVersion_ExpectedStreamExists{ExpectedStreamExists: none},
			ExpectedRevisionOption_20_6_0: &streams.AppendResp_WrongExpectedVersion_StreamExists_20_6_0{StreamExists_20_6_0: none},
			CurrentRevisionOption:         &streams.AppendResp_WrongExpectedVersion_CurrentNoStream{CurrentNoStream: none},
			CurrentRevisionOption_20_6_0:  &streams.AppendResp_WrongExpectedVersion_NoStream_20_6_0{NoStream_20_6_0: none},
		}},
		{anyVersion, 2, &conflict{
			ExpectedRevisionOption:        &streams.AppendResp_WrongExpectedVersion_ExpectedAny{ExpectedAny: none},
			ExpectedRevisionOption_20_6_0: &streams.AppendResp_WrongExpectedVersion_Any_20_6_0{Any_20_6_0: none},
			CurrentRevisionOption:         &streams.AppendResp_WrongExpectedVersion_CurrentRevision{CurrentRevision: 2},
			CurrentRevisionOption_20_6_0:  &streams.AppendResp_WrongExpectedVersion_CurrentRevision_20_6_0{CurrentRevision_20_6_0: 2},
		}},
	} {
		s.answer = func(w *event.Write, _ bool) (event.Written, error, bool) {
			return event.Written{}, fmt.Errorf("decide: %w", &event.WrongExpectedVersion{Stream: w.Stream, Expected: w.ExpectedVersion, Current: test.current}), true
		}
		answer, end, _ := appendTo(t.Context(), c, appendOptions("s", test.expected), message(newID(), "t", nil))
		if !proto.Equal(answer.GetWrongExpectedVersion(), test.want) || end != "OK" {
			t.Errorf("%d: %s %v", test.expected, end, answer)
		}
	}
}

// How an append and the two deletions end when the store fails.
func TestWriteErrors(t *testing.T) {
	s := &writeStore{}
	c := writeClient(t, s, grpcapi.Options{})
	wrong := func(doing string) string {
		return "FailedPrecondition: " + doing + " failed due to WrongExpectedVersion. Stream: s, Expected version: -4, Actual version: -1" +
			"; actual-version=-1; exception=wrong-expected-version; expected-version=-4; stream-name=s"
	}
	deleted := "FailedPrecondition: Event stream 's' is deleted.; exception=stream-deleted; stream-name=s"
	for _, test := range []struct {
		err                     error
		append, delete, outlive string
	}{
		{&event.WrongExpectedVersion{Stream: "s", Expected: -4, Current: -1}, "OK", wrong("Delete"), wrong("HardDelete")},
		{event.ErrStreamDeleted, deleted, deleted, deleted},
		{event.ErrTooLarge, tooLargeEnd, tooLargeEnd, tooLargeEnd},
		{event.ErrNotReady, "Unavailable: Server Is Not Ready", "", ""},
		{event.ErrBusy, "Unavailable: Server Is Too Busy", "", ""},
		{event.ErrDiskFull, "Unavailable: Server Is Out Of Disk Space", "", ""},
		{event.ErrOutcomeUnknown, "Aborted: Operation timed out: outcome of the write is unknown", "", ""},
		{event.ErrWriteTimeout, "Aborted: Operation timed out: write timed out", "", ""},
		{errors.New("strange"), "Internal: Internal Server Error", "", ""},
	} {
		s.answer = failing(test.err)
		if test.delete == "" {
			test.delete, test.outlive = test.append, test.append
		}
		_, got, _ := appendTo(t.Context(), c, appendOptions("s", exists), message(newID(), "t", nil))
		check.Equal(t, got, test.append, "append")
		var trailer metadata.MD
		_, err := c.Delete(t.Context(), deletion("s", exists), grpc.Trailer(&trailer))
		check.Equal(t, endOfWrite(err, trailer), test.delete, "delete")
		_, err = c.Tombstone(t.Context(), tombstone("s", exists), grpc.Trailer(&trailer))
		check.Equal(t, endOfWrite(err, trailer), test.outlive, "tombstone")
	}
}

func TestDeleteChecks(t *testing.T) {
	c := writeClient(t, &writeStore{answer: failing(fmt.Errorf("it was written"))}, grpcapi.Options{})
	for _, test := range []struct {
		name string
		r    *streams.DeleteReq
		want string
	}{
		{"nothing", &streams.DeleteReq{}, "InvalidArgument: the name of the stream is missing"},
		{"no version", &streams.DeleteReq{Options: &streams.DeleteReq_Options{StreamIdentifier: identifier("s")}}, "InvalidArgument: the expected revision is missing"},
		{"no right", deletion("secret", anyVersion), deniedEnd},
		{"a metadata stream", deletion("$$s", anyVersion), deniedEnd},
		{"the log", deletion("$all", anyVersion), deniedEnd},
	} {
		var trailer metadata.MD
		_, err := c.Delete(t.Context(), test.r, grpc.Trailer(&trailer))
		check.Equal(t, endOfWrite(err, trailer), test.want, "delete, "+test.name)
		outlived := &streams.TombstoneReq{}
		if raw, err := proto.Marshal(test.r); err != nil || proto.Unmarshal(raw, outlived) != nil {
			t.Fatal(err)
		}
		_, err = c.Tombstone(t.Context(), outlived, grpc.Trailer(&trailer))
		check.Equal(t, endOfWrite(err, trailer), test.want, "tombstone, "+test.name)
	}
}

// Writes on nodes that do not lead go to the leader.
func TestWritesElsewhere(t *testing.T) {
	const leader = "https://leader.example:2114"
	notLeader := "NotFound: Leader info available; exception=not-leader; leader-endpoint-host=leader.example; leader-endpoint-port=2114"
	const notReady = "Unavailable: Server Is Not Ready"
	cluster := &writeCluster{}
	s := &writeStore{answer: func(_ *event.Write, anywhere bool) (event.Written, error, bool) {
		switch at, elsewhere := cluster.Redirect(); {
		case cluster.Role() == "leader", anywhere && cluster.Role() == "follower":
			return event.Written{First: 5, Last: 5, Position: 1}, nil, true
		case elsewhere:
			return event.Written{}, &event.NotLeader{Address: at}, true
		}
		return event.Written{}, event.ErrNotReady, true
	}}
	c := writeClient(t, s, grpcapi.Options{Node: api.Node{Cluster: cluster}})
	for _, test := range []struct {
		role, leader  string
		with, without string // the header requires-leader
	}{
		{"leader", "", "OK", "OK"},
		{"follower", leader, notLeader, "OK"},
		{"readonlyreplica", leader, notLeader, notLeader},
		{"prereadonlyreplica", leader, notLeader, notLeader},
		{"unknown", "", notReady, notReady},
	} {
		cluster.set(test.role, test.leader)
		for value, want := range map[string]string{"True": test.with, "false": test.without} {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "requires-leader", value)
			_, got, _ := appendTo(ctx, c, appendOptions("s", anyVersion), message(newID(), "t", nil))
			check.Equal(t, got, want, "append on "+test.role)
			var trailer metadata.MD
			_, err := c.Delete(ctx, deletion("s", anyVersion), grpc.Trailer(&trailer))
			check.Equal(t, endOfWrite(err, trailer), want, "delete on "+test.role)
			batch, err := c.BatchAppend(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := batch.Send(batchOf(newID(), batchOptions("s", anyVersion), "x")); err != nil {
				t.Fatal(err)
			}
			answer, err := batch.Recv()
			check.Equal(t, endOfWrite(err, batch.Trailer()), want, "batch on "+test.role)
			if err == nil {
				check.Equal(t, batchWord(answer, err), "ok 5", "batch on "+test.role)
			}
			_ = batch.CloseSend() // The call may have ended.
		}
	}
}

// A call whose time is over, or that its client leaves, ends.
func TestAppendsThatAreLeft(t *testing.T) {
	begun := make(chan struct{}, 1)
	s := &writeStore{answer: func(*event.Write, bool) (event.Written, error, bool) {
		begun <- struct{}{}
		return event.Written{}, nil, false
	}}
	c := writeClient(t, s, grpcapi.Options{Node: api.Node{WriteTimeout: time.Hour}})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err := appendTo(ctx, c, appendOptions("s", anyVersion), message(newID(), "t", nil))
	check.Equal(t, status.Code(err), codes.DeadlineExceeded, "deadline")
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	<-begun
	go func() {
		<-begun
		cancel()
	}()
	_, _, err = appendTo(ctx, c, appendOptions("s", anyVersion), message(newID(), "t", nil))
	check.Equal(t, status.Code(err), codes.Canceled, "canceled")
	s.answer = failing(errors.New("it was written"))
	ctx, cancel = context.WithCancel(t.Context())
	call, err := c.Append(ctx)
	if err == nil {
		err = errors.Join(call.Send(appendOptions("s", anyVersion)), call.Send(message(newID(), "t", nil)))
	}
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	check.Equal(t, status.Code(call.RecvMsg(nil)), codes.Canceled, "canceled before its end")
	check.Equal(t, len(s.noted()), 2, "writes")
}

// TestWrongAppendIsAnswered: a client that has sent a wrong event learns it, even if it sends
// neither more nor the end.
func TestWrongAppendIsAnswered(t *testing.T) {
	c := writeClient(t, newWriteStore(written(0)), grpcapi.Options{})
	call, err := c.Append(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*streams.AppendReq{appendOptions("s", anyVersion), message(nil, "t", nil)} {
		if err := call.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := call.RecvMsg(new(streams.AppendResp)); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}
