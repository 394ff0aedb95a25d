package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// fakeProjector answers as a node that runs projections. Answers are found by method
// and path; one that begins with a number is that status.
type fakeProjector struct {
	mu       sync.Mutex
	answers  map[string]string
	requests []string
}

func (n *fakeProjector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	entry := r.Method + " " + r.URL.RequestURI()
	if user, password, ok := r.BasicAuth(); ok {
		entry = user + ":" + password + " " + entry
	}
	if kind := r.Header.Get("Content-Type"); kind != "" || len(body) > 0 {
		entry += " " + kind + " " + string(body)
	}
	n.requests = append(n.requests, entry)
	answer, ok := n.answers[r.Method+" "+r.URL.EscapedPath()]
	if !ok {
		answer = "404 Not Found"
	}
	status := http.StatusOK
	if code, rest, found := strings.Cut(answer, " "); found {
		if n, err := strconv.Atoi(code); err == nil {
			status, answer = n, rest
		}
	}
	w.Header().Set("ES-Position", `{"$s":{"s":7}}`)
	if status == http.StatusTemporaryRedirect {
		w.Header().Set("Location", answer+r.URL.RequestURI())
		answer = ""
	}
	w.WriteHeader(status)
	if status != http.StatusNoContent {
		_, _ = io.WriteString(w, answer)
	}
}

func (n *fakeProjector) asked() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := strings.Join(n.requests, "\n")
	n.requests = nil
	return all
}

const (
	runs     = `{"name":"orders","effectiveName":"orders","mode":"Continuous","status":"Running","stateReason":"","version":3,"epoch":-1,"position":"C:9/P:9","lastCheckpoint":"C:5/P:5","progress":99.5,"eventsProcessedAfterRestart":1234,"coreProcessingTime":17,"partitionsCached":2,"bufferedEvents":0,"readsInProgress":1,"writesInProgress":0,"writePendingEventsBeforeCheckpoint":1,"writePendingEventsAfterCheckpoint":2,"resultStreamUrl":null,"more":{"b":1,"a":2}}`
	faulted  = `{"name":"orders","mode":"Continuous","status":"Faulted (Enabled)","stateReason":"The orders projection failed to process an event.\r\nHandler: t\r\n\r\nMessage:\r\n\r\nbad \u001b[2J","progress":-1}`
	made     = `201 {"name":"orders","msgTypeId":1}`
	rebuilds = `{"name":"orders","status":"Ready","reason":"","position":"C:9/P:9","mark":"C:9/P:9","progress":100,"comparison":{"compared":3,"differing":1,"moved":0,"complete":true,"partitions":[{"partition":"a-1"}]}}`
	reply    = `{"name":"orders","msgTypeId":1}`
)

// projector starts a fake node.
func projector(t *testing.T, answers map[string]string) (*fakeProjector, string) {
	t.Helper()
	n := &fakeProjector{answers: answers}
	s := httptest.NewServer(n)
	t.Cleanup(s.Close)
	return n, s.URL
}

// runProjection runs the command with what standard input holds.
func runProjection(stdin string, args ...string) (code int, stdout, stderr string) {
	var out, complaints bytes.Buffer
	cmd := group("annals", "", "", projectionCommand(strings.NewReader(stdin), &out, io.Discard))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	code = execute(cmd, append([]string{"projection"}, args...), &complaints)
	return code, port.ReplaceAllString(out.String(), "127.0.0.1:1"), port.ReplaceAllString(complaints.String(), "127.0.0.1:1")
}

func TestProjectionHelp(t *testing.T) {
	var all strings.Builder
	for _, line := range []string{"", "list --help", "show --help", "create --help", "update --help", "enable --help", "disable --help", "reset --help", "abort --help", "delete --help", "state --help", "result --help", "query --help", "test --help"} {
		var stdout, stderr bytes.Buffer
		if code := run(append([]string{"projection"}, strings.Fields(line)...), &stdout, &stderr, nil); code != 0 || stderr.Len() > 0 {
			t.Errorf("%q: code %d, %s", line, code, &stderr)
		}
		all.WriteString("$ annals " + strings.TrimSpace("projection "+line) + "\n" + stdout.String() + "\n")
	}
	compareGolden(t, "projection_help.golden", all.String())
}

// TestProjectionCommands: what reaches the node, what is printed, and the exit code.
func TestProjectionCommands(t *testing.T) {
	t.Setenv(passwordVariable, "")
	file := filepath.Join(t.TempDir(), "orders.js")
	const script = "fromAll().when({})\r\n"
	check.Must(t, os.WriteFile(file, []byte(script), 0o600))
	const get, table = "GET /projection/orders", "NAME    MODE        STATUS   PROGRESS  HANDLED  POSITION\norders  Continuous  Running  99.5%     1234     C:9/P:9\n"
	const why = "annals: projection \"orders\" has faulted: The orders projection failed to process an event.\nannals: Handler: t\nannals: Message:\nannals: \"bad \\x1b[2J\"\n"
	for _, c := range []struct {
		name           string
		args           []string
		stdin          string
		answers        map[string]string
		asked          string
		code           int
		stdout, stderr string
	}{
		{
			name: "list", args: []string{"list"}, answers: map[string]string{"GET /projections/any": `{"projections":[` + runs + `]}`},
			asked: "GET /projections/any", stdout: table,
		},
		{
			name: "list none", args: []string{"list", "--kind", "onetime", "--json"}, answers: map[string]string{"GET /projections/onetime": `{"projections":[]}`},
			asked: "GET /projections/onetime", stdout: "[]\n",
		},
		{name: "list where none run", args: []string{"list"}, asked: "GET /projections/any", code: 1, stderr: "annals: 127.0.0.1:1 runs no projections: see RunProjections\n"},
		{name: "list another kind", args: []string{"list", "--kind", "all"}, code: 2, stderr: "annals: --kind \"all\" is none of any, all-non-transient, continuous, onetime, transient\n"},
		{
			name: "show", args: []string{"show", "orders"}, answers: map[string]string{get: runs}, asked: get,
			stdout: "name              orders\nmode              Continuous\nstatus            Running\nprogress          99.5%\nposition          C:9/P:9\nlast checkpoint   C:5/P:5\n" +
				"events handled    1234\ntime in handlers  17 ms\nstates in memory  2\nevents buffered   0\nwrites pending    3\nreads in flight   1\nwrites in flight  0\nversion           3\nepoch             -1\n",
		},
		{
			name: "show as JSON", args: []string{"show", "a/b c", "--json"}, answers: map[string]string{"GET /projection/a%2Fb%20c": `{"name":"a/b c","x":9007199254740993}`},
			asked: "GET /projection/a%2Fb%20c", stdout: "{\n  \"name\": \"a/b c\",\n  \"x\": 9007199254740993\n}\n",
		},
		{
			name: "show the configuration", args: []string{"show", "orders", "--config"}, answers: map[string]string{get + "/config": `{"emitEnabled":true}`},
			asked: get + "/config", stdout: "{\n  \"emitEnabled\": true\n}\n",
		},
		{name: "show an unknown one", args: []string{"show", "orders"}, asked: get, code: 1, stderr: "annals: 127.0.0.1:1 has no projection \"orders\", or runs none: see RunProjections\n"},
		{name: "no name", args: []string{"show", " "}, code: 2, stderr: "annals: the name of the projection is empty\n"},
		{
			name: "create", args: []string{"create", "orders", file}, answers: map[string]string{"POST /projections/continuous": made, get: runs},
			asked: "POST /projections/continuous?name=orders application/javascript " + script + "\n" + get, stdout: "orders  Running\n",
		},
		{
			name: "create with all flags", args: []string{"create", "a b", "-", "--emit", "--enabled=false", "--checkpoints", "--track-emitted-streams", "--type", "native:x", "--kind", "onetime", "--password", "p"}, stdin: script,
			answers: map[string]string{"POST /projections/onetime": made, get: runs},
			asked:   "admin:p POST /projections/onetime?checkpoints=true&emit=true&enabled=false&name=a+b&trackemittedstreams=true&type=native%3Ax application/javascript " + script + "\nadmin:p " + get, stdout: "orders  Running\n",
		},
		{
			name: "create without a name", args: []string{"create", "-", "--kind", "transient"}, answers: map[string]string{"POST /projections/transient": made, get: runs},
			asked: "POST /projections/transient application/javascript \n" + get, stdout: "orders  Running\n",
		},
		{
			name: "create where none run", args: []string{"create", "orders", file}, asked: "POST /projections/continuous?name=orders application/javascript " + script, code: 1,
			stderr: "annals: 127.0.0.1:1 runs no projections: see RunProjections\n",
		},
		{name: "create a continuous one without a name", args: []string{"create", "-"}, code: 2, stderr: "annals: a continuous projection needs a name: annals projection create NAME FILE\n"},
		{name: "create another kind", args: []string{"create", "a", "-", "--kind", "query"}, code: 2, stderr: "annals: --kind \"query\" is none of continuous, onetime, transient\n"},
		{
			name: "create one that faults", args: []string{"create", "orders", "-"}, answers: map[string]string{"POST /projections/continuous": made, get: faulted},
			asked: "POST /projections/continuous?name=orders application/javascript \n" + get, code: 3, stdout: "orders  Faulted (Enabled)\n", stderr: why,
		},
		{
			name: "create a name twice", args: []string{"create", "orders", "-"}, answers: map[string]string{"POST /projections/continuous": "409 Duplicate projection names : orders"},
			asked: "POST /projections/continuous?name=orders application/javascript ", code: 1, stderr: "annals: 127.0.0.1:1 refuses: Duplicate projection names : orders (status 409)\n",
		},
		{
			name: "update", args: []string{"update", "orders", file, "--emit=false"}, answers: map[string]string{"PUT /projection/orders/query": reply, get: runs},
			asked: "PUT /projection/orders/query?emit=false application/javascript " + script + "\n" + get, stdout: "orders  Running\n",
		},
		{
			name: "update the configuration", args: []string{"update", "orders", "--config", "-"}, stdin: "{}", answers: map[string]string{"PUT /projection/orders/config": reply, get: faulted},
			asked: "PUT /projection/orders/config application/json {}\n" + get, code: 3, stdout: "orders  Faulted (Enabled)\n", stderr: why,
		},
		{name: "update nothing", args: []string{"update", "orders"}, code: 2, stderr: "annals: nothing to replace: give the FILE of a script, or --config\n"},
		{name: "update emit alone", args: []string{"update", "orders", "--emit", "--config", "-"}, code: 2, stderr: "annals: --emit needs the FILE of a script\n"},
		{name: "update both from standard input", args: []string{"update", "orders", "-", "--config", "-"}, code: 2, stderr: "annals: the script and the configuration cannot both be read from standard input\n"},
		{
			name: "enable", args: []string{"enable", "orders", "--json"}, answers: map[string]string{"POST /projection/orders/command/enable": reply, get: `{"name":"orders","status":"Running"}`},
			asked: "POST /projection/orders/command/enable\n" + get, stdout: "{\n  \"name\": \"orders\",\n  \"status\": \"Running\"\n}\n",
		},
		{
			name: "enable one that faults", args: []string{"enable", "orders"}, answers: map[string]string{"POST /projection/orders/command/enable": reply, get: faulted},
			asked: "POST /projection/orders/command/enable\n" + get, code: 3, stdout: "orders  Faulted (Enabled)\n", stderr: why,
		},
		{
			name: "disable", args: []string{"disable", "orders"}, answers: map[string]string{"POST /projection/orders/command/disable": reply, get: faulted},
			asked: "POST /projection/orders/command/disable\n" + get, stdout: "orders  Faulted (Enabled)\n",
		},
		{
			name: "reset", args: []string{"reset", "orders"}, answers: map[string]string{"POST /projection/orders/command/reset": reply, get: runs},
			asked: "POST /projection/orders/command/reset\n" + get, stdout: "orders  Running\n",
		},
		{
			name: "abort", args: []string{"abort", "orders"}, answers: map[string]string{"POST /projection/orders/command/abort": "500 Aborted by subsequent operation"},
			asked: "POST /projection/orders/command/abort", code: 1, stderr: "annals: 127.0.0.1:1 refuses: Aborted by subsequent operation (status 500)\n",
		},
		{
			name: "delete", args: []string{"delete", "orders"}, answers: map[string]string{"DELETE /projection/orders": "204 "},
			asked: "DELETE /projection/orders", stdout: "orders\n",
		},
		{
			name: "delete all", args: []string{"delete", "orders", "--emitted-streams", "--checkpoint-stream", "--state-stream", "--json"}, answers: map[string]string{"DELETE /projection/orders": reply},
			asked: "DELETE /projection/orders?deleteCheckpointStream=true&deleteEmittedStreams=true&deleteStateStream=true", stdout: "{\n  \"name\": \"orders\"\n}\n",
		},
		{
			name: "state", args: []string{"state", "orders"}, answers: map[string]string{get + "/state": `{"n":1}`}, asked: get + "/state", stdout: "{\"n\":1}\n",
		},
		{
			name: "state of a partition", args: []string{"state", "orders", "--partition", "a&b"}, answers: map[string]string{get + "/state": ""}, asked: get + "/state?partition=a%26b",
		},
		{
			name: "result as JSON", args: []string{"result", "orders", "--json", "--partition", "a"}, answers: map[string]string{get + "/result": `{"n":9007199254740993}`}, asked: get + "/result?partition=a",
			stdout: "{\n  \"name\": \"orders\",\n  \"partition\": \"a\",\n  \"position\": {\n    \"$s\": {\n      \"s\": 7\n    }\n  },\n  \"result\": {\n    \"n\": 9007199254740993\n  }\n}\n",
		},
		{
			name: "no result as JSON", args: []string{"result", "orders", "--json"}, answers: map[string]string{get + "/result": ``}, asked: get + "/result",
			stdout: "{\n  \"name\": \"orders\",\n  \"partition\": \"\",\n  \"position\": {\n    \"$s\": {\n      \"s\": 7\n    }\n  },\n  \"result\": null\n}\n",
		},
		{name: "query", args: []string{"query", "orders"}, answers: map[string]string{get + "/query": script}, asked: get + "/query", stdout: script},
		{name: "query as JSON", args: []string{"query", "orders", "--json"}, answers: map[string]string{get + "/query": `{"query":"x"}`}, asked: get + "/query?config=yes", stdout: "{\n  \"query\": \"x\"\n}\n"},
		{
			name: "rebuild", args: []string{"rebuild", "orders", "--query", file, "--emit=false"}, answers: map[string]string{"POST /projection/orders/rebuild": reply, get + "/rebuild": rebuilds},
			asked:  "POST /projection/orders/rebuild?emit=false application/javascript " + script + "\n" + get + "/rebuild",
			stdout: "orders     Ready  100.0%\ncompared   3\ndiffering  1\nmoved      0\ndiffers    \"a-1\"\n",
		},
		{
			name: "rebuild and swap", args: []string{"rebuild", "orders", "--query", "-", "--swap-when-ready"},
			answers: map[string]string{"POST /projection/orders/rebuild": reply, get + "/rebuild": rebuilds, "POST /projection/orders/rebuild/swap": reply, get: runs},
			asked:   "POST /projection/orders/rebuild application/javascript \n" + get + "/rebuild\nPOST /projection/orders/rebuild/swap\n" + get, stdout: "orders  Running\n",
		},
		{
			name: "rebuild one that faults", args: []string{"rebuild", "orders", "--query", "-", "--wait"},
			answers: map[string]string{"POST /projection/orders/rebuild": reply, get + "/rebuild": `{"name":"orders","status":"Faulted","reason":"bad"}`},
			asked:   "POST /projection/orders/rebuild application/javascript \n" + get + "/rebuild", code: 3, stderr: "annals: the rebuild of projection \"orders\" has faulted: bad\n",
		},
		{name: "rebuild without a script", args: []string{"rebuild", "orders"}, code: 2, stderr: "annals: --query is missing: the FILE of the script\n"},
		{
			name: "states of a rebuild", args: []string{"rebuild-status", "orders", "--states"}, answers: map[string]string{get + "/rebuild": `{"status":"Ready"}`},
			asked: get + "/rebuild?states=yes", stdout: "{\n  \"status\": \"Ready\"\n}\n",
		},
		{
			name: "swap none", args: []string{"swap", "orders"}, answers: map[string]string{"POST /projection/orders/rebuild/swap": "404 The projection is not being rebuilt"},
			asked: "POST /projection/orders/rebuild/swap", code: 1, stderr: "annals: 127.0.0.1:1 refuses: The projection is not being rebuilt (status 404)\n",
		},
		{
			name: "abort a rebuild", args: []string{"rebuild-abort", "orders"}, answers: map[string]string{"DELETE /projection/orders/rebuild": reply},
			asked: "DELETE /projection/orders/rebuild", stdout: "orders  rebuild ended\n",
		},
		{
			name: "no credentials", args: []string{"reset", "orders"}, answers: map[string]string{"POST /projection/orders/command/reset": "401 "}, asked: "POST /projection/orders/command/reset", code: 1,
			stderr: "annals: 127.0.0.1:1 asks for credentials: set ANNALS_PASSWORD to the password of admin, or see --user and --password\n",
		},
		{
			name: "not ready", args: []string{"list"}, answers: map[string]string{"GET /projections/any": "503 "}, asked: "GET /projections/any", code: 1,
			stderr: "annals: 127.0.0.1:1 is not ready: it may be starting or stopping\n",
		},
		{name: "unknown command", args: []string{"start", "orders"}, code: 2, stderr: "annals: unknown command \"start\", did you mean annals projection state?\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, address := projector(t, c.answers)
			code, stdout, stderr := runProjection(c.stdin, append(c.args, "--node", address)...)
			if code != c.code || stdout != c.stdout || stderr != c.stderr {
				t.Errorf("code %d\nstdout: %s\nstderr: %s", code, stdout, stderr)
			}
			check.Equal(t, n.asked(), c.asked, "asked")
		})
	}
}

func TestProjectionFollowsToTheLeader(t *testing.T) {
	t.Setenv(passwordVariable, "p")
	leader, leaderAddress := projector(t, map[string]string{"PUT /projection/orders/query": reply, "GET /projection/orders": runs})
	named := "307 " + strings.Replace(leaderAddress, "127.0.0.1", "localhost", 1)
	follower, address := projector(t, map[string]string{"PUT /projection/orders/query": named, "GET /projection/orders": named})
	code, stdout, stderr := runProjection("text", "update", "orders", "-", "--node", address)
	if code != 0 || stdout != "orders  Running\n" || stderr != "" {
		t.Errorf("code %d\nstdout: %s\nstderr: %s", code, stdout, stderr)
	}
	const put, get = "admin:p PUT /projection/orders/query application/javascript text", "\nadmin:p GET /projection/orders"
	// The second question goes to the leader at once.
	if one, two := follower.asked(), leader.asked(); one != put || two != put+get {
		t.Errorf("the follower was asked %q, the leader %q", one, two)
	}
}

func TestProjectionMissingFile(t *testing.T) {
	n, address := projector(t, nil)
	code, _, stderr := runProjection("", "create", "orders", filepath.Join(t.TempDir(), "none.js"), "--node", address)
	if asked := n.asked(); code != 1 || !strings.Contains(stderr, "no such file") || asked != "" {
		t.Errorf("code %d, %s, asked %q", code, stderr, asked)
	}
}

// TestProjectionBrokenOff: what was asked for may have been done.
func TestProjectionBrokenOff(t *testing.T) {
	t.Setenv(passwordVariable, "")
	_, address := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	code, _, stderr := runProjection("", "reset", "orders", "--node", address)
	if want := "annals: 127.0.0.1:1 does not answer: EOF; see whether it was done with annals projection list --node http://127.0.0.1:1\n"; code != 1 || stderr != want {
		t.Errorf("code %d, %s", code, stderr)
	}
}
