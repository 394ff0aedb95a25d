package torture

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	streamerrors "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/streams/errors"
	v2 "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/streams/streams"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/annalsdb/annals/client"
)

// door is one of the interfaces by which several streams are written.
type door int

const (
	doorHTTP door = iota
	doorRecords
	doorSession
	doors
)

func (d door) String() string { return [...]string{"http", "records", "session"}[d] }

// told is what one attempt of a transfer was answered.
type told struct {
	verdict
	by       door
	from     Target
	position int64
	numbers  []int64 // of the events
	repeated bool    // said by HTTP alone
	broken   []accountCheck
}

// send makes one attempt, by an interface and a node of its choice.
func (t *transferer) send(ctx context.Context, tr *transfer, first ref) told {
	d := door(t.rng.IntN(int(doors)))
	if d == doorSession && !tr.sessions() {
		d = doorRecords
	}
	a := told{by: d, from: t.choose()}
	if d == doorHTTP {
		t.sendHTTP(ctx, tr, first, &a)
	} else {
		t.sendCall(ctx, tr, first, &a)
	}
	if a.outcome == conflict && len(a.broken) == 0 || a.outcome == done && len(a.numbers) != len(tr.events) {
		a.odd = fmt.Sprintf("the answer by %s says too little: %+v", d, a)
		a.outcome = pending
	}
	return a
}

// place returns the account of a stream.
func (b *bank) place(name string) int {
	return slices.IndexFunc(b.accounts[:], func(s *stream) bool { return s.name == name })
}

// last notes an account's answer: the number of its last event.
func (a *told) last(tr *transfer, stream string, number int64) {
	if i := len(a.numbers); i >= len(tr.events) || tr.stream(i).name != stream {
		a.odd = fmt.Sprintf("the answer has %q in the place of event %d", stream, i)
	}
	for i := tr.eventsOf(stream) - 1; i >= 0; i-- {
		a.numbers = append(a.numbers, number-int64(i))
	}
}

// breaks notes a check that does not hold.
func (a *told) breaks(tr *transfer, index int, stream string, expected, actual int64) {
	account := tr.bank.place(stream)
	if !slices.Contains(tr.checks, accountCheck{account, expected}) || index >= 0 && (index >= len(tr.checks) || tr.checks[index].account != account) {
		a.odd = fmt.Sprintf("check %d, that %q is at %d, was not asked for", index, stream, expected)
	}
	a.broken = append(a.broken, accountCheck{account, actual})
}

// event is what is sent of an event with tags, whose data is JSON.
func (t identity) event(r ref, tags ...string) client.Event {
	return client.Event{ID: t.id(r).String(), Type: t.eventType(r), Data: json.RawMessage(t.data(r)), Tags: tags}
}

// sendHTTP posts the events to the path of all streams.
func (t *transferer) sendHTTP(ctx context.Context, tr *transfer, first ref, a *told) {
	var checks []client.Requirement
	for _, c := range tr.checks {
		checks = append(checks, client.Check{Stream: tr.bank.accounts[c.account].name, Expected: c.version})
	}
	var events []client.StreamEvent
	for i := range tr.events {
		r := first + ref(i)
		events = append(events, client.StreamEvent{Stream: tr.stream(i).name, Event: t.ids.event(r, t.ids.label(r))})
	}
	answer, err := t.do(ctx, a.from, client.ManyRequest(made(client.ManyBody(events, checks...))))
	if answer != nil {
		a.from = answer.from
	}
	said, broken, v := judgeMany(answer, err)
	a.verdict, a.position, a.repeated = v, cmp.Or(said.Position, broken.Position), said.Repeated
	for _, s := range said.Streams {
		a.last(tr, s.Stream, s.Last)
		if events := int64(tr.eventsOf(s.Stream)); s.Last-s.First+1 != events {
			a.odd = fmt.Sprintf("%s got %d events, %d were sent: %s", s.Stream, s.Last-s.First+1, events, answer)
		}
	}
	for _, c := range broken.Violations {
		a.breaks(tr, c.Check, c.Stream, c.Expected, c.Actual)
	}
}

func (t *transfer) eventsOf(stream string) (n int) {
	for i := range t.events {
		if t.stream(i).name == stream {
			n++
		}
	}
	return n
}

// call returns the connection of gRPC to a node, and the context of a call with its time and its
// credentials, until end.
func (w *worker) call(ctx context.Context, to Target) (_ context.Context, conn *grpc.ClientConn, end context.CancelFunc, err error) {
	if conn, err = w.calls.to(to); err != nil {
		return nil, nil, nil, err
	}
	ctx, end = context.WithTimeout(ctx, w.timeout)
	if user := to.Login; user != nil {
		password, _ := user.Password()
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	return ctx, conn, end, nil
}

// sendCall sends the events in one of the calls of gRPC.
func (t *transferer) sendCall(ctx context.Context, tr *transfer, first ref, a *told) {
	ctx, conn, end, err := t.call(ctx, a.from)
	if err != nil {
		a.outcome, a.odd = refused, err.Error()
		return
	}
	defer end()
	records := make([]*v2.AppendRecord, len(tr.events))
	for i := range records {
		r := first + ref(i)
		records[i] = &v2.AppendRecord{
			RecordId: new(t.ids.id(r).String()), Data: []byte(t.ids.data(r)), Stream: tr.stream(i).name,
			Properties: map[string]*structpb.Value{"$tags": structpb.NewStringValue(t.ids.label(r))},
			Schema:     &v2.SchemaInfo{Format: v2.SchemaFormat_SCHEMA_FORMAT_JSON, Name: eventType},
		}
	}
	call := v2.NewStreamsServiceClient(conn)
	if a.by == doorRecords {
		request := &v2.AppendRecordsRequest{Records: records}
		for _, c := range tr.checks {
			state := &v2.ConsistencyCheck_StreamStateCheck{Stream: tr.bank.accounts[c.account].name, ExpectedState: c.version}
			request.Checks = append(request.Checks, &v2.ConsistencyCheck{Type: &v2.ConsistencyCheck_StreamState{StreamState: state}})
		}
		var done *v2.AppendRecordsResponse
		if done, err = call.AppendRecords(ctx, request); err == nil {
			a.position = done.Position
			for _, s := range done.Revisions {
				a.last(tr, s.Stream, s.Revision)
			}
		}
	} else {
		var done *v2.AppendSessionResponse
		if done, err = session(ctx, call, tr, records); err == nil {
			a.position = done.Position
			for _, s := range done.Output {
				a.last(tr, s.Stream, s.StreamRevision)
			}
		}
	}
	a.judgeCall(tr, err)
}

// session sends one message for each stream.
func session(ctx context.Context, call v2.StreamsServiceClient, tr *transfer, records []*v2.AppendRecord) (*v2.AppendSessionResponse, error) {
	s, err := call.AppendSession(ctx)
	if err != nil {
		return nil, err
	}
	for _, account := range tr.accounts() {
		name := tr.bank.accounts[account].name
		n := tr.eventsOf(name)
		request := &v2.AppendRequest{Stream: name, Records: records[:n]}
		records = records[n:]
		for _, c := range tr.checks {
			if c.account == account {
				request.ExpectedRevision = new(c.version)
			}
		}
		for _, r := range request.Records {
			r.Stream = ""
		}
		if s.Send(request) != nil {
			break // The answer says why.
		}
	}
	return s.CloseAndRecv()
}

// judgeCall says what is known of a call, as judge does.
func (a *told) judgeCall(tr *transfer, err error) {
	s := status.Convert(err)
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *streamerrors.AppendConsistencyViolationErrorDetails:
			for _, v := range d.Violations {
				state := v.GetStreamState()
				a.breaks(tr, int(v.CheckIndex), state.GetStream(), state.GetExpectedState(), state.GetActualState())
			}
		case *streamerrors.StreamRevisionConflictErrorDetails:
			a.breaks(tr, -1, d.Stream, d.ExpectedRevision, d.ActualRevision)
		}
	}
	var odd string
	if a.outcome, odd = judgeStatus(s, a.broken != nil, a.from); odd != "" {
		a.odd = odd
	}
}

// judgeStatus says what is known of a call whose answer may say what does not hold.
func judgeStatus(s *status.Status, isBroken bool, from Target) (o outcome, odd string) {
	var reason string
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			reason = info.Reason
		}
	}
	switch {
	case s.Code() == codes.OK:
		return done, ""
	case isBroken && s.Code() == codes.FailedPrecondition:
		return conflict, ""
	case slices.Contains([]string{"NOT_LEADER_NODE", "SERVER_NOT_READY", "SERVER_OVERLOADED"}, reason),
		s.Code() == codes.FailedPrecondition && strings.HasPrefix(s.Message(), "The index is being built"):
		return refused, ""
	case slices.Contains([]codes.Code{codes.Aborted, codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal}, s.Code()):
		return pending, "" // The connection was lost, or the node failed in the middle.
	}
	return pending, fmt.Sprintf("%v from %s", s, from.Name)
}

// connections are those of gRPC, one to a node. The zero value is ready. Any goroutine may use it.
type connections struct {
	dial dialer
	tls  *tls.Config // nil: authorities of the system
	mu   sync.Mutex
	by   map[string]*grpc.ClientConn
}

func (c *connections) to(t Target) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.by[t.Base]; conn != nil {
		return conn, nil
	}
	secret, address := insecure.NewCredentials(), strings.TrimPrefix(t.Base, "http://")
	if name, ok := strings.CutPrefix(t.Base, "https://"); ok {
		secret, address = credentials.NewTLS(c.tls), name
	}
	soon := backoff.DefaultConfig // A node that was killed starts again within a second.
	soon.BaseDelay, soon.MaxDelay = 50*time.Millisecond, 500*time.Millisecond
	again := grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: dialTimeout, Backoff: soon})
	options := []grpc.DialOption{grpc.WithTransportCredentials(secret), grpc.WithDisableServiceConfig(), again, grpc.WithNoProxy()}
	if c.dial != nil {
		options = append(options, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return c.dial(ctx, "tcp", address) }))
	}
	conn, err := grpc.NewClient("passthrough:///"+address, options...)
	if err != nil {
		return nil, err
	}
	if c.by == nil {
		c.by = map[string]*grpc.ClientConn{}
	}
	c.by[t.Base] = conn
	return conn, nil
}

// close ends the connections.
func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.by {
		_ = conn.Close() // An error says that it was closed before.
	}
	c.by = nil
}
