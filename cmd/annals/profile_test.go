package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/annalsdb/annals/internal/check"
)

// A stage is a part of the work of nodes. A sample of the processor's time belongs to the stage
// of the innermost function that any of them names.
type stage struct {
	name, what string
	packages   []string // prefixes of functions
}

const module = "github.com/annalsdb/annals/"

var stages = []stage{
	{"http1", "request line and headers, goroutine of the connection", []string{module + "internal/http1", "net/http.", "bufio.", "net/textproto.", "net/url."}},
	{"http", "route, rights, body, answer", []string{module + "http", module + "access", module + "internal/jsontext", module + "internal/xmljson", module + "node", module + "event"}},
	{"pipeline", "queue, entry, waking who waits", []string{module + "replication/pipeline"}},
	{"decide", "expected version, ids, bytes of the entry", []string{module + "fsm.(*Decider)", module + "fsm.(*overlay)", module + "fsm.(*entry)"}},
	{"raft", "consensus", []string{"github.com/hashicorp/raft.", module + "replication."}},
	{"wire", "messages between nodes, their sockets", []string{module + "replication/wire", "github.com/hashicorp/go-msgpack"}},
	{"Raft log", "write and sync", []string{module + "replication/raftdisk", "github.com/hashicorp/raft-boltdb", "go.etcd.io/bbolt"}},
	{"apply", "fence, frame", []string{module + "fsm."}},
	{"log", "chunk file, cached facts, newest ids, waking readers; reading events", []string{module + "log.", module + "log/chunkfile", module + "log/datadir"}},
	{"index", "table in memory, searches, tables being written", []string{module + "log/index"}},
	{"others", "gossip, statistics, subscriptions", []string{
		module + "replication/gossip", module + "stats", module + "subscription", module + "projection", module + "admin",
		"github.com/hashicorp/serf", "github.com/hashicorp/memberlist",
	}},
}

// socket is what the system needs for the connections of clients.
var socket = stage{name: "sockets", what: "of clients: read and write"}

// idle is what belongs to no function of the product: goroutines that wait and wake, memory.
var idle = stage{name: "runtime", what: "goroutines that wait and wake, memory"}

// profiled are the workloads, as arguments of annals bench.
var profiled = []struct {
	name  string
	nodes int
	args  string
}{
	{"append, one node, 32 writers", 1, "append --workers 32"},
	{"append of 100 events, one node, 32 writers", 1, "append --batch 100 --workers 32"},
	{"append, three nodes, 256 writers", 3, "append --workers 256"},
	{"append of 100 events, three nodes, 32 writers", 3, "append --batch 100 --workers 32"},
	{"one event, 32 readers", 1, "read-event --prepare --workers 32 --streams 100 --events-per-stream 100"},
	{"page of 20 with bodies, 32 readers", 1, "read-page --prepare --workers 32 --streams 100 --events-per-stream 100"},
}

// BenchmarkProfile finds out where the processor time of an operation goes, by samples taken while
// nodes in this process serve a load. With ANNALS_PROFILE naming a file it writes what
// docs/performance.md shows there.
//
//	scripts/profile.sh
func BenchmarkProfile(b *testing.B) {
	var drawings bytes.Buffer
	for _, c := range profiled {
		b.Run(c.name, func(b *testing.B) {
			dir := b.TempDir()
			base := startDev(b, dir, c.nodes)
			result := filepath.Join(dir, "result.json")
			load := func(duration string) {
				args := append([]string{"bench"}, strings.Fields(c.args)...)
				args = append(args, "--node", base, "--warmup", "0s", "--duration", duration, "--quiet", "--json", result)
				if code := run(args, io.Discard, os.Stderr, nil); code != 0 {
					b.Fatalf("annals %s: exit code %d", strings.Join(args, " "), code)
				}
			}
			load("1s")
			b.ResetTimer()
			var samples bytes.Buffer
			check.Must(b, pprof.StartCPUProfile(&samples))
			load("4s")
			pprof.StopCPUProfile()
			b.StopTimer()
			drawing := check.Value(draw(c.name, &samples, result, b.ReportMetric)).Must(b)
			drawings.WriteString(drawing)
		})
	}
	if file := os.Getenv("ANNALS_PROFILE"); file != "" {
		check.Must(b, os.WriteFile(file, drawings.Bytes(), 0o644))
	}
}

// nodesLabel is what goroutines of nodes carry, to tell them from the load's.
var nodesLabel = pprof.Labels("side", "nodes")

// startDev runs annals dev and returns the address of the leader.
func startDev(b *testing.B, dir string, nodes int) string {
	ctx, cancel := context.WithCancel(b.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go pprof.Do(ctx, nodesLabel, func(ctx context.Context) {
		root := newRoot(in, os.Stderr, nil)
		root.SetArgs([]string{"dev", "--nodes", fmt.Sprint(nodes), "--port", "0", "--insecure", "--db", filepath.Join(dir, "data")})
		err := root.ExecuteContext(ctx)
		ended <- err
		_ = in.CloseWithError(err)
	})
	b.Cleanup(func() {
		cancel()
		check.NoError(b, <-ended)
	})
	leader := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) == 4 && f[1] == "serves" && f[3] == "Leader" {
			leader = f[2]
		}
		if strings.HasPrefix(lines.Text(), "data are in ") {
			return leader
		}
	}
	b.Fatalf("no cluster: %v", <-ended)
	return ""
}

// draw makes a bar for each stage, in microseconds of processor time for each event written, or
// operation.
func draw(name string, samples io.Reader, result string, report func(float64, string)) (string, error) {
	p, err := profile.Parse(samples)
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(result)
	if err != nil {
		return "", err
	}
	var r struct {
		Operations int64 `json:"operations"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return "", err
	}
	if r.Operations == 0 {
		return "", fmt.Errorf("no operation succeeded: %s", data)
	}
	nanoseconds := map[string]int64{}
	for _, s := range p.Sample {
		if slices.Contains(s.Label["side"], "nodes") {
			nanoseconds[stageOf(s)] += s.Value[1]
		}
	}
	var b strings.Builder
	total := 0.0
	fmt.Fprintf(&b, "%s\n", name)
	for _, s := range slices.Concat([]stage{socket}, stages, []stage{idle}) {
		us := float64(nanoseconds[s.name]) / 1e3 / float64(r.Operations)
		total += us
		report(us, strings.ReplaceAll(s.name, " ", "-")+"-us/op")
		if us >= 0.05 {
			fmt.Fprintf(&b, "  %-9s %7.1f  %s\n", s.name, us, s.what)
		}
	}
	fmt.Fprintf(&b, "  %-9s %7.1f  microseconds of all nodes an operation\n\n", "", total)
	return b.String(), nil
}

// stageOf looks from the innermost function outward.
func stageOf(s *profile.Sample) string {
	onSocket := false
	for _, at := range s.Location {
		for _, line := range at.Line {
			if line.Function == nil {
				continue
			}
			name := line.Function.Name
			onSocket = onSocket || strings.HasPrefix(name, "net.(*netFD).")
			for i, st := range stages {
				if !slices.ContainsFunc(st.packages, func(p string) bool { return strings.HasPrefix(name, p) }) {
					continue
				}
				if onSocket && i < 2 { // http1 and http
					return socket.name
				}
				return st.name
			}
		}
	}
	return idle.name
}
