package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// The run that fakes tell of.
const (
	testRun  = "0c8e4ab1-5ee1-4a2c-9d6c-000000000001"
	otherRun = "0c8e4ab1-5ee1-4a2c-9d6c-000000000002"
	noRun    = `{"scavengeId":"","scavengeLink":""}`
	never    = `{"scavengeId":"00000000-0000-0000-0000-000000000000","scavengeLink":"","scavengeResult":"Unknown","error":null,"started":null}`
	unheard  = "" // as a script of a fake: the connection breaks
)

// running is an answer about the run while it is in a phase.
func running(phase string, done, total int64, unit string) string {
	return fmt.Sprintf(`{"scavengeId":%q,"scavengeLink":"/admin/scavenge/%[1]s","phase":%q,"done":%d,"total":%d,"unit":%q,"bytesSaved":%d,`+
		`"eventsRemoved":7,"chunksExecuted":1,"chunksSkipped":2,"chunksMerged":0,"started":"2026-01-02T03:04:05.1234567Z","resumed":true,"threads":2,`+
		`"threshold":0,"throttlePercent":100,"point":{"number":4,"position":1000,"effectiveNow":"2026-01-02T03:04:04Z","threshold":5}}`,
		testRun, phase, done, total, unit, done*10)
}

// ended is an answer about a run that has ended.
func ended(id, result, problem string) string {
	return fmt.Sprintf(`{"scavengeId":%q,"scavengeLink":"/admin/scavenge/%[1]s","scavengeResult":%q,"error":%q,"started":"2026-01-02T03:04:05Z",`+
		`"ended":"2026-01-02T03:05:06.5Z","resumed":false,"threads":1,"threshold":0,"throttlePercent":50,"point":null,"phase":"Idle","done":0,"total":0,"unit":"",`+
		`"bytesSaved":3670016,"eventsRemoved":12345,"chunksExecuted":3,"chunksSkipped":2,"chunksMerged":4}`, id, result, problem)
}

// completed is the event that ends the history of a run.
func completed(result, problem string) string {
	return fmt.Sprintf(`{"eventStreamId":"s","eventType":"$scavengeCompleted","data":{"scavengeId":"x","result":%q,"error":%q,"spaceSaved":2048},"metadata":""}`, result, problem)
}

// fakeScavenger answers as a node does. Each list of answers is gone through, and
// the last one repeated. An answer that begins with a number is that status.
type fakeScavenger struct {
	mu       sync.Mutex
	requests []string
	answers  map[string][]string // by method and path
}

func (n *fakeScavenger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Method + " " + r.URL.EscapedPath()
	n.mu.Lock()
	_, password, _ := r.BasicAuth()
	entry := key
	if r.URL.RawQuery != "" {
		entry += "?" + r.URL.RawQuery
	}
	if password != "" {
		entry = password + " " + entry
	}
	n.requests = append(n.requests, entry)
	list, known := n.answers[key]
	answer := "404 "
	if known {
		answer = list[0]
		if len(list) > 1 {
			n.answers[key] = list[1:]
		}
	}
	n.mu.Unlock()
	if known && answer == unheard {
		panic(http.ErrAbortHandler)
	}
	status := http.StatusOK
	if _, err := fmt.Sscanf(answer, "%d ", &status); err == nil {
		_, answer, _ = strings.Cut(answer, " ")
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, answer)
}

// asked returns the requests so far; those that follow one that is the same are left out.
func (n *fakeScavenger) asked() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Compact(slices.Clone(n.requests))
}

// scavenger starts a fake node.
func scavenger(t *testing.T, answers map[string][]string) (*fakeScavenger, string) {
	t.Helper()
	n := &fakeScavenger{answers: answers}
	s := httptest.NewServer(n)
	t.Cleanup(s.Close)
	return n, s.URL
}

// serveHanging starts a node that answers nothing before the test ends.
func serveHanging(t *testing.T) (*fakeMember, string) {
	t.Helper()
	released := make(chan struct{})
	n, address := serve(t, func(http.ResponseWriter, *http.Request) { <-released })
	t.Cleanup(func() { close(released) })
	return n, address
}

const (
	postRun    = "POST /admin/scavenge"
	getCurrent = "GET /admin/scavenge/current"
	getLast    = "GET /admin/scavenge/last"
	getHead    = "GET /streams/$scavenges-" + testRun + "/head"
	stopRun    = "DELETE /admin/scavenge/current"
	getGossip  = "GET /gossip"
)

var accepted = `{"scavengeId":"` + testRun + `"}`

// port differs from run to run, and is above 9999.
var port = regexp.MustCompile(`127\.0\.0\.1:\d{5}`)

// runScavenge runs the command and returns its exit code. In what it prints the
// port of the node is 1.
func runScavenge(args ...string) (code int, stdout, stderr string) {
	var out, complaints bytes.Buffer
	code = run(append([]string{"scavenge"}, args...), &out, &complaints, func([]string, io.Writer, io.Writer) error {
		return errors.New("a node was started")
	})
	return code, port.ReplaceAllString(out.String(), "127.0.0.1:1"), port.ReplaceAllString(complaints.String(), "127.0.0.1:1")
}

// expect compares what a command gave: the code, and parts of what it printed.
func expect(t *testing.T, args []string, code int, stdout, stderr []string) {
	t.Helper()
	gotCode, gotOut, gotErr := runScavenge(args...)
	check.Equal(t, gotCode, code, "code")
	for _, c := range []struct {
		name, got string
		want      []string
	}{{"stdout", gotOut, stdout}, {"stderr", gotErr, stderr}} {
		if len(c.want) == 0 && c.got != "" {
			t.Errorf("%s is not empty", c.name)
		}
		for _, part := range c.want {
			check.Contains(t, c.got, part, c.name, "lacks")
		}
	}
	if t.Failed() {
		t.Logf("%q\nstdout:\n%s\nstderr:\n%s", args, gotOut, gotErr)
	}
}
