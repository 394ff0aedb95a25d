package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// logLine is a line of the log as JSON, as far as the test is about it.
type logLine struct {
	Level   string `json:"@level"`
	Message string `json:"@message"`
	Module  string `json:"@module"`
	Time    string `json:"@timestamp"`

	Method  string `json:"method"`
	Path    string `json:"path"`
	Status  int    `json:"status"`
	Login   string `json:"login"`
	Remote  string `json:"remote"`
	LeftOut int    `json:"left_out"`
}

// logLines reads a log, of which each line must be an object with what every line has.
func logLines(t *testing.T, what, text string) (all []logLine) {
	t.Helper()
	for line := range strings.Lines(text) {
		var one logLine
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Errorf("%s: %v: %s", what, err, line)
			continue
		}
		if at, err := time.Parse(time.RFC3339Nano, one.Time); err != nil || at.Location() != time.UTC || one.Level == "" || one.Message == "" || !strings.HasPrefix(one.Module, "annals") {
			t.Errorf("%s: %v: %s", what, err, line)
		}
		all = append(all, one)
	}
	return all
}

// loggedJSON demands the same of a node that has ended: also of what its libraries log.
func (m *member) loggedJSON() {
	t := m.cluster.t
	t.Helper()
	text := check.Value(os.ReadFile(m.process.LogFile())).Must(t)
	// That line is on standard output.
	before, after, found := strings.Cut(string(text), "annals listens on "+m.URL()+"\n")
	if !found {
		t.Errorf("%s did not say where it listens", m)
	}
	modules := map[string]bool{}
	for _, line := range logLines(t, m.String(), before+after) {
		modules[line.Module] = true
	}
	if !modules["annals.raft"] || !modules["annals.cluster.gossip"] || !modules["annals.http.access"] {
		t.Errorf("%s has logged of %v", m, modules)
	}
}

// Of the refused logins of TestLogging: so many, without waiting between them, of
// which the log may tell so many a second.
const (
	refusedLogins   = 60
	refusedLogLimit = 10
)

// TestLogging runs a node that logs as JSON to standard error and to a file, every
// request and every refused login, and gives it names that could break a line.
func TestLogging(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "logs")
	node := testkit.StartNode(t, t.TempDir(), "--log", folder, "--log-console-format", "Json", "--log-level", "Verbose", "--log-http-requests", "--log-failed-authentication-attempts")
	hostile := "/streams/a%0Ab%22%5C%7B%E2%80%A8c%FF"
	asked := []struct {
		r      testkit.Request
		status int
		login  string
	}{
		{testkit.Request{Path: "/ping"}, 200, ""},
		{testkit.Request{Path: "/info", Admin: true}, 200, "admin"},
		{testkit.Request{Path: hostile}, 404, ""},
		{testkit.Request{Path: "/streams/%24all"}, 401, ""},
		{testkit.Request{Path: "/nowhere"}, 404, ""},
		{testkit.Request{Method: http.MethodDelete, Path: "/ping"}, 405, ""},
		{testkit.Request{Method: http.MethodHead, Path: "/ping"}, 200, ""},
		{withID(appendOf("logged", "ops:changeit"), 400_000), 201, "ops"},
		{testkit.Request{Path: "/health/live"}, 204, ""},
		{testkit.Request{Path: "/streams/logged/0", Header: map[string]string{testkit.HeaderLongPoll: "1", "Accept": testkit.MediaJSON}}, 200, ""},
	}
	for _, one := range asked {
		must(t, node, one.r, one.status)
	}
	begun := time.Now()
	for i := range refusedLogins {
		// Without a colon nothing has to be hashed: they come as fast as they can.
		must(t, node, testkit.Request{Path: fmt.Sprintf("/ping?%d", i), Header: map[string]string{"Authorization": "Basic bm90aGluZw=="}}, http.StatusUnauthorized)
	}
	took := time.Since(begun)
	must(t, node, testkit.Request{Path: "/info", User: "eve\n{", Password: "sesame-sesame"}, http.StatusUnauthorized)
	node.Stop()

	text := check.Value(os.ReadFile(filepath.Join(folder, "annals.log"))).Must(t)
	console, file := logLines(t, "standard error", node.Stderr()), logLines(t, "log file", string(text))
	if node.Stderr() != string(text) {
		t.Errorf("standard error has %d lines, and the file %d", len(console), len(file))
	}
	var requests []logLine
	refused, told, leftOut := 0, map[string]int{}, 0
	for _, line := range file {
		switch {
		case strings.HasSuffix(line.Module, ".access") && line.Message == "request":
			requests = append(requests, line)
		case strings.HasSuffix(line.Module, ".access"):
			refused++
			leftOut += line.LeftOut
			told[line.Time[:len("2006-01-02T15:04:05")]]++
			if line.Level != "warn" || line.Remote == "" {
				t.Errorf("a refused login: %+v", line)
			}
		}
	}
	check.Equal(t, len(requests), len(asked)+refusedLogins+1, "requests are logged")
	for i, one := range asked {
		method := one.r.Method
		switch {
		case method == "" && one.r.Body != nil:
			method = http.MethodPost
		case method == "":
			method = http.MethodGet
		}
		want := logLine{Method: method, Path: one.r.Path, Status: one.status, Login: one.login}
		if got := requests[i]; (logLine{Method: got.Method, Path: got.Path, Status: got.Status, Login: got.Login}) != want {
			t.Errorf("request %d is logged as %+v, want %+v", i, got, want)
		}
	}
	t.Logf("%d refused logins within %s: %d lines, which tell of %d left out", refusedLogins+1, took.Round(time.Millisecond), refused, leftOut)
	// The seconds of the log are its own.
	if limit := refusedLogLimit * (2 + int(took.Seconds())); refused == 0 || refused > limit {
		t.Errorf("%d refused logins are logged, and %d may be", refused, limit)
	}
	for second, n := range told {
		if n > 2*refusedLogLimit {
			t.Errorf("%d lines about refused logins at %s", n, second)
		}
	}
	if strings.Contains(string(text), "sesame") {
		t.Error("a password is in the log")
	}
}
