package grpcapi_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	grpcapi "github.com/annalsdb/annals/grpc"
	"github.com/annalsdb/annals/grpc/query"
	"github.com/annalsdb/annals/internal/check"
)

// tagged is a record of a type for a stream, with tags.
func tagged(stream, eventType, tags string) *query.AppendRecord {
	return &query.AppendRecord{
		RecordId: new(uuid.NewString()), Stream: stream, Data: []byte(`{"n":1}`), Schema: &query.AppendRecord_Schema{Format: query.AppendRecord_FORMAT_JSON, Name: eventType},
		Properties: map[string]*structpb.Value{"$tags": structpb.NewStringValue(tags)},
	}
}

func asking(items ...*query.Query_Item) *query.Query { return &query.Query{Items: items} }

// appending is a write of records, with conditions.
func appending(t *testing.T, c query.QueryServiceClient, records []*query.AppendRecord, conditions ...*query.AppendReq_Condition) int64 {
	t.Helper()
	return check.Value(c.Append(as(t, "admin"), &query.AppendReq{Records: records, Conditions: conditions})).Must(t).Position
}

// found is what a read sends: stream/number of each event, and the position up to which it holds.
func found(t testing.TB, c query.QueryServiceClient, who string, req *query.ReadReq) (events string, position *int64, all []*query.Event) {
	t.Helper()
	stream := check.Value(c.Read(as(t, who), req)).Must(t)
	for n := 0; ; n++ {
		m, err := stream.Recv()
		switch {
		case err == io.EOF && n > 0:
			return strings.TrimSpace(events), position, all
		case err != nil:
			return status.Code(err).String() + ": " + status.Convert(err).Message(), nil, nil
		case n == 0:
			position = m.Position
		default:
			events += fmt.Sprintf(" %s/%d", m.Event.Stream, m.Event.Number)
			all = append(all, m.Event)
		}
	}
}

// following is a subscription that a test takes messages of.
type followed struct {
	*testing.T
	stream grpc.ServerStreamingClient[query.SubscribeResp]
	at     int64 // position of the last message
}

func follow(t *testing.T, c query.QueryServiceClient, req *query.SubscribeReq) *followed {
	t.Helper()
	return &followed{t, check.Value(c.Subscribe(as(t, "admin"), req)).Must(t), -1}
}

func (f *followed) expect(want ...string) {
	f.Helper()
	for _, w := range want {
		m := check.Value(f.stream.Recv()).Must(f.T)
		got := ""
		switch is := m.Content.(type) {
		case *query.SubscribeResp_Event:
			got, f.at = fmt.Sprintf("%s/%d", is.Event.Stream, is.Event.Number), is.Event.Position
		case *query.SubscribeResp_CaughtUp_:
			got = "caught-up"
		case *query.SubscribeResp_Checkpoint_:
			got, f.at = "checkpoint", is.Checkpoint.Position
		}
		check.Equal(f.T, got, w)
	}
}

func TestQueryReads(t *testing.T) {
	conn, admin := ownNode(t)
	c := query.NewQueryServiceClient(conn)
	at := []int64{appending(t, c, []*query.AppendRecord{tagged("show-7", "Taken", "seat:12,show:7")})}
	for _, r := range []*query.AppendRecord{tagged("show-7", "Freed", "seat:12"), tagged("hall-1", "Taken", "seat:13"), tagged("show-8", "Taken", "seat:12"), tagged("show-9", "Taken", "seat:12")} {
		at = append(at, appending(t, c, []*query.AppendRecord{r}))
	}
	remove(t, admin, "show-9", false)
	last := check.Value(c.Head(as(t, "admin"), &query.HeadReq{})).Must(t).GetPosition()
	if last <= at[4] {
		t.Errorf("the head is %d", last)
	}
	seat := asking(&query.Query_Item{Tags: []string{"seat:12"}})
	for name, test := range map[string]struct {
		req      *query.ReadReq
		want     string
		position int64
	}{
		"tag":               {&query.ReadReq{Query: seat}, "show-7/0 show-7/1 show-8/0", last},
		"items":             {&query.ReadReq{Query: asking(&query.Query_Item{Types: []string{"Freed"}}, &query.Query_Item{Categories: []string{"hall"}}, &query.Query_Item{Streams: []string{"show-7"}, Tags: []string{"show:7"}})}, "show-7/0 show-7/1 hall-1/0", last},
		"all":               {&query.ReadReq{Query: &query.Query{All: true}, Limit: 3}, "show-7/0 show-7/1 hall-1/0", last},
		"none":              {&query.ReadReq{Query: asking(&query.Query_Item{Correlation: new("x")})}, "", last},
		"limit":             {&query.ReadReq{Query: seat, Limit: 2}, "show-7/0 show-7/1", last},
		"backward":          {&query.ReadReq{Query: seat, Backward: true, Limit: 2}, "show-8/0 show-7/1", last},
		"after":             {&query.ReadReq{Query: seat, After: &at[0]}, "show-7/1 show-8/0", last},
		"until":             {&query.ReadReq{Query: seat, Until: &at[1]}, "show-7/0 show-7/1", at[1]},
		"between records":   {&query.ReadReq{Query: seat, After: new(at[0] - 1), Until: new(at[1] + 1)}, "show-7/0 show-7/1", at[1] + 1},
		"backward, a part":  {&query.ReadReq{Query: seat, Backward: true, After: &at[0], Until: &at[3]}, "show-8/0 show-7/1", at[3]},
		"not reached":       {&query.ReadReq{Query: seat, Until: new(int64(1 << 40))}, "Unavailable: This node has not reached 1099511627776 yet", 0},
		"beyond the end":    {&query.ReadReq{Query: seat, After: new(int64(1 << 40))}, "InvalidArgument: Position 1099511627776 lies beyond the end of the log.", 0},
		"no query":          {&query.ReadReq{}, "InvalidArgument: query is required.", 0},
		"no items":          {&query.ReadReq{Query: asking()}, "InvalidArgument: items: at least one is needed", 0},
		"an empty item":     {&query.ReadReq{Query: asking(&query.Query_Item{})}, "InvalidArgument: items[0]: at least one member is needed", 0},
		"an empty text":     {&query.ReadReq{Query: asking(&query.Query_Item{Correlation: new("")})}, "InvalidArgument: items[0].correlation: empty", 0},
		"many items":        {&query.ReadReq{Query: asking(make([]*query.Query_Item, 33)...)}, "InvalidArgument: items: 33, at most 32 are possible", 0},
		"a large query":     {&query.ReadReq{Query: asking(&query.Query_Item{Types: []string{strings.Repeat("x", event.MaxQueryBytes)}})}, "InvalidArgument: the query has 65544 bytes, at most 65536 are possible", 0},
		"a very large one":  {&query.ReadReq{Query: asking(&query.Query_Item{Types: []string{strings.Repeat("x", 2*event.MaxQueryBytes)}})}, "ResourceExhausted: grpc: received message larger than max 131072", 0},
		"a bad tag":         {&query.ReadReq{Query: asking(&query.Query_Item{Tags: []string{"a,b"}})}, "", 0},
		"negative position": {&query.ReadReq{Query: seat, Until: new(int64(-1))}, "InvalidArgument: until must be a position.", 0},
		"negative limit":    {&query.ReadReq{Query: seat, Limit: -1}, "InvalidArgument: limit must not be negative.", 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, position, _ := found(t, c, "admin", test.req)
			if name == "a bad tag" {
				check.Equal(t, got, "InvalidArgument: "+(&event.Query{Items: []event.QueryItem{{Tags: []string{"a,b"}}}}).Check().Error())
				return
			}
			check.Equal(t, got, test.want, "events")
			// The node writes, too.
			if position != nil && *position != test.position && !(test.position == last && *position > last) {
				t.Errorf("position %d, want %d", *position, test.position)
			}
		})
	}
	unknown := asking(&query.Query_Item{Types: []string{"t"}})
	unknown.Items[0].ProtoReflect().SetUnknown([]byte{7 << 3, 1})
	got, _, _ := found(t, c, "admin", &query.ReadReq{Query: unknown})
	check.Equal(t, got, "InvalidArgument: Unknown field 7 in Query.Item.")

	// What an event says of itself, and without data.
	_, _, all := found(t, c, "admin", &query.ReadReq{Query: seat, Limit: 1})
	e := all[0]
	created := time.Unix(0, 100*e.Created)
	if d := time.Since(created); d < 0 || d > time.Hour || uuid.Validate(e.Id) != nil {
		t.Errorf("created %v, id %q", created, e.Id)
	}
	want := &query.Event{Position: at[0], Stream: "show-7", Id: e.Id, Type: "Taken", Created: e.Created, IsJson: true, Data: []byte(`{"n":1}`), Metadata: e.Metadata, Tags: []string{"seat:12", "show:7"}}
	if !proto.Equal(e, want) || !strings.Contains(string(e.Metadata), `"$tags":"seat:12,show:7"`) {
		t.Errorf("got %v, want %v", e, want)
	}
	_, _, all = found(t, c, "admin", &query.ReadReq{Query: seat, Limit: 1, NoData: true})
	want.Data, want.Metadata = nil, nil
	if !proto.Equal(all[0], want) {
		t.Errorf("got %v, want %v", all[0], want)
	}
	// Events of several pages, one of which is too large for any.
	large := tagged("big-1", "Large", "large")
	large.Data = []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
	records := []*query.AppendRecord{large}
	for range 600 {
		records = append(records, tagged("big-1", "Small", "large"))
	}
	appending(t, c, records)
	_, _, all = found(t, c, "admin", &query.ReadReq{Query: asking(&query.Query_Item{Tags: []string{"large"}})})
	if len(all) != 601 || len(all[0].Data) != len(large.Data) || all[600].Number != 600 {
		t.Errorf("%d events, the first of %d bytes", len(all), len(all[0].Data))
	}
}

func TestQuerySubscriptions(t *testing.T) {
	conn, _ := ownNode(t)
	c := query.NewQueryServiceClient(conn)
	seat := asking(&query.Query_Item{Types: []string{"Taken"}, Tags: []string{"seat:12"}}, &query.Query_Item{Types: []string{"Freed"}})
	first := appending(t, c, []*query.AppendRecord{tagged("show-7", "Taken", "seat:12")})
	appending(t, c, []*query.AppendRecord{tagged("show-7", "Taken", "seat:13")})
	f := follow(t, c, &query.SubscribeReq{Query: seat})
	f.expect("show-7/0", "checkpoint", "caught-up")
	checkpoint := f.at
	if checkpoint <= first {
		t.Errorf("a checkpoint at %d, after the event at %d", checkpoint, first)
	}
	resumed, after := follow(t, c, &query.SubscribeReq{Query: seat, After: &checkpoint}), follow(t, c, &query.SubscribeReq{Query: seat, After: new(first - 1)})
	resumed.expect("checkpoint", "caught-up")
	if resumed.at < checkpoint {
		t.Errorf("resumed after %d, a checkpoint at %d", checkpoint, resumed.at)
	}
	after.expect("show-7/0", "checkpoint", "caught-up")
	appending(t, c, []*query.AppendRecord{tagged("show-7", "Taken", "seat:14"), tagged("show-8", "Freed", "")})
	for _, live := range []*followed{f, resumed, after} {
		live.expect("show-8/0")
	}
	follow(t, c, &query.SubscribeReq{Query: seat, After: &f.at}).expect("checkpoint", "caught-up")
	for text, req := range map[string]*query.SubscribeReq{
		"query is required.":                                     {},
		"items: at least one is needed":                          {Query: asking()},
		"after must be a position.":                              {Query: seat, After: new(int64(-7))},
		"Position 1099511627776 lies beyond the end of the log.": {Query: seat, After: new(int64(1 << 40))},
	} {
		_, err := follow(t, c, req).stream.Recv()
		check.Equal(t, status.Convert(err).Message(), text)
		check.Equal(t, status.Code(err), codes.InvalidArgument, text)
	}
}

// violation is how a write ended: what its detail says of conditions and checks.
func violation(t *testing.T, err error) (string, *query.Violation) {
	t.Helper()
	if err == nil {
		return "OK", nil
	}
	s := status.Convert(err)
	end := s.Code().String()
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.BadRequest:
			return end + " " + d.FieldViolations[0].Field + " | " + d.FieldViolations[0].Description, nil
		case *query.Violation:
			for _, c := range d.Conditions {
				end += fmt.Sprintf(" condition %d: %d %s/%d %s", c.Index, c.Position, c.Stream, c.Number, c.Type)
			}
			for _, c := range d.Checks {
				end += fmt.Sprintf(" check %v: %s %d %d", c.Index != nil, c.Stream, c.Expected, c.Actual)
			}
			return end, d
		}
	}
	return end + ": " + s.Message(), nil
}

// TestQueryAppend: a condition fails by the first event that its query finds, and a repeated write
// is known as what it is before its condition is looked at.
func TestQueryAppend(t *testing.T) {
	conn, admin := ownNode(t)
	c := query.NewQueryServiceClient(conn)
	seat12 := asking(&query.Query_Item{Types: []string{"Taken"}, Tags: []string{"seat:12"}})
	write(t, admin, "other", "t", "1")
	request := &query.AppendReq{
		Records:    []*query.AppendRecord{tagged("show-7", "Taken", "seat:12"), tagged("show-8", "Taken", "seat:12"), tagged("show-7", "Freed", "seat:12")},
		Checks:     []*query.AppendReq_StreamCheck{{Stream: "show-7", ExpectedState: -1}, {Stream: "other", ExpectedState: 0}},
		Conditions: []*query.AppendReq_Condition{{Query: seat12}},
	}
	done := check.Value(c.Append(as(t, "admin"), request)).Must(t)
	want := &query.AppendResp{Position: done.Position, Streams: []*query.AppendResp_Span{{Stream: "show-7", First: 0, Last: 1}, {Stream: "show-8"}}}
	if !proto.Equal(done, want) {
		t.Errorf("got %v, want %v", done, want)
	}
	again := check.Value(c.Append(as(t, "admin"), request)).Must(t)
	if want.Repeated = true; !proto.Equal(again, want) {
		t.Errorf("repeated: got %v, want %v", again, want)
	}
	_, _, all := found(t, c, "admin", &query.ReadReq{Query: seat12})
	first, second := all[0].Position, all[1].Position
	one := func(conditions ...*query.AppendReq_Condition) *query.AppendReq {
		return &query.AppendReq{Records: []*query.AppendRecord{tagged("open", "Other", "")}, Conditions: conditions}
	}
	after := func(p int64) *query.AppendReq_Condition { return &query.AppendReq_Condition{Query: seat12, After: &p} }
	lowest := func(index int, position int64, stream string) string {
		return fmt.Sprintf(" condition %d: %d %s/0 Taken", index, position, stream)
	}
	checked := one(after(0))
	checked.Checks = []*query.AppendReq_StreamCheck{{Stream: "show-8", ExpectedState: 7}}
	malformed := one(after(0))
	malformed.Conditions[0].ProtoReflect().SetUnknown([]byte{3 << 3, 1})
	for name, test := range map[string]struct {
		req  *query.AppendReq
		want string
	}{
		"all of the log":  {one(&query.AppendReq_Condition{Query: seat12}), "FailedPrecondition" + lowest(0, first, "show-7")},
		"before it":       {one(after(first - 1)), "FailedPrecondition" + lowest(0, first, "show-7")},
		"after the first": {one(after(first)), "FailedPrecondition" + lowest(0, second, "show-8")},
		"each that fails": {one(after(second), after(first), after(0)), "FailedPrecondition" + lowest(1, second, "show-8") + lowest(2, first, "show-7")},
		"held":            {one(after(second)), "OK"},
		"with a check":    {checked, "FailedPrecondition" + lowest(0, first, "show-7") + " check true: show-8 7 0"},
		"beyond the end":  {one(after(1 << 40)), "InvalidArgument  | Position 1099511627776 lies beyond the end of the log."},
		"too many":        {one(after(0), after(0), after(0), after(0), after(0), after(0), after(0), after(0), after(0), after(0)), "InvalidArgument conditions[8] | at most 8 conditions are possible"},
		"no query":        {one(&query.AppendReq_Condition{}), "InvalidArgument conditions[0] | conditions[0]: query is required."},
		"a bad query":     {one(after(0), &query.AppendReq_Condition{Query: asking()}), "InvalidArgument conditions[1] | conditions[1]: items: at least one is needed"},
		"a bad position":  {one(after(-1)), "InvalidArgument conditions[0] | conditions[0]: after must be a position."},
		"a large query":   {one(&query.AppendReq_Condition{Query: asking(&query.Query_Item{Types: []string{strings.Repeat("x", 200<<10)}})}), "InvalidArgument conditions[0] | conditions[0]: the query has 204812 bytes, at most 65536 are possible"},
		"unknown":         {malformed, "InvalidArgument  | Unknown field 3 in AppendReq.Condition."},
		"no records":      {&query.AppendReq{Conditions: []*query.AppendReq_Condition{after(0)}}, "InvalidArgument  | Append records request must contain at least one record."},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.Append(as(t, "admin"), test.req)
			got, detail := violation(t, err)
			check.Equal(t, got, test.want)
			if detail != nil && detail.Position < second {
				t.Errorf("judged up to %d", detail.Position)
			}
		})
	}
}

// TestQueryRights: who may not read $idx reads nothing and has no conditions; each event is judged
// by its own stream, and a conflict with one that its caller may not read tells its position alone.
func TestQueryRights(t *testing.T) {
	conn, admin := ownNode(t)
	c := query.NewQueryServiceClient(conn)
	appending(t, c, []*query.AppendRecord{tagged("open-1", "T", "x")})
	secret := appending(t, c, []*query.AppendRecord{tagged("secret-1", "U", "x")})
	describe(t, admin, "secret-1", `{"$acl":{"$r":["$admins"]}}`)
	x := asking(&query.Query_Item{Tags: []string{"x"}})
	got, _, _ := found(t, c, "ops", &query.ReadReq{Query: x})
	check.Equal(t, got, "open-1/0", "of a user")
	got, _, _ = found(t, c, "admin", &query.ReadReq{Query: x})
	check.Equal(t, got, "open-1/0 secret-1/0", "of an administrator")
	write := &query.AppendReq{Records: []*query.AppendRecord{tagged("free", "T", "")}, Conditions: []*query.AppendReq_Condition{{Query: asking(&query.Query_Item{Types: []string{"U"}})}}}
	_, err := c.Append(as(t, "ops"), write)
	end, _ := violation(t, err)
	check.Equal(t, end, fmt.Sprintf("FailedPrecondition condition 0: %d /0 ", secret), "of a user")
	_, err = c.Append(as(t, "admin"), write)
	end, _ = violation(t, err)
	check.Equal(t, end, fmt.Sprintf("FailedPrecondition condition 0: %d secret-1/0 U", secret), "of an administrator")

	describe(t, admin, "$idx", `{"$acl":{"$r":["$admins"]}}`)
	const denied = "PermissionDenied: Access Denied"
	got, _, _ = found(t, c, "ops", &query.ReadReq{Query: x})
	check.Equal(t, got, denied, "read")
	_, err = check.Value(c.Subscribe(as(t, "ops"), &query.SubscribeReq{Query: x})).Must(t).Recv()
	check.Equal(t, status.Code(err), codes.PermissionDenied, "subscribe")
	_, err = c.Head(as(t, "ops"), &query.HeadReq{})
	check.Equal(t, status.Code(err), codes.PermissionDenied, "head")
	_, err = c.Append(as(t, "ops"), write)
	check.Equal(t, status.Code(err), codes.PermissionDenied, "append with a condition")
	write.Conditions = nil
	check.NoError(t, check.Err(c.Append(as(t, "ops"), write)), "append without")
}

// WaitQuery waits as WaitLog does.
func (s *restingStore) WaitQuery(ctx context.Context, _ *event.Query, _ int64) error {
	return s.WaitLog(ctx, 0)
}

// TestQueryWhereTheLeaderIs: calls that want the leader end elsewhere with its address; others are
// answered here, and a write is passed on to it.
func TestQueryWhereTheLeaderIs(t *testing.T) {
	cluster := &changingCluster{leader: "http://n2:2113"}
	s, conn := host(t, &restingStore{waiting: make(chan struct{}, 9)}, cluster)
	c := query.NewQueryServiceClient(conn)
	everything := &query.Query{All: true}
	call := func(leader, what string) (end string) {
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "requires-leader", leader), 20*time.Second)
		defer cancel()
		var trailer metadata.MD
		var err error
		switch what {
		case "Head":
			_, err = c.Head(ctx, &query.HeadReq{}, grpc.Trailer(&trailer))
		case "Read":
			stream := check.Value(c.Read(ctx, &query.ReadReq{Query: everything})).Must(t)
			_, err = stream.Recv()
			if err != nil {
				trailer = stream.Trailer()
			}
		case "Subscribe":
			stream := check.Value(c.Subscribe(ctx, &query.SubscribeReq{Query: everything})).Must(t)
			_, err = stream.Recv()
			if err != nil {
				trailer = stream.Trailer()
			}
		}
		e := endOf(err, trailer)
		return fmt.Sprint(e.code, " ", e.text, " ", e.trailers)
	}
	for _, what := range []string{"Head", "Read", "Subscribe"} {
		check.Equal(t, call("true", what), "NotFound Leader info available exception=not-leader;leader-endpoint-host=n2;leader-endpoint-port=2113;", what)
		check.Equal(t, call("false", what), "OK  ", what)
	}
	cluster.set(true, "")
	live := check.Value(c.Subscribe(metadata.AppendToOutgoingContext(as(t, ""), "requires-leader", "True"), &query.SubscribeReq{Query: everything})).Must(t)
	f := &followed{T: t, stream: live}
	f.expect("checkpoint", "caught-up")
	cluster.set(false, "http://n2:2113")
	s.LostLead()
	_, err := live.Recv()
	check.Equal(t, status.Code(err), codes.NotFound, "the leader left")

	store := newWriteStore(func(w *event.Write, anywhere bool) (event.Written, error, bool) {
		if !anywhere || len(w.Many.Conditions) != 1 || w.Many.Conditions[0].After != -1 {
			t.Errorf("%+v, anywhere %v", w.Many, anywhere)
		}
		return event.Written{Position: 5, Streams: []event.Span{{}}}, nil, true
	})
	writer, _ := writeConn(t, store, grpcapi.Options{Node: api.Node{}})
	req := &query.AppendReq{Records: []*query.AppendRecord{tagged("a", "T", "")}, Conditions: []*query.AppendReq_Condition{{Query: everything}}}
	check.NoError(t, check.Err(query.NewQueryServiceClient(writer).Append(as(t, ""), req)))
	store.answerWith(failing(&event.IndexBuilding{Done: 3, Total: 9}))
	_, err = query.NewQueryServiceClient(writer).Append(as(t, ""), req)
	check.Equal(t, status.Code(err), codes.FailedPrecondition)
	check.Equal(t, status.Convert(err).Message(), (&event.IndexBuilding{Done: 3, Total: 9}).Error())
}

// emptyLog has an empty log.
type emptyLog struct{ restingStore }

func (*emptyLog) LogEnd() int64 { return 0 }

func (*emptyLog) ReadAll(context.Context, event.AllRead) (event.AllPage, error) {
	return event.AllPage{Last: -1}, nil
}

// TestEmptyLog: an empty log has no position, so that a condition after what was read counts the
// first event, too.
func TestEmptyLog(t *testing.T) {
	_, conn := host(t, &emptyLog{restingStore{waiting: make(chan struct{}, 9)}}, &changingCluster{leads: true})
	c := query.NewQueryServiceClient(conn)
	events, position, _ := found(t, c, "", &query.ReadReq{Query: &query.Query{All: true}})
	head := check.Value(c.Head(as(t, ""), &query.HeadReq{})).Must(t)
	caughtUp := check.Value(follow(t, c, &query.SubscribeReq{Query: &query.Query{All: true}}).stream.Recv()).Must(t).GetCaughtUp()
	if events != "" || position != nil || head.Position != nil || caughtUp == nil || caughtUp.Position != nil {
		t.Errorf("%q, %v, %v, %v", events, position, head, caughtUp)
	}
}
