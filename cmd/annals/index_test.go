package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/check"
)

func TestIndex(t *testing.T) {
	node := openNode(t, t.TempDir(), true)
	c := check.Value(client.New(client.Options{Nodes: []string{node}})).Must(t)
	t.Cleanup(c.Close)
	e := client.Event{Type: "Placed", Data: []byte("{}"), Tags: []string{"a", "b"}}
	check.Must(t, check.Err(c.AppendMany(t.Context(), []client.StreamEvent{{Stream: "order-1", Event: e}, {Stream: "order-2", Event: e}})))
	code, stdout, stderr := runLine("index", "--node", node)
	want := `^live: \d+ of \d+ bytes of log\n0 tables, 0 bytes, \d+ bytes in memory\ncategory     1 keys, 2 postings\n` +
		`type         \d+ keys, \d+ postings\ncorrelation  0 keys, 0 postings\ntag          2 keys, 4 postings\nmalformed tags: 0 events\n$`
	if code != 0 || !regexp.MustCompile(want).MatchString(stdout) {
		t.Errorf("code %d\n%s%s", code, stdout, stderr)
	}
	code, stdout, stderr = runLine("index", "--node", node, "--json")
	if code != 0 || !strings.Contains(stdout, `"malformedTags": 0`) {
		t.Errorf("code %d\n%s%s", code, stdout, stderr)
	}
	code, stdout, stderr = runLine("index", "rebuild", "--node", node)
	if code != 0 || !strings.HasSuffix(stdout, " builds its index again\n") {
		t.Errorf("code %d\n%s%s", code, stdout, stderr)
	}
}
