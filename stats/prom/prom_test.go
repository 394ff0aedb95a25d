package prom_test

import (
	"flag"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/stats"
	"github.com/annalsdb/annals/stats/prom"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func get(h http.Handler, accept string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func label(name, value string) stats.Label { return stats.Label{Name: name, Value: value} }

func registry() *stats.Registry {
	r := new(stats.Registry)
	r.Counter("eventstore_io_bytes", "Bytes.", label("activity", "read")).Add(3)
	r.Counter("annals_http_requests_total", "Requests.").Inc()
	r.Gauge("annals_queue_length", "Length.", label("queue", "a \"b\" \\ \n é")).Set(-4)
	r.Max("eventstore_writer_flush_size_max", "Greatest.").Observe(1.5)
	r.MaxFunc("eventstore_gc_pause_duration_max_seconds", "Longest.", func() float64 { return 2 }, label("name", "n"))
	h := r.Histogram("annals_log_append_seconds", "Time.", []float64{0.1, 1}, label("kind", "x"))
	for _, v := range []float64{0.05, 0.1, 0.5, 3} {
		h.Observe(v)
	}
	// Odd, and still shown: other labels and another text for a name, values that are not numbers,
	// bytes that are not text.
	r.Gauge("odd", "One text.", label("a", "1")).Set(1)
	r.Gauge("odd", "Another text.", label("a", "1"), label("b", "2")).Set(2)
	r.Gauge("odd", "").Set(3)
	r.GaugeFunc("odd_nan", "", math.NaN)
	r.CounterFunc("odd_inf", "", func() float64 { return math.Inf(1) })
	r.Histogram("odd_histogram", "", nil).Observe(1)
	return r
}

func TestFormats(t *testing.T) {
	h := prom.Handler(registry(), false)
	for file, c := range map[string]struct{ accept, contentType string }{
		"text.golden":        {"", "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"},
		"openmetrics.golden": {"application/openmetrics-text;version=1.0.0", "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"},
	} {
		t.Run(file, func(t *testing.T) {
			for range 2 { // The second answer has nothing left to build.
				w := get(h, c.accept)
				check.MustEqual(t, w.Code, http.StatusOK, w.Body)
				check.MustEqual(t, w.Header().Get("Content-Type"), c.contentType, w.Body)
				got := withoutRuntime(w.Body.String())
				if *update {
					check.Must(t, os.WriteFile("testdata/"+file, []byte(got), 0o644))
				}
				want := check.Value(os.ReadFile("testdata/" + file)).Must(t)
				check.Equal(t, got, string(want))
			}
		})
	}
}

// withoutRuntime leaves out the metrics of the Go runtime.
func withoutRuntime(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "go_") && !strings.Contains(line, " go_") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func TestMistakesAre500(t *testing.T) {
	for name, c := range map[string]struct {
		register func(r *stats.Registry)
		reason   string
	}{
		"range twice":        {func(r *stats.Registry) { r.Max("m", "", label("range", "x")); r.Max("m", "") }, "was collected before"},
		"a histogram's part": {func(r *stats.Registry) { r.Histogram("h", "", nil); r.Counter("h_count", "") }, "collides"},
		"reserved label":     {func(r *stats.Registry) { r.Counter("c", "", label("__name__", "x")) }, "__name__"},
		"no text":            {func(r *stats.Registry) { r.Counter("c", "", label("a", "\xff")) }, "UTF-8"},
		"panic":              {func(r *stats.Registry) { r.GaugeFunc("g", "", func() float64 { panic("broken figure") }) }, "broken figure"},
	} {
		t.Run(name, func(t *testing.T) {
			r := registry()
			c.register(r)
			w := get(prom.Handler(r, false), "")
			check.MustEqual(t, w.Code, http.StatusInternalServerError)
			check.MustContain(t, w.Body.String(), c.reason)
		})
	}
}

func TestLaterMetricsShow(t *testing.T) {
	r := registry()
	h := prom.Handler(r, false)
	get(h, "")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			r.Counter("later", "", label("n", fmt.Sprint(i))).Inc()
			if w := get(h, ""); !strings.Contains(w.Body.String(), fmt.Sprintf("later{n=\"%d\"} 1\n", i)) {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
	}
	wg.Wait()
	check.Equal(t, get(prom.Handler(nil, false), "").Code, http.StatusOK, "a nil registry")
}

// TestKurrentNames: metrics of EventStoreDB are there under both names, others under one.
func TestKurrentNames(t *testing.T) {
	var got []string
	for line := range strings.Lines(get(prom.Handler(registry(), true), "").Body.String()) {
		if strings.HasPrefix(line, "eventstore_") || strings.HasPrefix(line, "kurrentdb_") {
			got = append(got, line)
		}
	}
	want := []string{
		"eventstore_gc_pause_duration_max_seconds{name=\"n\",range=\"16-20 seconds\"} 2\n",
		"eventstore_io_bytes{activity=\"read\"} 3\n",
		"eventstore_writer_flush_size_max{range=\"16-20 seconds\"} 1.5\n",
	}
	for _, line := range want[:3] {
		want = append(want, "kurrentdb_"+strings.TrimPrefix(line, "eventstore_"))
	}
	check.Slice(t, got, want)
}

// BenchmarkScrape is a scrape of 500 metrics, every tenth of them a histogram of 17 buckets.
func BenchmarkScrape(b *testing.B) {
	r := new(stats.Registry)
	for i := range 500 {
		labels := []stats.Label{label("queue", fmt.Sprint("queue ", i%50)), label("kind", fmt.Sprint(i%3))}
		if i%10 == 0 {
			r.Histogram(fmt.Sprint("annals_histogram_", i%7), "Help.", stats.DurationBounds, append(labels, label("n", fmt.Sprint(i)))...).Observe(0.1)
		} else {
			r.Counter(fmt.Sprint("annals_counter_", i%70), "Help.", append(labels, label("n", fmt.Sprint(i)))...).Add(uint64(i))
		}
	}
	h := prom.Handler(r, false)
	b.ReportAllocs()
	for b.Loop() {
		if w := get(h, ""); w.Code != http.StatusOK {
			b.Fatal(w.Body)
		}
	}
}

// BenchmarkGoCollector is what the metrics of the Go runtime add to a scrape.
func BenchmarkGoCollector(b *testing.B) {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector())
	b.ReportAllocs()
	for b.Loop() {
		check.Must(b, check.Err(r.Gather()))
	}
}
