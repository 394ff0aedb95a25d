package stats_test

import (
	"fmt"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/stats"
)

func samples(r *stats.Registry) []stats.Sample {
	var all []stats.Sample
	r.Each(func(s stats.Sample) { all = append(all, s) })
	return all
}

func TestEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r stats.Registry
		r.Gauge("queue_length", "Requests waiting.").Set(-3)
		writes := r.Counter("requests", "Requests by kind.", stats.Label{Name: "kind", Value: "write"})
		reads := r.Counter("requests", "Requests by kind.", stats.Label{Name: "kind", Value: "read"})
		writes.Add(2)
		reads.Inc()
		h := r.Histogram("latency_seconds", "Time taken.", []float64{1, 2})
		for _, v := range []float64{0.5, 1, 1.5, 7} {
			h.Observe(v)
		}
		free := 5.0
		r.GaugeFunc("free_bytes", "Bytes left.", func() float64 { return free })
		r.CounterFunc("seconds_up", "Seconds.", func() float64 { return 9 })
		r.Max("longest_seconds", "Longest of late.").Observe(4)
		free = 6

		want := []stats.Sample{
			{Name: "free_bytes", Help: "Bytes left.", Kind: stats.GaugeKind, Value: 6},
			{Name: "latency_seconds", Help: "Time taken.", Kind: stats.HistogramKind, Histogram: &stats.Distribution{
				Bounds: []float64{1, 2}, Counts: []uint64{2, 1, 1}, Count: 4, Sum: 10, RecentMax: 7}},
			{Name: "longest_seconds", Help: "Longest of late.", Kind: stats.MaxKind, Value: 4},
			{Name: "queue_length", Help: "Requests waiting.", Kind: stats.GaugeKind, Value: -3},
			{Name: "requests", Help: "Requests by kind.", Kind: stats.CounterKind, Labels: []stats.Label{{Name: "kind", Value: "read"}}, Value: 1},
			{Name: "requests", Help: "Requests by kind.", Kind: stats.CounterKind, Labels: []stats.Label{{Name: "kind", Value: "write"}}, Value: 2},
			{Name: "seconds_up", Help: "Seconds.", Kind: stats.CounterKind, Value: 9},
		}
		check.MustDeep(t, samples(&r), want)
	})
}

func TestRegisterAgain(t *testing.T) {
	var r stats.Registry
	a := stats.Label{Name: "a", Value: "1"}
	b := stats.Label{Name: "b", Value: "2"}
	if r.Counter("n", "", a, b) != r.Counter("n", "", b, a) {
		t.Error("the order of labels makes another counter")
	}
	if r.Counter("n", "", a) == r.Counter("n", "", b) {
		t.Error("different labels share a counter")
	}
	h, g := r.Histogram("h", "", nil), r.Gauge("g", "")
	if h != r.Histogram("h", "", nil) || g != r.Gauge("g", "") {
		t.Error("registering again makes another metric")
	}
	r.GaugeFunc("f", "", func() float64 { return 1 })
	r.GaugeFunc("f", "", func() float64 { return 2 })
	for _, s := range samples(&r) {
		if s.Name == "f" && s.Value != 2 {
			t.Errorf("the function was not replaced: %v", s.Value)
		}
	}
}

func TestMistakesPanic(t *testing.T) {
	cases := map[string]func(r *stats.Registry){
		"empty name":        func(r *stats.Registry) { r.Counter("", "") },
		"digit first":       func(r *stats.Registry) { r.Counter("1a", "") },
		"dash":              func(r *stats.Registry) { r.Counter("a-b", "") },
		"bad label":         func(r *stats.Registry) { r.Counter("a", "", stats.Label{Name: "x y"}) },
		"label twice":       func(r *stats.Registry) { r.Counter("a", "", stats.Label{Name: "x"}, stats.Label{Name: "x"}) },
		"two kinds":         func(r *stats.Registry) { r.Counter("a", ""); r.Gauge("a", "", stats.Label{Name: "x"}) },
		"value as function": func(r *stats.Registry) { r.Gauge("a", ""); r.GaugeFunc("a", "", func() float64 { return 0 }) },
		"function as value": func(r *stats.Registry) { r.GaugeFunc("a", "", func() float64 { return 0 }); r.Gauge("a", "") },
		"falling bounds":    func(r *stats.Registry) { r.Histogram("a", "", []float64{2, 1}) },
	}
	for name, register := range cases {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Fatal("no panic")
				}
			}()
			register(new(stats.Registry))
		})
	}
}

func TestNilRegistry(t *testing.T) {
	var r *stats.Registry
	r.Counter("c", "").Inc()
	r.Gauge("g", "").Add(1)
	r.Max("m", "").Observe(1)
	h := r.Histogram("h", "", stats.DurationBounds)
	h.ObserveSince(time.Now())
	r.GaugeFunc("f", "", func() float64 { return 0 })
	if got := samples(r); got != nil {
		t.Fatalf("a nil registry shows %v", got)
	}
	check.MustEqual(t, h.Snapshot().Count, 1, "an unregistered histogram does not count")
}

func TestMaxForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m stats.Max
		m.Observe(5)
		m.Observe(3)
		m.Observe(-1)
		check.MustEqual(t, m.Value(), 5, "at once")
		time.Sleep(16 * time.Second)
		check.MustEqual(t, m.Value(), 5, "after 16 seconds")
		m.Observe(2)
		time.Sleep(4 * time.Second)
		check.MustEqual(t, m.Value(), 2, "after 20 seconds")
		m.Observe(1)
		time.Sleep(time.Hour)
		check.MustEqual(t, m.Value(), 0, "after an hour")
		m.Observe(1)
		check.MustEqual(t, m.Value(), 1, "in a reused slot")
	})
}

func TestConcurrentUse(t *testing.T) {
	synctest.Test(t, testConcurrentUse) // What is the maximum of late is not forgotten meanwhile.
}

func testConcurrentUse(t *testing.T) {
	var r stats.Registry
	const workers, each = 8, 500
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range each {
				r.Counter("c", "").Inc()
				r.Histogram("h", "", stats.DurationBounds).Observe(float64(i))
				r.Each(func(stats.Sample) {})
			}
		})
	}
	wg.Wait()
	check.Equal(t, r.Counter("c", "").Value(), workers*each, "counted")
	d := r.Histogram("h", "", stats.DurationBounds).Snapshot()
	if d.Count != workers*each || d.Sum != workers*each*(each-1)/2 || d.RecentMax != each-1 {
		t.Errorf("got %+v", d)
	}
}

func BenchmarkHistogram(b *testing.B) {
	h := new(stats.Registry).Histogram("h", "", stats.DurationBounds)
	b.ReportAllocs()
	for b.Loop() {
		h.Observe(0.003)
	}
}

func BenchmarkCounter(b *testing.B) {
	c := new(stats.Registry).Counter("c", "")
	for b.Loop() {
		c.Inc()
	}
}

func TestRemove(t *testing.T) {
	var r stats.Registry
	a, b := stats.Label{Name: "a", Value: "1"}, stats.Label{Name: "b", Value: "2"}
	r.GaugeFunc("one", "", func() float64 { return 1 }, a, b)
	r.GaugeFunc("one", "", func() float64 { return 2 }, a)
	r.Remove("one", b, a)
	r.Remove("one", b)
	r.Remove("none")
	names := func() (all []string) {
		r.Each(func(s stats.Sample) { all = append(all, fmt.Sprint(s.Name, s.Labels, s.Value)) })
		return all
	}
	if got, want := names(), []string{"one[{a 1}] 2"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	r.GaugeFunc("one", "", func() float64 { return 3 }, b, a)
	if got, want := names(), []string{"one[{a 1}] 2", "one[{a 1} {b 2}] 3"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q after it came again, want %q", got, want)
	}
	var none *stats.Registry
	none.Remove("one")
}
