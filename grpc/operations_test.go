package grpcapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annalsdb/annals/admin/activity"
	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/event"
	grpcapi "github.com/annalsdb/annals/grpc"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/subscription"
)

// operationMethods are those of Operations.
var operationMethods = []string{"StartScavenge", "StopScavenge", "Shutdown", "MergeIndexes", "ResignNode", "SetNodePriority", "RestartPersistentSubscriptions"}

func TestOperations(t *testing.T) {
	dir := t.TempDir()
	conn := startNode(t, func(c *config.Config) { c.MemDb, c.Db, c.Index = false, dir, filepath.Join(dir, "index") })
	do := func(method string) string { return "operations.Operations/" + method }
	take(t, conn, []step{{"admin", "users.Users/Create", `{"options":{"loginName":"jane","password":"changeit"}}`, "{} OK"}})
	for _, method := range operationMethods {
		take(t, conn, []step{{"", do(method), `{}`, denied}, {"jane", do(method), `{}`, denied}})
	}
	take(t, conn, []step{
		{"ops", do("StopScavenge"), `{"options":{"scavengeId":"x"}}`, "NotFound: Scavenge id was invalid. [exception:[scavenge-not-found] scavenge-id:[x]]"},
		{"ops", do("StopScavenge"), `{}`, "NotFound: Scavenge id was invalid. [exception:[scavenge-not-found] scavenge-id:[]]"},
		{"ops", do("StartScavenge"), `{"options":{"threadCount":-1}}`, "InvalidArgument: threads must be a 1 or above"},
		{"ops", do("StartScavenge"), `{"options":{"startFromChunk":-1}}`, "InvalidArgument: startFromChunk must be a positive integer"},
		{"ops", do("StartScavenge"), `{}`, `{"scavengeId":"ID","scavengeResult":"Started"} OK`},
		{"admin", do("MergeIndexes"), `{}`, "{} OK"},
		{"ops", do("SetNodePriority"), `{"priority":-7}`, "{} OK"},
		{"ops", do("RestartPersistentSubscriptions"), `{}`, "{} OK"},
		{"ops", do("ResignNode"), `{}`, "{} OK"},
		{"ops", do("Shutdown"), `{}`, "{} OK"},
	})
}

// TestScavengeInMemory checks that there is nothing to scavenge without files.
func TestScavengeInMemory(t *testing.T) {
	take(t, startNode(t), []step{{"ops", "operations.Operations/StartScavenge", `{}`, "FailedPrecondition: Scavenge is not supported on in-memory databases"}})
}

var runID = event.ID{1, 2, 3}

// operatedNode is what operators may do, all of which fails with an error. It writes down what it
// is asked for.
type operatedNode struct {
	api.Membership
	api.Operations
	api.Scavenges
	err   error
	asked []string
}

func (f *operatedNode) ask(format string, args ...any) error {
	f.asked = append(f.asked, fmt.Sprintf(format, args...))
	return f.err
}

func (f *operatedNode) Shutdown()                       { _ = f.ask("shutdown") }
func (f *operatedNode) MergeIndexes() (event.ID, error) { return runID, f.ask("merge") }
func (f *operatedNode) View() event.ClusterView         { return event.ClusterView{} }
func (f *operatedNode) SetPriority(n int) error         { return f.ask("priority %d", n) }
func (f *operatedNode) Resign(context.Context) error    { return f.ask("resign") }
func (f *operatedNode) Restart(context.Context) error   { return f.ask("restart") }
func (f *operatedNode) Last() scavenge.Status           { return scavenge.Status{ID: runID} }
func (f *operatedNode) Start(r scavenge.Request) (event.ID, error) {
	return runID, f.ask("start %+v", r)
}
func (f *operatedNode) Stop(_ context.Context, id event.ID) (event.ID, error) {
	return id, f.ask("stop %s", id)
}

// options serve the node, which follows another: what operators do is done by the node that is
// asked.
func (f *operatedNode) options() grpcapi.Options {
	return grpcapi.Options{Node: api.Node{
		Cluster: memberCluster{"follower", "http://h:1"}, Access: anyone{},
		Membership: f, Operations: f, Scavenges: f, Subscriptions: restarts{f: f}, Users: fakeUsers{}, Projections: fakeProjections{},
	}}
}

func TestOperationsOfNode(t *testing.T) {
	stop := fmt.Sprintf(`{"options":{"scavengeId":%q}}`, runID)
	const (
		started = `{"scavengeId":"ID","scavengeResult":"Started"} OK`
		stopped = `{"scavengeId":"ID","scavengeResult":"Stopped"} OK`
		unready = "Unavailable: Server Is Not Ready"
	)
	for name, c := range map[string]struct {
		err                             error
		start, stop, others, restarting string
	}{
		"all is well":    {nil, started, stopped, "{} OK", "{} OK"},
		"one is running": {scavenge.ErrRunning, `{"scavengeId":"ID","scavengeResult":"InProgress"} OK`, "", "", ""},
		"no such run":    {scavenge.ErrNoSuchRun, "", "NotFound: Scavenge id was invalid. [exception:[scavenge-not-found] scavenge-id:[" + runID.String() + "]]", "", ""},
		"chunks held":    {event.ErrChunksLocked, "FailedPrecondition: Failed to acquire the chunk switch lock", "", "", ""},
		"not ready":      {event.ErrNotReady, unready, unready, unready, "{} OK"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &operatedNode{err: c.err}
			conn, _ := serve(t, f.options())
			for method, call := range map[string]struct{ request, want, asked string }{
				"StartScavenge":                  {`{"options":{"threadCount":3,"startFromChunk":5}}`, c.start, "start {Threads:3 Threshold:0 ThrottlePercent:100 SyncOnly:false}"},
				"StopScavenge":                   {stop, c.stop, "stop " + runID.String()},
				"Shutdown":                       {`{}`, "{} OK", "shutdown"},
				"MergeIndexes":                   {`{}`, c.others, "merge"},
				"ResignNode":                     {`{}`, c.others, "resign"},
				"SetNodePriority":                {`{"priority":4}`, c.others, "priority 4"},
				"RestartPersistentSubscriptions": {`{}`, c.restarting, "restart"},
			} {
				if call.want == "" {
					continue
				}
				f.asked = nil
				got := invoke(t, conn, "ops", "operations.Operations/"+method, call.request)
				if got != call.want || !reflect.DeepEqual(f.asked, []string{call.asked}) {
					t.Errorf("%s: %s, asked %q, want %s and %q", method, got, f.asked, call.want, call.asked)
				}
			}
			// The zero id would stop any run. No run has it, so it is refused.
			f.asked = nil
			zero := event.ID{}.String()
			if got := invoke(t, conn, "ops", "operations.Operations/StopScavenge", fmt.Sprintf(`{"options":{"scavengeId":%q}}`, zero)); f.asked != nil || got != "NotFound: Scavenge id was invalid. [exception:[scavenge-not-found] scavenge-id:["+zero+"]]" {
				t.Errorf("%s, asked %q", got, f.asked)
			}
		})
	}
}

// recorder keeps operations.
type recorder struct {
	mu  sync.Mutex // guards the fields below
	all []activity.Operation

	closed bool // nothing more is recorded

	changes atomic.Int32 // that have begun and not ended
	late    atomic.Int32 // those that ended before they were recorded
}

func (r *recorder) Begin() bool {
	if !r.closed {
		r.changes.Add(1)
	}
	return !r.closed
}

func (r *recorder) End() { r.changes.Add(-1) }

func (r *recorder) Note(o activity.Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.From = ""
	r.all = append(r.all, o)
	if o.Status == http.StatusOK && r.changes.Load() == 0 {
		r.late.Add(1)
	}
}

// taken returns what was recorded since it was last called.
func (r *recorder) taken() []activity.Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

func TestActivity(t *testing.T) {
	f, r := &operatedNode{}, &recorder{}
	o := f.options()
	o.Activity = r
	conn, _ := serve(t, o)
	const service, usersService = "/event_store.client.operations.Operations/", "/event_store.client.users.Users/"
	for _, c := range []struct {
		who, method, request string
		want                 []activity.Operation
	}{
		{"ops", "operations.Operations/SetNodePriority", `{"priority":4}`, []activity.Operation{{Who: "ops", Method: "POST", Path: service + "SetNodePriority", Query: "priority=4", Status: 200}}},
		{"jane", "operations.Operations/Shutdown", `{}`, []activity.Operation{{Who: "jane", Method: "POST", Path: service + "Shutdown", Status: 401}}},
		{"jane:wrong", "operations.Operations/Shutdown", `{}`, []activity.Operation{{Method: "POST", Path: service + "Shutdown", Status: 401}}},
		{"", "users.Users/ResetPassword", `{"options":{"loginName":"a b","newPassword":"secret"}}`, []activity.Operation{{Method: "POST", Path: usersService + "ResetPassword", Query: "login_name=a+b", Status: 401}}},
		{"ops", "operations.Operations/StopScavenge", `{"options":{"scavengeId":"x"}}`, []activity.Operation{{Who: "ops", Method: "POST", Path: service + "StopScavenge", Query: "scavenge_id=x", Status: 404}}},
		// The leader is elsewhere.
		{"admin", "users.Users/Delete", `{"options":{"loginName":"jane"}}`, nil},
		{"admin", "users.Users/Details", `{}`, nil},
		{"admin:wrong", "users.Users/Details", `{}`, nil},
	} {
		invoke(t, conn, c.who, c.method, c.request)
		if got := r.taken(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s by %q: %+v, want %+v", c.method, c.who, got, c.want)
		}
	}
	if late := r.late.Load(); late > 0 {
		t.Errorf("%d changes ended before they were recorded: the node could end in between", late)
	}
}

// Of appends those are recorded that change who may do what.
func TestActivityOfAppends(t *testing.T) {
	s, r := newWriteStore(written(0)), &recorder{}
	c := writeClient(t, s, grpcapi.Options{Node: api.Node{Activity: r, WriteTimeout: time.Hour}})
	for _, test := range []struct {
		stream string
		answer outcome
		status int // 0: it is not recorded
	}{
		{"s", written(0), 0},
		{"$$s", written(0), http.StatusOK},
		{"$settings", written(0), http.StatusOK},
		{"$$s", failing(&event.WrongExpectedVersion{Stream: "$$s", Expected: anyVersion}), http.StatusBadRequest},
		{"$$$all", failing(event.ErrNotAuthorized), http.StatusUnauthorized},
		{"$$s", failing(event.ErrTooLarge), http.StatusBadRequest},
		{"$$s", failing(event.ErrNotReady), http.StatusServiceUnavailable},
		{"$$s", failing(&event.NotLeader{Address: "http://a:1"}), 0},
	} {
		s.answerWith(test.answer)
		for _, method := range []string{"Append", "BatchAppend"} {
			if method == "Append" {
				one(t, c, test.stream, anyVersion)
			} else {
				b := openBatch(t, c)
				b.send(batchOf(id(1), batchOptions(test.stream, anyVersion), "x"))
				if _, err := b.Recv(); err == nil {
					b.end()
				}
			}
			var want []activity.Operation
			if test.status != 0 {
				want = []activity.Operation{{
					Method: "POST", Path: "/event_store.client.streams.Streams/" + method, Query: url.Values{"stream_name": {test.stream}}.Encode(), Status: test.status,
				}}
			}
			if got := r.taken(); !reflect.DeepEqual(got, want) {
				t.Errorf("%s to %s: %+v, want %+v", method, test.stream, got, want)
			}
		}
	}
	// A call whose answer the client does not wait for.
	s.answerWith(unanswered)
	c, server := writeServer(t, s, grpcapi.Options{Node: api.Node{Activity: r, WriteTimeout: time.Hour}})
	ctx, leave := context.WithCancel(t.Context())
	before := s.begunNow()
	b, err := c.BatchAppend(ctx)
	if err == nil {
		err = b.Send(batchOf(id(1), batchOptions("$$s", anyVersion), "x"))
	}
	if err != nil {
		t.Fatal(err)
	}
	s.begunUpTo(t, before+1)
	leave()
	server.Close()
	if got := r.taken(); len(got) != 1 || got[0].Status != http.StatusInternalServerError {
		t.Errorf("left alone: %+v", got)
	}
}

// restarts are the groups of the node, of which only that they are loaded again is asked.
type restarts struct {
	api.Subscriptions
	f *operatedNode
}

func (r restarts) Restart(ctx context.Context) error { return r.f.Restart(ctx) }

func (restarts) SourceOf(k subscription.Key) (string, error) { return k.Stream, nil }

// When nothing more is recorded, appends that would have to be are not done.
func TestNothingIsAppendedUnrecorded(t *testing.T) {
	s, r := newWriteStore(written(0)), &recorder{closed: true}
	c := writeClient(t, s, grpcapi.Options{Node: api.Node{Activity: r, WriteTimeout: time.Hour}})
	check.Equal(t, one(t, c, "s", anyVersion), "ok 0", "stream")
	check.Equal(t, one(t, c, "$$s", anyVersion), "Unavailable", "metadata")
	b := openBatch(t, c)
	b.send(batchOf(id(1), batchOptions("$$s", anyVersion), "x"))
	if _, err := b.Recv(); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}
