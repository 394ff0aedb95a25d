package grpcapi

import (
	"errors"
	"io"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
)

// Append writes the events of one call: options come first, and its end commits.
func (v *streamsService) Append(stream grpc.ClientStreamingServer[streams.AppendReq, streams.AppendResp]) error {
	a := new(appending)
	defer v.s.drop(&a.kept)
	written, err := v.append(stream, a)
	v.s.records.noteAppend(callOf(stream.Context()), streams.Streams_Append_FullMethodName, a, err)
	if version, ok := errors.AsType[*event.WrongExpectedVersion](err); ok {
		return stream.SendMsg(&streams.AppendResp{Result: &streams.AppendResp_WrongExpectedVersion_{WrongExpectedVersion: conflict(version)}})
	}
	if err != nil {
		return err
	}
	return stream.SendMsg((*appendAnswer)(&written))
}

// append receives an append and does it.
func (v *streamsService) append(stream grpc.ClientStreamingServer[streams.AppendReq, streams.AppendResp], a *appending) (event.Written, error) {
	ctx := stream.Context()
	by := callOf(ctx)
	var r appendRequest
	err := stream.RecvMsg(&r)
	if err != nil && err != io.EOF {
		return event.Written{}, received(ctx, err)
	}
	if !r.isOptions {
		return event.Written{}, invalid("the first message has no options")
	}
	if err := r.options.aim(a); err != nil {
		return event.Written{}, err
	}
	a.Late = true
	if err := v.s.authorize(ctx, a.Stream, access.WriteRight); err != nil {
		return event.Written{}, err
	}
	for {
		err := stream.RecvMsg(&r)
		if err == io.EOF {
			break
		}
		if err != nil {
			return event.Written{}, received(ctx, err)
		}
		if !r.isEvent {
			return event.Written{}, invalid("a message after the first is not an event")
		}
		if err := v.s.add(by, a, &r.event[0]); err != nil {
			return event.Written{}, err
		}
	}
	// The events may have taken long.
	if err := v.s.authorize(ctx, a.Stream, access.WriteRight); err != nil {
		return event.Written{}, err
	}
	if a.end, err = v.s.opts.Begin(api.RecordsAppend(a.Stream)); err != nil {
		return event.Written{}, err
	}
	return v.s.write(ctx, &a.Write)
}

// conflict tells what was expected and what is, in the fields of today and in those of 20.6.0.
func conflict(e *event.WrongExpectedVersion) *streams.AppendResp_WrongExpectedVersion {
	c := &streams.AppendResp_WrongExpectedVersion{}
	if e.Current < 0 {
		c.CurrentRevisionOption = &streams.AppendResp_WrongExpectedVersion_CurrentNoStream{CurrentNoStream: &shared.Empty{}}
		c.CurrentRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_NoStream_20_6_0{NoStream_20_6_0: &shared.Empty{}}
	} else {
		c.CurrentRevisionOption = &streams.AppendResp_WrongExpectedVersion_CurrentRevision{CurrentRevision: uint64(e.Current)}
		c.CurrentRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_CurrentRevision_20_6_0{CurrentRevision_20_6_0: uint64(e.Current)}
	}
	switch e.Expected {
	case event.AnyVersion:
		c.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedAny{ExpectedAny: &shared.Empty{}}
		c.ExpectedRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_Any_20_6_0{Any_20_6_0: &shared.Empty{}}
	case event.StreamExists:
		c.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedStreamExists{ExpectedStreamExists: &shared.Empty{}}
		c.ExpectedRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_StreamExists_20_6_0{StreamExists_20_6_0: &shared.Empty{}}
	case event.NoStream:
		c.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedNoStream{ExpectedNoStream: &shared.Empty{}}
		c.ExpectedRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_ExpectedRevision_20_6_0{ExpectedRevision_20_6_0: noRevision}
	default:
		c.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedRevision{ExpectedRevision: uint64(e.Expected)}
		c.ExpectedRevisionOption_20_6_0 = &streams.AppendResp_WrongExpectedVersion_ExpectedRevision_20_6_0{ExpectedRevision_20_6_0: uint64(e.Expected)}
	}
	return c
}
