package scavenge_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/admin/scavenge/history"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/chunkfile"
)

// The log of the benchmark: what `scripts/bench-scavenge.sh` fills a node with by default.
const (
	benchStreams = 100_000
	benchEvents  = 20 // of each
	benchKept    = 10
)

// grown writes frames to a log as a leader would.
type grown struct {
	tb     testing.TB
	log    *eventlog.Log
	tail   event.Tail
	rng    *rand.Rand
	counts map[string]int64
}

func (g *grown) frame(completes bool, events ...proposed) {
	size := 0
	made := make([]event.Proposed, len(events))
	for i, e := range events {
		binary.LittleEndian.PutUint64(made[i].ID[:], g.rng.Uint64())
		binary.LittleEndian.PutUint64(made[i].ID[8:], g.rng.Uint64())
		made[i].Type, made[i].Flags, made[i].Data = e.typ, e.flags&event.FlagJSON, e.data
		size += chunkfile.RecordSize(e.stream, &made[i])
	}
	g.tail.Time += int64(time.Millisecond)
	f := eventlog.Frame{First: chunkfile.Place(g.tail.End, size), Index: g.tail.Index + 1, Term: 1, Completes: completes}
	for i, e := range events {
		number := g.counts[e.stream]
		g.counts[e.stream]++
		f.Records = chunkfile.AppendRecord(f.Records, f.First+int64(len(f.Records)), e.stream, number, g.tail.Time, e.flags, &made[i])
	}
	g.tail.End = chunkfile.EndBehind(f.First, len(f.Records), f.Completes)
	g.tail.Chain = chunkfile.NextChain(g.tail.Chain, f.First, f.Records)
	g.tail.Index, g.tail.Term = f.Index, 1
	check.Must(g.tb, errors.Join(g.log.Append(f), g.log.Commit()))
}

var benchCluster = event.ID{7}

func openGrown(tb testing.TB, dir string) *grown {
	l, err := eventlog.Open(eventlog.Options{Dir: dir, ClusterID: benchCluster, SkipVerify: true})
	check.Must(tb, err)
	g := &grown{tb: tb, log: l, tail: l.Tail(), rng: rand.New(rand.NewPCG(1, 2)), counts: map[string]int64{}}
	if g.tail.End == 0 {
		g.tail = event.Tail{Chain: chunkfile.GenesisChain(benchCluster), Time: 1_700_000_000_000_000_000}
	}
	return g
}

// grow makes a log in a folder: events of each stream in so many batches, far from
// each other, then metadata of each stream that make half of its events removable.
func grow(tb testing.TB, dir string, batches int, nameOf func(i int) string, metadata string) {
	g := openGrown(tb, dir)
	text := `{"text":"` + strings.Repeat("x", 256-len(`{"text":""}`)) + `"}`
	for range batches {
		for i := range benchStreams {
			events := make([]proposed, benchEvents/batches)
			for n := range events {
				events[n] = proposed{stream: nameOf(i), typ: "bench-event", flags: event.FlagJSON, data: []byte(text)}
			}
			g.frame(false, events...)
		}
	}
	for i := range benchStreams {
		g.frame(false, metadataOf(nameOf(i), metadata))
	}
	g.frame(true, proposed{stream: event.ScavengePointsStream, typ: event.TypeScavengePoint, flags: event.FlagJSON, data: []byte(`{"threshold":0}`)})
	check.Must(tb, errors.Join(g.log.Sync(), g.log.Close()))
}

// copyLog makes a copy of a log that is closed. Files that never change are shared.
func copyLog(tb testing.TB, from, to string) {
	err := filepath.WalkDir(from, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		if entry.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		if strings.HasPrefix(entry.Name(), "chunk-") {
			return os.Link(path, target)
		}
		b, err := os.ReadFile(path)
		return cmp.Or(err, os.WriteFile(target, b, 0o600))
	})
	check.Must(tb, err)
}

// phaseMeter takes the processor time of each phase from the log lines at its begin and end.
type phaseMeter struct {
	begun   time.Duration
	started time.Time
	cpu     map[string]time.Duration
	wall    map[string]time.Duration
}

func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (m *phaseMeter) Write(line []byte) (int, error) {
	var said struct {
		Message string `json:"@message"`
		Phase   string `json:"phase"`
	}
	if err := json.Unmarshal(line, &said); err != nil {
		return 0, err
	}
	switch said.Message {
	case "scavenge phase started":
		m.begun, m.started = processorTime(), time.Now()
	case "scavenge phase ended":
		m.cpu[said.Phase] += processorTime() - m.begun
		m.wall[said.Phase] += time.Since(m.started)
	}
	return len(line), nil
}

// BenchmarkRun scavenges a log of two million events in 100,000 streams, of which
// half go, with nothing else to do for the process. It tells the processor time and the time of
// each phase. ANNALS_BENCH_DIR names a folder to work in.
func BenchmarkRun(b *testing.B) {
	inOrder := func(i int) string { return fmt.Sprintf("bench-%06d", i+1) }
	scattered := func(i int) string {
		return fmt.Sprintf("order-%016x", uint64(i)*0x9e3779b97f4a7c15)
	}
	for _, c := range []struct {
		name     string
		batches  int
		nameOf   func(int) string
		metadata string
	}{
		{"InOrder", 1, inOrder, fmt.Sprintf(`{"$maxCount":%d}`, benchKept)},
		{"Scattered", 5, scattered, fmt.Sprintf(`{"$maxCount":%d,"$acl":{"$r":"x"}}`, benchKept)},
		{"MaxAge", 5, scattered, `{"$maxAge":200}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			base, err := os.MkdirTemp(os.Getenv("ANNALS_BENCH_DIR"), "annals-scavenge-")
			check.Must(b, err)
			b.Cleanup(func() { check.NoError(b, os.RemoveAll(base)) })
			pristine := filepath.Join(base, "pristine")
			grow(b, pristine, c.batches, c.nameOf, c.metadata)
			meter := &phaseMeter{cpu: map[string]time.Duration{}, wall: map[string]time.Duration{}}
			total, bytes := time.Duration(0), int64(0)
			b.ResetTimer()
			for n := range b.N {
				b.StopTimer()
				dir := filepath.Join(base, fmt.Sprint(n))
				copyLog(b, pristine, dir)
				bytes = scavengeOnce(b, dir, meter, &total)
				check.Must(b, os.RemoveAll(dir))
				b.StartTimer()
			}
			b.StopTimer()
			b.SetBytes(bytes)
			for phase, took := range meter.cpu {
				name := strings.ReplaceAll(strings.TrimSuffix(phase, " Phase"), " ", "-")
				b.ReportMetric(float64(took.Milliseconds())/float64(b.N), name+"-cpu-ms")
				b.ReportMetric(float64(meter.wall[phase].Milliseconds())/float64(b.N), name+"-ms")
			}
			b.ReportMetric(float64(total.Milliseconds())/float64(b.N), "whole-cpu-ms")
		})
	}
}

// scavengeOnce measures one run on the log in a folder.
func scavengeOnce(b *testing.B, dir string, meter *phaseMeter, total *time.Duration) (bytes int64) {
	g := openGrown(b, dir)
	writer := history.New(history.Options{Store: noStore{}, Endpoint: func() string { return "bench" }})
	service := scavenge.New(scavenge.Options{
		Log: func() (*eventlog.Log, error) { return g.log, nil }, FS: vfs.OS, Dir: filepath.Join(dir, "index", scavenge.Folder),
		Write: func(context.Context, *event.Write) (event.Written, error) {
			return event.Written{}, errors.New("there is a point")
		},
		History: writer, Logger: hclog.New(&hclog.LoggerOptions{Output: meter, JSONFormat: true, Level: hclog.Info}),
	})
	chunks, err := g.log.Chunks.List()
	check.Must(b, err)
	for _, c := range chunks {
		bytes += c.DataBytes
	}
	cpu := processorTime()
	b.StartTimer()
	id, err := service.Start(scavenge.Request{Threads: 1})
	check.Must(b, err)
	status, err := service.Wait(context.Background(), id)
	b.StopTimer()
	*total += processorTime() - cpu
	if err != nil || status.Result != scavenge.ResultSuccess || status.Removed < benchStreams*benchEvents*2/5 {
		b.Fatalf("%+v, %v", status, err)
	}
	service.Close()
	writer.Close()
	check.Must(b, g.log.Close())
	return bytes
}
