package grpcapi

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	v2 "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/streams/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/grpc/query"
	"github.com/annalsdb/annals/internal/bell"
)

// soundStore does every write that is sound at once.
type soundStore struct {
	api.Store
	t testing.TB
}

func (s *soundStore) Write(_ context.Context, w *event.Write) (event.Written, error) {
	if w.Kind == event.AppendMany {
		if len(w.Many.Of) != len(w.Events) || len(w.Many.Streams) == 0 || w.Stream != "" {
			s.t.Errorf("%+v was to be written", w)
		}
	} else if w.Stream == "" || len(w.Stream) > event.MaxNameBytes || w.ExpectedVersion < event.MinExpectedVersion {
		s.t.Errorf("%+v was to be written", w)
	}
	for _, e := range w.Events {
		if e.ID.IsZero() || e.Type == "" || len(e.Type) > event.MaxNameBytes || len(e.Data)+len(e.Metadata) > event.MaxEventBytes {
			s.t.Errorf("%+v was to be written", e)
		}
	}
	return event.Written{Last: int64(len(w.Events)) - 1, Position: int64(len(w.Events)) - 1}, nil
}

func (s *soundStore) WriteAnywhere(ctx context.Context, w *event.Write) (event.Written, error) {
	return s.Write(ctx, w)
}

func (s *soundStore) Begin(ctx context.Context, w *event.Write, wake chan<- struct{}) (api.Pending, error) {
	if ctx.Err() != nil {
		return nil, event.ErrWriteTimeout
	}
	written, err := s.Write(ctx, w)
	bell.Ring(wake)
	return soundWrite(written), err
}

// soundWrite is done already.
type soundWrite event.Written

func (w soundWrite) Done(bool) (event.Written, error, bool) { return event.Written(w), nil, true }

// lone is a cluster of one, in which everybody may write.
type lone struct{}

func (lone) Role() string                                                          { return api.RoleLeader }
func (lone) Redirect() (string, bool)                                              { return "", false }
func (lone) Confirm(context.Context) error                                         { return nil }
func (lone) Authenticate(*http.Request) (access.Principal, error)                  { return access.Principal{}, nil }
func (lone) Renew(_ context.Context, p access.Principal) (access.Principal, error) { return p, nil }
func (lone) MayRead(context.Context, *access.Principal, string, *event.StreamInfo) (bool, error) {
	return true, nil
}
func (lone) CheckStream(context.Context, access.Principal, string, access.Right) error {
	return nil
}

func soundService(t testing.TB) *streamsService {
	s := New(Options{Node: api.Node{Store: &soundStore{t: t}, Cluster: lone{}, Access: lone{}}})
	t.Cleanup(s.Close)
	return &streamsService{s: s}
}

// fakeCall is a call whose messages are there, and ends when they are received.
type fakeCall[Req, Resp any] struct {
	grpc.BidiStreamingServer[Req, Resp]
	ctx     context.Context
	receive func() ([]byte, error)
	send    func(*Resp)
}

func newFakeCall[Req, Resp any](receive func() ([]byte, error), send func(*Resp)) *fakeCall[Req, Resp] {
	return &fakeCall[Req, Resp]{ctx: context.WithValue(context.Background(), callKey{}, new(call)), receive: receive, send: send}
}

func (c *fakeCall[Req, Resp]) Context() context.Context { return c.ctx }
func (c *fakeCall[Req, Resp]) SendAndClose(*Resp) error { panic("it is sent otherwise") }

func (c *fakeCall[Req, Resp]) RecvMsg(m any) error {
	raw, err := c.receive()
	if err == nil && !m.(byHand).decode(raw) {
		err = callOf(c.ctx).unreceived(errMalformed)
	}
	return err
}

func (c *fakeCall[Req, Resp]) SendMsg(m any) error {
	r, ok := m.(*Resp)
	if !ok {
		r = new(Resp)
		if err := proto.Unmarshal(m.(answer).appendTo(nil), any(r).(proto.Message)); err != nil {
			return err
		}
	}
	c.send(r)
	return nil
}

// fromBytes receives the messages that lie in bytes, each preceded by its length.
func fromBytes(raw []byte) func() ([]byte, error) {
	r := bytes.NewReader(raw)
	return func() ([]byte, error) {
		size, err := binary.ReadUvarint(r)
		if err != nil || size > uint64(r.Len()) {
			return nil, io.EOF
		}
		m := make([]byte, size)
		_, err = io.ReadFull(r, m)
		return m, err
	}
}

func toBytes[M proto.Message](f *testing.F, messages ...M) []byte {
	var b bytes.Buffer
	for _, m := range messages {
		if _, err := protodelim.MarshalTo(&b, m); err != nil {
			f.Fatal(err)
		}
	}
	return b.Bytes()
}

// callersFault checks that what a client sends can be wrong, and is then its fault.
func callersFault(t *testing.T, s *Server, err error) {
	t.Helper()
	if err == nil {
		return
	}
	switch p := s.problemOf("", err); {
	case errors.Is(err, errMalformed):
	case p.code == codes.InvalidArgument:
	case errors.Is(err, event.ErrNotAuthorized) && p.code == codes.PermissionDenied:
	default:
		t.Errorf("%v: %v", p.code, err)
	}
}

var (
	fuzzStream = &shared.StreamIdentifier{StreamName: []byte("s")}
	fuzzID     = &shared.UUID{Value: &shared.UUID_String_{String_: "0f9fad5b-d9cb-469f-a165-70867728950e"}}
	fuzzMap    = map[string]string{mapType: "t", mapContentType: contentJSON}
)

func FuzzAppend(f *testing.F) {
	options := &streams.AppendReq{Content: &streams.AppendReq_Options_{Options: &streams.AppendReq_Options{
		StreamIdentifier: fuzzStream, ExpectedStreamRevision: &streams.AppendReq_Options_Any{Any: &shared.Empty{}},
	}}}
	message := &streams.AppendReq{Content: &streams.AppendReq_ProposedMessage_{ProposedMessage: &streams.AppendReq_ProposedMessage{
		Id: fuzzID, Metadata: fuzzMap, Data: []byte("{}"),
	}}}
	f.Add(toBytes(f, options, message, message))
	f.Add(toBytes(f, options))
	f.Add(toBytes(f, message, options))
	f.Fuzz(func(t *testing.T, raw []byte) {
		v := soundService(t)
		answers := 0
		err := v.Append(newFakeCall[streams.AppendReq](fromBytes(raw), func(*streams.AppendResp) { answers++ }))
		if callersFault(t, v.s, err); (err == nil) != (answers == 1) {
			t.Errorf("%d answers, %v", answers, err)
		}
	})
}

func FuzzBatchAppend(f *testing.F) {
	options := &streams.BatchAppendReq_Options{
		StreamIdentifier: fuzzStream, ExpectedStreamPosition: &streams.BatchAppendReq_Options_Any{Any: &emptypb.Empty{}},
	}
	messages := []*streams.BatchAppendReq_ProposedMessage{{Id: fuzzID, Metadata: fuzzMap, Data: []byte("{}")}, {Id: fuzzID}}
	f.Add(toBytes(f, &streams.BatchAppendReq{CorrelationId: fuzzID, Options: options, ProposedMessages: messages[:1], IsFinal: true}))
	f.Add(toBytes(f,
		&streams.BatchAppendReq{CorrelationId: fuzzID, Options: options}, &streams.BatchAppendReq{CorrelationId: fuzzID, ProposedMessages: messages},
		&streams.BatchAppendReq{CorrelationId: fuzzID, ProposedMessages: messages[:1], IsFinal: true},
	))
	f.Add(toBytes(f, &streams.BatchAppendReq{ProposedMessages: messages, IsFinal: true}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		v := soundService(t)
		v.s.opts.WriteTimeout = time.Hour
		var whole atomic.Int64 // The receiver may continue for a moment.
		answers := int64(0)
		from := fromBytes(raw)
		err := v.BatchAppend(newFakeCall[streams.BatchAppendReq](func() ([]byte, error) {
			raw, err := from()
			var r streams.BatchAppendReq
			if proto.Unmarshal(raw, &r) == nil && (r.GetIsFinal() || r.GetOptions() != nil) {
				whole.Add(1)
			}
			return raw, err
		}, func(r *streams.BatchAppendResp) {
			answers++
			if r.CorrelationId == nil || (r.GetError() == nil) == (r.GetSuccess() == nil) || r.GetError() != nil && len(r.GetError().Details) != 1 {
				t.Errorf("%v", r)
			}
		}))
		if callersFault(t, v.s, err); answers > whole.Load() {
			t.Errorf("%d answers to %d writes", answers, whole.Load())
		}
	})
}

// FuzzAppendMany has the methods that append to several streams.
func FuzzAppendMany(f *testing.F) {
	record := &v2.AppendRecord{Stream: "s", Data: []byte("{}"), Schema: &v2.SchemaInfo{Format: 1, Name: "t"}}
	f.Add(toBytes(f, &v2.AppendRequest{Stream: "s", Records: []*v2.AppendRecord{record, record}}, &v2.AppendRequest{Stream: "r", Records: []*v2.AppendRecord{record}, ExpectedRevision: new(int64(3))}))
	f.Add(toBytes(f, &v2.AppendRecordsRequest{Records: []*v2.AppendRecord{record}, Checks: []*v2.ConsistencyCheck{{}}}))
	f.Add(toBytes(f, &v2.AppendRecordsRequest{Records: []*v2.AppendRecord{record, record}}))
	f.Add(toBytes(f, &query.AppendReq{
		Records:    []*query.AppendRecord{{Stream: "s", Schema: &query.AppendRecord_Schema{Format: 1, Name: "t"}}},
		Conditions: []*query.AppendReq_Condition{{Query: &query.Query{All: true}}},
	}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := &manyService{s: soundService(t).s}
		fault := func(err error) {
			if known := new(problem); !errors.As(err, &known) || known.code != codes.FailedPrecondition && known.code != codes.Aborted {
				callersFault(t, m.s, err)
			}
		}
		answers := 0
		err := m.AppendSession(newFakeCall[v2.AppendRequest](fromBytes(raw), func(*v2.AppendSessionResponse) { answers++ }))
		if fault(err); (err == nil) != (answers == 1) {
			t.Errorf("%d answers, %v", answers, err)
		}
		var r recordsRequest
		message, err := fromBytes(raw)()
		if err != nil || !r.decode(message) {
			return
		}
		ctx := newFakeCall[int, int](nil, nil).ctx
		_, err = m.s.gather(ctx, api.DoorRecords, func(g *gathering) error { return g.request(ctx, &r) })
		fault(err)
		c := recordsRequest{conditional: true}
		if c.decode(message) {
			_, err = m.s.gather(ctx, api.DoorQuery, func(g *gathering) error { return g.request(ctx, &c) })
			fault(err)
		}
	})
}

func FuzzDelete(f *testing.F) {
	for _, o := range []*streams.DeleteReq_Options{nil, {StreamIdentifier: fuzzStream}, {StreamIdentifier: fuzzStream, ExpectedStreamRevision: &streams.DeleteReq_Options_Revision{Revision: 7}}} {
		raw, err := proto.Marshal(&streams.DeleteReq{Options: o})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, ctx := soundService(t), newFakeCall[int, int](nil, nil).ctx
		var soft streams.DeleteReq
		var hard streams.TombstoneReq
		if proto.Unmarshal(raw, &soft) != nil || proto.Unmarshal(raw, &hard) != nil {
			return
		}
		deleted, err := v.Delete(ctx, &soft)
		if callersFault(t, v.s, err); err == nil && deleted.GetPosition() == nil {
			t.Error("deleted without a position")
		}
		outlived, err := v.Tombstone(ctx, &hard)
		if callersFault(t, v.s, err); err == nil && outlived.GetPosition() == nil {
			t.Error("deleted without a position")
		}
	})
}
