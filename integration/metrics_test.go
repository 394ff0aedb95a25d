package integration_test

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// scrape is what a node answers to /metrics.
type scrape struct {
	text   []byte
	help   map[string]string
	kinds  map[string]string
	series []series
}

// series is one line of it.
type series struct {
	name   string
	labels map[string]string
	value  float64
}

func (s *series) String() string {
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(s.labels)) {
		labels = append(labels, fmt.Sprintf("%s=%q", name, s.labels[name]))
	}
	return s.name + "{" + strings.Join(labels, ",") + "}"
}

// family is the name of the metric that the series belongs to.
func (s *scrape) family(name string) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, suffix); ok {
			if kind := s.kinds[base]; kind == "histogram" || kind == "summary" {
				return base
			}
		}
	}
	return name
}

// named are the series of a name.
func (s *scrape) named(name string) (found []series) {
	for _, one := range s.series {
		if one.name == name {
			found = append(found, one)
		}
	}
	return found
}

var (
	seriesLine  = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$`)
	seriesLabel = regexp.MustCompile(`^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)",?`)
)

// scrape reads the metrics of the node.
func (m *member) scrape() *scrape {
	t := m.cluster.t
	t.Helper()
	answer := must(t, m, testkit.Request{Path: "/metrics", Admin: true}, http.StatusOK)
	if got := answer.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/plain; version=0.0.4") {
		t.Errorf("metrics of %s: Content-Type %s", m, got)
	}
	s := &scrape{text: answer.Body, help: map[string]string{}, kinds: map[string]string{}}
	for line := range strings.Lines(string(answer.Body)) {
		line = strings.TrimSuffix(line, "\n")
		if about, ok := strings.CutPrefix(line, "# "); ok {
			parts := strings.SplitN(about, " ", 3)
			check.MustEqual(t, len(parts), 3, "metrics of", m, line)
			map[string]map[string]string{"HELP": s.help, "TYPE": s.kinds}[parts[0]][parts[1]] = parts[2]
			continue
		}
		one := check.Value(parseSeries(line)).Must(t, "metrics of", m)
		s.series = append(s.series, one)
	}
	return s
}

func parseSeries(line string) (series, error) {
	parts := seriesLine.FindStringSubmatch(line)
	if parts == nil {
		return series{}, fmt.Errorf("no series: %s", line)
	}
	one := series{name: parts[1], labels: map[string]string{}}
	for rest := parts[2]; rest != ""; {
		label := seriesLabel.FindStringSubmatch(rest)
		if label == nil {
			return series{}, fmt.Errorf("labels of %s", line)
		}
		value, err := strconv.Unquote(`"` + label[2] + `"`)
		if err != nil {
			return series{}, fmt.Errorf("labels of %s: %w", line, err)
		}
		one.labels[label[1]], rest = value, rest[len(label[0]):]
	}
	var err error
	one.value, err = strconv.ParseFloat(parts[3], 64)
	return one, err
}

// expectedMetrics are the names and labels that dashboards for EventStoreDB use, as far as there is
// something here that they are about. A label with an asterisk may have any value.
var expectedMetrics = []string{
	`eventstore_statuses{name="Node",status="*"}`, `eventstore_statuses{name="Index",status="*"}`, `eventstore_statuses{name="Scavenge",status="*"}`,
	`eventstore_checkpoints{name="writer",read="non-flushed"}`, `eventstore_checkpoints{name="writer",read="flushed"}`,
	`eventstore_checkpoints{name="index",read="non-flushed"}`, `eventstore_checkpoints{name="replication",read="non-flushed"}`,
	`eventstore_checkpoints{name="chaser",read="non-flushed"}`, `eventstore_checkpoints{name="epoch",read="non-flushed"}`,
	`eventstore_io_bytes{activity="read"}`, `eventstore_io_events{activity="read"}`, `eventstore_io_events{activity="written"}`,
	`eventstore_writer_flush_size_max{range="16-20 seconds"}`, `eventstore_writer_flush_duration_max_seconds{range="16-20 seconds"}`,
	`eventstore_queue_busy_seconds{queue="*"}`, `eventstore_queue_queueing_duration_max_seconds{name="*",range="16-20 seconds"}`,
	`eventstore_queue_processing_duration_seconds_bucket{message_type="*",queue="*",le="*"}`,
	`eventstore_cache_hits_misses{cache="*",kind="hits"}`, `eventstore_cache_hits_misses{cache="*",kind="misses"}`,
	`eventstore_cache_resources_bytes{cache="*",kind="size"}`, `eventstore_cache_resources_entries{cache="*",kind="count"}`,
	`eventstore_gossip_latency_seconds_bucket{le="*"}`, `eventstore_gossip_processing_duration_seconds_bucket{activity="*",status="successful",le="*"}`,
	`eventstore_kestrel_connections{}`, `eventstore_sys_load_avg{period="1m"}`, `eventstore_sys_mem_bytes{kind="free"}`, `eventstore_sys_mem_bytes{kind="total"}`,
	`eventstore_sys_disk_bytes{disk="*",kind="used"}`, `eventstore_sys_disk_bytes{disk="*",kind="total"}`,
	`eventstore_proc_up_time{pid="*"}`, `eventstore_proc_cpu{}`, `eventstore_proc_thread_count{}`, `eventstore_proc_contention_count{}`, `eventstore_proc_exception_count{}`,
	`eventstore_proc_mem_bytes{kind="working-set"}`, `eventstore_gc_heap_size_bytes{}`, `eventstore_gc_total_allocated{}`, `eventstore_gc_collection_count{generation="gen0"}`,
	`eventstore_gc_pause_duration_max_seconds{range="16-20 seconds"}`,
	`eventstore_disk_io_bytes{activity="read"}`, `eventstore_disk_io_bytes{activity="written"}`, `eventstore_disk_io_operations{activity="read"}`, `eventstore_disk_io_operations{activity="written"}`,
}

// expected says whether a series is one of a form of expectedMetrics, with these labels and no
// others.
func (s *series) expected(form *series) bool {
	if s.name != form.name || len(s.labels) != len(form.labels) {
		return false
	}
	for label, want := range form.labels {
		if value, ok := s.labels[label]; !ok || want != "*" && want != value {
			return false
		}
	}
	return true
}

// checkMetrics looks at the metrics of all nodes.
func checkMetrics(t *testing.T, scrapes map[*member]*scrape, leader *member) {
	for m, s := range scrapes {
		problems, err := promlint.New(bytes.NewReader(s.text)).Lint()
		check.Must(t, err, m, "the parser of Prometheus says")
		for _, p := range problems {
			// We cannot choose the names of EventStoreDB's metrics.
			if strings.HasPrefix(p.Metric, "annals_") || p.Text == "no help text" {
				t.Errorf("%s: %s: %s", m, p.Metric, p.Text)
			}
		}
		for _, one := range s.series {
			family := s.family(one.name)
			if s.help[family] == "" || s.kinds[family] == "" {
				t.Errorf("%s: %s has no help text or no type", m, one.name)
			}
			if strings.HasPrefix(family, "annals_") && (s.kinds[family] == "counter") != strings.HasSuffix(family, "_total") {
				t.Errorf("%s: %s is a %s", m, family, s.kinds[family])
			}
			if !strings.HasPrefix(family, "annals_") && !strings.HasPrefix(family, "eventstore_") && !strings.HasPrefix(family, "go_") {
				t.Errorf("%s: %s belongs to nobody", m, family)
			}
		}
		for _, text := range expectedMetrics {
			form := check.Value(parseSeries(text + " 0")).Must(t)
			if !slices.ContainsFunc(s.series, func(one series) bool { return one.expected(&form) }) {
				t.Errorf("%s has no %s", m, text)
			}
		}
		s.checkHistograms(t, m)
		if got := s.value(t, "annals_replication_leading"); (got == 1) != (m == leader) {
			t.Errorf("%s: leading is %v", m, got)
		}
		// The operations on every node.
		for _, name := range []string{
			`eventstore_io_events{activity="written"}`, `eventstore_io_events{activity="read"}`, `eventstore_checkpoints{name="writer",read="non-flushed"}`,
			`annals_access_logins_total{result="cached"}`, `annals_access_logins_total{result="verified"}`, `annals_access_logins_total{result="refused"}`,
			`annals_raft_term`, `annals_raft_commit_index`, `annals_log_commits_total`, `annals_index_memory_entries`, `eventstore_proc_up_time`,
		} {
			if s.value(t, name) <= 0 {
				t.Errorf("%s: %s is 0", m, name)
			}
		}
	}
}

// openMetrics demands that the same is there in the other format, for those who ask for that.
func (m *member) openMetrics(t *testing.T) {
	t.Helper()
	answer, err := m.ask(testkit.Request{Path: "/metrics", Admin: true, Header: map[string]string{"Accept": "application/openmetrics-text; version=1.0.0"}})
	if err != nil || answer.Status != http.StatusOK || !strings.HasPrefix(answer.Header.Get("Content-Type"), "application/openmetrics-text") {
		t.Errorf("metrics of %s as OpenMetrics: %d, %s, %v", m, answer.Status, answer.Header.Get("Content-Type"), err)
	}
	text := string(answer.Body)
	for _, want := range []string{"# EOF\n", "\nannals_access_logins_total{", "\neventstore_statuses{", "\neventstore_queue_busy_seconds"} {
		check.Contains(t, text, want, "metrics of", m, "as OpenMetrics lack")
	}
}

// value is that of the only series that has these labels among its own.
func (s *scrape) value(t *testing.T, text string) float64 {
	t.Helper()
	form := check.Value(parseSeries(text + " 0")).Must(t)
	value, found := math.NaN(), 0
	for _, one := range s.named(form.name) {
		fits := true
		for label, want := range form.labels {
			fits = fits && one.labels[label] == want
		}
		if fits {
			value = one.value
			found++
		}
	}
	check.Equal(t, found, 1, "series are", text)
	return value
}

// checkHistograms demands that buckets hold what those below them hold, and the last one
// everything.
func (s *scrape) checkHistograms(t *testing.T, m *member) {
	last, count := map[string]series{}, map[string]float64{}
	for _, one := range s.series {
		base, ok := strings.CutSuffix(one.name, "_bucket")
		if !ok || s.kinds[base] != "histogram" {
			if base, ok := strings.CutSuffix(one.name, "_count"); ok && s.kinds[base] == "histogram" {
				one.name = base
				count[one.String()] = one.value
			}
			continue
		}
		le := one.labels["le"]
		whole := series{name: base, labels: maps.Clone(one.labels)}
		delete(whole.labels, "le")
		key := whole.String()
		if before, ok := last[key]; ok && before.value > one.value {
			t.Errorf("%s: %s has %v up to %s and %v up to %s", m, key, before.value, before.labels["le"], one.value, le)
		}
		last[key] = one
	}
	for key, one := range last {
		if total, ok := count[key]; !ok || one.labels["le"] != "+Inf" || one.value != total {
			t.Errorf("%s: %s counts %v, and its last bucket, up to %s, %v", m, key, total, one.labels["le"], one.value)
		}
	}
}
