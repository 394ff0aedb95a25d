package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"

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

// maxPartBytes is how much of a batch one message has, about, as with the official clients.
const maxPartBytes = 3 << 20

// caller appends over gRPC as the official clients do: single events with a call of Append
// each, batches within one call of BatchAppend that stays open.
type caller struct {
	o   *options
	ids *idSource

	// Of Append.
	options *streams.AppendReq_Options
	first   *streams.AppendReq
	event   *streams.AppendReq_ProposedMessage
	second  *streams.AppendReq

	// Of BatchAppend.
	batch []*streams.BatchAppendReq_ProposedMessage
	part  int // events of one message
	stay  *stay
	call  grpc.BidiStreamingClient[streams.BatchAppendReq, streams.BatchAppendResp]
}

func newCaller(o *options, batch int, ids *idSource, data []byte) *caller {
	c := &caller{o: o, ids: ids, options: &streams.AppendReq_Options{}, part: max(1, maxPartBytes/o.size)}
	kind := map[string]string{"type": eventType, "content-type": typeJSON}
	c.first = &streams.AppendReq{Content: &streams.AppendReq_Options_{Options: c.options}}
	c.event = &streams.AppendReq_ProposedMessage{Metadata: kind, Data: data}
	c.second = &streams.AppendReq{Content: &streams.AppendReq_ProposedMessage_{ProposedMessage: c.event}}
	for range batch {
		c.batch = append(c.batch, &streams.BatchAppendReq_ProposedMessage{Metadata: kind, Data: data})
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

// write appends one event or batch and returns the stream's version after it.
func (a *caller) write(ctx context.Context, c *sender, stream string, expected int64) (version int64, err error) {
	try := a.append
	if len(a.batch) > 0 {
		try = a.appendBatch
	}
	err = c.call(ctx, func(client streams.StreamsClient) (trailer metadata.MD, err error) {
		version, trailer, err = try(metadata.NewOutgoingContext(ctx, atLeader), client, stream, expected)
		return trailer, err
	})
	return version, err
}

// append makes a call of Append: the stream, the event, the end.
func (a *caller) append(ctx context.Context, client streams.StreamsClient, stream string, expected int64) (int64, metadata.MD, error) {
	ctx, cancel := context.WithTimeout(ctx, a.o.timeout)
	defer cancel()
	call, err := client.Append(ctx)
	if err != nil {
		return 0, nil, err
	}
	a.options.StreamIdentifier = identifier(stream)
	switch expected {
	case anyVersion:
		a.options.ExpectedStreamRevision = &streams.AppendReq_Options_Any{Any: &shared.Empty{}}
	case noStream:
		a.options.ExpectedStreamRevision = &streams.AppendReq_Options_NoStream{NoStream: &shared.Empty{}}
	default:
		a.options.ExpectedStreamRevision = &streams.AppendReq_Options_Revision{Revision: uint64(expected)}
	}
	a.event.Id = uuid(a.ids.next())
	if err = call.Send(a.first); err == nil {
		err = call.Send(a.second)
	}
	if err != nil && err != io.EOF { // After io.EOF the answer tells why.
		return 0, nil, err
	}
	answer, err := call.CloseAndRecv()
	if err != nil {
		return 0, call.Trailer(), err
	}
	if wrong := answer.GetWrongExpectedVersion(); wrong != nil {
		current := int64(wrong.GetCurrentRevision())
		if wrong.GetCurrentNoStream() != nil {
			current = noStream
		}
		return 0, nil, &versionConflict{expected, current}
	}
	return int64(answer.GetSuccess().GetCurrentRevision()), nil, nil
}

// appendBatch sends a batch within the call of BatchAppend and waits for its answer.
func (a *caller) appendBatch(ctx context.Context, client streams.StreamsClient, stream string, expected int64) (version int64, trailer metadata.MD, err error) {
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
	switch err.(type) {
	case nil, *versionConflict, *callError: // The answer to this batch; the call stays open.
		return version, nil, err
	}
	// Only a call that has ended has a trailer.
	a.stay.end()
	_, _ = a.call.Recv()
	return 0, a.call.Trailer(), err
}

func (a *caller) exchange(stream string, expected int64) (int64, error) {
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
			current := int64(wrong.GetCurrentStreamRevision())
			if wrong.GetCurrentNoStream() != nil {
				current = noStream
			}
			return &versionConflict{expected, current}
		}
	}
	return &callError{codes.Code(refusal.Code), refusal.Message}
}
