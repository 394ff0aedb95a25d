package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// latencies are quantiles in milliseconds, of operations that succeeded.
type latencies struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// metrics is what one part of a workload, or all of it, came to.
type metrics struct {
	Name                string    `json:"name"`
	Operations          int64     `json:"operations"`
	OperationsPerSecond float64   `json:"operationsPerSecond"`
	Events              int64     `json:"events"`
	EventsPerSecond     float64   `json:"eventsPerSecond"`
	PayloadBytes        int64     `json:"payloadBytes"`
	PayloadMBPerSecond  float64   `json:"payloadMBPerSecond"` // millions of bytes
	LatencyMs           latencies `json:"latencyMs"`
}

// result is one measured run, as --json writes it.
type result struct {
	metrics
	Parts          []metrics              `json:"parts,omitempty"`
	Group          *groupStatistics       `json:"group,omitempty"` // of a subscription
	Errors         map[string]*errorCount `json:"errors"`
	ErrorTotal     int64                  `json:"errorTotal"`
	Redirects      int64                  `json:"redirects"`
	Reconnects     int64                  `json:"reconnects"`
	Interrupted    bool                   `json:"interrupted"`
	ElapsedSeconds float64                `json:"elapsedSeconds"`
	Started        time.Time              `json:"started"`
	Bases          []string               `json:"bases"`
	GRPC           bool                   `json:"grpc,omitempty"`
	Connections    int                    `json:"connections,omitempty"` // 0: one a worker
	Workers        int                    `json:"workers"`
	Streams        int                    `json:"streams"`
	EventBytes     int                    `json:"eventBytes"`
	Rate           float64                `json:"rate,omitempty"`
	Seed           uint64                 `json:"seed"`
	CPU            cpuStatistics          `json:"cpu"`
}

func milliseconds(d time.Duration) float64 { return float64(d) / 1e6 }

func newMetrics(name string, t *tally, elapsed time.Duration) metrics {
	seconds := max(elapsed.Seconds(), 1e-9)
	return metrics{
		Name: name, Operations: t.count(), OperationsPerSecond: float64(t.count()) / seconds,
		Events: t.events, EventsPerSecond: float64(t.events) / seconds,
		PayloadBytes: t.bytes, PayloadMBPerSecond: float64(t.bytes) / seconds / 1e6,
		LatencyMs: latencies{
			Mean: milliseconds(t.mean()), P50: milliseconds(t.quantile(0.5)), P95: milliseconds(t.quantile(0.95)),
			P99: milliseconds(t.quantile(0.99)), P999: milliseconds(t.quantile(0.999)), Max: milliseconds(t.max),
		},
	}
}

// measure runs the warm-up and then the measured run. An interrupted run has the result so far.
func (s *session) measure(ctx context.Context) (*result, error) {
	parts := max(1, len(s.work.parts))
	if s.o.warmup > 0 {
		if _, err := s.runFor(ctx, s.o.warmup, 0, newRecorder(parts)); err != nil {
			return nil, err
		}
	}
	redirects, reconnects := s.detours()
	total := newRecorder(parts)
	before := usageOf(s.o.pids)
	started := time.Now()
	elapsed, err := s.runFor(ctx, s.o.duration, s.o.count, total)
	whole := s.whole(total)
	r := &result{
		metrics: newMetrics(s.work.name, whole, elapsed),
		Errors:  total.errors, ErrorTotal: total.errorTotal(),
		Interrupted: ctx.Err() != nil, ElapsedSeconds: elapsed.Seconds(), Started: started.UTC(),
		Bases: s.o.bases, GRPC: s.o.grpc, Connections: s.o.connections, Workers: s.o.workers, Streams: s.o.streams, EventBytes: s.o.size, Rate: s.o.rate, Seed: s.o.seed,
		CPU: usageOf(s.o.pids).since(before, whole.count(), whole.events),
	}
	r.Redirects, r.Reconnects = s.detours()
	r.Redirects -= redirects
	r.Reconnects -= reconnects
	for i, name := range s.work.parts {
		if i > 0 || !s.work.beside { // What is measured is the whole.
			r.Parts = append(r.Parts, newMetrics(name, total.parts[i], elapsed))
		}
	}
	if err == nil && s.work.finish != nil {
		err = s.work.finish(r)
	}
	return r, err
}

// detours sums what the clients counted. No phase may be running.
func (s *session) detours() (redirects, reconnects int64) {
	for _, c := range s.clients {
		redirects += c.redirects
		reconnects += c.reconnects
	}
	return redirects, reconnects
}

// useless reports an error when a run says nothing about the server.
func (r *result) useless() error {
	if r.Operations > 0 || r.ErrorTotal == 0 {
		return nil
	}
	for _, kind := range r.errorKinds() {
		return fmt.Errorf("no operation succeeded, %d did not: %s: %s", r.ErrorTotal, kind, r.Errors[kind].Example)
	}
	return nil
}

// errorKinds returns the kinds, the most frequent first.
func (r *result) errorKinds() []string {
	return slices.SortedFunc(maps.Keys(r.Errors), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Errors[b].Count, r.Errors[a].Count), cmp.Compare(a, b))
	})
}

const metricsHeader = "\tops\tops/s\tevents/s\tMB/s\tp50 ms\tp95 ms\tp99 ms\tp99.9 ms\tmax ms\terrors\t\n"

func (f *metrics) row(to io.Writer, errors string) {
	l := &f.LatencyMs
	_, _ = fmt.Fprintf(to, "%s\t%d\t%.0f\t%.0f\t%.1f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%s\t\n", f.Name, f.Operations,
		f.OperationsPerSecond, f.EventsPerSecond, f.PayloadMBPerSecond, l.P50, l.P95, l.P99, l.P999, l.Max, errors)
}

// table is the result for people. The help of the command explains it.
func (r *result) table() string {
	var b strings.Builder
	how := ""
	if r.GRPC {
		how = " over gRPC"
	}
	fmt.Fprintf(&b, "%s%s on %s: %d workers, %.2f s, events of %d bytes\n", r.Name, how, strings.Join(r.Bases, ", "), r.Workers, r.ElapsedSeconds, r.EventBytes)
	if r.Interrupted {
		b.WriteString("interrupted: the metrics are those up to then\n")
	}
	b.WriteByte('\n')
	rows := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = io.WriteString(rows, metricsHeader) // Nothing fails in memory.
	for _, part := range r.Parts {
		part.row(rows, "")
	}
	r.row(rows, fmt.Sprint(r.ErrorTotal))
	_ = rows.Flush()
	fmt.Fprintf(&b, "\ncpu: driver %.2f s, %.1f us an operation", r.CPU.DriverSeconds, r.CPU.DriverUsPerOp)
	if len(r.CPU.ServerSecondsByPid) > 0 {
		fmt.Fprintf(&b, "; servers %.2f s, %.1f us an operation", r.CPU.ServerSeconds, r.CPU.ServerUsPerOp)
		if r.CPU.ServerUsPerEvent > 0 {
			fmt.Fprintf(&b, ", %.2f us an event", r.CPU.ServerUsPerEvent)
		}
	}
	if r.CPU.ServersNotMeasured != "" {
		fmt.Fprintf(&b, "; servers not measured: %s", r.CPU.ServersNotMeasured)
	}
	b.WriteByte('\n')
	if r.Group != nil {
		b.WriteString(r.Group.String() + "\n")
	}
	if r.Redirects+r.Reconnects > 0 {
		fmt.Fprintf(&b, "redirects followed %d, idle connections replaced %d\n", r.Redirects, r.Reconnects)
	}
	for _, kind := range r.errorKinds() {
		fmt.Fprintf(&b, "error: %d %s, for example: %s\n", r.Errors[kind].Count, kind, r.Errors[kind].Example)
	}
	return b.String()
}

// writeJSON writes the result to a file, to standard output for "-", or nowhere for "".
func (r *result) writeJSON(path string, stdout io.Writer) error {
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if path == "-" {
		_, err = stdout.Write(text)
		return err
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}
