package grpcapi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"
	streamerrors "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/streams/errors"
	v2 "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/streams/streams"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	grpcapi "github.com/annalsdb/annals/grpc"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/stats"
)

// recordFor is a record for a stream, of the type t and JSON.
func recordFor(stream string) *v2.AppendRecord {
	return &v2.AppendRecord{
		RecordId: new(uuid.NewString()), Stream: stream, Data: []byte("{}"), Schema: &v2.SchemaInfo{Format: v2.SchemaFormat_SCHEMA_FORMAT_JSON, Name: "t"},
	}
}

func stateOf(stream string, expected int64) *v2.ConsistencyCheck {
	return &v2.ConsistencyCheck{Type: &v2.ConsistencyCheck_StreamState{
		StreamState: &v2.ConsistencyCheck_StreamStateCheck{Stream: stream, ExpectedState: expected},
	}}
}

// manyEnd is how a call ended: its code, the reason, and what the last detail says.
func manyEnd(t testing.TB, err error) string {
	t.Helper()
	if err == nil {
		return "OK"
	}
	s := status.Convert(err)
	all := s.Details()
	if len(all) == 0 {
		return s.Code().String() + ": " + s.Message()
	}
	info, ok := all[0].(*errdetails.ErrorInfo)
	if !ok || len(all) > 2 {
		t.Fatalf("details %v", all)
	}
	end := s.Code().String() + " " + info.Domain + "/" + info.Reason
	switch last := all[len(all)-1].(type) {
	case *errdetails.BadRequest:
		f := last.FieldViolations[0]
		return end + " " + f.Field + ": " + f.Description
	case *streamerrors.AppendConsistencyViolationErrorDetails:
		for _, v := range last.Violations {
			state := v.GetStreamState()
			end += fmt.Sprintf(" %d:%s:%d:%d", v.CheckIndex, state.Stream, state.ExpectedState, state.ActualState)
		}
	case *streamerrors.StreamRevisionConflictErrorDetails:
		end += fmt.Sprintf(" %s:%d:%d", last.Stream, last.ExpectedRevision, last.ActualRevision)
	case *streamerrors.StreamTombstonedErrorDetails:
		end += " " + last.Stream
	case *streamerrors.StreamAlreadyInAppendSessionErrorDetails:
		end += " " + last.Stream
	case *streamerrors.AppendRecordSizeExceededErrorDetails:
		end += fmt.Sprintf(" %s:%d:%d", last.Stream, last.Size, last.MaxSize)
	case *streamerrors.AppendTransactionSizeExceededErrorDetails:
		end += fmt.Sprintf(" %d:%d", last.Size, last.MaxSize)
	}
	return end
}

// session makes a call of AppendSession.
func session(ctx context.Context, c v2.StreamsServiceClient, requests ...*v2.AppendRequest) (*v2.AppendSessionResponse, error) {
	call, err := c.AppendSession(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range requests {
		if call.Send(r) != nil {
			break
		}
	}
	return call.CloseAndRecv()
}

// states of streams, and what makes them; "2" has three events.
var manyStates = []string{"never", "meta", "2", "soft", "gone"}

func bring(t testing.TB, c *testkit.Client, stream, state string) {
	t.Helper()
	switch state {
	case "never":
	case "meta":
		describe(t, c, stream, `{"a":1}`)
	default:
		write(t, c, stream, "t", numbered(3)...)
	}
	if state == "soft" || state == "gone" {
		remove(t, c, stream, state == "gone")
	}
}

// TestEveryCheck: every expected state against every state of a stream, in the three ways to expect
// it: of a stream that is only checked, of one that is written, and in a session.
func TestEveryCheck(t *testing.T) {
	conn, admin := dial(t, address), overHTTP(t, address)
	c := v2.NewStreamsServiceClient(conn)
	const ok = 99
	// As manyStates; a stream that is gone: only checked, written.
	for expected, want := range map[int64][6]int64{
		0: {-1, -1, 2, 2, -6, -6}, 2: {-1, -1, ok, ok, -6, -6},
		-1: {ok, ok, 2, ok, ok, -6}, -2: {ok, ok, ok, ok, 0, -6}, -4: {-1, ok, ok, -5, -6, -6}, -5: {-1, -1, 2, ok, -6, -6}, -6: {-1, -1, 2, 2, ok, -6},
	} {
		for i, state := range manyStates {
			t.Run(fmt.Sprint(expected, " ", state), func(t *testing.T) {
				stream := "check-" + uuid.NewString()
				bring(t, admin, stream, state)
				end := func(actual int64, written bool) string {
					switch {
					case actual == ok:
						return "OK"
					case expected == event.AnyVersion && !written:
						return "InvalidArgument server/BAD_REQUEST checks[0]: stream \"" + stream + "\": the version -2 cannot be checked"
					}
					return fmt.Sprintf("FailedPrecondition streams/APPEND_CONSISTENCY_VIOLATION 0:%s:%d:%d", stream, expected, actual)
				}
				checks := []*v2.ConsistencyCheck{stateOf(stream, expected)}
				_, err := c.AppendRecords(t.Context(), &v2.AppendRecordsRequest{Records: []*v2.AppendRecord{recordFor("other-" + stream)}, Checks: checks})
				actual := want[i]
				if expected == event.AnyVersion {
					actual = 0
				}
				check.Equal(t, manyEnd(t, err), end(actual, false), "only checked")
				// A session before the stream is written to; what it refuses it does not write.
				actual = want[i]
				if state == "gone" {
					actual = want[5]
				}
				if actual != ok {
					_, err = session(t.Context(), c, &v2.AppendRequest{Stream: stream, Records: []*v2.AppendRecord{recordFor("")}, ExpectedRevision: &expected})
					wanted := fmt.Sprintf("FailedPrecondition streams/STREAM_REVISION_CONFLICT %s:%d:%d", stream, expected, actual)
					switch {
					case expected == event.SoftDeleted || expected == event.Tombstoned:
						wanted = fmt.Sprintf("InvalidArgument server/BAD_REQUEST expected_revision: expected_revision: %d is not one", expected)
					case state == "gone":
						wanted = "FailedPrecondition streams/STREAM_TOMBSTONED " + stream
					case actual == event.SoftDeleted:
						wanted = strings.Replace(wanted, ":-5", ":2", 1)
					}
					check.Equal(t, manyEnd(t, err), wanted, "session")
				}
				if expected == event.AnyVersion {
					checks = nil
				}
				answer, err := c.AppendRecords(t.Context(), &v2.AppendRecordsRequest{Records: []*v2.AppendRecord{recordFor(stream)}, Checks: checks})
				check.Equal(t, manyEnd(t, err), end(actual, true), "written")
				if err == nil {
					last := map[string]int64{"never": 0, "meta": 0, "2": 3, "soft": 3}[state]
					check.Equal(t, answer.Revisions[0].Revision, last, "revision")
				}
			})
		}
	}
}

// clientCase is a case of the official client's own tests of AppendRecords: states of streams are
// as in manyStates, or a number of events; checks name the streams by their place.
type clientCase struct {
	name    string
	states  string // of the streams; the first is written to
	checks  string // "place:expected"; the word is as the client has it
	violate string // "index:place" of the checks that do not hold; "any": it only has to fail
}

// TestCasesOfTheClient has the cases that the official client tests itself with, through that
// client.
func TestCasesOfTheClient(t *testing.T) {
	client, admin := officialClient(t), overHTTP(t, address)
	for _, c := range []clientCase{
		{"any, 3 events", "3", "", ""}, {"any, none", "0", "", ""}, {"any, deleted", "soft", "", ""}, {"any, tombstoned", "gone", "", "any"},
		{"none, none", "0", "0:none", ""}, {"none, deleted", "soft", "0:none", ""}, {"none, 3 events", "3", "0:none", "0:0"}, {"none, tombstoned", "gone", "0:none", "any"},
		{"10, 11 events", "11", "0:10", ""}, {"10, none", "0", "0:10", "0:0"}, {"10, 5 events", "5", "0:10", "0:0"},
		{"10, deleted", "soft", "0:10", "any"}, {"10, tombstoned", "gone", "0:10", "any"},
		{"exists, 3 events", "3", "0:exists", ""}, {"exists, none", "0", "0:exists", "0:0"},
		{"exists, deleted", "soft", "0:exists", "any"}, {"exists, tombstoned", "gone", "0:exists", "any"},
		{"check none, none", "0 0", "1:none", ""}, {"check none, deleted", "0 soft", "1:none", ""}, {"check none, tombstoned", "0 gone", "1:none", ""}, {"check none, 3 events", "0 3", "1:none", "0:1"},
		{"check 10, 11 events", "0 11", "1:10", ""}, {"check 10, none", "0 0", "1:10", "0:1"}, {"check 10, 5 events", "0 5", "1:10", "0:1"},
		{"check 10, deleted", "0 soft", "1:10", "0:1"}, {"check 10, tombstoned", "0 gone", "1:10", "0:1"},
		{"check exists, 3 events", "0 3", "1:exists", ""}, {"check exists, none", "0 0", "1:exists", "0:1"},
		{"check exists, deleted", "0 soft", "1:exists", "0:1"}, {"check exists, tombstoned", "0 gone", "1:exists", "0:1"},
		{"all hold", "0 3 5", "1:2 2:4", ""}, {"all of several kinds hold", "0 3 1 0", "1:2 2:exists 3:none", ""},
		{"one of two", "0 3 0", "1:2 2:5", "1:2"}, {"both", "0 0 0", "1:3 2:exists", "0:1 1:2"}, {"the first", "0 0 6", "1:3 2:5", "0:1"},
		{"two of three", "0 3 0 2", "1:2 2:exists 3:10", "1:2 2:3"}, {"several states", "0 soft gone 0", "1:exists 2:exists 3:10", "0:1 1:2 2:3"},
		{"another and the written one", "4 0", "1:5 0:3", "0:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var names []string
			for state := range strings.FieldsSeq(c.states) {
				name, n := "client-"+uuid.NewString(), 0
				if _, err := fmt.Sscan(state, &n); err != nil {
					bring(t, admin, name, state)
				} else if n > 0 {
					write(t, admin, name, "t", numbered(n)...)
				}
				names = append(names, name)
			}
			var checks []kurrentdb.ConsistencyCheck
			for text := range strings.FieldsSeq(c.checks) {
				place, word, _ := strings.Cut(text, ":")
				expected := map[string]kurrentdb.StreamState{"none": kurrentdb.NoStream{}, "exists": kurrentdb.StreamExists{}}[word]
				if expected == nil {
					var n uint64
					check.Value(fmt.Sscan(word, &n)).Must(t)
					expected = kurrentdb.StreamRevision{Value: n}
				}
				checks = append(checks, kurrentdb.StreamStateCheck{Stream: names[place[0]-'0'], ExpectedState: expected})
			}
			result, err := client.AppendRecords(t.Context(), []kurrentdb.AppendRecord{{Stream: names[0], Record: eventFor("TestEvent")}}, checks...)
			violation, isViolation := errors.AsType[*kurrentdb.AppendConsistencyViolationError](err)
			switch {
			case c.violate == "":
				check.Must(t, err)
				check.Equal(t, len(result.Responses), 1)
				check.Equal(t, result.Responses[0].Stream, names[0])
			case !isViolation:
				t.Error(err)
			case c.violate != "any":
				var got []string
				for _, v := range violation.Violations {
					got = append(got, fmt.Sprintf("%d:%d", v.CheckIndex, slices.Index(names, v.Stream)))
				}
				check.Equal(t, strings.Join(got, " "), c.violate, "violations")
			}
		})
	}
}

func eventFor(eventType string) kurrentdb.EventData {
	return kurrentdb.EventData{EventID: uuid.New(), EventType: eventType, ContentType: kurrentdb.ContentTypeBinary, Data: []byte{0xb, 0xe, 0xe, 0xf}, Metadata: []byte(`{"stringValue":"string"}`)}
}

// officialClient is a client of the shared node.
func officialClient(t testing.TB) *kurrentdb.Client {
	t.Helper()
	c := check.Value(kurrentdb.ParseConnectionString("esdb://" + strings.TrimPrefix(address, "http://") + "?tls=false")).Must(t)
	c.Logger = kurrentdb.NoopLogging()
	client := check.Value(kurrentdb.NewClient(c)).Must(t)
	t.Cleanup(func() { check.Must(t, client.Close()) })
	return client
}

// TestManyByTheClient: what the official client's other cases look at.
func TestManyByTheClient(t *testing.T) {
	client, admin := officialClient(t), overHTTP(t, address)
	one, two := "m-"+uuid.NewString(), "m-"+uuid.NewString()
	request := func(stream string, state kurrentdb.StreamState, types ...string) kurrentdb.AppendStreamRequest {
		var events []kurrentdb.EventData
		for _, eventType := range types {
			events = append(events, eventFor(eventType))
		}
		return kurrentdb.AppendStreamRequest{StreamName: stream, Events: slices.Values(events), ExpectedStreamState: state}
	}
	result, err := client.MultiStreamAppend(t.Context(), slices.Values([]kurrentdb.AppendStreamRequest{
		request(one, kurrentdb.NoStream{}, "OrderCreated", "OrderPaid"), request(two, kurrentdb.Any{}, "OrderShipped"),
	}))
	check.Must(t, err)
	check.Deep(t, result.Responses, []kurrentdb.AppendResponse{{Stream: one, StreamRevision: 1}, {Stream: two, StreamRevision: 0}}, "responses")
	read := check.Value(client.ReadStream(t.Context(), two, kurrentdb.ReadStreamOptions{}, 1)).Must(t)
	defer read.Close()
	e := check.Value(read.Recv()).Must(t).OriginalEvent()
	check.Equal(t, string(e.UserMetadata), `{"$schema.format":"Bytes","$schema.name":"OrderShipped","stringValue":"string"}`, "metadata")
	check.Equal(t, int64(e.Position.Commit), result.Position, "position of the last event")

	_, err = client.MultiStreamAppend(t.Context(), slices.Values([]kurrentdb.AppendStreamRequest{request(one, kurrentdb.NoStream{}, "t")}))
	conflict, ok := errors.AsType[*kurrentdb.StreamRevisionConflictError](err)
	if !ok || conflict.Stream != one || conflict.ExpectedRevision != (kurrentdb.NoStream{}) || conflict.ActualRevision != (kurrentdb.StreamRevision{Value: 1}) {
		t.Error(err)
	}
	remove(t, admin, one, true)
	_, err = client.MultiStreamAppend(t.Context(), slices.Values([]kurrentdb.AppendStreamRequest{request(two, kurrentdb.Any{}, "t"), request(one, kurrentdb.NoStream{}, "t")}))
	if _, ok := errors.AsType[*kurrentdb.StreamTombstoneError](err); !ok {
		t.Error(err)
	}
	// Records of several streams lie in the log as they were sent.
	streams := []string{"m-" + uuid.NewString(), "m-" + uuid.NewString()}
	var records []kurrentdb.AppendRecord
	for i := range 5 {
		records = append(records, kurrentdb.AppendRecord{Stream: streams[i%2], Record: eventFor(fmt.Sprint(i))})
	}
	written := check.Value(client.AppendRecords(t.Context(), records)).Must(t)
	check.Deep(t, written.Responses, []kurrentdb.AppendResponse{{Stream: streams[0], StreamRevision: 2}, {Stream: streams[1], StreamRevision: 1}}, "revisions")
	again := check.Value(client.AppendRecords(t.Context(), records, kurrentdb.StreamStateCheck{Stream: streams[0], ExpectedState: kurrentdb.NoStream{}})).Must(t)
	check.Deep(t, again, written, "the same again")
	_, err = client.AppendRecords(t.Context(), records[2:])
	check.Must(t, err)
	_, err = client.AppendRecords(t.Context(), append(records[4:], kurrentdb.AppendRecord{Stream: streams[1], Record: eventFor("new")}))
	violation, ok := errors.AsType[*kurrentdb.AppendConsistencyViolationError](err)
	if !ok || len(violation.Violations) != 1 || violation.Violations[0].Stream != streams[0] {
		t.Error(err)
	}
	for name, bad := range map[string]kurrentdb.EventData{"not JSON": {EventType: "t", Metadata: []byte("invalid")}, "not texts": {EventType: "t", Metadata: []byte(`{"a":true}`)}} {
		if _, err := client.AppendRecords(t.Context(), []kurrentdb.AppendRecord{{Stream: two, Record: bad}}); err == nil {
			t.Error(name)
		}
	}
}

// TestRecordsAreRefused: what can never be right is the caller's fault, and says where.
func TestRecordsAreRefused(t *testing.T) {
	conn := startNode(t) // Other tests could not receive what is as large as can be.
	c := v2.NewStreamsServiceClient(conn)
	stream := "refused-" + uuid.NewString()
	of := func(edit func(r *v2.AppendRecord)) *v2.AppendRecordsRequest {
		r := recordFor(stream)
		edit(r)
		return &v2.AppendRecordsRequest{Records: []*v2.AppendRecord{recordFor(stream), r}}
	}
	value := func(v *structpb.Value) *v2.AppendRecordsRequest {
		return of(func(r *v2.AppendRecord) { r.Properties = map[string]*structpb.Value{"a": v} })
	}
	unknown := func(m proto.Message) {
		m.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 77, protowire.VarintType), 1))
	}
	const bad = "InvalidArgument server/BAD_REQUEST "
	twice := of(func(r *v2.AppendRecord) {})
	twice.Records[1].RecordId = twice.Records[0].RecordId
	manyStreams := &v2.AppendRecordsRequest{}
	for i := range api.MaxManyStreams + 1 {
		manyStreams.Records = append(manyStreams.Records, recordFor(fmt.Sprint(stream, i)))
	}
	checked := func(checks ...*v2.ConsistencyCheck) *v2.AppendRecordsRequest {
		return &v2.AppendRecordsRequest{Records: []*v2.AppendRecord{recordFor(stream)}, Checks: checks}
	}
	withUnknown := checked(stateOf("x", 1))
	unknown(withUnknown)
	unknownCheck := checked(&v2.ConsistencyCheck{})
	unknown(unknownCheck.Checks[0])
	for name, test := range map[string]struct {
		request *v2.AppendRecordsRequest
		want    string
	}{
		"nothing":          {&v2.AppendRecordsRequest{}, bad + ": Append records request must contain at least one record."},
		"checks alone":     {&v2.AppendRecordsRequest{Checks: []*v2.ConsistencyCheck{stateOf("x", -1)}}, bad + ": Append records request must contain at least one record."},
		"no stream":        {of(func(r *v2.AppendRecord) { r.Stream = "" }), bad + "records[1].stream: records[1]: the name of the stream is missing"},
		"long stream":      {of(func(r *v2.AppendRecord) { r.Stream = strings.Repeat("x", 70000) }), bad + "records[1].stream: records[1]: the name of the stream has 70000 bytes, at most 61440 are possible"},
		"long type":        {of(func(r *v2.AppendRecord) { r.Schema.Name = strings.Repeat("x", 70000) }), bad + "records[1]: records[1]: the type has more than 61440 bytes"},
		"no schema":        {of(func(r *v2.AppendRecord) { r.Schema = nil }), bad + "records[1].schema: records[1].schema: it is missing"},
		"no format":        {of(func(r *v2.AppendRecord) { r.Schema.Format = 0 }), bad + "records[1].schema.format: records[1].schema.format: 0 is not a format"},
		"unknown format":   {of(func(r *v2.AppendRecord) { r.Schema.Format = 5 }), bad + "records[1].schema.format: records[1].schema.format: 5 is not a format"},
		"negative format":  {of(func(r *v2.AppendRecord) { r.Schema.Format = -1 }), bad + "records[1].schema.format: records[1].schema.format: -1 is not a format"},
		"no type":          {of(func(r *v2.AppendRecord) { r.Schema.Name = "" }), bad + "records[1].schema.name: records[1].schema.name: it is missing"},
		"no id":            {of(func(r *v2.AppendRecord) { r.RecordId = new("x") }), bad + `records[1].record_id: records[1].record_id: "x" is not a UUID`},
		"zero id":          {of(func(r *v2.AppendRecord) { r.RecordId = new(uuid.Nil.String()) }), bad + "records[1]: the id of an event is zero"},
		"id twice":         {twice, bad + fmt.Sprintf("records[1]: stream %q gets the event id %s twice", stream, twice.Records[0].GetRecordId())},
		"no kind":          {value(&structpb.Value{}), bad + "records[1].properties: records[1].properties: a property has a value without a kind"},
		"no kind inside":   {value(structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{{}}})), bad + "records[1].properties: records[1].properties: a property has a value without a kind"},
		"empty key":        {of(func(r *v2.AppendRecord) { r.Properties = map[string]*structpb.Value{"": structpb.NewStringValue("x")} }), bad + "records[1].properties: records[1].properties: the name of a property is empty"},
		"many streams":     {manyStreams, bad + "records[1000]: at most 1000 streams are written to at once"},
		"large":            {of(func(r *v2.AppendRecord) { r.Data = make([]byte, event.MaxEventBytes) }), fmt.Sprintf("InvalidArgument streams/APPEND_RECORD_SIZE_EXCEEDED %s:%d:%d", stream, event.MaxEventBytes+45, event.MaxEventBytes)},
		"a byte too large": {of(func(r *v2.AppendRecord) { r.Data = make([]byte, event.MaxEventBytes-44) }), fmt.Sprintf("InvalidArgument streams/APPEND_RECORD_SIZE_EXCEEDED %s:%d:%d", stream, event.MaxEventBytes+1, event.MaxEventBytes)},
		"bad tags": {of(func(r *v2.AppendRecord) {
			r.Properties = map[string]*structpb.Value{"$tags": structpb.NewNumberValue(1)}
		}), bad + ": $tags: neither an array of texts nor a text"},
		"unknown field":  {of(func(r *v2.AppendRecord) { unknown(r) }), bad + ": Unknown field 77 in AppendRecord."},
		"in the schema":  {of(func(r *v2.AppendRecord) { unknown(r.Schema) }), bad + ": Unknown field 77 in SchemaInfo."},
		"in a value":     {value(func() *structpb.Value { v := structpb.NewBoolValue(true); unknown(v); return v }()), bad + ": Unknown field 77 in Value."},
		"in the request": {withUnknown, bad + ": Unknown field 77 in AppendRecordsRequest."},
		"in a check":     {unknownCheck, bad + ": Unknown field 77 in ConsistencyCheck."},
		"empty check":    {checked(&v2.ConsistencyCheck{}), bad + "checks[0]: checks[0]: it says nothing"},
		"nameless check": {checked(stateOf("", 1)), bad + "checks[0].stream_state.stream: checks[0]: the name of the stream is missing"},
		"checked twice":  {checked(stateOf("x", 1), stateOf("x", 1)), bad + "checks[1]: Each stream can only appear once in consistency checks."},
		"tombstone":      {checked(stateOf("x", event.TombstoneNumber)), bad + `checks[0]: stream "x": the version 9223372036854775807 cannot be checked`},
	} {
		_, err := c.AppendRecords(t.Context(), test.request)
		if got := manyEnd(t, err); got != test.want {
			t.Errorf("%s: %s\nwant %s", name, got, test.want)
		}
	}
	most := recordFor("most-" + stream)
	most.Data = make([]byte, event.MaxEventBytes-45)
	_, err := c.AppendRecords(t.Context(), &v2.AppendRecordsRequest{Records: []*v2.AppendRecord{most}})
	check.Must(t, err, "as large as can be")
	large := func(n int) (all []*v2.AppendRecord) {
		for range n {
			r := recordFor(stream)
			r.Data = make([]byte, 4_000_000)
			all = append(all, r)
		}
		return all
	}
	_, err = session(t.Context(), c, &v2.AppendRequest{Stream: stream, Records: large(4)}, &v2.AppendRequest{Stream: stream + "2", Records: large(1)})
	if got := manyEnd(t, err); !strings.HasPrefix(got, "Aborted streams/APPEND_TRANSACTION_SIZE_EXCEEDED 20000") {
		t.Error(got)
	}
	for want, requests := range map[string][]*v2.AppendRequest{
		"FailedPrecondition streams/APPEND_SESSION_NO_REQUESTS":                    {},
		"Aborted streams/STREAM_ALREADY_IN_APPEND_SESSION " + stream:               {{Stream: stream, Records: large(1)}, {Stream: stream, Records: large(1)}},
		bad + "records: records: there is none for the stream":                     {{Stream: stream}},
		bad + "stream: the name of the stream is missing":                          {{Records: large(1)}},
		bad + "expected_revision: expected_revision: -3 is not one":                {{Stream: stream, Records: large(1), ExpectedRevision: new(int64(-3))}},
		"FailedPrecondition streams/STREAM_REVISION_CONFLICT s:7:-1":               {{Stream: stream, Records: large(1)}, {Stream: "s", Records: large(1), ExpectedRevision: new(int64(7))}},
		"FailedPrecondition streams/STREAM_REVISION_CONFLICT " + stream + ":-4:-1": {{Stream: stream, Records: large(1), ExpectedRevision: new(int64(-4))}, {Stream: "s", Records: large(1), ExpectedRevision: new(int64(7))}},
	} {
		_, err := session(t.Context(), c, requests...)
		check.Equal(t, manyEnd(t, err), want, "session")
	}
	// Nothing of all that was written.
	_, err = c.AppendRecords(t.Context(), checked(stateOf(stream, -1)))
	check.Must(t, err)
}

// TestRepeatedElsewhere: a write is recognised whichever interface took it first, and never half of
// it is written.
func TestRepeatedElsewhere(t *testing.T) {
	conn, admin := dial(t, address), overHTTP(t, address)
	c := v2.NewStreamsServiceClient(conn)
	a, b := recordFor("a-"+uuid.NewString()), recordFor("b-"+uuid.NewString())
	body := fmt.Sprintf(`{"events":[{"stream":%q,"eventId":%q,"eventType":"t","data":{}},{"stream":%q,"eventId":%q,"eventType":"t","data":{}}]}`, a.Stream, *a.RecordId, b.Stream, *b.RecordId)
	post := func() string {
		answer := check.Value(admin.Do(t.Context(), testkit.Request{Path: "/streams", Body: []byte(body), Header: map[string]string{"Content-Type": "application/json"}, Admin: true})).Must(t)
		return fmt.Sprint(answer.Status, " ", string(answer.Body))
	}
	first := post()
	both, err := c.AppendRecords(t.Context(), &v2.AppendRecordsRequest{Records: []*v2.AppendRecord{a, b}, Checks: []*v2.ConsistencyCheck{stateOf(a.Stream, -1)}})
	check.Must(t, err)
	check.Contains(t, first, fmt.Sprintf(`201 {"position":%d,"repeated":false,`, both.Position))
	again, err := session(t.Context(), c, &v2.AppendRequest{Stream: a.Stream, Records: []*v2.AppendRecord{a}}, &v2.AppendRequest{Stream: b.Stream, Records: []*v2.AppendRecord{b}})
	check.Must(t, err)
	check.Equal(t, again.Position, both.Position, "position")
	check.Equal(t, post(), strings.Replace(first, `"repeated":false`, `"repeated":true`, 1), "over HTTP")
	other := recordFor("c-" + uuid.NewString())
	_, err = session(t.Context(), c, &v2.AppendRequest{Stream: other.Stream, Records: []*v2.AppendRecord{other}}, &v2.AppendRequest{Stream: b.Stream, Records: []*v2.AppendRecord{b}})
	check.Equal(t, manyEnd(t, err), "FailedPrecondition streams/STREAM_REVISION_CONFLICT "+b.Stream+":-2:0", "a part")
	_, err = c.AppendRecords(t.Context(), &v2.AppendRecordsRequest{Records: []*v2.AppendRecord{other, b}, Checks: []*v2.ConsistencyCheck{stateOf(other.Stream, -1)}})
	check.Equal(t, manyEnd(t, err), "FailedPrecondition streams/APPEND_CONSISTENCY_VIOLATION 1:"+b.Stream+":-2:0", "a part")
}

// TestRightsToMany: written streams need the right to write, those that are only checked the right
// to read.
func TestRightsToMany(t *testing.T) {
	conn := startNode(t)
	take(t, conn, []step{{"admin", "users.Users/Create", `{"options":{"loginName":"jane","password":"changeit"}}`, "{} OK"}})
	c := v2.NewStreamsServiceClient(conn)
	acl := func(stream, acl string) *v2.AppendRecord {
		r := recordFor("$$" + stream)
		r.Schema.Name, r.Data = "$metadata", []byte(`{"$acl":`+acl+`}`)
		return r
	}
	_, err := c.AppendRecords(as(t, "admin"), &v2.AppendRecordsRequest{Records: []*v2.AppendRecord{acl("noread", `{"$r":"admin"}`), acl("nowrite", `{"$w":"admin","$mw":"admin","$mr":"admin"}`)}})
	check.Must(t, err)
	const denied = "PermissionDenied server/ACCESS_DENIED"
	for _, test := range []struct{ who, written, checked, records, session string }{
		{"jane", "open", "nowrite", "OK", "OK"}, {"", "open", "nowrite", "OK", "OK"},
		{"jane", "open", "noread", denied, "OK"}, {"jane", "nowrite", "open", denied, denied},
		{"jane", "noread", "noread", "OK", "OK"}, // A check of a written stream.
		{"jane", "$$nowrite", "open", denied, denied}, {"jane", "open", "$$nowrite", denied, "OK"}, {"jane", "$all", "open", denied, denied},
		{"ops", "noread", "noread", "OK", "OK"}, {"admin", "nowrite", "noread", "OK", "OK"},
	} {
		var trailer metadata.MD
		_, err := c.AppendRecords(as(t, test.who), &v2.AppendRecordsRequest{Records: []*v2.AppendRecord{recordFor(test.written)}, Checks: []*v2.ConsistencyCheck{stateOf(test.checked, 99)}}, grpc.Trailer(&trailer))
		got := manyEnd(t, err)
		if strings.Contains(got, "CONSISTENCY") {
			got = "OK" // It was allowed.
		}
		check.Equal(t, got, test.records, test)
		if got == denied {
			check.Slice(t, trailer.Get("exception"), []string{"access-denied"}, "trailer")
		}
		_, err = session(as(t, test.who), c, &v2.AppendRequest{Stream: test.written, Records: []*v2.AppendRecord{recordFor("")}})
		check.Equal(t, manyEnd(t, err), test.session, "session", test)
	}
}

// TestManyFail: what becomes of a write when its node cannot do it, and where it goes.
func TestManyFail(t *testing.T) {
	store := newWriteStore(nil)
	registry := new(stats.Registry)
	conn, _ := writeConn(t, store, grpcapi.Options{Node: api.Node{Many: api.NewManyMetrics(registry)}})
	c := v2.NewStreamsServiceClient(conn)
	request := &v2.AppendRecordsRequest{Records: []*v2.AppendRecord{recordFor("a")}}
	for _, test := range []struct {
		err        error
		want, text string
	}{
		{event.ErrNotReady, "Unavailable server/SERVER_NOT_READY", "Server Is Not Ready"},
		{event.ErrBusy, "Unavailable server/SERVER_OVERLOADED", "Server Is Too Busy"},
		{event.ErrDiskFull, "Unavailable server/SERVER_NOT_READY", "Server Is Out Of Disk Space"},
		{fmt.Errorf("%w: %w", event.ErrNotReady, event.ErrEarlierLeader), "Unavailable server/SERVER_NOT_READY", "The leader is of an earlier version, which does not know this write; nothing was written."},
		{event.ErrOutcomeUnknown, "Aborted server/OPERATION_TIMEOUT", "Operation timed out: " + event.ErrOutcomeUnknown.Error()},
		{&event.NotLeader{Address: "http://h:1"}, "NotFound server/NOT_LEADER_NODE", "Leader info available"},
		{event.ErrTooLarge, "Aborted streams/APPEND_TRANSACTION_SIZE_EXCEEDED 48:16777216", "the events of one write have 48 bytes together, at most 16777216 are allowed"},
		{errors.New("oops"), "Internal: Internal Server Error", "Internal Server Error"},
	} {
		store.answerWith(failing(test.err))
		for name, call := range map[string]func(trailer *metadata.MD) error{
			"records": func(trailer *metadata.MD) error {
				_, err := c.AppendRecords(t.Context(), request, grpc.Trailer(trailer))
				return err
			},
			"session": func(trailer *metadata.MD) error {
				call := check.Value(c.AppendSession(t.Context())).Must(t)
				check.Must(t, call.Send(&v2.AppendRequest{Stream: "a", Records: request.Records}))
				_, err := call.CloseAndRecv()
				*trailer = call.Trailer()
				return err
			},
		} {
			var trailer metadata.MD
			err := call(&trailer)
			check.Equal(t, manyEnd(t, err), test.want, name)
			check.Equal(t, status.Convert(err).Message(), test.text, name)
			if status.Code(err) == codes.NotFound {
				check.Equal(t, fmt.Sprint(trailer["exception"], trailer["leader-endpoint-host"], trailer["leader-endpoint-port"]), "[not-leader] [h] [1]", name)
			}
		}
	}
	// The answer names all checks that do not hold, as far as trailers can have them.
	store.answerWith(func(w *event.Write, _ bool) (event.Written, error, bool) {
		v := &event.Violations{}
		for i, c := range w.Many.Checks {
			v.Checks = append(v.Checks, event.Violation{Index: i, Stream: c.Stream, Expected: c.Expected, Actual: event.NoStream})
		}
		return event.Written{}, v, true
	})
	for n := range api.MaxManyChecks {
		request.Checks = append(request.Checks, stateOf(fmt.Sprint("s-", uuid.Nil, n), 7))
	}
	_, err := c.AppendRecords(t.Context(), request)
	details := status.Convert(err).Details()
	check.Equal(t, len(details[1].(*streamerrors.AppendConsistencyViolationErrorDetails).Violations), api.MaxManyChecks, "violations")
	for i := range request.Checks {
		request.Checks[i] = stateOf(strings.Repeat("x", 1000)+fmt.Sprint(i), 7)
	}
	_, err = c.AppendRecords(t.Context(), request)
	details = status.Convert(err).Details()
	check.Equal(t, len(details[1].(*streamerrors.AppendConsistencyViolationErrorDetails).Violations), 64, "violations with long names")

	// A write goes wherever the leader is, unless the client wants it here.
	store.answerWith(func(w *event.Write, anywhere bool) (event.Written, error, bool) {
		last := int64(0)
		if anywhere {
			last = 1
		}
		return event.Written{Position: 5, Idempotent: anywhere, Streams: []event.Span{{First: 0, Last: last}}}, nil, true
	})
	request.Checks = nil
	answer, err := c.AppendRecords(t.Context(), request)
	check.Must(t, err)
	check.Equal(t, answer.Revisions[0].Revision, int64(1), "anywhere")
	answer, err = c.AppendRecords(metadata.AppendToOutgoingContext(t.Context(), "requires-leader", "true"), request)
	check.Must(t, err)
	check.Equal(t, answer.Revisions[0].Revision, int64(0), "here")

	// A call that is canceled before its end writes nothing.
	before := len(store.noted())
	ctx, cancel := context.WithCancel(t.Context())
	call := check.Value(c.AppendSession(ctx)).Must(t)
	check.Must(t, call.Send(&v2.AppendRequest{Stream: "a", Records: request.Records}))
	cancel()
	if _, err := call.CloseAndRecv(); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	check.Equal(t, len(store.noted()), before, "writes")
	testkit.Eventually(t, 10*time.Second, func() error {
		counts := map[string]float64{}
		registry.Each(func(s stats.Sample) {
			if s.Name == "annals_multistream_appends_total" {
				counts[s.Labels[0].Value+" "+s.Labels[1].Value] = s.Value
			}
		})
		for name, want := range map[string]float64{"records written": 1, "records repeated": 1, "records violated": 2, "records refused": 8, "session written": 0} {
			if counts[name] != want {
				return fmt.Errorf("%s: %v of %v", name, counts[name], counts)
			}
		}
		return nil
	})
}
