package grpcapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/annalsdb/annals/admin/activity"
	"github.com/annalsdb/annals/internal/testkit"
)

// operation is something that a caller does over HTTP and over gRPC.
type operation struct {
	name               string
	method, path, body string // over HTTP
	call, request      string // over gRPC
}

// operations are what both interfaces have. Where one needs something that exists, it gets what
// does not: whether it is there is looked at after the rights.
var operations = []operation{
	{"read a stream", "GET", "/streams/open", "", "streams.Streams/Read", readOf(`"stream":{"streamIdentifier":{"streamName":"b3Blbg=="},"start":{}}`)},
	{"read a stream that few may read", "GET", "/streams/closed", "", "streams.Streams/Read", readOf(`"stream":{"streamIdentifier":{"streamName":"Y2xvc2Vk"},"start":{}}`)},
	{"read a system stream", "GET", "/streams/$settings", "", "streams.Streams/Read", readOf(`"stream":{"streamIdentifier":{"streamName":"JHNldHRpbmdz"},"start":{}}`)},
	{"read the log", "GET", "/streams/$all", "", "streams.Streams/Read", readOf(`"all":{"start":{}}`)},
	{"delete a stream", "DELETE", "/streams/none", "", "streams.Streams/Delete", `{"options":{"streamIdentifier":{"streamName":"bm9uZQ=="},"streamExists":{}}}`},
	{"delete a stream that few may delete", "DELETE", "/streams/closed", "", "streams.Streams/Delete", `{"options":{"streamIdentifier":{"streamName":"Y2xvc2Vk"},"revision":77}}`},
	{"delete the log", "DELETE", "/streams/$all", "", "streams.Streams/Delete", `{"options":{"streamIdentifier":{"streamName":"JGFsbA=="},"any":{}}}`},
	{"append to several streams", "POST", "/streams", httpMany("open", "open"), manyService, grpcMany("open", "open")},
	{"append, with a check of what few may read", "POST", "/streams", httpMany("open", "closed"), manyService, grpcMany("open", "closed")},
	{"append to the log", "POST", "/streams", httpMany("$all", "open"), manyService, grpcMany("$all", "open")},
	{"append to settings", "POST", "/streams", httpMany("$settings", "open"), manyService, grpcMany("$settings", "open")},
	{"append to metadata", "POST", "/streams", httpMany("$$$x", "open"), manyService, grpcMany("$$$x", "open")},

	{"query", "POST", "/query", `{"query":{"all":true},"limit":1}`, queryService + "Read", `{"query":{"all":true},"limit":1}`},
	{"query for ever", "GET", "/query?types=none", "", queryService + "Subscribe", `{"query":{"all":true}}`},
	{"append under a condition", "POST", "/streams", httpUnder("open"), queryService + "Append", grpcUnder("open")},
	{"append to settings under a condition", "POST", "/streams", httpUnder("$settings"), queryService + "Append", grpcUnder("$settings")},
	{"append to metadata under a condition", "POST", "/streams", httpUnder("$$$x"), queryService + "Append", grpcUnder("$$$x")},

	{"groups", "GET", "/subscriptions", "", "persistent_subscriptions.PersistentSubscriptions/List", `{"options":{"listAllSubscriptions":{}}}`},
	{"a group", "GET", "/subscriptions/none/g/info", "", "persistent_subscriptions.PersistentSubscriptions/GetInfo", ofGroup},
	{"delete a group", "DELETE", "/subscriptions/none/g", "", "persistent_subscriptions.PersistentSubscriptions/Delete", ofGroup},
	{"replay parked messages", "POST", "/subscriptions/none/g/replayParked", "", "persistent_subscriptions.PersistentSubscriptions/ReplayParked", strings.Replace(ofGroup, `"groupName"`, `"noLimit":{},"groupName"`, 1)},
	{"restart groups", "POST", "/subscriptions/restart", "", "persistent_subscriptions.PersistentSubscriptions/RestartSubsystem", `{}`},

	{"projections", "GET", "/projections/any", "", "projections.Projections/Statistics", `{"options":{"all":{}}}`},
	{"disable a projection", "POST", "/projection/none/command/disable", "{}", "projections.Projections/Disable", `{"options":{"name":"none"}}`},
	{"enable a projection", "POST", "/projection/none/command/enable", "{}", "projections.Projections/Enable", `{"options":{"name":"none"}}`},
	{"reset a projection", "POST", "/projection/none/command/reset", "{}", "projections.Projections/Reset", `{"options":{"name":"none"}}`},
	{"delete a projection", "DELETE", "/projection/none", "", "projections.Projections/Delete", `{"options":{"name":"none"}}`},
	{"a projection's state", "GET", "/projection/none/state", "", "projections.Projections/State", `{"options":{"name":"none"}}`},
	{"a projection's result", "GET", "/projection/none/result", "", "projections.Projections/Result", `{"options":{"name":"none"}}`},
	{"disable a built-in projection", "POST", "/projection/$by_category/command/disable", "{}", "projections.Projections/Disable", `{"options":{"name":"$by_category"}}`},
	{"restart projections", "POST", "/projections/restart", "", "projections.Projections/RestartSubsystem", `{}`},

	{"users", "GET", "/users/", "", "users.Users/Details", `{}`},
	{"a user", "GET", "/users/none", "", "users.Users/Details", `{"options":{"loginName":"none"}}`},
	{"create a user", "POST", "/users/", `{"loginName":"a:b","fullName":"x","password":"p"}`, "users.Users/Create", `{"options":{"loginName":"a:b","password":"p"}}`},
	{"disable a user", "POST", "/users/none/command/disable", "", "users.Users/Disable", `{"options":{"loginName":"none"}}`},
	{"reset a password", "POST", "/users/none/command/reset-password", `{"newPassword":"p"}`, "users.Users/ResetPassword", `{"options":{"loginName":"none","newPassword":"p"}}`},
	{"delete a user", "DELETE", "/users/none", "", "users.Users/Delete", `{"options":{"loginName":"none"}}`},

	{"statistics", "GET", "/stats", "", "monitoring.Monitoring/Stats", `{"refreshTimePeriodInMs":"100"}`},
	{"gossip", "GET", "/gossip", "", "gossip.Gossip/Read", `{}`},
	{"scavenge", "POST", "/admin/scavenge", "", "operations.Operations/StartScavenge", `{"options":{"threadCount":-7}}`},
	{"stop a scavenge", "DELETE", "/admin/scavenge/none", "", "operations.Operations/StopScavenge", `{"options":{"scavengeId":"none"}}`},
	{"merge the index", "POST", "/admin/mergeindexes", "", "operations.Operations/MergeIndexes", `{}`},
	{"resign", "POST", "/admin/node/resign", "", "operations.Operations/ResignNode", `{}`},
	{"set the priority", "POST", "/admin/node/priority/7", "", "operations.Operations/SetNodePriority", `{"priority":7}`},
}

func readOf(what string) string {
	return `{"options":{` + what + `,"readDirection":"Forwards","count":"1","noFilter":{},"uuidOption":{"string":{}}}}`
}

const manyService = "kurrentdb.protocol.v2.streams.StreamsService/AppendRecords"

// httpMany and grpcMany are a write to a stream, with a check of another that does not hold.
func httpMany(written, checked string) string {
	return fmt.Sprintf(`{"events":[{"stream":%q,"eventId":%q,"eventType":"t","data":{}}],"checks":[{"stream":%q,"expectedVersion":77}]}`, written, uuid.NewString(), checked)
}

func grpcMany(written, checked string) string {
	return fmt.Sprintf(`{"records":[{"stream":%q,"schema":{"format":1,"name":"t"},"data":"e30="}],"checks":[{"streamState":{"stream":%q,"expectedState":"77"}}]}`, written, checked)
}

const queryService = "annals.query.v1.QueryService/"

// httpUnder and grpcUnder are a write to a stream, under a condition that fails.
func httpUnder(written string) string {
	return fmt.Sprintf(`{"events":[{"stream":%q,"eventId":%q,"eventType":"t","data":{}}],"condition":{"failIfEventsMatch":{"all":true}}}`, written, uuid.NewString())
}

func grpcUnder(written string) string {
	return fmt.Sprintf(`{"records":[{"stream":%q,"schema":{"format":1,"name":"t"},"data":"e30="}],"conditions":[{"query":{"all":true}}]}`, written)
}

const ofGroup = `{"options":{"streamIdentifier":{"streamName":"bm9uZQ=="},"groupName":"g"}}`

// TestPageOfPermissions: docs/grpc.md says which path has the rules of a call.
func TestPageOfPermissions(t *testing.T) {
	page, err := os.ReadFile("../docs/grpc.md")
	if err != nil {
		t.Fatal(err)
	}
	names := strings.NewReplacer("/streams/open", "/streams/{stream}", "/streams/none", "/streams/{stream}", "none/g", "{stream}/{group}",
		"/users/none", "/users/{login}", "/priority/7", "/priority/{priority}", "?types=none", "", "none", "{name}")
	seen := map[string]bool{}
	for _, o := range operations {
		if call := o.call[strings.LastIndexByte(o.call, '.')+1:]; !seen[call] {
			seen[call] = true
			if row := fmt.Sprintf("| %s | `%s %s` |\n", call, o.method, names.Replace(o.path)); !bytes.Contains(page, []byte(row)) {
				t.Errorf("no row %s", row)
			}
		}
	}
}

// verdict is whether a caller may do something.
func verdict(refused bool) string {
	if refused {
		return "refused"
	}
	return "allowed"
}

// TestBothInterfacesAllowTheSame: a caller who may do something over HTTP may do it over gRPC, and
// both record it or neither.
func TestBothInterfacesAllowTheSame(t *testing.T) {
	address := nodeOf(t)
	c, conn := overHTTP(t, address), dial(t, address)
	for _, user := range []string{
		`{"loginName":"jane","fullName":"Jane","password":"changeit"}`,
		`{"loginName":"olga","fullName":"Olga","password":"changeit","groups":["$ops"]}`,
		`{"loginName":"ada","fullName":"Ada","password":"changeit","groups":["$admins"]}`,
		`{"loginName":"gone","fullName":"Gone","password":"changeit","groups":["$admins"]}`,
	} {
		do(t, c, testkit.Request{Path: "/users/", Body: []byte(user), Header: map[string]string{"Content-Type": "application/json"}, Admin: true})
	}
	do(t, c, testkit.Request{Method: "POST", Path: "/users/gone/command/disable", Admin: true})
	write(t, c, "open", "t", "{}")
	write(t, c, "closed", "t", "{}")
	describe(t, c, "closed", `{"$acl":{"$r":"olga","$d":"olga"}}`)
	for i, o := range operations {
		callers := []string{"", "jane", "olga", "ada"}
		if i%12 == 0 { // Wrong logins have to wait soon, over both.
			callers = append(callers, "gone")
		}
		for _, who := range callers {
			r := testkit.Request{Method: o.method, Path: o.path, User: who, Password: "changeit", Header: map[string]string{"Content-Type": "application/json"}}
			if o.body != "" {
				r.Body = []byte(o.body)
			}
			answer, err := c.Do(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			end := firstOf(t, conn, who, o.call, o.request)
			http, grpc := verdict(answer.Status == 401 || answer.Status == 403), verdict(strings.HasPrefix(end, "PermissionDenied") || strings.HasPrefix(end, "Unauthenticated"))
			if http != grpc {
				t.Errorf("%s by %q: over HTTP %s (%d), over gRPC %s (%s)", o.name, who, http, answer.Status, grpc, end)
			}
		}
	}
	recordedAlike(t, c)
}

// firstOf makes a call, and returns its end, or that it has an answer.
func firstOf(t *testing.T, conn *grpc.ClientConn, who, name, request string) string {
	t.Helper()
	full, m := methodOf(t, name)
	in, out := newMessage(t, m.Input()), newMessage(t, m.Output())
	if err := protojson.Unmarshal([]byte(request), in); err != nil {
		t.Fatal(name, err)
	}
	ctx, cancel := context.WithCancel(by(t.Context(), who))
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, full)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stream.SendMsg(in), stream.CloseSend()); err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(out); err != nil && err != io.EOF {
		return ending(err, stream.Trailer())
	}
	return "OK"
}

// recordedAlike compares what was recorded of the operations over both interfaces. Refused requests
// of callers without a login are recorded in part.
func recordedAlike(t *testing.T, c *testkit.Client) {
	t.Helper()
	testkit.Eventually(t, 10*time.Second, func() error {
		all, err := c.ReadStream(t.Context(), activity.Stream, 0)
		if err != nil {
			return err
		}
		over := map[string][2][]string{}
		for _, e := range all {
			var was activity.Operation
			if err := json.Unmarshal([]byte(e.Data), &was); err != nil {
				return err
			}
			seen := map[string]bool{} // Several operations may be one call.
			for _, o := range operations {
				full, _ := methodOf(t, o.call)
				name := o.call
				if o.path == "/streams" { // Two calls are this one path.
					name = o.path
				}
				both := over[name]
				refused := fmt.Sprint(was.Who, " ", verdict(was.Status == 401))
				switch {
				case was.Who == "" || was.Who == "admin": // Ours were to set the scene.
				case seen[name]:
				case was.Method == o.method && was.Path == o.path:
					both[0] = append(both[0], refused)
					seen[name] = true
				case was.Path == full:
					both[1] = append(both[1], refused)
					seen[name] = true
				}
				over[name] = both
			}
		}
		for name, both := range over {
			if !slices.Equal(both[0], both[1]) {
				return fmt.Errorf("%s: recorded over HTTP %q, over gRPC %q", name, both[0], both[1])
			}
		}
		return nil
	})
}
