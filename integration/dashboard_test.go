package integration_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// dashboard is the part of Grafana's form that is checked.
type dashboard struct {
	Title, UID string
	Templating struct {
		List []struct {
			Name, Type string
			Query      json.RawMessage
		}
	}
	Panels []panel
}

type panel struct {
	ID          int
	Type, Title string
	Description string
	GridPos     struct{ H, W, X, Y int }
	Targets     []target
	Panels      []panel
}

type target struct {
	RefID        string `json:"refId"`
	Expr         string
	LegendFormat string
}

func readDashboard(t *testing.T) *dashboard {
	t.Helper()
	root, err := testkit.Root()
	check.Must(t, err)
	text, err := os.ReadFile(filepath.Join(root, "deploy", "monitoring", "grafana-dashboard.json"))
	check.Must(t, err)
	var d dashboard
	check.Must(t, json.Unmarshal(text, &d))
	return &d
}

// TestDashboard: every panel has its place, and says what it shows.
func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	const width = 24
	ids := map[int]string{}
	var seen []panel
	for _, p := range d.Panels {
		if other, ok := ids[p.ID]; ok || p.ID <= 0 {
			t.Errorf("%q has the id %d of %q", p.Title, p.ID, other)
		}
		ids[p.ID] = p.Title
		g := p.GridPos
		if g.X < 0 || g.Y < 0 || g.W <= 0 || g.H <= 0 || g.X+g.W > width {
			t.Errorf("%q lies at %+v", p.Title, g)
		}
		for _, o := range seen {
			if og := o.GridPos; g.X < og.X+og.W && og.X < g.X+g.W && g.Y < og.Y+og.H && og.Y < g.Y+g.H {
				t.Errorf("%q and %q overlap", p.Title, o.Title)
			}
		}
		seen = append(seen, p)
		if p.Title == "" || len(p.Panels) > 0 || (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("panel %d, %q of type %s, has %d targets and %d panels", p.ID, p.Title, p.Type, len(p.Targets), len(p.Panels))
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if refs[q.RefID] || q.RefID == "" {
				t.Errorf("%q has two targets %q", p.Title, q.RefID)
			}
			refs[q.RefID] = true
			check.Contains(t, q.Expr, "$instance", p.Title, "does not look at the chosen nodes")
		}
		if p.Type != "row" && p.Description == "" {
			t.Errorf("%q does not say what it is about", p.Title)
		}
	}
	if d.UID == "" || d.Title == "" || len(seen) == 0 {
		t.Errorf("the dashboard %q has the id %q and %d panels", d.Title, d.UID, len(seen))
	}
}

// selector is a metric within an expression, with what its labels must be.
type selector struct {
	name     string
	matchers []matcher
}

type matcher struct{ label, op, value string }

var (
	exprToken    = regexp.MustCompile(`^(?:\s+|"(?:[^"\\]|\\.)*"|\[[^\]]*\]|\d+(?:\.\d+)?[smhdwy]?|[a-zA-Z_:][a-zA-Z0-9_:]*|[-+*/%^(),<>=!]+)`)
	exprMatcher  = regexp.MustCompile(`^\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*,?`)
	exprName     = regexp.MustCompile(`^[a-zA-Z_:]`)
	exprWords    = []string{"bool", "and", "or", "unless", "offset"}
	exprGrouping = []string{"by", "without", "on", "ignoring", "group_left", "group_right"}
	legendLabel  = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)
	labelValues  = regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)
)

// addedLabels are those that Prometheus adds to what it scrapes.
var addedLabels = []string{"instance", "job"}

// selectors takes an expression apart: its metrics, and the labels that it groups by.
func selectors(expr string) (found []selector, labels []string, err error) {
	rest := expr
	for rest != "" {
		token := exprToken.FindString(rest)
		if token == "" {
			return nil, nil, fmt.Errorf("%q at %q", expr, rest)
		}
		rest = rest[len(token):]
		after := strings.TrimLeft(rest, " ")
		switch {
		case !exprName.MatchString(token) || slices.Contains(exprWords, token):
		case slices.Contains(exprGrouping, token):
			if !strings.HasPrefix(after, "(") {
				continue
			}
			list, behind, ok := strings.Cut(after[1:], ")")
			if !ok {
				return nil, nil, fmt.Errorf("%q lacks a parenthesis", expr)
			}
			labels = append(labels, strings.FieldsFunc(list, func(c rune) bool { return c == ',' || c == ' ' })...)
			rest = behind
		case strings.HasPrefix(after, "("), slices.ContainsFunc(exprGrouping, func(word string) bool {
			return strings.HasPrefix(after, word+" ") || strings.HasPrefix(after, word+"(")
		}) && !strings.Contains(token, "_"):
			// A function or an aggregation.
		default:
			one := selector{name: token}
			if strings.HasPrefix(rest, "{") {
				for rest = rest[1:]; !strings.HasPrefix(rest, "}"); {
					m := exprMatcher.FindStringSubmatch(rest)
					if m == nil {
						return nil, nil, fmt.Errorf("%q at %q", expr, rest)
					}
					one.matchers = append(one.matchers, matcher{m[1], m[2], m[3]})
					rest = rest[len(m[0]):]
				}
				rest = rest[1:]
			}
			found = append(found, one)
		}
	}
	return found, labels, nil
}

func TestSelectors(t *testing.T) {
	found, labels, err := selectors(`histogram_quantile(0.99, sum by (le, queue) (rate(a_b_bucket{x="1",y=~"$y|z"}[$__rate_interval]))) / on() group_left max(c_d) > bool 0 and topk by (z) (1, e{})`)
	want := []selector{{"a_b_bucket", []matcher{{"x", "=", "1"}, {"y", "=~", "$y|z"}}}, {"c_d", nil}, {"e", nil}}
	if err != nil || fmt.Sprint(found) != fmt.Sprint(want) || !slices.Equal(labels, []string{"le", "queue", "z"}) {
		t.Errorf("%v, %q, %v", found, labels, err)
	}
	if _, _, err := selectors(`rate(a{x=1})`); err == nil {
		t.Error("a label without quotes passed")
	}
}

var alertExpr = regexp.MustCompile(`(?m)^ +expr: (.*)$`)

// alertRules are the expressions of the rules for Prometheus.
func alertRules(t *testing.T) (rules []string) {
	t.Helper()
	root, err := testkit.Root()
	check.Must(t, err)
	page, err := os.ReadFile(filepath.Join(root, "deploy", "monitoring", "alerts.yaml"))
	check.Must(t, err)
	for _, m := range alertExpr.FindAllSubmatch(page, -1) {
		rules = append(rules, string(m[1]))
	}
	if len(rules) == 0 {
		t.Error("deploy/monitoring/alerts.yaml has no rules")
	}
	return rules
}

// checkDashboard demands that what panels and alerts ask for is there on some node.
func checkDashboard(t *testing.T, scrapes map[*member]*scrape) {
	byName := map[string][]series{}
	for _, s := range scrapes {
		for _, one := range s.series {
			byName[one.name] = append(byName[one.name], one)
		}
	}
	d := readDashboard(t)
	asked := 0
	check := func(where, expr, legend string) {
		found, labels, err := selectors(expr)
		if err != nil || len(found) == 0 {
			t.Errorf("%s: %d metrics, %v", where, len(found), err)
			return
		}
		for _, m := range legendLabel.FindAllStringSubmatch(legend, -1) {
			labels = append(labels, m[1])
		}
		for _, one := range found {
			asked++
			if one.name == "up" {
				continue // Prometheus makes it.
			}
			check.NoError(t, one.matched(byName[one.name]), where)
		}
		for _, label := range labels {
			known := slices.Contains(addedLabels, label) || slices.ContainsFunc(found, func(one selector) bool {
				return slices.ContainsFunc(byName[one.name], func(s series) bool { _, ok := s.labels[label]; return ok })
			})
			if !known {
				t.Errorf("%s: no metric of it has a label %s: %s", where, label, expr)
			}
		}
	}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		var query string
		if err := json.Unmarshal(v.Query, &query); err != nil {
			t.Fatal(err)
		}
		parts := labelValues.FindStringSubmatch(query)
		if parts == nil {
			t.Fatalf("the query of %s is %s", v.Name, query)
		}
		check("variable "+v.Name, parts[1], "{{"+parts[2]+"}}")
	}
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			check(p.Title, q.Expr, q.LegendFormat)
		}
	}
	for _, expr := range alertRules(t) {
		check("deploy/monitoring/alerts.yaml", expr, "")
	}
	t.Logf("%d panels ask for metrics %d times", len(d.Panels), asked)
}

// matched returns an error unless some series is what the selector asks for, as
// far as that does not depend on a variable.
func (s *selector) matched(candidates []series) error {
	if len(candidates) == 0 {
		return fmt.Errorf("there is no metric %s", s.name)
	}
	for _, m := range s.matchers {
		if slices.Contains(addedLabels, m.label) {
			continue
		}
		pattern, err := regexp.Compile("^(?:" + m.value + ")$")
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fits := func(c series) bool {
			value, ok := c.labels[m.label]
			switch {
			case m.op == "=":
				return ok && value == m.value
			case m.op == "=~" && !strings.Contains(m.value, "$"):
				return ok && pattern.MatchString(value)
			default:
				return ok
			}
		}
		kept := slices.DeleteFunc(slices.Clone(candidates), func(c series) bool { return !fits(c) })
		if len(kept) == 0 {
			return fmt.Errorf("no series of %s has %s%s%q", s.name, m.label, m.op, m.value)
		}
		candidates = kept
	}
	return nil
}
