package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/check"
)

func TestQuery(t *testing.T) {
	node := openNode(t, t.TempDir(), true)
	c := check.Value(client.New(client.Options{Nodes: []string{node}})).Must(t)
	t.Cleanup(c.Close)
	seat := func(kind, data string, binary bool) client.StreamEvent {
		return client.StreamEvent{Stream: "show-7", Event: client.Event{Type: kind, Data: []byte(data), Binary: binary, Tags: []string{"seat:12", "show:7"}}}
	}
	// Of two that have seen nothing, not even a position, one succeeds.
	empty := check.Value(c.Query(t.Context(), client.Query{All: true}, client.QueryOptions{})).Must(t)
	unchanged := client.Condition{Query: client.Query{All: true}, After: empty.Position}
	first := []client.StreamEvent{{Stream: "first", Event: client.Event{Type: "T", Data: []byte("{}")}}}
	check.Must(t, check.Err(c.AppendMany(t.Context(), first, unchanged)))
	if _, err := c.AppendMany(t.Context(), first, unchanged); !errors.Is(err, client.ErrWrongVersion) {
		t.Errorf("written after %v", empty.Position)
	}
	done := check.Value(c.AppendMany(t.Context(), []client.StreamEvent{
		seat("Taken", `{"by":"<ann>"}`, false), seat("Freed", "\x00", true), seat("Taken", `{"by":"bob"}`, false),
	})).Must(t)
	last := fmt.Sprintf("position %d\n", done.Position)
	// Positions and times are not the same each time.
	moving := regexp.MustCompile(`\d+  \d{4}-\S+Z  `)
	const taken, freed, again = "0@show-7  Taken  {\"by\":\"<ann>\"}\n", "1@show-7  Freed  1 bytes\n", "2@show-7  Taken  {\"by\":\"bob\"}\n"
	for _, test := range []struct {
		flags, want string
		code        int
	}{
		{"--tags seat:12,show:7", taken + freed + again + last, 0},
		{"--types Taken --categories show", taken + again + last, 0},
		{"--streams show-7 --backward --limit 2", again + freed + last, 0},
		{fmt.Sprintf("--types Taken --after %d", done.Position), last, 0},
		{"--correlation none", last, 0},
		{"--types Taken --follow --limit 2", taken + again, 0},
		{"", "say which events: --types, --tags, --categories, --streams or --correlation", 2},
		{"--types A --limit -1", "--limit and --after are not negative", 2},
		{"--types A --follow --backward", "--follow excludes --backward and --explain", 2},
		{"--types Freed,None --tags seat:12 --explain", freed + "type Freed: 1 postings read\ntype None: 0 postings read\ntag seat:12: 2 postings read\n1 events looked at\n" + last, 0},
		{"--types A --after 9000000000", "lies beyond the end of the log", 1},
	} {
		code, stdout, stderr := runLine(append([]string{"query", "--node", node}, strings.Fields(test.flags)...)...)
		got := moving.ReplaceAllString(stdout, "")
		if code != test.code || code == 0 && (got != test.want || stderr != "") || !strings.Contains(got+stderr, test.want) {
			t.Errorf("%s: code %d\n%s%s", test.flags, code, stdout, stderr)
		}
	}
	code, stdout, _ := runLine("query", "--node", node, "--types", "Taken", "--limit", "1", "--json")
	want := regexp.MustCompile(`^\{"position":\d+,"stream":"show-7","number":0,"eventId":"[^"]{36}","eventType":"Taken","created":"[^"]+","isJson":true,` +
		`"data":\{"by":"<ann>"\},"metadata":\{"\$tags":\["seat:12","show:7"\]\},"tags":\["seat:12","show:7"\]\}` + "\n" + `\{"position":\d+\}` + "\n$")
	if code != 0 || !want.MatchString(stdout) {
		t.Errorf("code %d\n%s", code, stdout)
	}
}
