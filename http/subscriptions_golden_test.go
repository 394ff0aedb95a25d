package httpapi_test

import (
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/annalsdb/annals/subscription"
)

const (
	competingJSON = "application/vnd.eventstore.competingatom+json"
	competingXML  = "application/vnd.eventstore.competingatom+xml"
)

// TestGoldenMessages compares feeds of messages with files, one per level and type.
func TestGoldenMessages(t *testing.T) {
	n, subs := newSubscriber(t)
	g := subs.define("a b/c", "g<1>")
	types := map[string]string{"json": competingJSON, "xml": competingXML}
	for _, level := range []string{"none", "content", "rich", "body", "pretty", "tryharder"} {
		for short, accept := range types {
			g.messages = someMessages()
			n.golden("messages-"+level+"."+short, "/subscriptions/a%20b%2Fc/g%3C1%3E/20?embed="+level, accept)
		}
	}
	for short, accept := range types {
		n.golden("messages-empty."+short, "/subscriptions/a%20b%2Fc/g%3C1%3E", accept)
	}
}

// busyGroup is a group of which there is something to tell.
func busyGroup(subs *memSubscriptions) {
	g := subs.define("a b/c", "g<1>")
	g.Status, g.PerSecond, g.Total, g.SinceLast = "Behind, OutstandingPageRequest", 12.5, 9_000_000_000, 77
	g.Checkpoint, g.LastKnown, g.ReadBuffer, g.LiveBuffer, g.RetryBuffer, g.Outstanding, g.Parked = 41, 99, 1, 2, 3, 4, 5
	g.Settings.StartFrom, g.Settings.Strategy, g.Settings.ResolveLinks = -1, subscription.Pinned, true
	g.Connections = []subscription.ConnectionInfo{
		{
			From: "10.0.0.1:1234", User: "jane & co", Name: "c<1>", PerSecond: 0.25, Total: 8, SinceLast: 9, AvailableSlots: 10, InFlight: 11,
			Latencies: []subscription.Latency{{Name: "Mean", Value: 1.5}, {Name: "99.9%", Value: 20}},
		},
		{From: "10.0.0.2:1234"},
	}
}

// TestGoldenGroups compares the documents about groups with files.
func TestGoldenGroups(t *testing.T) {
	n, subs := newSubscriber(t)
	for short, accept := range map[string]string{"json": appJSON, "xml": textXML} {
		n.golden("groups-empty."+short, "/subscriptions", accept)
	}
	busyGroup(subs)
	subs.define("a b/c", "quiet")
	subs.define("z", "z")
	for short, accept := range map[string]string{"json": appJSON, "xml": textXML} {
		n.golden("groups."+short, "/subscriptions", accept)
		n.golden("groups-stream."+short, "/subscriptions/z", accept)
		n.golden("groups-page."+short, "/subscriptions?offset=1&count=1", accept)
		n.golden("group-info."+short, "/subscriptions/a%20b%2Fc/g%3C1%3E/info", accept)
		n.golden("group-info-quiet."+short, "/subscriptions/z/z/info", accept)
	}
}

var correlation = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`)

// TestGoldenResults compares all results of commands with a file.
func TestGoldenResults(t *testing.T) {
	var b strings.Builder
	seen := map[string]bool{}
	for _, accept := range []string{appJSON, textXML} {
		n, _ := newSubscriber(t)
		const group = "/subscriptions/a%20b%2Fc/g%3C1%3E"
		for _, c := range []struct{ method, path, body string }{
			{"PUT", group, ""},
			{"PUT", group, ""},
			{"POST", group, "{}"},
			{"PUT", group + "x", `{"namedConsumerStrategy":"<Nearest>"}`},
			{"PUT", group + "x", `{"startFrom":-2}`},
			{"POST", group + "x", ""},
			{"POST", group + "/replayParked", ""},
			{"POST", group + "x/replayParked", ""},
			{"DELETE", group, ""},
			{"DELETE", group, ""},
			{"PUT", "/subscriptions/$all/g", ""},
			{"POST", "/subscriptions/restart", ""},
			{"PUT", group, `{"bufferSize":0}`},
		} {
			a := n.do(c.method, c.path, c.body, admin("Accept", accept, "Content-Type", appJSON))
			b.WriteString(c.method + " " + c.path + " " + c.body + "\n" + http.StatusText(a.status) + "\n")
			for _, k := range []string{"Content-Type", "Location", "Cache-Control"} {
				if v := a.header.Get(k); v != "" {
					b.WriteString(k + ": " + v + "\n")
				}
			}
			for _, id := range correlation.FindAllString(a.body, -1) {
				if seen[id] {
					t.Errorf("%s was used before", id)
				}
				seen[id] = true
			}
			b.WriteString(correlation.ReplaceAllString(a.body, "<guid>") + "\n\n")
		}
	}
	compareFile(t, filepath.Join("testdata", "group-results.txt"), b.String())
}
