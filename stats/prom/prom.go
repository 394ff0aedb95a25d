// Package prom exports a registry of metrics as Prometheus text and OpenMetrics.
package prom

import (
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/annalsdb/annals/stats"
)

// recentRange is the label that tells what time a recent maximum is about.
const recentRange = "16-20 seconds"

// Handler serves the metrics of r and of the Go runtime in the text format of
// Prometheus, or as OpenMetrics to those who accept it. All names are as they
// were registered, in both formats. With kurrent, each metric eventstore_NAME is
// there as kurrentdb_NAME as well. If any metric cannot be shown, the answer is 500
// with the reasons and no metrics.
func Handler(r *stats.Registry, kurrent bool) http.Handler {
	exported := prometheus.NewRegistry()
	exported.MustRegister(&collector{registry: r, kurrent: kurrent}, collectors.NewGoCollector())
	return promhttp.HandlerFor(exported, promhttp.HandlerOpts{EnableOpenMetrics: true, ErrorHandling: promhttp.HTTPErrorOnError})
}

// collector hands the metrics of a registry to the exporter.
type collector struct {
	registry *stats.Registry
	kurrent  bool // metrics of EventStoreDB have two names
	// series to *prometheus.Desc: building one costs more than all the rest of a scrape
	described sync.Map
}

// series identifies a metric: its labels are made once and never move.
type series struct {
	name   string
	labels *stats.Label // the first; nil when there is none
}

// Describe tells nothing: which metrics there are is only known when they are
// collected, and they are checked then.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends all metrics as they stand now.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	var name, help string
	c.registry.Each(func(s stats.Sample) {
		// Metrics of one name follow each other, and must agree in the text about them.
		if s.Name != name {
			name, help = s.Name, s.Help
		}
		to <- c.show(s, help)
		if rest, ok := strings.CutPrefix(s.Name, "eventstore_"); ok && c.kurrent {
			s.Name = "kurrentdb_" + rest
			to <- c.show(s, help)
		}
	})
}

// show returns a metric, or its mistake.
func (c *collector) show(s stats.Sample, help string) prometheus.Metric {
	m, err := c.metric(s, help)
	if err != nil {
		return prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
	}
	return m
}

func (c *collector) metric(s stats.Sample, help string) (prometheus.Metric, error) {
	desc := c.desc(s, help)
	switch s.Kind {
	case stats.CounterKind:
		return prometheus.NewConstMetric(desc, prometheus.CounterValue, s.Value)
	case stats.HistogramKind:
		buckets := make(map[float64]uint64, len(s.Histogram.Bounds))
		var count uint64
		for i, bound := range s.Histogram.Bounds {
			count += s.Histogram.Counts[i]
			buckets[bound] = count
		}
		return prometheus.NewConstHistogram(desc, s.Histogram.Count, s.Histogram.Sum, buckets)
	}
	return prometheus.NewConstMetric(desc, prometheus.GaugeValue, s.Value)
}

func (c *collector) desc(s stats.Sample, help string) *prometheus.Desc {
	id := series{name: s.Name}
	if len(s.Labels) > 0 {
		id.labels = &s.Labels[0]
	}
	if have, ok := c.described.Load(id); ok {
		return have.(*prometheus.Desc)
	}
	labels := make(prometheus.Labels, len(s.Labels)+1)
	for _, l := range s.Labels {
		labels[l.Name] = l.Value
	}
	if s.Kind == stats.MaxKind {
		labels["range"] = recentRange
	}
	desc := prometheus.NewDesc(s.Name, help, nil, labels)
	c.described.Store(id, desc)
	return desc
}
