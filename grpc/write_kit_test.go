package grpcapi_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	grpcapi "github.com/annalsdb/annals/grpc"
)

// Expected versions as the tests write them: a revision, or one of those below.
const (
	anyVersion = event.AnyVersion
	noStream   = event.NoStream
	exists     = event.StreamExists
)

func identifier(stream string) *shared.StreamIdentifier {
	return &shared.StreamIdentifier{StreamName: []byte(stream)}
}

func textID(id string) *shared.UUID { return &shared.UUID{Value: &shared.UUID_String_{String_: id}} }

func newID() *shared.UUID { return textID(uuid.NewString()) }

func appendOptions(stream string, expected int64) *streams.AppendReq {
	o := &streams.AppendReq_Options{StreamIdentifier: identifier(stream)}
	switch expected {
	case anyVersion:
		o.ExpectedStreamRevision = &streams.AppendReq_Options_Any{Any: &shared.Empty{}}
	case noStream:
		o.ExpectedStreamRevision = &streams.AppendReq_Options_NoStream{NoStream: &shared.Empty{}}
	case exists:
		o.ExpectedStreamRevision = &streams.AppendReq_Options_StreamExists{StreamExists: &shared.Empty{}}
	default:
		o.ExpectedStreamRevision = &streams.AppendReq_Options_Revision{Revision: uint64(expected)}
	}
	return &streams.AppendReq{Content: &streams.AppendReq_Options_{Options: o}}
}

func mapOf(kind, content string) map[string]string {
	return map[string]string{"type": kind, "content-type": content}
}

// message is an event of one call of Append.
func message(id *shared.UUID, kind string, data []byte) *streams.AppendReq {
	return &streams.AppendReq{Content: &streams.AppendReq_ProposedMessage_{ProposedMessage: &streams.AppendReq_ProposedMessage{
		Id: id, Metadata: mapOf(kind, "application/json"), Data: data,
	}}}
}

// endOfWrite is how a call ended, with all trailers.
func endOfWrite(err error, md metadata.MD) string {
	if err == nil {
		return "OK"
	}
	text := status.Code(err).String() + ": " + status.Convert(err).Message()
	for _, key := range slices.Sorted(maps.Keys(md)) {
		if key != "content-type" && key != "date" && key != "content-length" {
			text += "; " + key + "=" + md[key][0]
		}
	}
	return text
}

// appendTo makes one call of Append. A server may end it before it has all.
func appendTo(ctx context.Context, c streams.StreamsClient, messages ...*streams.AppendReq) (*streams.AppendResp, string, error) {
	call, err := c.Append(ctx)
	if err != nil {
		return nil, "", err
	}
	for _, m := range messages {
		if call.Send(m) != nil {
			break
		}
	}
	answer, err := call.CloseAndRecv()
	return answer, endOfWrite(err, call.Trailer()), err
}

// one appends one event and says what came of it in a few words.
func one(t *testing.T, c streams.StreamsClient, stream string, expected int64) string {
	t.Helper()
	answer, _, err := appendTo(t.Context(), c, appendOptions(stream, expected), message(newID(), "t", []byte("{}")))
	return appendWord(t, answer, err)
}

func appendWord(t *testing.T, answer *streams.AppendResp, err error) string {
	t.Helper()
	if err != nil {
		return errorWord(err)
	}
	if wrong := answer.GetWrongExpectedVersion(); wrong != nil {
		if _, none := wrong.CurrentRevisionOption.(*streams.AppendResp_WrongExpectedVersion_CurrentNoStream); none {
			return "wrong -1"
		}
		return fmt.Sprint("wrong ", wrong.GetCurrentRevision())
	}
	at := answer.GetSuccess().GetPosition()
	if at != nil && at.CommitPosition != at.PreparePosition {
		t.Errorf("two positions: %v", at)
	}
	if _, none := answer.GetSuccess().CurrentRevisionOption.(*streams.AppendResp_Success_NoStream); none {
		return "none"
	}
	if at == nil {
		return fmt.Sprint("nothing ", answer.GetSuccess().GetCurrentRevision())
	}
	return fmt.Sprint("ok ", answer.GetSuccess().GetCurrentRevision())
}

// errorWord names an error by its code; in that of a deletion stands the actual version.
func errorWord(err error) string {
	if _, actual, ok := strings.Cut(status.Convert(err).Message(), "Actual version: "); ok {
		return "wrong " + actual
	}
	if status.Code(err) == codes.FailedPrecondition {
		return "deleted"
	}
	return status.Code(err).String()
}

func batchOptions(stream string, expected int64) *streams.BatchAppendReq_Options {
	o := &streams.BatchAppendReq_Options{StreamIdentifier: identifier(stream)}
	switch expected {
	case anyVersion:
		o.ExpectedStreamPosition = &streams.BatchAppendReq_Options_Any{Any: &emptypb.Empty{}}
	case noStream:
		o.ExpectedStreamPosition = &streams.BatchAppendReq_Options_NoStream{NoStream: &emptypb.Empty{}}
	case exists:
		o.ExpectedStreamPosition = &streams.BatchAppendReq_Options_StreamExists{StreamExists: &emptypb.Empty{}}
	default:
		o.ExpectedStreamPosition = &streams.BatchAppendReq_Options_StreamPosition{StreamPosition: uint64(expected)}
	}
	return o
}

// batchOf is a whole write of a batch, with events of these data.
func batchOf(correlation *shared.UUID, o *streams.BatchAppendReq_Options, data ...string) *streams.BatchAppendReq {
	r := &streams.BatchAppendReq{CorrelationId: correlation, Options: o, IsFinal: true}
	for _, d := range data {
		r.ProposedMessages = append(r.ProposedMessages, &streams.BatchAppendReq_ProposedMessage{
			Id: newID(), Metadata: mapOf("t", "application/octet-stream"), Data: []byte(d),
		})
	}
	return r
}

// batchWord says what a write of a batch came to.
func batchWord(r *streams.BatchAppendResp, err error) string {
	if err != nil {
		return errorWord(err)
	}
	if failure := r.GetError(); failure != nil {
		if len(failure.Details) == 1 {
			if wrong := new(shared.WrongExpectedVersion); failure.Details[0].UnmarshalTo(wrong) == nil {
				if wrong.GetCurrentNoStream() != nil {
					return "wrong -1"
				}
				return fmt.Sprint("wrong ", wrong.GetCurrentStreamRevision())
			}
		}
		return failure.Message
	}
	switch {
	case r.GetSuccess().GetNoStream() != nil:
		return "none"
	case r.GetSuccess().GetPosition() == nil:
		return fmt.Sprint("nothing ", r.GetSuccess().GetCurrentRevision())
	}
	return fmt.Sprint("ok ", r.GetSuccess().GetCurrentRevision())
}

// outcome is what becomes of a write; false: it has no answer yet.
type outcome func(w *event.Write, anywhere bool) (event.Written, error, bool)

// writeStore is a store of which a test sees the writes. Its embedded Store is nil: nothing else is
// asked for.
type writeStore struct {
	api.Store
	more chan struct{} // capacity 1: something happened

	mu     sync.Mutex // guards the fields below
	answer outcome
	refuse error    // of Begin
	writes []string // stream and data, as they were begun
	begun  []*begunWrite
	gaveUp int
}

func newWriteStore(answer outcome) *writeStore {
	return &writeStore{answer: answer, more: make(chan struct{}, 1)}
}

// begunWrite is a write that a test answers.
type begunWrite struct {
	s        *writeStore
	wake     chan<- struct{}
	answered bool
	written  event.Written
	err      error
}

func raise(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (b *begunWrite) Done(giveUp bool) (event.Written, error, bool) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if !b.answered && giveUp {
		b.s.gaveUp++
		raise(b.s.more)
		return event.Written{}, event.ErrWriteTimeout, true
	}
	return b.written, b.err, b.answered
}

// note returns what is to become of a write.
func (s *writeStore) note(w *event.Write, anywhere bool) outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := w.Stream
	if anywhere {
		text = "anywhere " + text
	}
	for _, e := range w.Events {
		text += " " + string(e.Data)
	}
	s.writes = append(s.writes, text)
	return s.answer
}

func (s *writeStore) noted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes)
}

func (s *writeStore) answerWith(answer outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *writeStore) refuseWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = err
}

func (s *writeStore) do(ctx context.Context, w *event.Write, anywhere bool) (event.Written, error) {
	written, err, ok := s.note(w, anywhere)(w, anywhere)
	if !ok {
		<-ctx.Done()
		return event.Written{}, event.ErrWriteTimeout
	}
	return written, err
}

func (s *writeStore) Write(ctx context.Context, w *event.Write) (event.Written, error) {
	return s.do(ctx, w, false)
}

func (s *writeStore) WriteAnywhere(ctx context.Context, w *event.Write) (event.Written, error) {
	return s.do(ctx, w, true)
}

// Begin signals wake for what is answered, and when the context ends, as a store does.
func (s *writeStore) Begin(ctx context.Context, w *event.Write, wake chan<- struct{}) (api.Pending, error) {
	if ctx.Err() != nil {
		return nil, event.ErrWriteTimeout
	}
	answer := s.note(w, false)
	b := &begunWrite{s: s, wake: wake}
	b.written, b.err, b.answered = answer(w, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return nil, s.refuse
	}
	s.begun = append(s.begun, b)
	raise(s.more)
	if b.answered {
		raise(wake)
	} else {
		context.AfterFunc(ctx, func() { raise(wake) })
	}
	return b, nil
}

func (s *writeStore) begunNow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.begun)
}

// gaveUpTo waits until so many writes were given up.
func (s *writeStore) gaveUpTo(t testing.TB, n int) {
	t.Helper()
	for {
		s.mu.Lock()
		done := s.gaveUp >= n
		s.mu.Unlock()
		if done {
			return
		}
		<-s.more
	}
}

// resolve answers the write that was begun as the so many'th.
func (s *writeStore) resolve(i int, written event.Written, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.begun[i]
	b.written, b.err, b.answered = written, err, true
	raise(b.wake)
}

// written answers every write with its first event at a number.
func written(last int64) outcome {
	return func(*event.Write, bool) (event.Written, error, bool) {
		return event.Written{First: last, Last: last, Position: 100 + last}, nil, true
	}
}

// failing answers every write with an error.
func failing(err error) outcome {
	return func(*event.Write, bool) (event.Written, error, bool) { return event.Written{}, err, true }
}

// writeCluster answers what a test sets; this node leads without a role.
type writeCluster struct {
	mu           sync.Mutex
	role, leader string
}

func (c *writeCluster) set(role, leader string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.role, c.leader = role, leader
}

func (c *writeCluster) Role() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(c.role, "leader")
}

func (c *writeCluster) Redirect() (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader, c.leader != ""
}

func (c *writeCluster) Confirm(context.Context) error { return nil }

// writeAccess lets everybody write to what does not begin with "secret".
type writeAccess struct{ standing }

func (writeAccess) Authenticate(*http.Request) (access.Principal, error) {
	return access.Principal{}, nil
}

func (writeAccess) CheckStream(_ context.Context, _ access.Principal, stream string, right access.Right) error {
	if strings.HasPrefix(stream, "secret") {
		return event.ErrNotAuthorized
	}
	return nil
}

// writeClient is a client of a server of the options alone.
func writeClient(t testing.TB, s *writeStore, o grpcapi.Options) streams.StreamsClient {
	t.Helper()
	client, _ := writeServer(t, s, o)
	return client
}

// writeServer is a server of the options alone, with a client of it.
func writeServer(t testing.TB, s *writeStore, o grpcapi.Options) (client streams.StreamsClient, server *grpcapi.Server) {
	t.Helper()
	conn, server := writeConn(t, s, o)
	return streams.NewStreamsClient(conn), server
}

// writeConn is writeServer for those who make calls of other kinds.
func writeConn(t testing.TB, s *writeStore, o grpcapi.Options) (conn *grpc.ClientConn, server *grpcapi.Server) {
	t.Helper()
	o.Store, o.Access = s, writeAccess{}
	if o.Cluster == nil {
		o.Cluster = &writeCluster{}
	}
	server = grpcapi.New(o)
	return dial(t, listen(t, server)), server
}
