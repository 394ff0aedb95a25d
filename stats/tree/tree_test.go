package tree_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/stats"
	"github.com/annalsdb/annals/stats/tree"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func metrics() tree.Statistics {
	f := tree.Statistics{
		{Path: []string{"proc", "startTime"}, Value: "2026-01-02T03:04:05.0060000Z"},
		{Path: []string{"proc", "mem"}, Value: int64(1 << 40), About: &tree.About{Category: "Process", Title: "Process Memory", DrawChart: true}},
		{Path: []string{"proc", "cpu"}, Value: 12.5, About: &tree.About{Category: "Process", Title: "Process Cpu Usage"}},
		{Path: []string{"proc", "gc", "gen0Size"}, Value: int64(-1)},
		{Path: []string{"sys", "loadavg", "1m"}, Value: 0.25},
		{Path: []string{"sys", "loadavg", "5m"}, Value: math.NaN()},
		{Path: []string{"sys", "loadavg", "15m"}, Value: math.Inf(-1)},
		{Path: []string{"sys", "drive", "/mnt/my-disk & more", "usage"}, Value: "69%"},
		{Path: []string{"es", "checksum"}, Value: int64(math.MaxInt64)},
		{Path: []string{"es", "tiny"}, Value: 1.5e-9},
		{Path: []string{"es", "huge"}, Value: 1e21},
		{Path: []string{"es", "whole"}, Value: 3.0},
		{Path: []string{"es", "int"}, Value: 4},
		{Path: []string{"es", "unsigned"}, Value: uint64(math.MaxUint64)},
		{Path: []string{"es", "nothing"}, Value: nil},
		{Path: []string{"es", "text"}, Value: "a \"b\" \\ <c>\x00\n\xff é"},
	}
	f = append(f, tree.Queue(stats.QueueStatistics{Name: "MainQueue", Length: 3, PeakLength: 4, LifetimePeakLength: 5, Items: 6, ItemsPerSecond: 7,
		ProcessingMs: 0.125, IdlePercent: 99.5, Idle: -1, Processing: 26*time.Hour + 3*time.Minute + 4*time.Second + 56700*time.Nanosecond,
		Doing: "WriteEvents", Done: "Timer"})...)
	f = append(f, tree.Queue(stats.QueueStatistics{Name: "Index Committer"})...)
	return append(f, tree.Queue(stats.QueueStatistics{Name: "StorageReaderQueue #1", Group: "StorageReaderQueue", IdlePercent: 100, Processing: -1})...)
}

func TestGolden(t *testing.T) {
	f := metrics()
	sub, ok := f.Tree().Find([]string{"sys", "Drive"})
	if !ok {
		t.Fatal("sys/Drive was not found")
	}
	for name, got := range map[string][]byte{
		"flat.json":          f.AppendFlatJSON(nil, false),
		"flat_metadata.json": f.AppendFlatJSON(nil, true),
		"tree.json":          f.Tree().AppendJSON(nil, false),
		"tree_metadata.json": f.Tree().AppendJSON(nil, true),
		"tree.xml":           f.Tree().AppendXML(nil, false),
		"tree_metadata.xml":  f.Tree().AppendXML(nil, true),
		"drive.json":         sub.AppendJSON(nil, false),
		"drive.xml":          sub.AppendXML(nil, false),
	} {
		t.Run(name, func(t *testing.T) {
			if strings.HasSuffix(name, "xml") {
				wellFormed(t, got)
			} else if !json.Valid(got) {
				t.Errorf("no JSON: %s", got)
			}
			file := filepath.Join("testdata", name)
			if *update {
				check.Must(t, os.WriteFile(file, got, 0o644))
			}
			want := check.Value(os.ReadFile(file)).Must(t)
			check.Slice(t, got, want)
		})
	}
}

func TestShape(t *testing.T) {
	leaf := func(value int64, path ...string) tree.Statistic { return tree.Statistic{Path: path, Value: value} }
	cases := []struct {
		name             string
		given            tree.Statistics
		flat, nested, as string
	}{
		{"nothing", nil, `{}`, `{}`, ``},
		{"the later one counts", tree.Statistics{leaf(1, "a"), leaf(2, "a")}, `{"a":2}`, `{"a":2}`, `<a>2</a>`},
		{"group after figure", tree.Statistics{leaf(1, "a"), leaf(2, "a", "b")}, `{"a":1,"a-b":2}`, `{"a":{"b":2}}`, `<a><b>2</b></a>`},
		{"figure after group", tree.Statistics{leaf(2, "a", "b"), leaf(1, "a")}, `{"a-b":2,"a":1}`, `{"a":{"b":2}}`, `<a><b>2</b></a>`},
		{"one key in JSON", tree.Statistics{leaf(1, "Ab", "x"), leaf(2, "ab", "y")}, `{"Ab-x":1,"ab-y":2}`, `{"ab":{"x":1,"y":2}}`, `<ab><x>1</x><y>2</y></ab>`},
		{"without a path", tree.Statistics{leaf(1)}, `{"":1}`, `{}`, ``},
		{"capitals", tree.Statistics{leaf(1, "TCPQueue"), leaf(2, "IO"), leaf(3, "FOO bar"), leaf(4, "Ünder")},
			`{"TCPQueue":1,"IO":2,"FOO bar":3,"Ünder":4}`, `{"tcpQueue":1,"io":2,"foo bar":3,"ünder":4}`,
			`<tcpQueue>1</tcpQueue><io>2</io><foo_bar name="foo bar">3</foo_bar><ünder>4</ünder>`},
		{"names", tree.Statistics{leaf(1, ""), leaf(2, "-a"), leaf(3, "1a"), leaf(4, "a:b"), leaf(5, "_a"), leaf(6, "<\"&\x01"), leaf(7, "a-1.b"), leaf(8, "𝔞")},
			`{"":1,"-a":2,"1a":3,"a:b":4,"_a":5,"<\"&\u0001":6,"a-1.b":7,"𝔞":8}`, `{"":1,"-a":2,"1a":3,"a:b":4,"_a":5,"<\"&\u0001":6,"a-1.b":7,"𝔞":8}`,
			`<_ name="">1</_><_a name="-a">2</_a><_1a name="1a">3</_1a><a_b name="a:b">4</a_b><_a>5</_a><____ name="&lt;&#34;&amp;` + "\uFFFD" + `">6</____>` +
				`<a-1.b>7</a-1.b><_ name="𝔞">8</_>`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			check.Equal(t, compact(t, c.given.AppendFlatJSON(nil, true)), c.flat, "flat")
			check.Equal(t, compact(t, c.given.Tree().AppendJSON(nil, true)), c.nested, "nested")
			want := `before<?xml version="1.0" encoding="utf-8"?><Stats>` + c.as + `</Stats>`
			check.Equal(t, string(c.given.Tree().AppendXML([]byte("before"), true)), want, "XML")
		})
	}
}

func TestFind(t *testing.T) {
	root := metrics().Tree()
	for name, c := range map[string]struct {
		path string
		keys string // the first bytes of what is found; empty: not found
	}{
		"root":              {"", `{"proc"`},
		"group":             {"proc/gc", `{"gen0Size"`},
		"either case":       {"PROC/Gc", `{"gen0Size"`},
		"queue by its name": {"es/queue/MainQueue", `{"queueName":"MainQueue"`},
		"queue by its key":  {"es/queue/mainQueue", `{"queueName":"MainQueue"`},
		"with a space":      {"es/queue/index committer", `{"queueName":"Index Committer"`},
		"a figure":          {"proc/mem", ""},
		"below a figure":    {"proc/mem/value", ""},
		"no such key":       {"proc/none", ""},
		"no such group":     {"none/gc", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var path []string
			if c.path != "" {
				path = strings.Split(c.path, "/")
			}
			n, ok := root.Find(path)
			check.MustEqual(t, ok, c.keys != "", "found")
			if ok && !strings.HasPrefix(compact(t, n.AppendJSON(nil, false)), c.keys) {
				t.Errorf("got %s", n.AppendJSON(nil, false))
			}
		})
	}
	exact := tree.Statistics{{Path: []string{"aB", "x"}}, {Path: []string{"ab", "y"}}}.Tree()
	if n, ok := exact.Find([]string{"ab"}); !ok || compact(t, n.AppendJSON(nil, false)) != `{"y":null}` {
		t.Error("the exact key does not come first")
	}
}

func compact(t *testing.T, b []byte) string {
	t.Helper()
	var out bytes.Buffer
	check.Must(t, json.Compact(&out, b), b)
	return out.String()
}

func wellFormed(t *testing.T, b []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(b))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v: %s", err, b)
		}
	}
}

func FuzzForms(f *testing.F) {
	f.Add("proc", "gc", "gen0Size", "text", 1.5)
	f.Add("", "1m", "a:b\x00", "<none>\xff]]>", math.Inf(1))
	f.Add("MainQueue", "mainQueue", "ſ\u2028", "\ufffe", math.Copysign(0, -1))
	f.Fuzz(func(t *testing.T, a, b, c, text string, number float64) {
		about := &tree.About{Category: text, Title: a}
		all := tree.Statistics{
			{Path: []string{a, b}, Value: text, About: about}, {Path: []string{b, c, a}, Value: number, About: about},
			{Path: []string{c}, Value: nil, About: about}, {Path: []string{a}, Value: int64(number)},
		}
		for _, metadata := range []bool{false, true} {
			for _, got := range [][]byte{all.AppendFlatJSON(nil, metadata), all.Tree().AppendJSON(nil, metadata)} {
				if !json.Valid(got) {
					t.Fatalf("no JSON: %s", got)
				}
			}
			wellFormed(t, all.Tree().AppendXML(nil, metadata))
		}
	})
}

func BenchmarkTree(b *testing.B) {
	var all tree.Statistics
	for range 10 {
		all = append(all, metrics()...)
	}
	b.ReportAllocs()
	var dst []byte
	for b.Loop() {
		dst = all.Tree().AppendJSON(dst[:0], false)
	}
}
