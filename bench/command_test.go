package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/annalsdb/annals/bench"
	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// document is what the tests look at in the JSON.
type document struct {
	Name                string
	Operations          int64
	OperationsPerSecond float64
	Events              int64
	PayloadBytes        int64
	LatencyMs           struct{ P50, P99, Max float64 }
	Parts               []document
	Errors              map[string]struct{ Count int64 }
	ErrorTotal          int64
	Redirects           int64
	Interrupted         bool
	GRPC                bool
	ElapsedSeconds      float64
	CPU                 struct {
		DriverSeconds      float64
		ServerSecondsByPid map[string]float64
	}
}

func execute(t *testing.T, ctx context.Context, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, log bytes.Buffer
	cmd := bench.Command()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&log)
	err = cmd.ExecuteContext(ctx)
	return out.String(), log.String(), err
}

// measure runs the command against the node and returns its JSON.
func measure(t *testing.T, base string, args ...string) document {
	t.Helper()
	args = append(args, "--node", base, "--json", "-")
	stdout, stderr, err := execute(t, context.Background(), args...)
	check.Must(t, err, args, stderr)
	var doc document
	check.Must(t, json.Unmarshal([]byte(stdout), &doc), args, "in", stdout)
	return doc
}

// asAdmin are the credentials of who may do everything.
var asAdmin = []string{"--user", "admin", "--password", "changeit"}

func TestWorkloads(t *testing.T) {
	base := startNode(t)
	const layout = " --streams 10 --events-per-stream 30 --size 64 --prepare"
	cases := []struct {
		name   string
		args   string
		ops    int64 // of 100 at most; -1: not fixed
		events int64 // -1: not fixed
		bytes  int64 // -1: not fixed
		over   string
	}{
		{"append", "append --streams 10 --size 64", 100, 100, 6400, "both"},
		{"append checked", "append --streams 10 --size 64 --expected-version-checked", 100, 100, 6400, "both"},
		{"smallest events", "append --streams 10 --size 2", 100, 100, 200, "HTTP"},
		{"one connection", "append --streams 10 --size 64 --connections 1", 100, 100, 6400, "gRPC"},
		{"batches", "append --streams 10 --size 64 --batch 7", 100, 700, 44800, "both"},
		{"batches checked", "append --streams 10 --size 64 --batch 7 --expected-version-checked", 100, 700, 44800, "both"},
		{"to several streams", "append --streams 10 --size 64 --to-streams 3", 100, 300, 19200, "HTTP"},
		{"under a condition", "append --streams 10 --size 64 --condition", 100, 100, 6400, "HTTP"},
		{"batch in parts", "append --streams 10 --size 2000000 --batch 3 --count 2", 2, 6, 12_000_000, "gRPC"},
		{"events", "read-event" + layout, 100, 100, 6400, "both"},
		{"pages", "read-page" + layout, 100, 2000, -1, "both"},
		{"small pages", "read-page --page 5" + layout, 100, 500, -1, "both"},
		{"stream", "tail --prepare --stream-events 235 --page 10 --size 32 --workers 1", 24, 235, -1, "both"},
		{"log", "tail --stream $all --page 10 --repeat", 100, -1, -1, "both"},
		{"visible", "visible --count 5 --workers 1 --pause 0 --size 64", 5, 5, 320, "both"},
		{"visible beside appends", "visible --duration 100ms --count 0 --workers 2 --pause 1ms --size 64", -1, -1, -1, "both"},
	}
	for _, c := range cases {
		for _, protocol := range []string{"HTTP", "gRPC"} {
			if c.over != "both" && c.over != protocol {
				continue
			}
			t.Run(c.name+" over "+protocol, func(t *testing.T) {
				args := strings.Fields(c.args)
				args = slices.Concat(args[:1], []string{"--warmup", "20ms", "--count", "100", "--workers", "4", "--quiet", "--server-pid", strconv.Itoa(os.Getpid())}, asAdmin, args[1:])
				if protocol == "gRPC" {
					args = append(args, "--grpc")
				}
				doc := measure(t, base, args...)
				if c.ops >= 0 && doc.Operations != c.ops || doc.Operations == 0 || doc.ErrorTotal != 0 || doc.Interrupted {
					t.Errorf("operations %d, errors %v, interrupted %t", doc.Operations, doc.Errors, doc.Interrupted)
				}
				if c.events >= 0 && doc.Events != c.events || c.bytes >= 0 && doc.PayloadBytes != c.bytes {
					t.Errorf("events %d, want %d; bytes %d, want %d", doc.Events, c.events, doc.PayloadBytes, c.bytes)
				}
				l := doc.LatencyMs
				if !(l.P50 > 0 && l.P50 <= l.P99 && l.P99 <= l.Max && l.Max < doc.ElapsedSeconds*1000+1) {
					t.Errorf("latencies %+v in %g s", l, doc.ElapsedSeconds)
				}
				if doc.GRPC != (protocol == "gRPC") || doc.OperationsPerSecond <= 0 || doc.CPU.DriverSeconds <= 0 || len(doc.CPU.ServerSecondsByPid) != 1 {
					t.Errorf("gRPC %t, rate %g, cpu %+v", doc.GRPC, doc.OperationsPerSecond, doc.CPU)
				}
			})
		}
	}
}

func TestTimeIsBounded(t *testing.T) {
	base := startNode(t)
	doc := measure(t, base, "append", "--duration", "200ms", "--warmup", "0", "--workers", "2", "--streams", "5")
	if doc.ElapsedSeconds < 0.2 || doc.ElapsedSeconds > 10 || doc.Operations < 1 || doc.Events != doc.Operations {
		t.Errorf("%d operations, %d events in %g s", doc.Operations, doc.Events, doc.ElapsedSeconds)
	}
}

func TestRateIsKept(t *testing.T) {
	base := startNode(t)
	doc := measure(t, base, "append", "--count", "40", "--warmup", "0", "--workers", "4", "--rate", "400")
	// The last of 40 operations is due after 39 intervals; a slow machine only makes it later.
	if doc.Operations != 40 || doc.ElapsedSeconds < 39.0/400 {
		t.Errorf("%d operations in %g s at 400 a second", doc.Operations, doc.ElapsedSeconds)
	}
}

func TestTail(t *testing.T) {
	base := startNode(t)
	tail := func(args ...string) document {
		return measure(t, base, slices.Concat([]string{"tail"}, asAdmin, args)...)
	}
	doc := tail("--prepare", "--stream-events", "2345", "--page", "100", "--size", "32")
	if doc.Events != 2345 || doc.Operations != 24 || doc.ErrorTotal != 0 {
		t.Errorf("stream: %d events in %d pages", doc.Events, doc.Operations)
	}
	before := tail("--stream", "$all", "--page", "10").Events
	measure(t, base, "fill", "--events", "55", "--streams", "10", "--batch", "2", "--workers", "3")
	// The node writes events of its own.
	if doc = tail("--stream", "$all", "--page", "10"); before < 2345 || doc.Events < before+55 || doc.Operations < doc.Events/10 {
		t.Errorf("log: %d events in %d pages, before %d", doc.Events, doc.Operations, before)
	}
	doc = tail("--repeat", "--page", "1000", "--count", "7", "--workers", "2")
	if doc.Operations != 7 || doc.Events < 4*1000 {
		t.Errorf("repeated: %d events in %d pages", doc.Events, doc.Operations)
	}
}

func TestFill(t *testing.T) {
	node := startNode(t)
	f := &front{}
	base := f.before(t, node)
	reader := check.Value(client.New(client.Options{Nodes: []string{node}})).Must(t)
	defer reader.Close()
	fill := func(events, batch int) {
		t.Helper()
		measure(t, base, "fill", "--max-count", "200", "--user", "admin", "--password", "changeit", "--events", strconv.Itoa(events), "--streams", "10", "--size", "40", "--batch", strconv.Itoa(batch), "--workers", "3")
		for i := 1; i <= 10; i++ {
			want := events / 10
			if i <= events%10 {
				want++
			}
			seen := map[string]bool{}
			for e, err := range reader.Events(t.Context(), fmt.Sprintf("bench-%06d", i), client.Reading{}) {
				check.Must(t, err)
				if seen[e.ID] || len(strings.Join(strings.Fields(e.Data), "")) != 40 || e.Number != int64(len(seen)) {
					t.Fatalf("event %+v", e)
				}
				seen[e.ID] = true
			}
			check.Equal(t, len(seen), want, "stream", i, "has ... events")
		}
	}
	fill(370, 30)
	// A batch that straddles what is there: part of it is written, the rest is not.
	f.mu.Lock()
	f.fail = 4
	f.mu.Unlock()
	fill(1003, 25)
	fill(1003, 1000)
	if limit, err := reader.Do(t.Context(), client.Request{Path: "/streams/bench-000003/metadata", Header: map[string]string{"Accept": client.MediaJSON}, Login: url.UserPassword("admin", "changeit")}); err != nil || !strings.Contains(string(limit.Body), `"$maxCount":200`) {
		t.Errorf("metadata %s, %v", limit.Body, err)
	}
}

func TestRedirectIsFollowedAndKept(t *testing.T) {
	leader := &front{}
	follower := &front{leader: serve(t, leader)}
	args := slices.Concat([]string{"append", "--count", "50", "--warmup", "0", "--workers", "2"}, asAdmin)
	doc := measure(t, serve(t, follower), args...)
	if doc.Operations != 50 || doc.Redirects != 2 || leader.requests != 50 || follower.requests != 2 {
		t.Errorf("operations %d, redirects %d, requests %d and %d", doc.Operations, doc.Redirects, leader.requests, follower.requests)
	}
}

func TestErrorsAreCounted(t *testing.T) {
	base := serve(t, &front{fail: 10})
	doc := measure(t, base, "append", "--count", "50", "--warmup", "0", "--workers", "2")
	if doc.Operations != 40 || doc.Errors["status 503"].Count != 10 {
		t.Errorf("operations %d, errors %v", doc.Operations, doc.Errors)
	}
	_, _, err := execute(t, context.Background(), "append", "--node", base, "--count", "5", "--warmup", "0", "--user", "ann", "--password", "secret")
	check.Says(t, err, "status 401", "with wrong credentials")
}

func TestConflictOfForeignWriter(t *testing.T) {
	base := startNode(t)
	// Streams of an earlier run: their versions must be found out without an error.
	measure(t, base, "append", "--streams", "4", "--count", "30", "--warmup", "0", "--workers", "1")
	doc := measure(t, base, "append", "--expected-version-checked", "--streams", "4", "--count", "80", "--warmup", "0", "--workers", "3")
	if doc.Operations != 80 || doc.ErrorTotal != 0 {
		t.Errorf("operations %d, errors %v", doc.Operations, doc.Errors)
	}
}

func TestMissingDataIsSaid(t *testing.T) {
	_, _, err := execute(t, context.Background(), "read-event", "--node", startNode(t))
	check.Says(t, err, "--prepare")
}

func TestNobodyListens(t *testing.T) {
	server := httptest.NewServer(nil)
	base := server.URL
	server.Close()
	_, _, err := execute(t, context.Background(), "append", "--node", base, "--duration", "50ms", "--warmup", "0")
	check.Says(t, err, "connect")
}

func TestInterruptGivesResultsSoFar(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	base := serve(t, &front{seen: func(f *front) {
		if f.requests == 200 {
			cancel()
		}
	}})
	path := filepath.Join(t.TempDir(), "result.json")
	stdout, _, err := execute(t, ctx, "append", "--node", base, "--warmup", "0", "--json", path)
	check.Must(t, err)
	text, err := os.ReadFile(path)
	check.Must(t, err)
	var doc document
	check.Must(t, json.Unmarshal(text, &doc))
	if !doc.Interrupted || doc.Operations == 0 || doc.ElapsedSeconds > 5 {
		t.Errorf("%+v", doc)
	}
	if !strings.Contains(stdout, "interrupted") || !strings.Contains(stdout, "p99.9 ms") {
		t.Errorf("table:\n%s", stdout)
	}
}

func TestSilentServerIsCutOff(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(silent(release))
	defer server.Close()
	defer close(release)
	_, _, err := execute(t, context.Background(), "append", "--node", server.URL, "--duration", "10ms", "--warmup", "0", "--workers", "3")
	check.Says(t, err, "cut off")
}

// The node has the name that it has in other commands, and the one that it had before.
func TestFormerNameOfTheNode(t *testing.T) {
	_, stderr, err := execute(t, context.Background(), "append", "--base", startNode(t), "--count", "3", "--warmup", "0", "--quiet")
	check.NoError(t, err, stderr)
	help, _, err := execute(t, context.Background(), "append", "--help")
	if err != nil || strings.Contains(help, "--base") || !strings.Contains(help, "--node strings") {
		t.Errorf("%v\n%s", err, help)
	}
	for _, want := range []string{"bench-append-000001", "10000 streams", "With --server-pid"} {
		check.Contains(t, help, want, "the help lacks")
	}
}

func TestWrongFlags(t *testing.T) {
	for name, args := range map[string]string{
		"no worker":         "append --workers 0",
		"no node":           "append --node=",
		"scheme":            "append --node ftp://h",
		"query":             "append --node http://h/?a",
		"tiny event":        "append --size 1",
		"page":              "read-page --page 5000",
		"negative duration": "append --duration -1s",
		"rate":              "append --rate NaN",
		"slash":             "append --prefix a/b",
		"shared streams":    "append --expected-version-checked --streams 2 --workers 3",
		"checked condition": "append --condition --expected-version-checked",
		"prepare $all":      "tail --prepare --stream $all",
		"two settings":      "subscription --buffer-size 200 --default-settings",
		"many events":       "subscription --stream-events -1",
		"large read":        "subscription --page 101",
		"small buffer":      "subscription --buffer-size 100 --read-batch-size 100",
		"certificates":      "append --tls-ca /nonexistent",
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := execute(t, context.Background(), strings.Fields(args)...); err == nil {
				t.Error("accepted")
			}
		})
	}
}
