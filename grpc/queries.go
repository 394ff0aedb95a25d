package grpcapi

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/grpc/query"
)

// queryService finds events by what they say of themselves, and appends under conditions.
type queryService struct {
	query.UnimplementedQueryServiceServer
	s *Server
}

// Read sends what a query finds in a part of the log.
func (v *queryService) Read(req *query.ReadReq, stream grpc.ServerStreamingServer[query.ReadResp]) error {
	if err := onlyKnown(req.ProtoReflect()); err != nil {
		return err
	}
	part := api.QueryRead{Backward: req.GetBackward()}
	var err error
	if part.Query, err = queryOf(req.GetQuery()); err != nil {
		return err
	}
	if part.After, err = positionIn("after", req.After); err != nil {
		return err
	}
	if part.Until, err = positionIn("until", req.Until); err != nil {
		return err
	}
	if req.GetLimit() < 0 {
		return invalid("limit must not be negative.")
	}
	return v.s.read(stream, readRequest{
		stream: event.IndexStream, all: true, backward: part.Backward, query: &part.Query, part: &part, limit: cmp.Or(req.GetLimit(), math.MaxInt64),
	}, &queryWords{field: fieldReadEvent, noData: req.GetNoData()})
}

// Subscribe sends what a query finds, and what it finds from now on.
func (v *queryService) Subscribe(req *query.SubscribeReq, stream grpc.ServerStreamingServer[query.SubscribeResp]) error {
	if err := onlyKnown(req.ProtoReflect()); err != nil {
		return err
	}
	asked, err := queryOf(req.GetQuery())
	if err != nil {
		return err
	}
	q := readRequest{stream: event.IndexStream, all: true, subscribed: true, query: &asked}
	if q.from, err = positionIn("after", req.After); err != nil {
		return err
	}
	if q.from >= 0 {
		q.begin = beginsAt
	}
	if err := v.s.authorize(stream.Context(), event.IndexStream, access.ReadRight); err != nil {
		return err
	}
	if err := v.s.opts.CheckAfter(stream.Context(), q.from); err != nil {
		return err
	}
	return v.s.read(stream, q, &queryWords{field: fieldSubscribedEvent})
}

// Head tells the position of the last record of the log.
func (v *queryService) Head(ctx context.Context, _ *query.HeadReq) (*query.HeadResp, error) {
	if err := v.s.freshly(ctx); err != nil {
		return nil, err
	}
	if err := v.s.authorize(ctx, event.IndexStream, access.ReadRight); err != nil {
		return nil, err
	}
	if err := v.s.await(ctx, v.s.opts.OwnLog()); err != nil {
		return nil, err
	}
	last, err := v.s.opts.LastPosition(ctx)
	return &query.HeadResp{Position: positionOrNone(last)}, err
}

// append is the method Append, which receives its message itself.
func (v *queryService) append(_ any, stream grpc.ServerStream) error {
	g, err := v.s.gatherOne(stream, api.DoorQuery, recordsRequest{conditional: true})
	if err != nil {
		return err
	}
	answer := &query.AppendResp{Position: g.result.Position, Repeated: g.result.Idempotent}
	for i, span := range g.result.Streams {
		answer.Streams = append(answer.Streams, &query.AppendResp_Span{Stream: g.write.Many.Streams[i], First: span.First, Last: span.Last})
	}
	stream.(*single).answer = answer
	return nil
}

// queryOf reads a query, and checks it as JSON is checked.
func queryOf(m *query.Query) (q event.Query, err error) {
	if m == nil {
		return q, &event.BadRequest{Text: "query is required."}
	}
	if err := smallQuery(proto.Size(m)); err != nil {
		return q, err
	}
	q.All = m.GetAll()
	for n, i := range m.GetItems() {
		if i.Correlation != nil && i.GetCorrelation() == "" {
			return q, &event.BadRequest{Text: fmt.Sprintf("items[%d].correlation: empty", n)}
		}
		q.Items = append(q.Items, event.QueryItem{
			Types: i.GetTypes(), Tags: i.GetTags(), Categories: i.GetCategories(), Streams: i.GetStreams(), Correlation: i.GetCorrelation(),
		})
	}
	return q, q.Check()
}

func smallQuery(bytes int) error {
	if bytes > event.MaxQueryBytes {
		return &event.BadRequest{Text: fmt.Sprintf("the query has %d bytes, at most %d are possible", bytes, event.MaxQueryBytes)}
	}
	return nil
}

// positionIn reads a position that need not be there; -1 when it is not.
func positionIn(field string, position *int64) (int64, error) {
	switch {
	case position == nil:
		return -1, nil
	case *position < 0:
		return -1, &event.BadRequest{Text: field + " must be a position."}
	}
	return *position, nil
}

// condition is what must not have happened, as a client sends it.
type condition struct {
	query event.Query
	after int64
	wrong error
}

// decodeCondition takes a condition. One that is far too large is not decoded, and of those too
// many only the first is kept.
func (r *recordsRequest) decodeCondition(b []byte) bool {
	var m query.AppendReq_Condition
	c := condition{after: -1}
	if len(b) > maxQuery {
		if c.wrong = smallQuery(len(b)); !isMessage(b) {
			return false
		}
	} else {
		if proto.Unmarshal(b, &m) != nil {
			return false
		}
		r.unknown = cmp.Or(r.unknown, onlyKnown(m.ProtoReflect()))
		if c.query, c.wrong = queryOf(m.GetQuery()); c.wrong == nil {
			c.after, c.wrong = positionIn("after", m.After)
		}
	}
	if len(r.conditions) <= api.MaxConditions {
		r.conditions = append(r.conditions, c)
	}
	return true
}

// refusedBy is the answer to Append: it tells of all checks and conditions that do not hold, or of
// as many as trailers can have. shown is Node.Shown, and the request has so many checks.
func refusedBy(v *event.Violations, checks int, shown []bool) error {
	detailed := &query.Violation{Position: v.Position}
	size := 0
	fits := func(m proto.Message) bool {
		size += proto.Size(m)
		return size <= maxDetails
	}
	for i, c := range v.Conditions {
		conflict := &query.Violation_Conflict{Index: int32(c.Index), Position: c.Event.Position}
		if e := &c.Event; shown[i] {
			conflict.Stream, conflict.Number, conflict.Id, conflict.Type = validText(e.Stream), e.Number, e.ID.String(), validText(e.Type)
		}
		if fits(conflict) || i == 0 {
			detailed.Conditions = append(detailed.Conditions, conflict)
		}
	}
	for _, c := range v.Checks {
		one := &query.Violation_Check{Stream: c.Stream, Expected: c.Expected, Actual: c.Actual}
		if c.Index < checks {
			one.Index = new(int32(c.Index))
		}
		if fits(one) || len(detailed.Checks)+len(detailed.Conditions) == 0 {
			detailed.Checks = append(detailed.Checks, one)
		}
	}
	body, err := proto.Marshal(detailed)
	if err != nil {
		return fmt.Errorf("encode what does not hold: %w", err)
	}
	return refusal(codes.FailedPrecondition, domainStreams, "APPEND_CONSISTENCY_VIOLATION", v.Error(), detail{"annals.query.v1.Violation", body})
}
