package grpcapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/google/uuid"
	v2 "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/streams/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
)

// manyService appends to several streams at once.
type manyService struct {
	v2.UnimplementedStreamsServiceServer
	s *Server
}

// isToMany reports whether a method appends to several streams.
func isToMany(method string) bool { return methods[method] == &api.AppendMany }

// gathering is a write to several streams while its call lasts.
type gathering struct {
	*api.Gathering
	kept
	s      *Server
	call   *call
	door   string
	write  *event.Write // nil: it was not begun
	end    func()       // ends what changing began; nil: it began nothing
	result event.Written
	// streams of it that say who may do what: appends to them are recorded
	recorded []string
}

// about notes that the write is about a stream.
func (g *gathering) about(stream string) {
	if api.RecordsAppend(stream) && !slices.Contains(g.recorded, stream) {
		g.recorded = append(g.recorded, stream)
	}
}

// gather has do receive a write, and does it.
func (s *Server) gather(ctx context.Context, door string, do func(g *gathering) error) (*gathering, error) {
	g := &gathering{Gathering: s.opts.Gather(), s: s, call: callOf(ctx), door: door}
	defer s.drop(&g.kept)
	err := do(g)
	if err == nil {
		err = g.commit(ctx)
	}
	s.opts.Many.Count(door, g.write, g.result, err)
	if err != nil {
		err = g.refusal(ctx, err)
	}
	g.note(err)
	return g, err
}

// commit does the write. It may have taken long to receive it, so rights are looked at again.
func (g *gathering) commit(ctx context.Context) (err error) {
	w, err := g.Write()
	if err != nil {
		return err
	}
	written, checked := g.Streams()
	if err := g.call.check(ctx); err != nil {
		return err
	}
	if err := g.s.opts.PermitMany(ctx, g.call.who(), written, checked); err != nil {
		return err
	}
	if g.end, err = g.s.opts.Begin(len(g.recorded) > 0); err != nil {
		return err
	}
	g.write, g.call.streams = w, len(written)
	g.result, err = g.s.submit(ctx, w)
	return err
}

// note has the write recorded, once for each stream for which it is.
func (g *gathering) note(err error) {
	if g.end != nil {
		defer g.end()
	}
	for _, stream := range g.recorded {
		var p *problem
		if err != nil {
			p = g.s.problemOf(g.call.path, err)
		}
		g.s.records.record(g.call.who().Login, g.call.from, g.call.path, streamOf(stream), p)
	}
}

// take takes a record for a stream.
func (g *gathering) take(stream string, r *record) error {
	e := &r.event
	if !r.hasID {
		e.ID = event.ID(uuid.New())
	}
	entry := int64(len(e.Data) + len(e.Metadata) + len(e.Type) + len(stream) + recordBytes)
	if g.entry+entry > api.MaxAppendBytes {
		return &api.LargeMany{Size: g.entry + entry, Max: api.MaxAppendBytes}
	}
	if err := g.Add(stream, *e); err != nil {
		return inField(fmt.Sprintf("records[%d]", r.place), err)
	}
	g.call.events++
	return g.s.keep(g.call, &g.kept, entry)
}

// inField tells which field of a request is not right.
func inField(field string, err error) error {
	if bad, ok := errors.AsType[*event.BadRequest](err); ok {
		return badField(field, bad.Text)
	}
	if errors.Is(err, api.ErrLongName) { // Of a type: names of streams were looked at.
		return badField(field, fmt.Sprintf("%s: the type has more than %d bytes", field, event.MaxNameBytes))
	}
	return err
}

// AppendSession writes what its messages say, each of which is for one stream. The end of the
// client's half commits.
func (m *manyService) AppendSession(stream grpc.ClientStreamingServer[v2.AppendRequest, v2.AppendSessionResponse]) error {
	ctx := stream.Context()
	g, err := m.s.gather(ctx, api.DoorSession, func(g *gathering) error {
		for n := 0; ; n++ {
			var r sessionRequest
			err := stream.RecvMsg(&r)
			switch {
			case err == io.EOF && n == 0:
				return refusal(codes.FailedPrecondition, domainStreams, "APPEND_SESSION_NO_REQUESTS", "The append session has no requests.")
			case err == io.EOF:
				return nil
			case err != nil:
				return received(ctx, err)
			}
			if err := g.session(ctx, &r); err != nil {
				return err
			}
		}
	})
	if err != nil {
		return err
	}
	answer := &v2.AppendSessionResponse{Position: g.result.Position}
	for i, span := range g.result.Streams {
		answer.Output = append(answer.Output, &v2.AppendResponse{Stream: g.write.Many.Streams[i], StreamRevision: span.Last})
	}
	return stream.SendMsg(answer)
}

// session takes a message of a session.
func (g *gathering) session(ctx context.Context, r *sessionRequest) error {
	if r.unknown != nil {
		return r.unknown
	}
	if err := checkName(r.stream); err != nil {
		return badField("stream", err.Error())
	}
	g.about(r.stream)
	if err := g.s.authorize(ctx, r.stream, access.WriteRight); err != nil {
		return err
	}
	if written, _ := g.Streams(); slices.Contains(written, r.stream) {
		return refusal(codes.Aborted, domainStreams, "STREAM_ALREADY_IN_APPEND_SESSION",
			fmt.Sprintf("Stream '%s' is in the append session already.", r.stream),
			detail{streamErrors + "StreamAlreadyInAppendSessionErrorDetails", appendText(nil, 1, r.stream)})
	}
	if len(r.records) == 0 {
		return badField("records", "records: there is none for the stream")
	}
	for i := range r.records {
		one := &r.records[i]
		if err := cmp.Or(one.unknown, one.wrong); err != nil {
			return err
		}
		if err := g.take(r.stream, one); err != nil {
			return err
		}
	}
	switch {
	case r.expected == event.AnyVersion:
		return nil
	case r.expected < 0 && r.expected != event.NoStream && r.expected != event.StreamExists:
		return badField("expected_revision", fmt.Sprintf("expected_revision: %d is not one", r.expected))
	}
	return inField("expected_revision", g.Check(r.stream, r.expected))
}

// records is the method AppendRecords, which receives its message itself.
func (m *manyService) records(_ any, stream grpc.ServerStream) error {
	g, err := m.s.gatherOne(stream, api.DoorRecords, recordsRequest{})
	if err != nil {
		return err
	}
	answer := &v2.AppendRecordsResponse{Position: g.result.Position}
	for i, span := range g.result.Streams {
		answer.Revisions = append(answer.Revisions, &v2.StreamRevision{Stream: g.write.Many.Streams[i], Revision: span.Last})
	}
	stream.(*single).answer = answer
	return nil
}

// gatherOne does the write of a call that has one message, of which r says what it is.
func (s *Server) gatherOne(stream grpc.ServerStream, door string, r recordsRequest) (*gathering, error) {
	ctx := stream.Context()
	return s.gather(ctx, door, func(g *gathering) error {
		if err := stream.RecvMsg(&r); err != nil {
			return err
		}
		return g.request(ctx, &r)
	})
}

// request takes the message of AppendRecords: first its form, then the rights to all streams that
// it names, then its values.
func (g *gathering) request(ctx context.Context, r *recordsRequest) error {
	if err := r.form(); err != nil {
		return err
	}
	var written, checked []string
	named := map[string]bool{}
	for i := range r.records {
		if stream := r.records[i].stream; !named[stream] {
			named[stream] = true
			written = append(written, stream)
			g.about(stream)
		}
	}
	for i := range r.checks {
		if stream := r.checks[i].stream; !named[stream] {
			checked = append(checked, stream)
		}
	}
	if len(r.conditions) > 0 {
		checked = append(checked, event.IndexStream)
	}
	if err := g.s.opts.PermitMany(ctx, g.call.who(), written, checked); err != nil {
		return err
	}
	for i := range r.conditions {
		if err := g.Condition(r.conditions[i].query, r.conditions[i].after); err != nil {
			return inField(fmt.Sprintf("conditions[%d]", i), err)
		}
	}
	for i := range r.checks {
		if err := g.Check(r.checks[i].stream, r.checks[i].expected); err != nil {
			return inField(fmt.Sprintf("checks[%d]", i), err)
		}
	}
	for i := range r.records {
		if err := g.take(r.records[i].stream, &r.records[i]); err != nil {
			return err
		}
	}
	return nil
}

// form returns what is wrong with the request, whatever its values are.
func (r *recordsRequest) form() error {
	if r.unknown != nil {
		return r.unknown
	}
	for i := range r.records {
		if err := cmp.Or(r.records[i].unknown, r.records[i].wrong); err != nil {
			return err
		}
		if err := checkName(r.records[i].stream); err != nil {
			return badField(fmt.Sprintf("records[%d].stream", i), fmt.Sprintf("records[%d]: %s", i, err))
		}
	}
	for i := range r.checks {
		field := fmt.Sprintf("checks[%d]", i)
		if !r.checks[i].given {
			return badField(field, field+": it says nothing")
		}
		if err := checkName(r.checks[i].stream); err != nil {
			return badField(field+".stream_state.stream", field+": "+err.Error())
		}
	}
	for i := range r.conditions {
		if err := r.conditions[i].wrong; err != nil {
			field := fmt.Sprintf("conditions[%d]", i)
			return badField(field, field+": "+err.Error())
		}
	}
	return nil
}

// refusal is the answer to an error of a write to several streams.
func (g *gathering) refusal(ctx context.Context, err error) error {
	if violations, ok := errors.AsType[*event.Violations](err); ok {
		switch g.door {
		case api.DoorSession:
			return conflictOf(violations, g.write.Many.Streams)
		case api.DoorQuery:
			return refusedBy(violations, len(g.write.Many.Checks), g.s.opts.Shown(ctx, g.call.who(), violations))
		}
		return violated(violations)
	}
	if large, ok := errors.AsType[*api.LargeEvent](err); ok {
		body := appendText(appendText(nil, 1, large.Stream), 2, large.ID.String())
		return refusal(codes.InvalidArgument, domainStreams, "APPEND_RECORD_SIZE_EXCEEDED", large.Error(),
			detail{streamErrors + "AppendRecordSizeExceededErrorDetails", appendSizes(body, 3, int64(large.Size), int64(large.Max))})
	}
	large, ok := errors.AsType[*api.LargeMany](err)
	if errors.Is(err, event.ErrTooLarge) { // Each event was within its limit.
		large, ok = &api.LargeMany{Size: int64(g.write.Size()), Max: g.s.opts.MaxAppendBytes}, true
	}
	if ok {
		return refusal(codes.Aborted, domainStreams, "APPEND_TRANSACTION_SIZE_EXCEEDED", large.Error(),
			detail{streamErrors + "AppendTransactionSizeExceededErrorDetails", appendSizes(nil, 1, large.Size, large.Max)})
	}
	return err
}

// appendSizes appends two numbers of type int32, the first with the number field.
func appendSizes(b []byte, field protowire.Number, size, most int64) []byte {
	b = appendNumber(b, field, uint64(min(size, math.MaxInt32)))
	return appendNumber(b, field+1, uint64(min(most, math.MaxInt32)))
}

// conflictOf is the answer to a session: it tells of the first stream alone.
func conflictOf(v *event.Violations, streams []string) error {
	first := slices.MinFunc(v.Checks, func(a, b event.Violation) int {
		return slices.Index(streams, a.Stream) - slices.Index(streams, b.Stream)
	})
	switch first.Actual {
	case event.Tombstoned:
		return refusal(codes.FailedPrecondition, domainStreams, "STREAM_TOMBSTONED", fmt.Sprintf("Stream '%s' has been tombstoned.", first.Stream),
			detail{streamErrors + "StreamTombstonedErrorDetails", appendText(nil, 1, first.Stream)})
	case event.SoftDeleted:
		first.Actual = first.Last
	}
	body := appendSigned(appendSigned(appendText(nil, 1, first.Stream), 2, first.Expected), 3, first.Actual)
	return refusal(codes.FailedPrecondition, domainStreams, "STREAM_REVISION_CONFLICT",
		fmt.Sprintf("Append failed due to a revision conflict on stream '%s'. Expected revision: %d. Actual revision: %d.", first.Stream, first.Expected, first.Actual),
		detail{streamErrors + "StreamRevisionConflictErrorDetails", body})
}

// violated is the answer to AppendRecords: it tells of all checks that do not hold, or of as many
// as trailers can have.
func violated(v *event.Violations) error {
	var body []byte
	for i := range v.Checks {
		c := &v.Checks[i]
		state := appendSigned(appendSigned(appendText(nil, 1, c.Stream), 2, c.Expected), 3, c.Actual)
		one := appendMessage(appendNumber(nil, 1, uint64(c.Index)), 2, state)
		if len(body)+len(one) > maxDetails && i > 0 {
			break
		}
		body = appendMessage(body, 1, one)
	}
	return refusal(codes.FailedPrecondition, domainStreams, "APPEND_CONSISTENCY_VIOLATION", v.Error(),
		detail{streamErrors + "AppendConsistencyViolationErrorDetails", body})
}
