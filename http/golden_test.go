package httpapi_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden compares whole answers with files: headers and body of one feed per
// embed level and type, and of one event per type.
func TestGolden(t *testing.T) {
	n := newNode(t)
	levels(n)
	n.batch("k", `[{"eventId":"3f9fad5b-d9cb-469f-a165-70867728950e","eventType":"$>","data":"0@s","metadata":{"l":"<>"}},`+
		`{"eventId":"4f9fad5b-d9cb-469f-a165-70867728950e","eventType":"$>","data":"7@gone \u0026 away"},`+
		`{"eventId":"5f9fad5b-d9cb-469f-a165-70867728950e","eventType":"Ω <\"x\">","data":{"é":"\n","n":1.50}}]`).is(t, 201)
	types := map[string]string{"json": atomJSON, "xml": atomXML}
	for _, level := range []string{"none", "content", "rich", "body", "pretty", "tryharder"} {
		for short, accept := range types {
			n.golden("feed-s-"+level+"."+short, "/streams/s?embed="+level, accept)
			n.golden("feed-k-"+level+"."+short, "/streams/k?embed="+level, accept)
		}
	}
	n.golden("forward.json", "/streams/k/1/forward/1?embed=body", atomJSON)
	n.golden("all-rich.json", "/streams/$all/head/backward/4?embed=rich", atomJSON)
	n.golden("all.xml", "/streams/$all/head/backward/4", atomXML)
	n.golden("filtered.json", "/streams/$all/filtered/head/backward/4?context=streamid&type=prefix&data=k", atomJSON)
	for name, accept := range map[string]string{
		"event.json": appJSON, "event.xml": textXML, "event-entry.json": atomJSON, "event-entry.xml": atomXML,
		"event-event.json": eventJSON, "event-event.xml": "application/vnd.eventstore.event+xml", "event.raw": octets, "event.html": "text/html",
	} {
		n.golden(name, "/streams/k/2?embed=tryharder", accept)
	}
	n.golden("description.json", "/streams/s", streamDesc)
	n.golden("info.json", "/info", appJSON)
}

// golden compares one answer with its file. Elements of the body stand on lines
// of their own there, so that a difference can be read.
func (n *node) golden(name, path, accept string) {
	n.t.Helper()
	a := n.get(path, accept).is(n.t, 200)
	var b strings.Builder
	for _, k := range []string{"Content-Type", "Cache-Control", "ETag", "Vary"} {
		b.WriteString(k + ": " + a.header.Get(k) + "\n")
	}
	b.WriteString("\n" + strings.NewReplacer("><", ">\n<", `,"`, ",\n\"", ",{", ",\n{").Replace(a.body) + "\n")
	file := filepath.Join("testdata", name)
	if *update {
		check.Must(n.t, os.MkdirAll("testdata", 0o755))
		check.Must(n.t, os.WriteFile(file, []byte(b.String()), 0o644))
		return
	}
	want := check.Value(os.ReadFile(file)).Must(n.t)
	check.Equal(n.t, b.String(), string(want), name)
}
