package grpcapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/annalsdb/annals/internal/testkit"
)

// options are those of a read, made by functions that each set one.
type option func(o *streams.ReadReq_Options)

func read(set ...option) *streams.ReadReq {
	o := &streams.ReadReq_Options{CountOption: &streams.ReadReq_Options_Count{Count: 1<<63 - 1}}
	for _, s := range set {
		s(o)
	}
	return &streams.ReadReq{Options: o}
}

// The places where a read begins, besides numbers and positions.
const (
	start int64 = -1
	end   int64 = -2
)

// ofStream is a stream from a number on.
func ofStream(name string, from int64) option {
	s := &streams.ReadReq_Options_StreamOptions{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(name)}}
	switch from {
	case start:
		s.RevisionOption = &streams.ReadReq_Options_StreamOptions_Start{}
	case end:
		s.RevisionOption = &streams.ReadReq_Options_StreamOptions_End{}
	default:
		s.RevisionOption = &streams.ReadReq_Options_StreamOptions_Revision{Revision: uint64(from)}
	}
	return func(o *streams.ReadReq_Options) { o.StreamOption = &streams.ReadReq_Options_Stream{Stream: s} }
}

// ofAll is the log from a position on.
func ofAll(from int64) option {
	a := &streams.ReadReq_Options_AllOptions{}
	switch from {
	case start:
		a.AllOption = &streams.ReadReq_Options_AllOptions_Start{}
	case end:
		a.AllOption = &streams.ReadReq_Options_AllOptions_End{}
	default:
		a.AllOption = &streams.ReadReq_Options_AllOptions_Position{
			Position: &streams.ReadReq_Options_Position{CommitPosition: uint64(from), PreparePosition: uint64(from)},
		}
	}
	return func(o *streams.ReadReq_Options) { o.StreamOption = &streams.ReadReq_Options_All{All: a} }
}

func backward(o *streams.ReadReq_Options) {
	o.ReadDirection = streams.ReadReq_Options_Backwards
}

func subscribed(o *streams.ReadReq_Options) {
	o.CountOption = &streams.ReadReq_Options_Subscription{}
}

func resolved(o *streams.ReadReq_Options) { o.ResolveLinks = true }

func textIDs(o *streams.ReadReq_Options) {
	o.UuidOption = &streams.ReadReq_Options_UUIDOption{Content: &streams.ReadReq_Options_UUIDOption_String_{}}
}

func positions(o *streams.ReadReq_Options) {
	o.ControlOption = &streams.ReadReq_Options_ControlOption{Compatibility: 1}
}

func count(n uint64) option {
	return func(o *streams.ReadReq_Options) { o.CountOption = &streams.ReadReq_Options_Count{Count: n} }
}

// window is that of a filter with so many records between checkpoints.
func window(f *streams.ReadReq_Options_FilterOptions, max, multiplier uint32) option {
	f.CheckpointIntervalMultiplier = multiplier
	if f.Window = (&streams.ReadReq_Options_FilterOptions_Max{Max: max}); max == 0 {
		f.Window = &streams.ReadReq_Options_FilterOptions_Count{}
	}
	return func(o *streams.ReadReq_Options) { o.FilterOption = &streams.ReadReq_Options_Filter{Filter: f} }
}

// byStream chooses streams by prefixes, or by an expression if there are none.
func byStream(regex string, prefixes ...string) *streams.ReadReq_Options_FilterOptions {
	return &streams.ReadReq_Options_FilterOptions{Filter: &streams.ReadReq_Options_FilterOptions_StreamIdentifier{
		StreamIdentifier: &streams.ReadReq_Options_FilterOptions_Expression{Regex: regex, Prefix: prefixes},
	}}
}

func byType(regex string, prefixes ...string) *streams.ReadReq_Options_FilterOptions {
	return &streams.ReadReq_Options_FilterOptions{Filter: &streams.ReadReq_Options_FilterOptions_EventType{
		EventType: &streams.ReadReq_Options_FilterOptions_Expression{Regex: regex, Prefix: prefixes},
	}}
}

// reader is a read that runs.
type reader struct {
	t      testing.TB
	stream grpc.ServerStreamingClient[streams.ReadResp]
	leave  context.CancelFunc
}

func open(t testing.TB, conn *grpc.ClientConn, login string, req *streams.ReadReq, with ...grpc.CallOption) *reader {
	t.Helper()
	ctx, cancel := context.WithCancel(as(t, login))
	t.Cleanup(cancel)
	stream, err := streams.NewStreamsClient(conn).Read(ctx, req, with...)
	if err != nil {
		t.Fatal(err)
	}
	return &reader{t, stream, cancel}
}

// next is the next message; nil at the end.
func (r *reader) next() *streams.ReadResp {
	r.t.Helper()
	m, err := r.stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// expect compares the next messages, in short.
func (r *reader) expect(want ...string) {
	r.t.Helper()
	for _, w := range want {
		if got := short(r.next()); got != w {
			r.t.Fatalf("got %q, want %q", got, w)
		}
	}
}

// arrive reads until the subscription has caught up: the node may write something of its own at any
// time.
func (r *reader) arrive() {
	r.t.Helper()
	for r.next().GetCaughtUp() == nil {
	}
}

// end reads what is left and tells how the call ended.
func (r *reader) end() (rest []*streams.ReadResp, e ended) {
	for {
		m, err := r.stream.Recv()
		if errors.Is(err, io.EOF) {
			return rest, ended{}
		} else if err != nil {
			return rest, endOf(err, r.stream.Trailer())
		}
		rest = append(rest, m)
	}
}

// whole makes a read and tells its messages in short, and how it ended if that is not OK.
func whole(t testing.TB, conn *grpc.ClientConn, login string, req *streams.ReadReq) string {
	t.Helper()
	rest, e := open(t, conn, login, req).end()
	words := make([]string, len(rest))
	for i, m := range rest {
		words[i] = short(m)
	}
	if e.code != codes.OK {
		words = append(words, fmt.Sprintf("%v: %s %s", e.code, e.text, e.trailers))
	}
	return strings.TrimSpace(strings.Join(words, " "))
}

// short tells what a message is.
func short(m *streams.ReadResp) string {
	name := func(e *streams.ReadResp_ReadEvent_RecordedEvent) string {
		return fmt.Sprintf("%s/%d", e.GetStreamIdentifier().GetStreamName(), e.GetStreamRevision())
	}
	switch c := m.GetContent().(type) {
	case *streams.ReadResp_Event:
		var text string
		if c.Event.Event != nil {
			text = name(c.Event.Event)
		}
		if c.Event.Link != nil {
			text += "<-" + name(c.Event.Link)
		}
		return text
	case *streams.ReadResp_Confirmation:
		if _, err := uuid.Parse(c.Confirmation.SubscriptionId); err != nil {
			return err.Error()
		}
		return "confirmed"
	case *streams.ReadResp_Checkpoint_:
		return fmt.Sprintf("checkpoint:%d", c.Checkpoint.CommitPosition)
	case *streams.ReadResp_StreamNotFound_:
		return "not-found:" + string(c.StreamNotFound.StreamIdentifier.StreamName)
	case *streams.ReadResp_FirstStreamPosition:
		return fmt.Sprintf("first:%d", c.FirstStreamPosition)
	case *streams.ReadResp_LastStreamPosition:
		return fmt.Sprintf("last:%d", c.LastStreamPosition)
	case *streams.ReadResp_CaughtUp_:
		text := "caught-up"
		if c.CaughtUp.StreamRevision != nil {
			text += fmt.Sprintf(":%d", *c.CaughtUp.StreamRevision)
		}
		if c.CaughtUp.Position != nil {
			text += fmt.Sprintf("@%d", c.CaughtUp.Position.CommitPosition)
		}
		if c.CaughtUp.Timestamp.AsTime().Year() < 2020 {
			text += " without a time"
		}
		return text
	}
	return fmt.Sprint(m)
}

// positionOf is where an event lies that was read, its link if there is one; of a checkpoint, where
// that is.
func positionOf(m *streams.ReadResp) (p int64, ok bool) {
	switch c := m.GetContent().(type) {
	case *streams.ReadResp_Event:
		return int64(c.Event.GetCommitPosition()), true
	case *streams.ReadResp_Checkpoint_:
		return int64(c.Checkpoint.CommitPosition), true
	}
	return -1, false
}

// ownNode starts a node for one test: streams can be written only once.
func ownNode(t testing.TB) (*grpc.ClientConn, *testkit.Client) {
	t.Helper()
	address := nodeOf(t)
	c := testkit.NewClient(address, nil)
	t.Cleanup(c.CloseIdle)
	return dial(t, address), c
}

// write appends events of a type to a stream, one for each document.
func write(t testing.TB, c *testkit.Client, stream, eventType string, documents ...string) {
	t.Helper()
	var b strings.Builder
	for i, d := range documents {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"eventId":%q,"eventType":%q,"data":%s}`, uuid.NewString(), eventType, d)
	}
	do(t, c, testkit.Request{
		Path: "/streams/" + url.PathEscape(stream), Body: []byte("[" + b.String() + "]"),
		Header: map[string]string{"Content-Type": testkit.MediaEvents, testkit.HeaderExpectedVersion: "-2"},
	})
}

// writeBytes appends an event that is not JSON.
func writeBytes(t testing.TB, c *testkit.Client, stream, eventType string, data []byte) {
	t.Helper()
	do(t, c, testkit.Request{Path: "/streams/" + url.PathEscape(stream), Body: data, Header: map[string]string{
		"Content-Type": "application/octet-stream", testkit.HeaderEventType: eventType, testkit.HeaderEventID: uuid.NewString(),
	}})
}

// numbered are n small documents.
func numbered(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = strconv.Itoa(i)
	}
	return all
}

// do makes another request of the administrator.
func do(t testing.TB, c *testkit.Client, r testkit.Request) {
	t.Helper()
	r.Admin = true
	if answer, err := c.Do(t.Context(), r); err != nil || answer.Status >= 300 {
		t.Fatal(answer.Status, string(answer.Body), err)
	}
}

func remove(t testing.TB, c *testkit.Client, stream string, hard bool) {
	t.Helper()
	do(t, c, testkit.Request{Method: http.MethodDelete, Path: "/streams/" + stream, Header: map[string]string{testkit.HeaderHardDelete: fmt.Sprint(hard)}})
}

// describe writes the metadata of a stream.
func describe(t testing.TB, c *testkit.Client, stream, metadata string) {
	t.Helper()
	write(t, c, "$$"+stream, "$metadata", metadata)
}
