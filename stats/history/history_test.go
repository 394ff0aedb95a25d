package history_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/stats"
	"github.com/annalsdb/annals/stats/history"
)

// shown is one of the series, with null for an unknown value.
func shown(s history.Series, name string) string {
	for i, n := range s.Names {
		if n != name {
			continue
		}
		var b strings.Builder
		for _, v := range s.Values[i] {
			if math.IsNaN(v) {
				b.WriteString("null ")
			} else {
				fmt.Fprintf(&b, "%.6g ", v)
			}
		}
		return strings.TrimSpace(b.String())
	}
	return "there is no " + name
}

// run has a history take samples of a registry for a while, with something done after each step.
func run(t *testing.T, r *stats.Registry, steps int, after func(step int)) *history.History {
	t.Helper()
	h := history.New(r, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		h.Run(ctx)
		close(done)
	}()
	synctest.Wait()
	for step := range steps {
		after(step)
		time.Sleep(history.Step)
		synctest.Wait()
	}
	cancel()
	<-done
	return h
}

// commits has four values between 1 and 5 ms in the first step, and in the third one between 10 and
// 30.
func commits(r *stats.Registry) func(step int) {
	took := r.Histogram("annals_replication_commit_seconds", "Time.", []float64{0.001, 0.005, 0.01, 0.03})
	return func(step int) {
		for range []int{4, 0, 0}[step] {
			took.Observe(0.002)
		}
		if step == 2 {
			took.Observe(0.011)
		}
	}
}

func TestSeries(t *testing.T) {
	for _, c := range []struct {
		name, series, want string
		set                func(r *stats.Registry) func(step int)
	}{
		{"gauge", "connections", "2 3 4 5", func(r *stats.Registry) func(int) {
			var v atomic.Int64
			v.Store(2)
			r.GaugeFunc("eventstore_kestrel_connections", "Connections.", func() float64 { return float64(v.Load()) })
			return func(int) { v.Add(1) }
		}},
		{"rate", "appendsPerSecond", "null 5 0 1", func(r *stats.Registry) func(int) {
			requests := r.Counter("annals_replication_requests_total", "Requests.")
			return func(step int) { requests.Add([]uint64{50, 0, 10}[step]) }
		}},
		{"rate of one label of two", "bytesReadPerSecond", "null 1 1 1", func(r *stats.Registry) func(int) {
			read := r.Counter("eventstore_io_bytes", "Bytes.", stats.Label{Name: "activity", Value: "read"})
			written := r.Counter("eventstore_io_bytes", "Bytes.", stats.Label{Name: "activity", Value: "written"})
			return func(int) { read.Add(10); written.Add(70) }
		}},
		{"rate of what begins again", "appendsPerSecond", "null 5 null 0", func(r *stats.Registry) func(int) {
			var v atomic.Int64
			r.CounterFunc("annals_replication_requests_total", "Requests.", func() float64 { return float64(v.Load()) })
			return func(step int) { v.Store([]int64{50, 10, 10}[step]) }
		}},
		{"sum of several", "requestsUnderWay", "3 3 3 3", func(r *stats.Registry) func(int) {
			for _, kind := range []string{"a", "b", "c"} {
				r.GaugeFunc("annals_queue_length", "Items.", func() float64 { return 1 }, stats.Label{Name: "kind", Value: kind}, stats.Label{Name: "queue", Value: "MainQueue"})
			}
			return func(int) {}
		}},
		{"mean", "commitMilliseconds", "null 30 null 10", func(r *stats.Registry) func(int) {
			took := r.Histogram("annals_replication_commit_seconds", "Time.", stats.DurationBounds)
			return func(step int) {
				switch step {
				case 0:
					took.Observe(0.02)
					took.Observe(0.04)
				case 2:
					took.Observe(0.01)
				}
			}
		}},
		{"half are below", "commitP50Milliseconds", "null 3 null 20", commits},
		{"nearly all are below", "commitP99Milliseconds", "null 4.96 null 29.8", commits},
		{"above all bounds", "commitP99Milliseconds", "null 40 40 40", func(r *stats.Registry) func(int) {
			took := r.Histogram("annals_replication_commit_seconds", "Time.", []float64{0.02, 0.04})
			return func(int) { took.Observe(7) }
		}},
		{"the largest", "replicationLagBytes", "7 7 7 7", func(r *stats.Registry) func(int) {
			for i, node := range []string{"a", "b", "c"} {
				r.GaugeFunc("annals_raft_peer_lag_bytes", "Lag.", func() float64 { return []float64{3, 7, 0}[i] }, stats.Label{Name: "node", Value: node})
			}
			return func(int) {}
		}},
		{"count of a histogram", "requestsPerSecond", "null 0.1 0.1 0.1", func(r *stats.Registry) func(int) {
			took := r.Queue("MainQueue", "", 1).Work("HttpRequest")
			return func(int) { took.End(took.Begin(0), 1) }
		}},
		{"seconds", "syncMilliseconds", "5 5 5 5", func(r *stats.Registry) func(int) {
			r.GaugeFunc("eventstore_writer_flush_duration_max_seconds", "Time.", func() float64 { return 0.005 })
			return func(int) {}
		}},
		{"what this machine has not", "machineLoad", "null null null null", func(*stats.Registry) func(int) { return func(int) {} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := new(stats.Registry)
				begun := time.Now().UTC().Truncate(history.Step)
				s := run(t, r, 3, c.set(r)).Last(time.Hour)
				if got := shown(s, c.series); got != c.want || !s.From.Equal(begun) || len(s.Names) != 23 || len(s.Values) != 23 {
					t.Errorf("%s from %s on, of %d, want %s from %s on", got, s.From, len(s.Names), c.want, begun)
				}
			})
		})
	}
}

func TestSpan(t *testing.T) {
	for _, c := range []struct {
		name  string
		steps int
		span  time.Duration
		want  string // first and last value and how many
	}{
		{"nothing but the first", 0, time.Hour, "0 0 1"},
		{"all there is", 5, time.Hour, "0 5 6"},
		{"less than there is", 30, 2 * time.Minute, "19 30 12"},
		{"the ring is full", 1000, time.Hour, "641 1000 360"},
		{"more than is kept", 1000, 24 * time.Hour, "641 1000 360"},
		{"less than a step", 5, 0, "5 5 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := new(stats.Registry)
				var v atomic.Int64
				r.GaugeFunc("eventstore_proc_cpu", "CPU.", func() float64 { return float64(v.Load()) })
				s := run(t, r, c.steps, func(int) { v.Add(1) }).Last(c.span)
				all := strings.Fields(shown(s, "cpuPercent"))
				check.Equal(t, fmt.Sprint(all[0], " ", all[len(all)-1], " ", len(all)), c.want)
			})
		})
	}
	t.Run("before the first", func(t *testing.T) {
		if s := history.New(nil, nil).Last(time.Hour); len(s.Names) != 23 || len(s.Values[0]) != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestClock has the clock stand still, go back, and leap.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(stats.Registry)
		var v, off atomic.Int64
		r.GaugeFunc("eventstore_proc_cpu", "CPU.", func() float64 { return float64(v.Load()) })
		h := history.New(r, func() time.Time { return time.Now().Add(time.Duration(off.Load())) })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go h.Run(ctx)
		synctest.Wait()
		for _, leap := range []time.Duration{0, -15 * time.Second, 0, 40 * time.Second, 0} {
			off.Add(int64(leap))
			v.Add(1)
			time.Sleep(history.Step)
			synctest.Wait()
		}
		check.Equal(t, shown(h.Last(time.Hour), "cpuPercent"), "0 1 null null null null 4 5")
	})
}
