package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/http1"
	"github.com/annalsdb/annals/projection"
	"github.com/annalsdb/annals/projection/handler"
	readat "github.com/annalsdb/annals/projection/position"
)

const (
	byAdmin = "by {admin [$admins] true}"
	byJane  = "by {jane [] false}"
	byOps   = "by {ops [$ops] true}"
)

// direct sends an operation on projections with a script.
func (n *node) direct(method, path, body string) answer {
	n.t.Helper()
	return n.do(method, path, body, admin("Content-Type", "application/json;charset=utf-8"))
}

func TestProjectionRoutes(t *testing.T) {
	const read, write, list, one, query, config = "GET, OPTIONS", "POST, OPTIONS", "GET, POST, OPTIONS", "GET, DELETE, OPTIONS", "GET, PUT, OPTIONS", "GET, PUT, OPTIONS"
	n, _ := newProjector(t)
	for path, methods := range map[string]string{
		"/projections": read, "/projections/any": read, "/projections/all-non-transient": read,
		"/projections/transient": list, "/projections/onetime": list, "/projections/continuous": list, "/projections/%63ontinuous": list,
		"/projections/read-events": write, "/projections/restart": write,
		"/projection/p": one, "/projection/$by_category": one, "/projection/a%2Fb": one, "/projection/all": one, "/%70rojection/p": one,
		"/projection/p/statistics": read, "/projection/p/state": read, "/projection/p/result": read, "/projection/p/partitions": read, "/projection/p/query": query, "/projection/p/config": config,
		"/projection/p/rebuild": "GET, POST, DELETE, OPTIONS", "/projection/p/rebuild/swap": write, "/projection/p/rebuild/x": "",
		"/projection/p/command/enable": write, "/projection/p/command/disable": write, "/projection/p/command/reset": write, "/projection/p/command/abort": write,

		"/projections/all": "", "/projections/metadata": "", "/projections/": "", "/projections/any/": "", "/projections/Any": "", "/projections/any/x": "",
		"/projection": "", "/projection/": "", "/projection/p/": "", "/projection//state": "", "/projection/p/debug": "", "/projection/p/State": "",
		"/projection/p/state/": "", "/projection/p/state/x": "", "/projection/p/command": "", "/projection/p/command/start": "", "/projection/p/command/": "",
		"/projection/p/command/enable/": "", "/projection/p/commands/enable": "", "/Projections/any": "", "/projectionsx": "", "/projection%2Fp": "",
	} {
		t.Run(path, func(t *testing.T) {
			status, other := 200, 405
			if methods == "" {
				status, other = 404, 404
			}
			checkCORS(t, n.do("OPTIONS", path, "", nil).is(t, status), methods)
			a := n.do("PATCH", path, "", admin()).is(t, other)
			checkCORS(t, a, methods)
			n.do("PATCH", path, "", as("admin", "wrong")).is(t, 401)
		})
	}
	without := newNode(t)
	without.get("/projections/any", appJSON).is(t, 404)
	without.get("/projection/p", appJSON).is(t, 404)
	without.get("/web/es/js/projections/v8/Prelude/Modules.js", "").is(t, 404)
}

// projectionRequests are one of every kind, as an operator sends them.
var projectionRequests = []struct{ method, path, body string }{
	{"GET", "/projections", ""}, {"GET", "/projections/any", ""}, {"GET", "/projections/all-non-transient", ""},
	{"GET", "/projections/transient", ""}, {"GET", "/projections/onetime", ""}, {"GET", "/projections/continuous", ""},
	{"POST", "/projections/transient", "fromAll()"}, {"POST", "/projections/onetime?name=x", "fromAll()"}, {"POST", "/projections/continuous?name=y&emit=yes", "fromAll()"},
	{"POST", "/projections/read-events", "{}"}, {"POST", "/projections/restart", ""},
	{"GET", "/projection/p", ""}, {"GET", "/projection/p/statistics", ""}, {"GET", "/projection/p/state?partition=1", ""}, {"GET", "/projection/p/result", ""},
	{"GET", "/projection/p/query?config=yes", ""}, {"PUT", "/projection/p/query?emit=no", "fromAll()"},
	{"GET", "/projection/p/config", ""}, {"PUT", "/projection/p/config", `{"checkpointHandledThreshold":1,"checkpointUnhandledBytesThreshold":1}`},
	{"POST", "/projection/p/command/enable", ""}, {"POST", "/projection/p/command/disable", ""}, {"POST", "/projection/p/command/reset", ""}, {"POST", "/projection/p/command/abort", ""},
	{"POST", "/projection/p/rebuild?emit=yes", "fromAll()"}, {"GET", "/projection/p/rebuild?compare=yes", ""}, {"POST", "/projection/p/rebuild/swap", ""}, {"DELETE", "/projection/p/rebuild", ""},
	{"DELETE", "/projection/p?deleteStateStream=yes", ""},
}

// forOperators reports whether a request is not for every user.
func forOperators(method, path string) bool {
	return method == "DELETE" || strings.HasSuffix(path, "/restart") || strings.Contains(path, "/rebuild") || strings.HasSuffix(path, "/config")
}

func TestProjectionPermissions(t *testing.T) {
	n, p := newProjector(t)
	p.define("p", projection.Continuous)
	for _, c := range projectionRequests {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			for login, password := range map[string]string{"": "", "jane": "changeit", "ops": "changeit", "admin": "changeit", "nobody": "x"} {
				h := with("Content-Type", appJSON)
				if login != "" {
					h = as(login, password, "Content-Type", appJSON)
				}
				a := n.do(c.method, c.path, c.body, h)
				if login == "" || login == "nobody" || login == "jane" && forOperators(c.method, c.path) {
					a.is(t, 401)
					a.bare(t)
				} else {
					a.is(t, 200, 201, 204, 302)
				}
			}
		})
	}
}

func TestCreateProjection(t *testing.T) {
	for _, c := range []struct{ kind, query, want string }{
		{"continuous", "name=a", "Name:a Mode:Continuous Type: Query:Q Enabled:true Checkpoints:false Emit:false TrackEmittedStreams:false"},
		{"continuous", "name=a%20b/%C3%A9&emit=YES&trackemittedstreams=1&enabled=No", "Name:a b/é Mode:Continuous Type: Query:Q Enabled:false Checkpoints:false Emit:true TrackEmittedStreams:true"},
		{"continuous", "name=a&type=JS&enabled=True&emit=on", "Name:a Mode:Continuous Type:JS Query:Q Enabled:true Checkpoints:false Emit:false TrackEmittedStreams:false"},
		{"continuous", "Name=a&Emit=yes&ENABLED=no", "Name: Mode:Continuous Type: Query:Q Enabled:true Checkpoints:false Emit:false TrackEmittedStreams:false"},
		{"continuous", "name=a&enabled=", "Name:a Mode:Continuous Type: Query:Q Enabled:false Checkpoints:false Emit:false TrackEmittedStreams:false"},
		{"onetime", "checkpoints=true&emit=tRuE&type=native:x", "Name: Mode:OneTime Type:native:x Query:Q Enabled:true Checkpoints:true Emit:true TrackEmittedStreams:false"},
		{"transient", "emit=no&checkpoints=no&enabled=no", "Name: Mode:Transient Type: Query:Q Enabled:false Checkpoints:false Emit:false TrackEmittedStreams:false"},
		{"continuous", "name=a&engineversion=2", "Name:a Mode:Continuous Type: Query:Q Enabled:true Checkpoints:false Emit:false TrackEmittedStreams:false EngineVersion:2"},
	} {
		t.Run(c.kind+" "+c.query, func(t *testing.T) {
			n, p := newProjector(t)
			n.direct("POST", "/projections/"+c.kind+"?"+c.query, "Q").is(t, 201)
			check.Equal(t, p.made(), "create {"+c.want+" By:{Name:admin Roles:[$admins] Operator:true}}", "call")
		})
	}
	n, p := newProjector(t)
	a := n.direct("POST", "/projections/continuous?name=a%20b%2F$c", "Q").is(t, 201).has(t, "Location", base+"/projection/a%20b%2F$c")
	a.has(t, "Content-Type", "application/json; charset=utf-8")
	check.Equal(t, a.body, `{"name":"a b/$c","msgTypeId":293}`, "body")
	n.direct("POST", "/projections/transient", "Q").is(t, 201).has(t, "Location", base+"/projection/0f9fad5b-d9cb-469f-a165-70867728950e")
	n.do("POST", "/projections/transient", "Q", as("jane", "changeit", "Content-Type", "x", "X-Forwarded-Host", "db.example", "X-Forwarded-Prefix", "/es")).is(t, 201).
		has(t, "Location", "http://db.example:2113/es/projection/0f9fad5b-d9cb-469f-a165-70867728950e")
	check.Contains(t, p.made(), "By:{Name:jane Roles:[] Operator:false}")
}

// TestProjectionTexts: a script arrives as it was sent, but for its byte-order mark.
func TestProjectionTexts(t *testing.T) {
	n, p := newProjector(t)
	p.define("p", projection.Continuous)
	text := "fromAll()\r\n// \t é \U0001F600 \x00 \"x\"\n"
	for _, contentType := range []string{"application/json;charset=utf-8", "text/plain", "application/x-www-form-urlencoded", "x"} {
		for _, body := range []string{text, "\ufeff" + text} {
			n.do("PUT", "/projection/p/query", body, admin("Content-Type", contentType)).is(t, 200)
			check.Equal(t, p.made(), fmt.Sprintf("update p to %q, emit as it was, %s", text, byAdmin), contentType)
		}
	}
	for query, emit := range map[string]string{
		"": "as it was", "?emit=": "as it was", "?emit=perhaps": "as it was", "?Emit=yes": "as it was", "?emit=yes": "true", "?emit=True": "true", "?emit=1": "true",
		"?emit=no": "false", "?emit=FALSE": "false", "?emit=0&emit=yes": "false", "?type=JS&emit=yes": "true",
	} {
		a := n.direct("PUT", "/projection/p/query"+query, "Q").is(t, 200)
		check.Equal(t, p.made(), fmt.Sprintf("update p to %q, emit %s, %s", "Q", emit, byAdmin), query)
		check.Equal(t, a.body, `{"name":"p","msgTypeId":293}`, "body")
	}
	n.direct("PUT", "/projection/p/query", strings.Repeat("x", 2<<20)).is(t, 200)
	n.direct("PUT", "/projection/p/query", strings.Repeat("x", 2<<20+1)).is(t, 413).says(t, "Too large a query. Limit is 2mb")
}

// TestRebuild: what reaches the projections, and what is answered.
func TestRebuild(t *testing.T) {
	n, p := newProjector(t)
	p.define("p", projection.Continuous)
	const done, path = `{"name":"p","msgTypeId":293}`, "/projection/p/rebuild"
	for _, c := range []struct{ method, path, body, asked, answer string }{
		{"POST", path + "?emit=yes", "Q", `rebuild p with "Q", emit true, ` + byAdmin, done},
		{"POST", path + "/swap", "", "swap p " + byAdmin, done},
		{"DELETE", path, "", "end the rebuild of p " + byAdmin, done},
		{"GET", path, "", "rebuild of p, compare false, states false, " + byAdmin, `{"name":"p","status":"Ready","reason":"","query":"Q","emitEnabled":false,"position":"","mark":"","progress":100,"eventsProcessedAfterRestart":0,"comparison":null}`},
		{"GET", path + "?compare=yes", "", "rebuild of p, compare true, states false, " + byAdmin, ""},
		{"GET", path + "?states=yes", "", "rebuild of p, compare true, states true, " + byAdmin, ""},
	} {
		a := n.direct(c.method, c.path, c.body).is(t, 200)
		check.Equal(t, p.made(), c.asked, "call")
		if c.answer != "" {
			check.Equal(t, strings.NewReplacer("\n", "", ": ", ":", "  ", "").Replace(a.body), c.answer, "answer")
		}
	}
	p.fail = projection.ErrNoRebuild
	n.direct("POST", path+"/swap", "").is(t, 404).says(t, "The projection is not being rebuilt")
	p.fail = &projection.Conflict{Text: "Later"}
	n.direct("POST", path+"/swap", "").is(t, 409).says(t, "Later")
}

// TestProjectionMediaTypes: which types of body and of answer are taken.
func TestProjectionMediaTypes(t *testing.T) {
	n, p := newProjector(t)
	p.define("p", projection.Continuous)
	for _, c := range projectionRequests {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			path, _, _ := strings.Cut(c.path, "?")
			isScript := c.method == "POST" && strings.HasPrefix(path, "/projections/") && path != "/projections/read-events" || c.method == "PUT" && strings.HasSuffix(path, "/query") || c.method == "POST" && strings.HasSuffix(path, "/rebuild")
			isDocument := path == "/projections/read-events" || c.method == "PUT" && strings.HasSuffix(path, "/config")
			for _, contentType := range []string{"", "text/plain", "application/json", "application/json; charset=utf-8", "application/xml"} {
				want := []int{200, 201, 204, 302}
				if isScript && contentType == "" || isDocument && !strings.HasPrefix(contentType, "application/json") {
					want = []int{415}
				}
				h := admin()
				if contentType != "" {
					h = admin("Content-Type", contentType)
				}
				n.do(c.method, c.path, c.body, h).is(t, want...)
			}
			for accept, ok := range map[string]bool{"*/*": true, "application/json, text/javascript, */*; q=0.01": true, "application/*": true, "text/xml": false, "application/vnd.eventstore.atom+json": false} {
				want := []int{200, 201, 204, 302}
				if !ok && path != "/projections" && !(c.method == "GET" && strings.HasSuffix(path, "/query")) {
					want = []int{406}
				}
				n.do(c.method, c.path, c.body, admin("Content-Type", appJSON, "Accept", accept)).is(t, want...)
			}
		})
	}
}

func TestProjectionCommands(t *testing.T) {
	n, p := newProjector(t)
	p.define("a/b $c", projection.Continuous)
	const path = "/projection/a%2Fb%20$c"
	for _, c := range []string{"enable", "disable", "reset", "abort"} {
		a := n.do("POST", path+"/command/"+c+"?enableRunAs=true", "", as("jane", "changeit")).is(t, 200).has(t, "Content-Type", "application/json; charset=utf-8")
		check.Equal(t, p.made(), c+" a/b $c "+byJane, c)
		check.Equal(t, a.body, `{"name":"a/b $c","msgTypeId":293}`, "body")
	}
	for query, want := range map[string]string{
		"": "{StateStream:false CheckpointStream:false EmittedStreams:false}",
		"?deleteStateStream=yes&deleteCheckpointStream=1&deleteEmittedStreams=TRUE": "{StateStream:true CheckpointStream:true EmittedStreams:true}",
		"?DeleteStateStream=yes&deleteCheckpointStream=no&deleteEmittedStreams=yes": "{StateStream:false CheckpointStream:false EmittedStreams:true}",
	} {
		a := n.do("DELETE", path+query, "", as("ops", "changeit")).is(t, 204)
		check.Equal(t, a.body, "", "body")
		check.Equal(t, p.made(), "delete a/b $c "+want+" "+byOps, query)
	}
	older, p := newProjector(t, func(o *httpapi.Options) { o.ReferenceStatusCodes = true })
	p.define("p", projection.Continuous)
	check.Equal(t, older.do("DELETE", "/projection/p", "", admin()).is(t, 200).body, `{"name":"p","msgTypeId":293}`, "reference")
	p.made()
	check.Equal(t, older.direct("POST", "/projections/restart", "").is(t, 200).has(t, "Content-Type", "application/json; charset=utf-8").body, `"Restarting"`, "restart")
	check.Equal(t, p.made(), "restart", "restart")
}

func TestProjectionConfig(t *testing.T) {
	n, p := newProjector(t)
	p.define("p", projection.Continuous)
	p.conf = projection.DefaultConfig()
	a := n.get("/projection/p/config", appJSON).is(t, 200).has(t, "Cache-Control", "max-age=0, no-cache, must-revalidate").has(t, "Vary", "Accept")
	check.Equal(t, strings.Join(strings.Fields(a.body), ""), `{"emitEnabled":false,"trackEmittedStreams":false,"checkpointAfterMs":0,"checkpointHandledThreshold":4000,`+
		`"checkpointUnhandledBytesThreshold":10000000,"pendingEventsThreshold":5000,"maxWriteBatchLength":500,"maxAllowedWritesInFlight":0,"projectionExecutionTimeout":null,"properties":{"team":"a"},"msgTypeId":293}`, "config")
	p.made()
	for body, want := range map[string]string{
		a.body: "{EmitEnabled:false TrackEmittedStreams:false CheckpointAfterMs:0 CheckpointHandledThreshold:4000 CheckpointUnhandledBytesThreshold:10000000 " +
			"PendingEventsThreshold:5000 MaxWriteBatchLength:500 MaxAllowedWritesInFlight:0 ProjectionExecutionTimeout:<nil>}, timeout none",
		"\ufeff" + `{"EMITENABLED":true,"trackEmittedStreams":true,"checkpointHandledThreshold":5,"checkpointUnhandledBytesThreshold":5,"projectionExecutionTimeout":7,"other":1}`: "{EmitEnabled:true TrackEmittedStreams:true CheckpointAfterMs:0 " +
			"CheckpointHandledThreshold:5 CheckpointUnhandledBytesThreshold:5 PendingEventsThreshold:0 MaxWriteBatchLength:0 MaxAllowedWritesInFlight:0 ProjectionExecutionTimeout:<nil>}, timeout 7",
		`{"emitEnabled":"True","trackEmittedStreams":null,"checkpointAfterMs":" 7 ","checkpointHandledThreshold":"5","checkpointUnhandledBytesThreshold":"6","projectionExecutionTimeout":""}`: "{EmitEnabled:true TrackEmittedStreams:false CheckpointAfterMs:7 " +
			"CheckpointHandledThreshold:5 CheckpointUnhandledBytesThreshold:6 PendingEventsThreshold:0 MaxWriteBatchLength:0 MaxAllowedWritesInFlight:0 ProjectionExecutionTimeout:<nil>}, timeout none",
	} {
		check.Equal(t, n.direct("PUT", "/projection/p/config", body).is(t, 200).body, `{"name":"p","msgTypeId":293}`, "answer")
		check.Equal(t, p.made(), "configure p: "+want+", "+byAdmin, "call")
	}
	for body, text := range map[string]string{
		"": "Failed to parse the projection config", "{": "Failed to parse the projection config", "[]": "Failed to parse the projection config",
		"null": "Failed to parse the projection config", `{"emitEnabled":3}`: "Failed to parse the projection config",
		`{"emitEnabled":"yes"}`: "Failed to parse the projection config", `{"maxWriteBatchLength":"many"}`: "Failed to parse the projection config", `{"maxWriteBatchLength":1.5}`: "Failed to parse the projection config",
		`{"maxWriteBatchLength":{}}`: "Failed to parse the projection config", `{"maxWriteBatchLength":99999999999999999999}`: "Failed to parse the projection config",
		`{"projectionExecutionTimeout":0}`: "projectionExecutionTimeout should be positive. Found : 0", `{"projectionExecutionTimeout":-7}`: "projectionExecutionTimeout should be positive. Found : -7",
		`{}`: "checkpointHandledThreshold", `{"checkpointHandledThreshold":9,"checkpointUnhandledBytesThreshold":8}`: "checkpointUnhandledBytesThreshold",
	} {
		n.direct("PUT", "/projection/p/config", body).is(t, 400).says(t, text)
	}
	check.Equal(t, p.made(), "", "calls")
	n.direct("PUT", "/projection/p/config", strings.Repeat(" ", 70_000)).is(t, 413)
}

// TestProjectionContent: state and result are sent as they are, and may be nothing.
func TestProjectionContent(t *testing.T) {
	n, p := newProjector(t)
	p.define("p", projection.Continuous)
	at := readat.Of("s<1>")
	for _, what := range []string{"state", "result"} {
		for query, partition := range map[string]string{"": "", "?partition=": "", "?partition=a%2Fb+c": "a/b c", "?Partition=x": ""} {
			p.state = projection.Content{Text: []byte(`{"n":1.50,"x":"<é>"}`), Position: &at}
			a := n.get("/projection/p/"+what+query, "").is(t, 200).has(t, "Content-Type", "application/json; charset=utf-8").
				has(t, "Cache-Control", "max-age=0, no-cache, must-revalidate").has(t, "Vary", "Accept").has(t, "ES-Position", `{"$s":{"s<1>":-1}}`)
			check.Equal(t, a.body, `{"n":1.50,"x":"<é>"}`, "text")
			check.Equal(t, p.made(), fmt.Sprintf("%s of p, partition %q", what, partition), "call")
			p.state.Text = nil
			a = n.get("/projection/p/"+what+query, "").is(t, 200).has(t, "Content-Type", "application/json; charset=utf-8").has(t, "ES-Position", `{"$s":{"s<1>":-1}}`)
			check.Equal(t, a.body, "", "text")
			p.state = projection.Content{}
			a = n.get("/projection/p/"+what+query, "").is(t, 200)
			if a.body != "" || a.header["Es-Position"] != nil {
				t.Errorf("%q %v", a.body, a.header)
			}
			p.made()
		}
	}
}

// TestProjectionPartitions: a page of the partitions in memory says where the next one begins.
func TestProjectionPartitions(t *testing.T) {
	n, p := newProjector(t)
	p.define("p", projection.Continuous)
	words := func(a answer) string { return strings.Join(strings.Fields(a.is(t, 200).body), "") }
	check.Equal(t, words(n.get("/projection/p/partitions", "")), `{"partitions":[]}`, "none")
	p.partitions = []projection.Partition{{Name: "a<1>", Bytes: 12}, {Name: "b", Bytes: 0}}
	check.Equal(t, words(n.get("/projection/p/partitions?contains=%3C&after=a&count=2", "")),
		`{"partitions":[{"name":"a<1>","stateBytes":12},{"name":"b","stateBytes":0}],"next":"b"}`, "a page")
	check.Equal(t, p.made(), `100 partitions of p with "" after ""; 2 partitions of p with "<" after "a"`, "calls")
	for _, count := range []string{"0", "1001", "x"} {
		n.get("/projection/p/partitions?count="+count, "").is(t, 400).says(t, "count must be between 1 and 1000 inclusive")
	}
	n.get("/projection/none/partitions", "").is(t, 404)
}

func TestProjectionQuery(t *testing.T) {
	n, p := newProjector(t)
	p.define("p", projection.Continuous)
	p.query = projection.Query{
		Name: "p", Text: "fromStreams('a','b')\r\n// <é>", Mode: projection.Continuous, EmitEnabled: true, CheckpointsEnabled: true, ResultStream: "$projections-p-result",
		Definition: &handler.Definition{Streams: []string{"a", "b"}, Events: []string{"T"}, Options: handler.Options{DefinesFold: true}},
	}
	for _, query := range []string{"", "?config=no", "?config=", "?Config=yes", "?config=on"} {
		a := n.get("/projection/p/query"+query, "text/xml").is(t, 200).has(t, "Content-Type", "application/javascript; charset=utf-8").
			has(t, "Cache-Control", "max-age=0, no-cache, must-revalidate").has(t, "Vary", "Accept")
		check.Equal(t, a.body, p.query.Text, query)
	}
	const want = `{"name":"p","query":"fromStreams('a','b')\r\n//<é>","emitEnabled":true,"trackEmittedStreams":false,"checkpointsEnabled":true,"type":"Continuous","definition":`
	const output = `,"outputConfig":{"resultStreamName":"$projections-p-result"},"msgTypeId":293}`
	for _, query := range []string{"?config=yes", "?config=TRUE", "?config=1"} {
		a := n.get("/projection/p/query"+query, "text/xml").is(t, 200).has(t, "Content-Type", "application/json; charset=utf-8").
			has(t, "Cache-Control", "max-age=0, no-cache, must-revalidate").has(t, "Vary", "Accept")
		check.Equal(t, strings.Join(strings.Fields(a.body), ""), want+`{"allEvents":false,"allStreams":false,"byStream":false,"byCustomPartitions":false,"categories":[],"events":["T"],"streams":["a","b"],`+
			`"limitingCommitPosition":null,"options":{"resultStreamName":null,"partitionResultStreamNamePattern":null,"reorderEvents":false,"processingLag":0,"isBiState":false,`+
			`"definesStateTransform":false,"producesResults":false,"definesFold":true,"handlesDeletedNotifications":false,"includeLinks":false}}`+output, query)
	}
	p.query.Definition = nil
	check.Equal(t, strings.Join(strings.Fields(n.get("/projection/p/query?config=yes", "").body), ""), want+"null"+output, "not prepared")
}

// TestReadEvents: events as the debugger reads them.
func TestReadEvents(t *testing.T) {
	n, p := newProjector(t)
	link := event.Record{Stream: "l", Number: 7, Type: "$>", Data: []byte("0@s"), Metadata: []byte(`{"$o":"x"}`)}
	at := readat.Of("s")
	p.page = projection.SourcePage{Position: at, Events: []projection.SourceEvent{
		{Resolved: event.Resolved{Record: event.Record{Stream: "s", Type: "T", Flags: event.FlagJSON, Data: []byte(`{"v":1.50,"<":"é"}`), Metadata: []byte(`{"m":1}`)}}, Position: at},
		{Resolved: event.Resolved{Record: event.Record{Stream: "s", Number: 1, Type: "U", Data: []byte("\"a\xff")}}, Position: at},
		{Resolved: event.Resolved{Record: event.Record{Stream: "s", Number: 2, Type: "V", Flags: event.FlagJSON, Data: []byte(`{`)}}, Position: at},
		{Resolved: event.Resolved{Record: link, Link: event.LinkResolved, Target: &event.Record{Stream: "t", Number: 3, Type: "W", Flags: event.FlagJSON, Data: []byte(`[1]`)}}, Position: at},
	}}
	const request = `{"query":{"streams":["s"],"allEvents":true},"position":{"$s":{"s":-1}}}`
	a := n.direct("POST", "/projections/read-events", "\ufeff"+request).is(t, 200).has(t, "Content-Type", "application/json; charset=utf-8")
	check.Equal(t, p.made(), "read "+request+" "+byAdmin, "call")
	body := strings.Join(strings.Fields(a.body), "")
	const head = `{"correlationId":"`
	if !strings.HasPrefix(body, head) {
		t.Fatal(body)
	}
	const behind = `,"readerPosition":{"$s":{"s":-1}}}`
	check.Equal(t, body[len(head)+36:], `","readerPosition":{"$s":{"s":-1}},"events":[`+
		`{"eventStreamId":"s","eventNumber":0,"eventType":"T","data":{"v":1.50,"<":"é"},"metadata":{"m":1},"linkMetadata":null,"isJson":true`+behind+
		`,{"eventStreamId":"s","eventNumber":1,"eventType":"U","data":"\"a\ufffd","metadata":"","linkMetadata":null,"isJson":false`+behind+
		`,{"eventStreamId":"s","eventNumber":2,"eventType":"V","data":"{","metadata":null,"linkMetadata":null,"isJson":true`+behind+
		`,{"eventStreamId":"t","eventNumber":3,"eventType":"W","data":[1],"metadata":null,"linkMetadata":{"$o":"x"},"isJson":true`+behind+`]}`, "events")
	p.page = projection.SourcePage{Position: at}
	check.Contains(t, n.direct("POST", "/projections/read-events", request).is(t, 200).body, `"events": []`)
}

func TestGoldenProjections(t *testing.T) {
	n, p := newProjector(t)
	n.golden("projections-empty.json", "/projections/any", appJSON)
	s := p.define("a b/$c", projection.Continuous)
	*s = projection.Statistics{
		Name: s.Name, EffectiveName: s.Name, Mode: s.Mode, Status: "Faulted (Enabled)", StateReason: "The <x> projection\r\nfailed", Version: 3, Epoch: -1, Position: "C:1/P:1", LastCheckpoint: "C:0/P:-1",
		CheckpointStatus: "Writing (1)", Progress: 12.5, Processed: 9_000_000_000, ProcessingMs: 7, PartitionsCached: 6, Buffered: 5, ReadsInProgress: 1, WritesInProgress: 2,
		PendingBefore: 3, PendingAfter: 4, ResultStream: "my result",
	}
	p.define("q", projection.Transient)
	n.golden("projections.json", "/projections/any", appJSON)
	n.golden("projection-statistics.json", "/projection/a%20b%2F$c/statistics", appJSON)
	n.golden("projection.json", "/projection/q", appJSON)
	p.made()
	for path, kind := range map[string]string{"any": "", "all-non-transient": "NonTransient", "transient": "Transient", "onetime": "OneTime", "continuous": "Continuous"} {
		n.get("/projections/"+path, appJSON).is(t, 200).has(t, "Cache-Control", "max-age=0, no-cache, must-revalidate").has(t, "Vary", "Accept")
		check.Equal(t, p.made(), fmt.Sprintf("list %q", kind), path)
	}
	n.get("/projections", "").is(t, 302).says(t, "Moved").has(t, "Location", base+"/web/projections.htm")
}

// TestProjectionFailures: what answers which error, on every path.
func TestProjectionFailures(t *testing.T) {
	for _, c := range projectionRequests[1:] {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var logged strings.Builder
				n, p := newProjector(t, func(o *httpapi.Options) { o.Logger = hclog.New(&hclog.LoggerOptions{Output: &logged}) })
				ask := func() answer { return n.do(c.method, c.path, c.body, admin("Content-Type", appJSON)) }
				fails := func(err error, status int, text string) {
					t.Helper()
					p.fail = err
					a := ask().is(t, status).says(t, text)
					check.Equal(t, a.body, text, "text")
				}
				fails(projection.ErrNotFound, 404, "Not Found")
				fails(&projection.Refused{Text: "Cannot."}, 500, "Cannot.")
				fails(projection.ErrAborted, 500, "Aborted by subsequent operation")
				fails(&projection.Exists{Name: "x"}, 409, "Duplicate projection names : x")
				fails(fmt.Errorf("engine: %w", event.ErrNotAuthorized), 401, "Not authorized")
				fails(&projection.BadInput{Text: "Bad."}, 400, "Bad.")
				fails(event.ErrNotReady, 503, "Server Is Not Ready")
				fails(event.ErrTooLarge, 413, "Too large events received. Limit is 4mb")
				check.Equal(t, logged.String(), "", "logged") // Nothing is wrong with the node.
				p.fail = fmt.Errorf("disk on fire")
				ask().is(t, 500).says(t, "Internal Server Error")
				p.fail = &event.NotLeader{Address: leader}
				redirects(t, ask(), c.path)
				p.fail, p.block = nil, true
				// A request that does not wait is answered at once, and no other request hangs.
				ask().is(t, 200, 404, 408, 500)
			})
		})
	}
}

func TestProjectionsOnFollower(t *testing.T) {
	behind, theirs := newProjector(t)
	theirs.define("p", projection.Continuous)
	for _, role := range []string{"follower", "readonlyreplica"} {
		for _, relayWrites := range []bool{false, true} {
			for _, c := range projectionRequests {
				t.Run(fmt.Sprint(c.method, c.path, role, relayWrites), func(t *testing.T) {
					relay := &relayTo{handler: behind.handler}
					n, ours := newProjector(t, func(o *httpapi.Options) { o.Relay, o.RelayWrites = relay, relayWrites })
					n.cluster.role, n.cluster.leader = role, leader
					ask := func(headers ...string) answer {
						return n.do(c.method, c.path, c.body, admin(append(headers, "Content-Type", appJSON)...))
					}
					if relayWrites {
						a := ask().is(t, 200, 201, 204, 302)
						check.Equal(t, relay.asked, 1, "relayed")
						if strings.Contains(a.body, "://") && !strings.Contains(a.body, base) {
							t.Errorf("addresses of the leader: %s", a.body)
						}
					} else {
						redirects(t, ask(), c.path)
						check.Equal(t, relay.asked, 0, "relayed")
					}
					redirects(t, ask("Annals-Relayed", "1"), c.path)
					asked := relay.asked
					n.do(c.method, c.path, c.body, with("Content-Type", appJSON)).is(t, 401)
					check.Equal(t, relay.asked, asked, "without rights")
					n.cluster.leader = ""
					ask().is(t, 503)
					check.Equal(t, ours.made(), "", "calls")
				})
			}
		}
	}
	n, _ := newProjector(t)
	n.cluster.role, n.cluster.leader = "follower", leader
	n.untouched(t, "POST", "/projections/continuous?name=x", admin("Content-Type", appJSON)).is(t, 307)
}

// TestProjectionPhrases: what the status line says of refusals.
func TestProjectionPhrases(t *testing.T) {
	n, p := newProjector(t)
	l := check.Value(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	server := http1.New(&http.Server{Handler: n.handler})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		check.NoError(t, server.Shutdown(context.Background()))
		<-served
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, c := range []struct {
		fail         error
		status, body string
	}{
		{&projection.Refused{Text: "Cannot."}, "500 Failed", "Cannot."},
		{projection.ErrAborted, "500 Failed", "Aborted by subsequent operation"},
		{&projection.Exists{Name: "x"}, "409 Conflict", "Duplicate projection names : x"},
		{event.ErrNotAuthorized, "401 Not Authorized", "Not authorized"},
		{projection.ErrNotFound, "404 Not Found", "Not Found"},
	} {
		p.fail = c.fail
		r, err := http.NewRequest("POST", "http://"+l.Addr().String()+"/projection/p/command/enable", nil)
		check.Must(t, err)
		r.Header = admin()
		a, err := client.Do(r)
		check.Must(t, err)
		body, err := io.ReadAll(a.Body)
		check.Must(t, err)
		check.Equal(t, a.Status, c.status, "status")
		check.Equal(t, string(body), c.body, "body")
		check.NoError(t, a.Body.Close())
	}
}

// TestDebuggerFiles: they are there for everybody.
func TestDebuggerFiles(t *testing.T) {
	n, _ := newProjector(t)
	for _, file := range []string{"v8/Prelude/Modules.js", "v8/Prelude/Projections.js", "es.projections.environment.js", "v8/Prelude/1Prelude.js"} {
		a := n.do("GET", "/web/es/js/projections/"+file, "", nil).is(t, 200).has(t, "Content-Type", "application/javascript; charset=utf-8").has(t, "Cache-Control", "max-age=3600, public")
		if len(a.body) < 100 {
			t.Errorf("%s: %q", file, a.body)
		}
	}
	for _, path := range []string{"", "es.projection.js", "v8/Prelude/", "v8/Prelude/../Prelude/Modules.js", "v8/Prelude/modules.js"} {
		n.do("GET", "/web/es/js/projections/"+path, "", nil).is(t, 404)
	}
	closed, _ := newProjector(t, func(o *httpapi.Options) { o.DisableAdminUI = true })
	closed.do("GET", "/web/es/js/projections/v8/Prelude/Modules.js", "", nil).is(t, 404)
	closed.get("/projections/any", appJSON).is(t, 200)
}
