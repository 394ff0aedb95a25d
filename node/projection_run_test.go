package node

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
	"github.com/annalsdb/annals/projection/run"
	"github.com/annalsdb/annals/projection/script"
)

// counter is a projection in Go that counts the events of a partition.
type counter struct {
	d     handler.Definition
	state []byte
}

func (c *counter) Definition() *handler.Definition                    { return &c.d }
func (c *counter) PartitionOf(e *handler.Event) (string, bool, error) { return e.Type, true, nil }
func (c *counter) LoadShared([]byte) error                            { return nil }
func (c *counter) Deleted(*handler.Event) (handler.Outcome, error)    { return handler.Outcome{}, nil }
func (c *counter) Result() ([]byte, error)                            { return c.state, nil }
func (c *counter) Close()                                             {}
func (c *counter) Load(_ string, state []byte) error                  { c.state = state; return nil }
func (c *counter) Process(*handler.Event) (handler.Outcome, error) {
	n, _ := strconv.Atoi(string(c.state))
	c.state = strconv.AppendInt(nil, int64(n+1), 10)
	return handler.Outcome{State: c.state}, nil
}

func runOptions(s *store, name string, h handler.Handler) run.Options {
	return run.Options{Store: s, Name: name, Version: position.Version{Projection: 9, Epoch: -1}, Turns: run.NewTurns(1, nil),
		Definition: h.Definition(), Compile: func() (handler.Handler, error) { return h, nil }}
}

func compiled(t testing.TB, source string) handler.Handler {
	t.Helper()
	h := check.Value(script.Compile(source, script.Options{ExecutionTimeout: time.Second})).Must(t)
	return h
}

// BenchmarkRun handles events of a real log, with checkpoints as they fall.
func BenchmarkRun(b *testing.B) {
	all := handler.Definition{AllStreams: true, AllEvents: true, Options: handler.Options{DefinesFold: true}}
	one := handler.Definition{Streams: []string{"s"}, AllEvents: true, Options: handler.Options{DefinesFold: true}}
	for _, c := range []struct {
		name string
		make func(b *testing.B) handler.Handler
	}{
		{"go/log", func(*testing.B) handler.Handler { return &counter{d: all} }},
		{"go/stream", func(*testing.B) handler.Handler { return &counter{d: one} }},
		{"script/log", func(b *testing.B) handler.Handler {
			return compiled(b, `fromAll().when({$init: () => ({n: 0}), $any(s, e) { s.n++ }})`)
		}},
		{"script/stream", func(b *testing.B) handler.Handler {
			return compiled(b, `fromStream("s").when({$init: () => ({n: 0}), $any(s, e) { s.n++ }})`)
		}},
		{"script/field", func(b *testing.B) handler.Handler {
			return compiled(b, `fromAll().when({$init: () => ({n: 0}), T(s, e) { s.n += e.body.number }})`)
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := openStore(b)
			putEvents(b, s, "s", "T", "", b.N)
			o := runOptions(s, "bench", c.make(b))
			b.ReportAllocs()
			b.ResetTimer()
			r := run.Start(b.Context(), o)
			defer r.Close()
			awaitProcessed(b, r, int64(b.N))
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

func awaitProcessed(t testing.TB, r *run.Run, n int64) {
	t.Helper()
	testkit.Eventually(t, 5*time.Minute, func() error {
		f := r.Statistics()
		check.MustEqual(t, f.Ending, run.Unfinished, f)
		if f.Processed < n {
			return fmt.Errorf("%d of %d events, %s", f.Processed, n, f.Status)
		}
		return nil
	})
}

// BenchmarkPartitions goes three times through 100,000 partitions, of which 4,000 states are kept
// in memory.
func BenchmarkPartitions(b *testing.B) {
	const partitions = 100_000
	s := openStore(b)
	for range 3 {
		for at := 0; at < partitions; at += 500 {
			w := &event.Write{Stream: "s"}
			for i := range 500 {
				w.Events = append(w.Events, event.Proposed{ID: event.ID(uuid.New()), Type: fmt.Sprint("p", at+i), Flags: event.FlagJSON, Data: []byte("{}")})
			}
			put(b, s, w)
		}
	}
	b.ResetTimer()
	for b.Loop() {
		d := handler.Definition{Streams: []string{"s"}, AllEvents: true, ByCustomPartitions: true, Options: handler.Options{DefinesFold: true}}
		r := run.Start(b.Context(), runOptions(s, fmt.Sprint("partitions", b.N), &counter{d: d}))
		most := 0
		for {
			f := r.Statistics()
			if most = max(most, f.PartitionsCached); f.Processed >= 3*partitions {
				break
			}
			select {
			case <-r.Done():
				b.Fatalf("%+v", r.Statistics())
			case <-time.After(time.Millisecond):
			}
		}
		for _, p := range []string{"p0", "p50000", "p99999"} {
			if a, err := r.Ask(b.Context(), p); err != nil || string(a.State) != "3" {
				b.Errorf("%s is %s, %v", p, a.State, err)
			}
		}
		b.ReportMetric(3*partitions/b.Elapsed().Seconds(), "events/s")
		b.ReportMetric(float64(most), "states")
		r.Close()
	}
}

// BenchmarkIdle measures the memory of 1,000 projections that wait for events.
func BenchmarkIdle(b *testing.B) {
	for _, c := range []struct {
		name string
		make func() handler.Handler
	}{
		{"go", func() handler.Handler {
			return &counter{d: handler.Definition{AllStreams: true, AllEvents: true, Options: handler.Options{DefinesFold: true}}}
		}},
		{"script", func() handler.Handler {
			return compiled(b, `fromAll().when({$init: () => ({n: 0}), $any(s, e) { s.n++ }})`)
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := openStore(b)
			putEvents(b, s, "s", "T", "", 100)
			turns := run.NewTurns(3, nil)
			const n = 1000
			for b.Loop() {
				before := memory()
				var runs []*run.Run
				for i := range n {
					o := runOptions(s, fmt.Sprint("idle", i), c.make())
					o.Turns = turns
					runs = append(runs, run.Start(b.Context(), o))
				}
				for _, r := range runs {
					awaitProcessed(b, r, 100)
				}
				b.ReportMetric(float64(memory()-before)/n, "bytes/projection")
				for _, r := range runs {
					r.Close()
				}
			}
		})
	}
}

func memory() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
