package grpcapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/projections"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/event"
	grpcapi "github.com/annalsdb/annals/grpc"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/testkit/onenode"
	"github.com/annalsdb/annals/projection"
)

const (
	statesQuery = `fromStream('s').when({$init: () => ({n: 0, list: [1.5, null, "é"]}), t: s => { s.n++; return s }}).transformBy(s => ({double: 2 * s.n}))`
	conflict    = "Unknown: Envelope callback expected Updated, received Conflict instead"
	failed      = "Unknown: Envelope callback expected Updated, received OperationFailed instead"
	noSuch      = "NotFound: Projection 'none' not found"
)

func TestProjections(t *testing.T) {
	conn := startNode(t, func(c *config.Config) { c.RunProjections = config.ProjectionsAll })
	take(t, conn, []step{{"admin", "users.Users/Create", `{"options":{"loginName":"jane","password":"changeit"}}`, "{} OK"}})
	service := func(method string) string { return "projections.Projections/" + method }
	continuous := func(rest string) string {
		return fmt.Sprintf(`{"options":{"continuous":{%s},"query":%q}}`, rest, statesQuery)
	}
	statistics := func(mode string) string {
		// Of each what does not differ from run to run.
		var all []string
		for part := range strings.SplitSeq(invoke(t, conn, "jane", service("Statistics"), `{"options":{`+mode+`}}`), `"details":`) {
			if _, status, ok := strings.Cut(part, `"status":"`); ok {
				status, _, _ = strings.Cut(status, `"`)
				_, name, _ := strings.Cut(part, `"name":"`)
				name, _, _ = strings.Cut(name, `"`)
				_, mode, _ := strings.Cut(part, `"mode":"`)
				mode, _, _ = strings.Cut(mode, `"`)
				all = append(all, name+" "+mode+" "+status)
			}
		}
		return strings.Join(all, ", ")
	}
	take(t, conn, []step{
		{"", service("Create"), continuous(`"name":"a"`), denied},
		// Of the engine: it is not transient.
		{"jane", service("Create"), continuous(`"name":"a"`), denied},
		{"admin", service("Create"), continuous(`"name":"a"`), "{} OK"},
		{"ops", service("Create"), continuous(`"name":"a"`), conflict},
		{"ops", service("Create"), continuous(`"name":" "`), "InvalidArgument: Projection name is required"},
		{"ops", service("Create"), continuous(`"name":"b","trackEmittedStreams":true`), "InvalidArgument: only a projection that may emit can track emitted streams"},
		{"ops", service("Create"), continuous(`"name":"b","trackEmittedStreams":true,"emitEnabled":true`), "{} OK"},
		{"ops", service("Create"), `{}`, "InvalidArgument: the mode of the projection is missing"},
		{"ops", service("Create"), `{"options":{"continuous":{"name":"v2"},"engineVersion":2}}`, "InvalidArgument: Projection engine version 2 is not supported by this server."},
		{"ops", service("Create"), `{"options":{"continuous":{"name":"v2"},"engineVersion":-1}}`, "InvalidArgument: Projection engine version -1 is not supported by this server."},
		{"ops", service("Create"), `{"options":{"continuous":{"name":"v2"},"properties":{"$x":1}}}`, `InvalidArgument: the name "$x" of a property is empty or begins with $`},
		{"ops", service("Create"), `{"options":{"continuous":{"name":"v2"},"properties":{"":1}}}`, `InvalidArgument: the name "" of a property is empty or begins with $`},
		{"ops", service("Create"), `{"options":{"continuous":{"name":"v2"},"properties":{"a":[{"b":"NaN"}],"c":` + strings.Repeat("[", 30) + strings.Repeat("]", 30) + `,"d":"` + strings.Repeat("x", 64<<10) + `"}}}`,
			"InvalidArgument: the properties have 65627 bytes as JSON, at most 65536 are possible"},
		{"ops", service("State"), `{"options":{"name":"v2"}}`, "NotFound: Projection 'v2' not found"},
		{"ops", service("Create"), `{"options":{"transient":{}}}`, "InvalidArgument: Projection name is required"},
		{"jane", service("Create"), `{"options":{"transient":{"name":"q"},"query":"fromStream('s').when({$any: s => s})"}}`, "{} OK"},
		// It has faulted.
		{"ops", service("Create"), `{"options":{"continuous":{"name":"broken"},"query":"from("}}`, "{} OK"},
		{"ops", service("Create"), fmt.Sprintf(`{"options":{"continuous":{"name":"b"},"query":%q}}`, strings.Repeat(" ", 3<<20)), "InvalidArgument: the query or the name is too large"},
		{"ops", service("Create"), `{"options":{"oneTime":{},"query":"fromAll().when({$any: s => s})"}}`, "{} OK"},

		{"jane", service("State"), `{"options":{"name":"q"}}`, `{"state":{}} OK`},
		{"jane", service("Result"), `{"options":{"name":"q","partition":"x"}}`, `{"result":{}} OK`},
		{"jane", service("Statistics"), `{}`, "InvalidArgument: the projections to report statistics of are missing"},

		{"jane", service("Update"), `{"options":{"name":"a","query":"fromAll()"}}`, denied},
		{"ops", service("Update"), `{"options":{"name":"b","query":"fromStream('s').when({$any: s => s})","noEmitOptions":{}}}`, "{} OK"},
		{"ops", service("Update"), `{"options":{"name":"b","query":"fromStream('s')","emitEnabled":false}}`, "{} OK"},
		{"ops", service("Update"), `{"options":{"name":"b","properties":{"$":1}}}`, `InvalidArgument: the name "$" of a property is empty or begins with $`},
	})
	post(t, conn, "s", `{}`)
	testkit.Eventually(t, 10*time.Second, func() error {
		if got := contents(t, conn, `{"options":{"name":"a"}}`); got != `{"state":{"list":[1.5,null,"é"],"n":1}} OK {"result":{"double":2}} OK` {
			return errors.New(got)
		}
		return nil
	})
	take(t, conn, []step{
		{"ops", service("Disable"), `{"options":{"name":"a","writeCheckpoint":true}}`, "{} OK"},
		{"ops", service("Disable"), `{"options":{"name":"b"}}`, "{} OK"},
	})
	if got := contents(t, conn, `{"options":{"name":"a"}}`); got != `{"state":{"list":[1.5,null,"é"],"n":1}} OK {"result":{"double":2}} OK` {
		t.Error(got)
	}
	for mode, want := range map[string]string{
		`"name":"a"`: "a Continuous Stopped", `"name":"b"`: "b Continuous Aborted/Stopped", `"name":"broken"`: "broken Continuous Faulted",
		`"transient":{}`: "q Transient Completed/Stopped/Writing results",
	} {
		if got := statistics(mode); got != want {
			t.Errorf("statistics of %s: %s, want %s", mode, got, want)
		}
	}
	for mode, want := range map[string]int{`"all":{}`: 5 + 5, `"continuous":{}`: 5 + 3, `"oneTime":{}`: 1} {
		if got := len(strings.Split(statistics(mode), ", ")); got != want {
			t.Errorf("statistics of %s: of %d projections, want %d", mode, got, want)
		}
	}
	take(t, conn, []step{
		{"ops", service("Enable"), `{"options":{"name":"a"}}`, "{} OK"},
		{"ops", service("Disable"), `{"options":{"name":"a","writeCheckpoint":true}}`, "{} OK"},
		{"ops", service("Reset"), `{"options":{"name":"a","writeCheckpoint":true}}`, "{} OK"},
		{"jane", service("Delete"), `{"options":{"name":"a"}}`, denied},
		{"ops", service("Delete"), `{"options":{"name":"$by_category"}}`, failed},
		{"ops", service("Delete"), `{"options":{"name":"a","deleteStateStream":true,"deleteCheckpointStream":true,"deleteEmittedStreams":true}}`, "{} OK"},
		{"jane", service("RestartSubsystem"), `{}`, denied},
		{"ops", service("RestartSubsystem"), `{}`, "{} OK"},
	})
}

// contents are state and result of a partition.
func contents(t *testing.T, conn *grpc.ClientConn, request string) string {
	t.Helper()
	return invoke(t, conn, "jane", "projections.Projections/State", request) + " " + invoke(t, conn, "jane", "projections.Projections/Result", request)
}

// TestProjectionsOfNone checks that nothing is served where no projection runs.
func TestProjectionsOfNone(t *testing.T) {
	conn := startNode(t)
	take(t, conn, []step{{"admin", "projections.Projections/Enable", `{"options":{"name":"a"}}`, "Unimplemented: unknown service event_store.client.projections.Projections"}})
	if listed := invoke(t, conn, "", "server_features.ServerFeatures/GetSupportedMethods", `{}`); strings.Contains(listed, "projections") {
		t.Error(listed)
	}
}

// fakeProjections fails with an error, and answers with a state and with statistics.
type fakeProjections struct {
	api.Projections
	err   error
	state string
}

func (f fakeProjections) Create(context.Context, projection.Creation) (string, error) {
	return "", f.err
}
func (f fakeProjections) Command(context.Context, string, projection.Command, projection.Identity) error {
	return f.err
}
func (f fakeProjections) UpdateQuery(context.Context, string, projection.Update, projection.Identity) error {
	return f.err
}
func (f fakeProjections) Delete(context.Context, string, projection.DeleteOptions, projection.Identity) error {
	return f.err
}
func (f fakeProjections) Statistics(name string) (projection.Statistics, error) {
	return projection.Statistics{
		Name: name, EffectiveName: "e", Mode: projection.OneTime, Status: "Running", StateReason: "r", Version: -1, Epoch: 2, Position: "C:3/P:3",
		LastCheckpoint: "C:4/P:4", CheckpointStatus: "Writing (1)", Progress: 5.5, Processed: 6, ProcessingMs: 7, PartitionsCached: 8, Buffered: 9,
		ReadsInProgress: 10, WritesInProgress: 11, PendingBefore: 12, PendingAfter: 13, ResultStream: "x",
	}, f.err
}
func (f fakeProjections) List(projection.Kinds) ([]projection.Statistics, error) { return nil, f.err }
func (f fakeProjections) State(context.Context, string, string, projection.Identity) (projection.Content, error) {
	return projection.Content{Text: []byte(f.state)}, f.err
}
func (f fakeProjections) Result(context.Context, string, string, projection.Identity) (projection.Content, error) {
	return projection.Content{Text: []byte(f.state)}, f.err
}
func (f fakeProjections) Restart(context.Context) error { return f.err }

func TestProjectionsFail(t *testing.T) {
	methods := []string{"Create", "Update", "Delete", "Enable", "Disable", "Reset", "Statistics", "State", "Result"}
	request := map[string]string{"Create": `{"options":{"continuous":{"name":"none"}}}`}
	for name, c := range map[string]struct {
		cluster memberCluster
		err     error
		want    string // of all methods
		restart string // of RestartSubsystem, where it differs
	}{
		"unknown":       {leader, fmt.Errorf("x: %w", projection.ErrNotFound), noSuch, "-"},
		"taken":         {leader, &projection.Exists{Name: "none"}, conflict, "-"},
		"refused":       {leader, &projection.Refused{Text: "no"}, failed, "-"},
		"being rebuilt": {leader, &projection.Conflict{Text: "no"}, failed, "-"},
		"aborted":       {leader, projection.ErrAborted, failed, "-"},
		"bad":           {leader, &projection.BadInput{Text: "100% wrong"}, "InvalidArgument: 100% wrong", "FailedPrecondition: Projection Subsystem cannot be restarted as it is in the wrong state: Starting"},
		"not allowed":   {leader, event.ErrNotAuthorized, denied, ""},
		"loading":       {leader, event.ErrNotReady, "Unavailable: Server Is Not Ready", ""},
		"write timeout": {leader, event.ErrWriteTimeout, "Aborted: Operation timed out: " + event.ErrWriteTimeout.Error(), ""},
		"deposed":       {leader, &event.NotLeader{Address: "http://h:1"}, "NotFound: Leader info available [exception:[not-leader] leader-endpoint-host:[h] leader-endpoint-port:[1]]", ""},
		"follower":      {memberCluster{"follower", "https://n2:2113"}, nil, "NotFound: Leader info available [exception:[not-leader] leader-endpoint-host:[n2] leader-endpoint-port:[2113]]", ""},
		"no leader":     {memberCluster{role: "unknown"}, nil, "Unavailable: Server Is Not Ready", ""},
		"unforeseen":    {leader, errors.New("oops"), "Internal: Internal Server Error", ""},
	} {
		t.Run(name, func(t *testing.T) {
			conn, _ := serve(t, grpcapi.Options{Node: api.Node{Cluster: c.cluster, Access: anyone{}, Projections: fakeProjections{err: c.err}}})
			for _, m := range methods {
				r := request[m]
				if r == "" {
					r = `{"options":{"name":"none"}}`
				}
				take(t, conn, []step{{"ops", "projections.Projections/" + m, r, c.want}, {"", "projections.Projections/" + m, r, denied}})
			}
			if c.restart == "" {
				c.restart = c.want
			}
			if c.restart != "-" {
				take(t, conn, []step{{"ops", "projections.Projections/RestartSubsystem", `{}`, c.restart}})
			}
		})
	}
}

func TestProjectionContents(t *testing.T) {
	for state, want := range map[string]string{
		"": `{}`, "null": `null`, "1.5": `1.5`, `"é\ud800"`: `"é` + "\uFFFD" + `"`, `[true,{"a":9007199254740993,"a":2}]`: `[true,{"a":2}]`, `{}`: `{}`, `9007199254740993`: `9007199254740992`,
	} {
		conn, _ := serve(t, grpcapi.Options{Node: api.Node{Cluster: leader, Access: anyone{}, Projections: fakeProjections{state: state}}})
		take(t, conn, []step{
			{"jane", "projections.Projections/State", `{"options":{"name":"a"}}`, `{"state":` + want + `} OK`},
			{"jane", "projections.Projections/Result", `{"options":{"name":"a"}}`, `{"result":` + want + `} OK`},
		})
	}
}

func TestProjectionDetails(t *testing.T) {
	conn, _ := serve(t, grpcapi.Options{Node: api.Node{Cluster: leader, Access: anyone{}, Projections: fakeProjections{}}})
	take(t, conn, []step{{"jane", "projections.Projections/Statistics", `{"options":{"name":"a"}}`, `{"details":{"coreProcessingTime":"7","version":"-1","epoch":"2",` +
		`"effectiveName":"e","writesInProgress":11,"readsInProgress":10,"partitionsCached":8,"status":"Running","stateReason":"r","name":"a","mode":"OneTime",` +
		`"position":"C:3/P:3","progress":5.5,"lastCheckpoint":"C:4/P:4","eventsProcessedAfterRestart":"6","checkpointStatus":"Writing (1)","bufferedEvents":"9",` +
		`"writePendingEventsBeforeCheckpoint":12,"writePendingEventsAfterCheckpoint":13}} OK`}})
}

// TestProjectionProperties: the last ones sent are shown, and stored with the definition.
func TestProjectionProperties(t *testing.T) {
	address := nodeOf(t, onenode.Projections)
	conn, c := dial(t, address), overHTTP(t, address)
	shown := func() string {
		t.Helper()
		answer := check.Value(c.Do(t.Context(), testkit.Request{Path: "/projection/p/config", Admin: true})).Must(t)
		var config struct{ Properties json.RawMessage }
		check.Must(t, json.Unmarshal(answer.Body, &config))
		var b bytes.Buffer
		check.Must(t, json.Compact(&b, config.Properties))
		return b.String()
	}
	for _, s := range []struct{ method, request, want string }{
		{"Create", `{"options":{"continuous":{"name":"p"},"query":"fromAll()","engineVersion":1,"properties":{"b":[1,null,{"x":"<é>"}],"a":true}}}`, `{"a":true,"b":[1,null,{"x":"<é>"}]}`},
		{"Update", `{"options":{"name":"p","query":"fromAll()"}}`, `{"a":true,"b":[1,null,{"x":"<é>"}]}`},
		{"Update", `{"options":{"name":"p","query":"fromAll()","properties":{"n":1e21}}}`, `{"n":1e+21}`},
		{"Disable", `{"options":{"name":"p"}}`, `{"n":1e+21}`},
	} {
		take(t, conn, []step{{"admin", "projections.Projections/" + s.method, s.request, "{} OK"}})
		check.Equal(t, shown(), s.want, s.method)
	}
	read := readOf(`"stream":{"streamIdentifier":{"streamName":"JHByb2plY3Rpb25zLXA="},"end":{}}`)
	check.Contains(t, invoke(t, conn, "admin", "streams.Streams/Read", strings.Replace(read, "Forwards", "Backwards", 1)), `"customMetadata":"eyJuIjoxZSsyMX0="`)
	take(t, conn, []step{{"admin", "projections.Projections/RestartSubsystem", `{}`, "{} OK"}})
	testkit.Eventually(t, 10*time.Second, func() error { // Until they are loaded.
		if answer, err := c.Do(t.Context(), testkit.Request{Path: "/projection/p/config", Admin: true}); err != nil || answer.Status != 200 {
			return fmt.Errorf("status %d, %w", answer.Status, err)
		}
		return nil
	})
	check.Equal(t, shown(), `{"n":1e+21}`, "loaded again")
}

// TestUnknownFields: what a change asks for and the server does not know is refused.
func TestUnknownFields(t *testing.T) {
	conn, _ := serve(t, grpcapi.Options{Node: api.Node{Cluster: leader, Access: anyone{}, Projections: fakeProjections{}}})
	c := projections.NewProjectionsClient(conn)
	unknown := func(m proto.Message, number protowire.Number) {
		m.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), 1))
	}
	value, inner := structpb.NewBoolValue(true), structpb.NewBoolValue(true)
	unknown(inner, 9)
	create := func() *projections.CreateReq_Options {
		return &projections.CreateReq_Options{Mode: &projections.CreateReq_Options_Continuous_{Continuous: &projections.CreateReq_Options_Continuous{Name: "p"}}}
	}
	whole, options, mode, nested := &projections.CreateReq{Options: create()}, create(), create(), create()
	unknown(whole, 2)
	unknown(options, 7)
	unknown(mode.GetContinuous(), 4)
	nested.Properties = map[string]*structpb.Value{"a": structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{value, inner}})}
	for want, r := range map[string]*projections.CreateReq{
		"Unknown field 2 in CreateReq.": whole, "Unknown field 7 in CreateReq.Options.": {Options: options},
		"Unknown field 4 in CreateReq.Options.Continuous.": {Options: mode}, "Unknown field 9 in Value.": {Options: nested}, "": {Options: create()},
	} {
		_, err := c.Create(as(t, "ops"), r)
		check.Equal(t, status.Convert(err).Message(), want, "create")
	}
	update := &projections.UpdateReq_Options{Name: "p"}
	unknown(update, 6)
	_, err := c.Update(as(t, "ops"), &projections.UpdateReq{Options: update})
	check.Equal(t, status.Code(err), codes.InvalidArgument)
	check.Equal(t, status.Convert(err).Message(), "Unknown field 6 in UpdateReq.Options.", "update")
}
