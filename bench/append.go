package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/annalsdb/annals/event"
)

const (
	anyVersion     = -2
	noStream       = -1
	unknownVersion = -100 // of a stream nothing is known yet; never sent

	typeJSON   = "application/json"
	typeEvents = "application/vnd.eventstore.events+json"
	typeAtom   = "application/vnd.eventstore.atom+json"
)

// appending is the workload append.
func appending(o *options) *workload {
	return &workload{
		name: "append",
		setup: func(_ context.Context, s *session) error {
			if o.checked && o.streams < len(s.clients) {
				return errors.New("with expected versions every stream belongs to one worker: there must be at least as many --streams as --workers")
			}
			if (o.toStreams > 0 || o.condition) && (o.grpc || o.checked || o.batch > 0) {
				return errors.New("--to-streams and --condition go with neither --grpc, --batch nor --expected-version-checked")
			}
			return nil
		},
		operation: func(worker, workers int) operation { return newAppend(o, worker, workers, 0) },
	}
}

// writer appends an event or a batch to a stream and returns the stream's version after that,
// when it sent an expected one. A versionConflict says that the stream has another.
type writer interface {
	write(ctx context.Context, c *sender, stream []byte, expected int64) (int64, error)
}

// appendOp appends to the streams worker+1, worker+1+step, ... of which there are count.
type appendOp struct {
	writer
	rng     *rand.Rand
	names   string
	stream  []byte // of the present operation, as requests have it
	written outcome

	worker, step, count int
	versions            []int64 // by share; nil when no version is sent
}

func newAppend(o *options, worker, workers, part int) *appendOp {
	a := &appendOp{rng: newRand(o, worker, part), names: o.prefix + "-append", step: 1, count: o.streams}
	if o.batch > 0 {
		a.names = o.prefix + "-batch"
	}
	events := int64(max(1, o.batch))
	a.written = outcome{part: part, events: events, bytes: events * int64(o.size)}
	if o.grpc {
		a.writer = newCalls(o, a.rng)
	} else if o.toStreams > 0 || o.condition {
		many := newManyPosts(o, a.rng)
		a.writer, a.written.events, a.written.bytes = many, int64(many.streams), int64(many.streams*o.size)
	} else {
		a.writer, a.names = newPosts(o, a.rng), inPath(a.names)
	}
	if o.checked {
		// The streams of a worker are those whose number leaves its own as remainder.
		a.worker, a.step = worker, workers
		a.count = (o.streams - worker + workers - 1) / workers
		a.versions = make([]int64, a.count)
		for i := range a.versions {
			a.versions[i] = unknownVersion
		}
	}
	return a
}

func (a *appendOp) do(ctx context.Context, c *sender) (outcome, error) {
	share := a.rng.IntN(a.count)
	a.stream = appendStream(a.stream[:0], a.names, 1+a.worker+share*a.step)
	var err error
	if a.versions == nil {
		_, err = a.write(ctx, c, a.stream, anyVersion)
	} else {
		err = a.writeChecked(ctx, c, share)
	}
	return a.written, err
}

// writeChecked sends the version that the stream must have. Of a stream that this run has not
// touched it is not known; then it is tried as a new one, and the refusal
// tells the version for a second attempt within the same operation.
func (a *appendOp) writeChecked(ctx context.Context, c *sender, share int) error {
	known := a.versions[share] != unknownVersion
	expected := a.versions[share]
	if !known {
		expected = noStream
	}
	for {
		// Whether a write without an answer was done is not known either.
		a.versions[share] = unknownVersion
		version, err := a.write(ctx, c, a.stream, expected)
		if err == nil {
			a.versions[share] = version
			return nil
		}
		conflict, refused := errors.AsType[*versionConflict](err)
		if !refused || known || conflict.current == expected {
			return err
		}
		known, expected = true, conflict.current
	}
}

// posts writes over HTTP.
type posts struct {
	ids    *idSource
	nextID func(int) event.ID
	body   *batchBody // nil: one event in the form with headers
	events int
	req    request
	resp   response
}

func newPosts(o *options, rng *rand.Rand) *posts {
	p := &posts{ids: newIDs(), events: max(1, o.batch)}
	p.nextID = func(int) event.ID { return p.ids.next() }
	if o.batch > 0 {
		p.body = newBatchBody(o.batch, o.size, rng)
		p.req = o.request("POST", "Content-Type: "+typeEvents)
	} else {
		p.req = o.request("POST", "Content-Type: "+typeJSON, "ES-EventType: "+eventType)
		p.req.body = payload(o.size, rng)
	}
	return p
}

func (p *posts) write(ctx context.Context, c *sender, stream []byte, expected int64) (int64, error) {
	p.req.path = append(append(p.req.path[:0], "/streams/"...), stream...)
	p.req.head = p.req.head[:0]
	if p.body != nil {
		p.req.body = p.body.of(p.events, p.nextID)
	} else {
		p.req.head = append(p.ids.next().AppendTo(append(p.req.head, "ES-EventId: "...)), "\r\n"...)
	}
	if expected != anyVersion {
		p.req.expect(expected)
	}
	// 201 is the rule; a write that was repeated at its own address may be answered 200.
	err := c.expect(ctx, &p.req, &p.resp, 201, 200)
	if expected == anyVersion {
		return anyVersion, err
	}
	if err == nil {
		first, err := numberIn(p.resp.location)
		return first + int64(p.events) - 1, err
	}
	if answered(err) && p.resp.status == 400 && p.resp.version != noVersion {
		return 0, &versionConflict{expected: expected, current: p.resp.version}
	}
	return 0, err
}

// expect adds the header line of an expected version.
func (r *request) expect(version int64) {
	r.head = append(strconv.AppendInt(append(r.head, "ES-ExpectedVersion: "...), version, 10), "\r\n"...)
}

// maxPartBytes is how much of a batch one message has, about, as with the official clients.
const maxPartBytes = 3 << 20

// calls writes over gRPC as the official clients do: single events with a call of Append
// each, batches within one call of BatchAppend that stays open.
type calls struct {
	o     *options
	ids   *idSource
	kind  map[string]string
	data  []byte
	batch []*streams.BatchAppendReq_ProposedMessage
	part  int // events of one message
	stay  *stay
	call  grpc.BidiStreamingClient[streams.BatchAppendReq, streams.BatchAppendResp]
}

func newCalls(o *options, rng *rand.Rand) *calls {
	c := &calls{
		o: o, ids: newIDs(), part: max(1, maxPartBytes/o.size), data: payload(o.size, rng),
		kind: map[string]string{"type": eventType, "content-type": typeJSON},
	}
	for range o.batch {
		c.batch = append(c.batch, &streams.BatchAppendReq_ProposedMessage{Metadata: c.kind, Data: c.data})
	}
	return c
}

func identifier(stream string) *shared.StreamIdentifier {
	return &shared.StreamIdentifier{StreamName: []byte(stream)}
}

func uuid(id event.ID) *shared.UUID {
	most, least := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	return &shared.UUID{Value: &shared.UUID_Structured_{
		Structured: &shared.UUID_Structured{MostSignificantBits: int64(most), LeastSignificantBits: int64(least)},
	}}
}

func (a *calls) write(ctx context.Context, c *sender, stream []byte, expected int64) (version int64, err error) {
	try := a.append
	if len(a.batch) > 0 {
		try = a.appendBatch
	}
	err = c.call(ctx, func(client streams.StreamsClient) (trailer metadata.MD, err error) {
		version, trailer, err = try(metadata.NewOutgoingContext(ctx, atLeader), client, string(stream), expected)
		return trailer, err
	})
	return version, err
}

// append makes a call of Append: the stream, the event, the end.
func (a *calls) append(ctx context.Context, client streams.StreamsClient, stream string, expected int64) (int64, metadata.MD, error) {
	ctx, cancel := context.WithTimeout(ctx, a.o.timeout)
	defer cancel()
	call, err := client.Append(ctx)
	if err != nil {
		return 0, nil, err
	}
	options := &streams.AppendReq_Options{StreamIdentifier: identifier(stream)}
	switch expected {
	case anyVersion:
		options.ExpectedStreamRevision = &streams.AppendReq_Options_Any{Any: &shared.Empty{}}
	case noStream:
		options.ExpectedStreamRevision = &streams.AppendReq_Options_NoStream{NoStream: &shared.Empty{}}
	default:
		options.ExpectedStreamRevision = &streams.AppendReq_Options_Revision{Revision: uint64(expected)}
	}
	event := &streams.AppendReq_ProposedMessage{Id: uuid(a.ids.next()), Metadata: a.kind, Data: a.data}
	if err = call.Send(&streams.AppendReq{Content: &streams.AppendReq_Options_{Options: options}}); err == nil {
		err = call.Send(&streams.AppendReq{Content: &streams.AppendReq_ProposedMessage_{ProposedMessage: event}})
	}
	if err != nil && err != io.EOF { // After io.EOF the answer tells why.
		return 0, nil, err
	}
	answer, err := call.CloseAndRecv()
	if err != nil {
		return 0, call.Trailer(), err
	}
	if wrong := answer.GetWrongExpectedVersion(); wrong != nil {
		return 0, nil, conflictOf(expected, wrong.GetCurrentRevision(), wrong.GetCurrentNoStream() != nil)
	}
	return int64(answer.GetSuccess().GetCurrentRevision()), nil, nil
}

// appendBatch sends a batch within the call of BatchAppend and waits for its answer.
func (a *calls) appendBatch(ctx context.Context, client streams.StreamsClient, stream string, expected int64) (version int64, trailer metadata.MD, err error) {
	if a.stay.ended() {
		a.stay = newStay(ctx, a.o.timeout)
		if a.call, err = client.BatchAppend(a.stay.ctx); err != nil {
			a.stay.end()
			return 0, nil, err
		}
	}
	err = a.stay.within(func() error {
		version, err = a.exchange(stream, expected)
		return err
	})
	if err == nil || answered(err) { // It is the answer to this batch; the call stays open.
		return version, nil, err
	}
	// Only a call that has ended has a trailer.
	a.stay.end()
	_, _ = a.call.Recv()
	return 0, a.call.Trailer(), err
}

func (a *calls) exchange(stream string, expected int64) (int64, error) {
	req := &streams.BatchAppendReq{CorrelationId: uuid(a.ids.next())}
	req.Options = &streams.BatchAppendReq_Options{
		StreamIdentifier: identifier(stream),
		DeadlineOption:   &streams.BatchAppendReq_Options_Deadline{Deadline: durationpb.New(a.o.timeout)},
	}
	switch expected {
	case anyVersion:
		req.Options.ExpectedStreamPosition = &streams.BatchAppendReq_Options_Any{Any: &emptypb.Empty{}}
	case noStream:
		req.Options.ExpectedStreamPosition = &streams.BatchAppendReq_Options_NoStream{NoStream: &emptypb.Empty{}}
	default:
		req.Options.ExpectedStreamPosition = &streams.BatchAppendReq_Options_StreamPosition{StreamPosition: uint64(expected)}
	}
	for rest := a.batch; len(rest) > 0; req.Options = nil {
		n := min(len(rest), a.part)
		for _, m := range rest[:n] {
			m.Id = uuid(a.ids.next())
		}
		req.ProposedMessages, rest = rest[:n], rest[n:]
		req.IsFinal = len(rest) == 0
		if err := a.call.Send(req); err != nil && err != io.EOF {
			return 0, err
		}
	}
	answer, err := a.call.Recv()
	switch {
	case err == io.EOF:
		return 0, io.ErrUnexpectedEOF
	case err != nil:
		return 0, err
	case !proto.Equal(answer.CorrelationId, req.CorrelationId):
		return 0, fmt.Errorf("%w: to a batch that was not sent", errUnasked)
	case answer.GetError() != nil:
		return 0, batchFailure(answer.GetError(), expected)
	}
	return int64(answer.GetSuccess().GetCurrentRevision()), nil
}

// batchFailure puts the refusal of a batch in the driver's words.
func batchFailure(refusal *status.Status, expected int64) error {
	for _, detail := range refusal.Details {
		var wrong shared.WrongExpectedVersion
		if detail.UnmarshalTo(&wrong) == nil {
			return conflictOf(expected, wrong.GetCurrentStreamRevision(), wrong.GetCurrentNoStream() != nil)
		}
	}
	return failureOf(codes.Code(refusal.Code), refusal.Message)
}

func conflictOf(expected int64, current uint64, absent bool) error {
	if absent {
		return &versionConflict{expected, noStream}
	}
	return &versionConflict{expected, int64(current)}
}
