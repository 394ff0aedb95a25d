package bench_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const fakeRun = "0c8e4ab1-5ee1-4a2c-9d6c-000000000001"

// scavengedNode is a fake node that can be scavenged, too.
type scavengedNode struct {
	*fakeNode
	script []string // phases of a run: one answer each, the last until the test lets go
	result string   // of a run
	fail   int      // status of starting one, if not 0
	polled func()   // called with each question for the run

	mu       sync.Mutex // guards what follows
	at       int        // in script; len(script): no run
	started  []string   // queries
	stopped  []string   // paths
	metadata map[string]string
	deleted  map[string]bool // for good?
}

func newScavengedNode(script ...string) *scavengedNode {
	return &scavengedNode{fakeNode: newFakeNode(), script: script, at: len(script), result: "Success", metadata: map[string]string{}, deleted: map[string]bool{}}
}

func phase(name string, total int64, unit string) string {
	return fmt.Sprintf(`{"scavengeId":%q,"scavengeLink":"x","phase":%q,"done":0,"total":%d,"unit":%q,"point":null}`, fakeRun, name, total, unit)
}

func (n *scavengedNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	stream := strings.TrimSuffix(strings.TrimPrefix(path, "/streams/"), "/metadata")
	switch {
	case strings.HasPrefix(path, "/admin/scavenge"):
		n.scavenge(w, r, strings.TrimPrefix(path, "/admin/scavenge"))
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/metadata"):
		body, _ := io.ReadAll(r.Body)
		n.mu.Lock()
		n.metadata[stream] = string(body)
		n.mu.Unlock()
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodDelete:
		n.mu.Lock()
		_, again := n.deleted[stream]
		n.deleted[stream] = r.Header.Get("ES-HardDelete") == "true"
		n.mu.Unlock()
		w.WriteHeader(map[bool]int{false: http.StatusNoContent, true: http.StatusGone}[again])
	default:
		n.fakeNode.ServeHTTP(w, r)
	}
}

func (n *scavengedNode) scavenge(w http.ResponseWriter, r *http.Request, rest string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case r.Method == http.MethodPost:
		if n.fail != 0 {
			http.Error(w, "not you", n.fail)
			return
		}
		n.started = append(n.started, r.URL.RawQuery)
		n.at = 0
		_, _ = fmt.Fprintf(w, `{"scavengeId": %q}`, fakeRun)
	case r.Method == http.MethodDelete:
		n.stopped = append(n.stopped, rest)
		n.at = len(n.script)
		_, _ = fmt.Fprintf(w, "%q", fakeRun)
	case rest == "/current":
		if n.polled != nil && len(n.started) > 0 {
			n.polled()
		}
		if n.at == len(n.script) {
			_, _ = io.WriteString(w, `{"scavengeId":"","scavengeLink":""}`)
			return
		}
		_, _ = io.WriteString(w, n.script[n.at])
		n.at++
	case rest == "/last":
		_, _ = fmt.Fprintf(w, `{"scavengeId":%q,"scavengeResult":%q,"error":"broken","started":"2026-01-02T03:04:05Z","ended":"2026-01-02T03:04:07Z",`+
			`"bytesSaved":5000000,"eventsRemoved":77,"chunksExecuted":2,"chunksSkipped":1,"chunksMerged":2}`, fakeRun, n.result)
	default:
		http.NotFound(w, r)
	}
}

func serveScavenged(t *testing.T, n *scavengedNode) string {
	t.Helper()
	server := httptest.NewServer(n)
	t.Cleanup(func() {
		server.Close()
		for _, complaint := range n.bad {
			t.Error(complaint)
		}
	})
	return server.URL
}

// quick are flags that leave out what only takes time.
var quick = strings.Fields("scavenge --settle 0 --warmup 2ms --duration 20ms --slice 10ms --poll 20ms --workers 3 --size 16 --batch 4 --json -")

type scavengeDocument struct {
	Rounds []struct {
		RemovableEvents       int64
		Before, During, After struct {
			Single, Many, Readers document
			ErrorTotal            int64
		}
		DuringPhases []struct{ Name string }
		DuringRatios struct{ Rate, SingleP99, ManyP99, ReadersP99 float64 }
		Scavenge     struct {
			Seconds, MBPerSecond                 float64
			InputBytes, BytesSaved, ChunksMerged int64
			Phases                               []struct {
				Phase, Unit string
				Units       int64
				Seconds     float64
				MBPerSecond float64
			}
		}
	}
	Medians     struct{ Seconds, Rate, ExecutionMBPerSecond float64 }
	Interrupted bool
}

func TestScavenge(t *testing.T) {
	n := newScavengedNode(
		phase("Idle", 0, ""), phase("Accumulation Phase", 100, "bytes"), phase("Chunk execution Phase", 4_000_000, "bytes"),
		phase("Chunk merging Phase", 500, "bytes"), phase("Chunk merging Phase", 700, "bytes"), phase("Index execution Phase", 9, "entries"), phase("Idle", 0, ""))
	args := append(slices.Clone(quick), strings.Fields("--events 205 --streams 20 --deleted 4 --limited-streams 15 --rounds 2 --readers 2 --threads 2 --threshold 5 --throttle 90 --base")...)
	stdout, stderr, err := execute(t, context.Background(), append(args, serveScavenged(t, n))...)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	var doc scavengeDocument
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil {
		t.Fatalf("%v in\n%s", err, stdout)
	}
	if len(doc.Rounds) != 2 || doc.Medians.Seconds != 2 || doc.Medians.Rate <= 0 || doc.Medians.ExecutionMBPerSecond <= 0 || doc.Interrupted {
		t.Fatalf("%+v", doc)
	}
	for i, r := range doc.Rounds {
		// Ten events in each stream, one more in the first five; of 15 four are deleted, two of these for good.
		if want := int64(11*5 + 10*10 - 11*5); r.RemovableEvents != want-2 {
			t.Errorf("round %d: %d removable, want %d", i+1, r.RemovableEvents, want-2)
		}
		if r.Before.Single.Operations == 0 || r.Before.Many.Operations == 0 || r.Before.Readers.Operations == 0 || r.After.Many.Operations == 0 ||
			r.During.Single.Operations+r.During.Many.Operations == 0 || r.Before.ErrorTotal+r.During.ErrorTotal+r.After.ErrorTotal != 0 {
			t.Errorf("round %d: %+v", i+1, r)
		}
		// A slow machine does nothing of one kind while the scavenge runs.
		if ratios := r.DuringRatios; r.During.Many.Operations > 0 && (ratios.Rate <= 0 || ratios.ManyP99 <= 0) || r.During.Single.Operations > 0 && ratios.SingleP99 <= 0 {
			t.Errorf("round %d: ratios %+v", i+1, r.DuringRatios)
		}
		run := r.Scavenge
		var phases []string
		for _, p := range run.Phases {
			phases = append(phases, fmt.Sprint(p.Phase, " ", p.Units, " ", p.Unit))
		}
		want := []string{"Starting 0 ", "Accumulation 100 bytes", "Chunk execution 4000000 bytes", "Chunk merging 1200 bytes", "Index execution 9 entries"}
		if !slices.Equal(phases, want) || run.InputBytes != 4_000_000 || run.Seconds != 2 || run.MBPerSecond != 2 || run.BytesSaved != 5_000_000 || run.ChunksMerged != 2 {
			t.Errorf("round %d: %+v", i+1, run)
		}
	}
	if want := []string{"threads=2&threshold=5&throttlePercent=90"}; !slices.Equal(slices.Compact(n.started), want) || len(n.stopped) != 0 {
		t.Errorf("started %q, stopped %q", n.started, n.stopped)
	}
	for _, prefix := range []string{"bench", "bench-2"} {
		for i := 1; i <= 20; i++ {
			name := fmt.Sprintf("%s-%06d", prefix, i)
			hard, deleted := n.deleted[name]
			_, limited := n.metadata[name]
			if deleted != (i <= 4) || hard != (i == 2 || i == 4) || limited != (i > 4 && i <= 15) || len(n.streams[name]) < 10 {
				t.Errorf("%s: deleted %t, hard %t, limited %t, %d events", name, deleted, hard, limited, len(n.streams[name]))
			}
		}
		if got := n.metadata[prefix+"-000007"]; !json.Valid([]byte(got)) || !strings.Contains(got, `"data":{"$maxCount":5}`) {
			t.Errorf("metadata %s", got)
		}
	}
	for _, text := range []string{"during to before: rate ", "Chunk execution", "removed 77 events, saved 5.0 MB; chunk files executed 2, skipped 1, merged 2", "median of 2: scavenge 2.00 s, 2 MB/s"} {
		if !strings.Contains(stderr, text) {
			t.Errorf("no %q in\n%s", text, stderr)
		}
	}
}

func TestScavengeOfWhatIsFilled(t *testing.T) {
	n := newScavengedNode(phase("Cleaning Phase", 0, "streams"))
	n.deleted["bench-2-000002"] = true // by an earlier run
	args := append(slices.Clone(quick), strings.Fields("--filled --events 40 --streams 10 --rounds 2 --base")...)
	if _, stderr, err := execute(t, context.Background(), append(args, serveScavenged(t, n))...); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if len(n.streams["bench-000003"]) != 0 || len(n.streams["bench-2-000003"]) != 4 || len(n.metadata) != 8 || n.metadata["bench-2-000003"] == "" {
		t.Errorf("%d and %d events, metadata of %d streams", len(n.streams["bench-000003"]), len(n.streams["bench-2-000003"]), len(n.metadata))
	}
}

func TestScavengeThatFails(t *testing.T) {
	n := newScavengedNode(phase("Cleaning Phase", 0, "streams"))
	args := append(slices.Clone(quick), strings.Fields("--filled --events 40 --streams 10 --base")...)
	args = append(args, serveScavenged(t, n))
	n.result = "Errored"
	if _, _, err := execute(t, context.Background(), args...); err == nil || err.Error() != "the scavenge ended as Errored: broken" {
		t.Errorf("errored: %v", err)
	}
	n.at = 0
	if _, _, err := execute(t, context.Background(), args...); err == nil || err.Error() != "scavenge "+fakeRun+" is running" {
		t.Errorf("running: %v", err)
	}
	n.fail = http.StatusUnauthorized
	if _, _, err := execute(t, context.Background(), args...); err == nil || !strings.HasPrefix(err.Error(), "start a scavenge: ") || !strings.Contains(err.Error(), "(status 401)") {
		t.Errorf("refused: %v", err)
	}
}

func TestScavengeInterrupted(t *testing.T) {
	n := newScavengedNode(slices.Repeat([]string{phase("Chunk execution Phase", 10, "bytes")}, 100_000)...)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n.polled = cancel
	args := append(slices.Clone(quick), strings.Fields("--filled --events 40 --streams 10 --base")...)
	_, _, err := execute(t, ctx, append(args, serveScavenged(t, n))...)
	if err == nil || err.Error() != "interrupted before there were results" || !slices.Equal(n.stopped, []string{"/" + fakeRun}) {
		t.Errorf("%v, stopped %q", err, n.stopped)
	}
}

func TestLimit(t *testing.T) {
	n := newScavengedNode()
	doc := measure(t, serveScavenged(t, n), strings.Fields("limit --events 1000 --streams 100 --limited-streams 50 --deleted 4 --workers 3")...)
	if doc.Operations != 50 || doc.ErrorTotal != 0 || len(n.metadata) != 46 || len(n.deleted) != 4 || !strings.Contains(n.metadata["bench-000050"], `{"$maxCount":5}`) {
		t.Errorf("%+v; %d streams limited, %d deleted", doc, len(n.metadata), len(n.deleted))
	}
}

func TestScavengeRefuses(t *testing.T) {
	for name, args := range map[string]string{
		"few events":   "--events 5 --streams 6",
		"many limited": "--limited-streams 100001",
		"all deleted":  "--deleted 100",
		"readers":      "--readers -1",
		"read rate":    "--read-rate -1",
		"threads":      "--threads 0",
		"throttle":     "--throttle 101",
		"slice":        "--slice 1ms",
		"poll":         "--poll 0",
		"settle":       "--settle -1s",
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"scavenge"}, strings.Fields(args)...)
			if _, _, err := execute(t, context.Background(), args...); err == nil || !strings.HasPrefix(err.Error(), "--") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestScavengeHelp(t *testing.T) {
	var all strings.Builder
	for _, name := range []string{"scavenge", "limit"} {
		stdout, stderr, err := execute(t, context.Background(), name, "--help")
		if err != nil || stderr != "" {
			t.Fatalf("%v, %s", err, stderr)
		}
		all.WriteString("$ annals bench " + name + " --help\n" + stdout + "\n")
	}
	got := all.String()
	file := filepath.Join("testdata", "scavenge_help.golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (rewrite it with -update and review the diff):\n%s", file, got)
	}
}
