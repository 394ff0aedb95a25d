package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/check"
)

func TestAppend(t *testing.T) {
	node := openNode(t, t.TempDir(), true)
	to := func(stream string) string {
		return fmt.Sprintf(`{"stream":%q,"eventId":%q,"eventType":"T","data":{}}`, stream, client.NewID())
	}
	both := `{"checks":[{"stream":"c","expectedVersion":"none"}],"events":[` + to("a") + `,` + to("b") + `]}`
	for _, test := range []struct {
		name, body, node, want string
		code                   int
	}{
		{"written", both, node, `"repeated":false,"streams":[{"stream":"a","first":0,"last":0},{"stream":"b","first":0,"last":0}]}` + "\n", 0},
		{"repeated", both, node, `"repeated":true,"streams":[{"stream":"a","first":0,"last":0},{"stream":"b","first":0,"last":0}]}` + "\n", 0},
		{"violated", `{"checks":[{"stream":"b","expectedVersion":7}],"events":[` + to("a") + `]}`, node, `{"index":0,"stream":"b","expected":7,"actual":0}`, 1},
		{
			"conflict", `{"condition":{"failIfEventsMatch":{"items":[{"streams":["a"]}]}},"events":[` + to("a") + `]}`, node,
			`"conditions":[{"index":0,"event":{"position":`, 1,
		},
		{"refused", `{"event":[]}`, node, `"event" is not a member that is known here. (status 400)`, 2},
		{"not JSON", `x`, node, `Write request body invalid. (status 400)`, 2},
		{"too large", `{"events":[` + strings.Repeat(" ", maxAppend), node, `the events take more than 30000000 bytes`, 2},
		{"no node", both, "http://127.0.0.1:1", `refuses the connection`, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "events.json")
			check.Must(t, os.WriteFile(file, []byte(test.body), 0o600))
			code, stdout, stderr := runLine("append", file, "--node", test.node)
			said := stdout
			if test.code == 2 {
				said = stderr
				check.Equal(t, stdout, "")
			}
			if code != test.code || !strings.Contains(said, test.want) {
				t.Errorf("code %d\n%s%s", code, stdout, stderr)
			}
		})
	}
	if code, _, stderr := runLine("append", filepath.Join(t.TempDir(), "none")); code != 2 || !strings.Contains(stderr, "no such file") {
		t.Errorf("code %d\n%s", code, stderr)
	}

	// The first answer is lost, and the node that sends the second is not ready: what is written is
	// found by its ids.
	var tries atomic.Int64
	behind := httputil.NewSingleHostReverseProxy(check.Value(url.Parse(node)).Must(t))
	lossy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		switch tries.Add(1) {
		case 1:
			behind.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			behind.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(lossy.Close)
	var stdout, stderr bytes.Buffer
	cmd := appendCommand(strings.NewReader(`{"events":[`+to("d")+`]}`), &stdout, &stderr)
	code := execute(cmd, []string{"-", "--repeat", "--node", lossy.URL}, &stderr)
	if code != 0 || !strings.Contains(stdout.String(), `"repeated":true`) || tries.Load() != 3 || !strings.Contains(stderr.String(), "the other nodes are not known") {
		t.Errorf("code %d after %d tries\n%s%s", code, tries.Load(), &stdout, &stderr)
	}
	if code, _, stderr := runLine("append", "-", "--node", lossy.URL, "x"); code != 2 {
		t.Errorf("code %d\n%s", code, stderr)
	}
}
