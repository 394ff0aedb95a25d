package integration_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

const metricsHead = `# Metrics

A test makes this page from the answers of ` + "`/metrics`" + ` in a cluster. Do not edit it: run
` + "`make metrics-page`" + `.

A node serves its metrics at ` + "`/metrics`" + ` in the text format of Prometheus, to any user
([watching](watching.md)). Metrics that begin with ` + "`eventstore_`" + ` have the names and labels of
EventStoreDB. With ` + "`KurrentMetrics=true`" + ` each of them is there as ` + "`kurrentdb_NAME`" + ` as well.
Some metrics appear only with their first event, or only on the leader.
[Alerts](alerts.md) has rules for the important ones.

| name | kind | labels | meaning |
| --- | --- | --- | --- |
`

// metricsPage is the text of the page for what nodes have answered.
func metricsPage(scrapes []*scrape) string {
	help, kinds, labels := map[string]string{}, map[string]string{}, map[string]map[string]bool{}
	for _, s := range scrapes {
		maps.Copy(help, s.help)
		maps.Copy(kinds, s.kinds)
		for _, one := range s.series {
			family := s.family(one.name)
			if labels[family] == nil {
				labels[family] = map[string]bool{}
			}
			for name := range one.labels {
				if name != "le" && name != "quantile" {
					labels[family][name] = true
				}
			}
		}
	}
	var b strings.Builder
	b.WriteString(metricsHead)
	for _, name := range slices.Sorted(maps.Keys(help)) {
		if !strings.HasPrefix(name, "annals_") && !strings.HasPrefix(name, "eventstore_") {
			continue
		}
		var of []string
		for _, label := range slices.Sorted(maps.Keys(labels[name])) {
			of = append(of, "`"+label+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, kinds[name], strings.Join(of, ", "), strings.ReplaceAll(help[name], "|", `\|`))
	}
	return b.String()
}

// checkMetricsPage compares the page with what nodes have answered. With ANNALS_METRICS_PAGE=1 it
// writes the page.
func checkMetricsPage(t *testing.T, scrapes map[*member]*scrape) {
	t.Helper()
	root := check.Value(testkit.Root()).Must(t)
	name := filepath.Join(root, "docs", "metrics.md")
	want := metricsPage(slices.Collect(maps.Values(scrapes)))
	if os.Getenv("ANNALS_METRICS_PAGE") != "" {
		check.Must(t, os.WriteFile(name, []byte(want), 0o644))
		return
	}
	got := check.Value(os.ReadFile(name)).Must(t)
	lines, rows := strings.Split(string(got), "\n"), strings.Split(want, "\n")
	for _, row := range rows {
		if !slices.Contains(lines, row) {
			t.Errorf("docs/metrics.md lacks the line below, make metrics-page writes it:\n%s", row)
		}
	}
	for _, line := range lines {
		if !slices.Contains(rows, line) {
			t.Errorf("docs/metrics.md has a line for a metric that no node has:\n%s", line)
		}
	}
}
