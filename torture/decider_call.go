package torture

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/grpc/query"
)

// calls reports whether a decider uses gRPC now, which half of its reads and writes do.
func (d *decider) calls() bool { return d.rng.IntN(2) == 0 }

// look reads what a query finds, by either interface. It is not ok unless all was read.
func (d *decider) look(ctx context.Context, q client.Query) (p client.QueryPage, ok bool) {
	if d.calls() {
		p, err := d.lookByCall(ctx, q)
		return p, err == nil && len(p.Events) < client.PageLimit
	}
	a, err := d.do(ctx, d.choose(), asks(q, client.QueryOptions{Count: client.PageLimit}))
	return p, err == nil && a.Decode(&p) == nil && p.Next == nil
}

func (d *decider) lookByCall(ctx context.Context, q client.Query) (p client.QueryPage, err error) {
	ctx, conn, end, err := d.call(ctx, d.choose())
	if err != nil {
		return p, err
	}
	defer end()
	stream, err := query.NewQueryServiceClient(conn).Read(ctx, &query.ReadReq{Query: queryMessage(q), Limit: client.PageLimit, NoData: true})
	for first := true; err == nil; first = false {
		m, failed := stream.Recv()
		switch {
		case errors.Is(failed, io.EOF):
			return p, nil
		case failed != nil:
			err = failed
		case first:
			p.Position = m.Position
		default:
			e := m.Event
			p.Events = append(p.Events, client.Found{Position: e.Position, Stream: e.Stream, Number: e.Number, ID: e.Id, Type: e.Type, Tags: e.Tags})
		}
	}
	return p, err
}

func queryMessage(q client.Query) *query.Query {
	m := &query.Query{}
	for _, i := range q.Items {
		m.Items = append(m.Items, &query.Query_Item{Types: i.Types, Tags: i.Tags, Categories: i.Categories, Streams: i.Streams})
	}
	return m
}

// send makes one attempt to write a decision, by either interface, and returns which node was
// asked, -1 for one that is not known.
func (d *decider) send(ctx context.Context, dec *decision, s *stream, first ref) (v verdict, node int) {
	if !dec.plain && d.calls() {
		to := d.choose()
		return d.sendByCall(ctx, to, dec, s, first), to.Index
	}
	a, err := d.do(ctx, d.choose(), d.request(dec, s, first))
	if node = -1; a != nil {
		node = a.from.Index
	}
	return dec.judge(s, a, err), node
}

func (d *decider) sendByCall(ctx context.Context, to Target, dec *decision, s *stream, first ref) (v verdict) {
	dec.told, dec.broken = client.Appended{}, client.ViolationError{}
	ctx, conn, end, err := d.call(ctx, to)
	if err != nil {
		return verdict{outcome: refused, odd: err.Error()}
	}
	defer end()
	req := &query.AppendReq{}
	for i := range d.ids.decides(first) {
		r := first + ref(i)
		var tags []*structpb.Value
		for _, tag := range dec.tags() {
			tags = append(tags, structpb.NewStringValue(tag))
		}
		req.Records = append(req.Records, &query.AppendRecord{
			RecordId: new(d.ids.id(r).String()), Data: []byte(d.ids.data(r)), Stream: s.name,
			Properties: map[string]*structpb.Value{"$tags": structpb.NewListValue(&structpb.ListValue{Values: tags})},
			Schema:     &query.AppendRecord_Schema{Format: query.AppendRecord_FORMAT_JSON, Name: d.ids.eventType(r)},
		})
	}
	for _, c := range dec.checks {
		req.Checks = append(req.Checks, &query.AppendReq_StreamCheck{Stream: c.Stream, ExpectedState: c.Expected})
	}
	for _, c := range dec.conditions {
		req.Conditions = append(req.Conditions, &query.AppendReq_Condition{Query: queryMessage(c.Query), After: c.After})
	}
	done, err := query.NewQueryServiceClient(conn).Append(ctx, req)
	said, isBroken := status.Convert(err), false
	for _, detail := range said.Details() {
		violation, ok := detail.(*query.Violation)
		if !ok {
			continue
		}
		isBroken, dec.broken.Position = true, violation.Position
		for _, c := range violation.Conditions {
			dec.broken.Conflicts = append(dec.broken.Conflicts, client.Conflict{Condition: int(c.Index), Position: c.Position, Stream: c.Stream, Number: c.Number, ID: c.Id, Type: c.Type})
		}
		for _, c := range violation.Checks {
			check := -1
			if c.Index != nil {
				check = int(*c.Index)
			}
			dec.broken.Violations = append(dec.broken.Violations, client.Violation{Check: check, Stream: c.Stream, Expected: c.Expected, Actual: c.Actual})
		}
	}
	if v.outcome, v.odd = judgeStatus(said, isBroken, to); err != nil {
		return v
	}
	dec.told = client.Appended{Position: done.Position, Repeated: done.Repeated}
	for _, s := range done.Streams {
		dec.told.Streams = append(dec.told.Streams, client.AppendedStream{Stream: s.Stream, First: s.First, Last: s.Last})
	}
	if v = dec.ofOneStream(v); len(done.Streams) > 0 {
		v.number = done.Streams[0].First
	}
	d.count.add(ofDecisions, "byCall", 1)
	return v
}
