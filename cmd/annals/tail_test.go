package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/check"
)

// TestTailOfNothing: a tail without an event says why it has none, if there is a reason.
func TestTailOfNothing(t *testing.T) {
	node := openNode(t, t.TempDir(), true)
	c := check.Value(client.New(client.Options{Nodes: []string{node}})).Must(t)
	t.Cleanup(c.Close)
	for _, stream := range []string{"full", "deleted", "gone"} {
		check.Must(t, check.Err(c.Append(t.Context(), stream, client.AnyVersion, client.Event{ID: client.NewID(), Type: "T", Data: []byte("{}")})))
	}
	check.Must(t, c.Delete(t.Context(), "deleted", client.AnyVersion))
	check.Must(t, c.Tombstone(t.Context(), "gone", client.AnyVersion))
	for _, test := range []struct {
		stream, flags, stderr string
		code                  int
	}{
		{"nothere", "--from start --to end", "annals: the stream \"nothere\" does not exist\n", 0},
		{"nothere", "--from end --backward", "annals: the stream \"nothere\" does not exist\n", 0},
		{"deleted", "--from start --to end", "annals: the stream \"deleted\" is deleted\n", 0},
		{"gone", "--from start --to end", "annals: the stream \"gone\" is deleted for ever\n", 1},
		{"full", "--from start --to end", "", 0},
		{"full", "--from start --to end --types Other", "", 0},
		{"$all", "--from start --to end --types Other", "", 0},
	} {
		code, stdout, stderr := runLine(append([]string{"tail", test.stream, "--node", node}, strings.Fields(test.flags)...)...)
		if code != test.code || stderr != test.stderr || (stdout != "") != (test.stream == "full" && !strings.Contains(test.flags, "Other")) {
			t.Errorf("%s %s: code %d\n%s%s", test.stream, test.flags, code, stdout, stderr)
		}
	}
}

// TestTailOfNoNode: the one reason is said once.
func TestTailOfNoNode(t *testing.T) {
	const want = "annals: 127.0.0.1:1 refuses the connection: no node listens there\n"
	if code, _, stderr := runLine("tail", "orders", "--node", "http://127.0.0.1:1"); code != 1 || stderr != want {
		t.Errorf("code %d\n%s", code, stderr)
	}
}

// TestTailWithoutDiscovery: a tail continues although the other nodes are not known, and says so.
func TestTailWithoutDiscovery(t *testing.T) {
	_, node := projector(t, map[string]string{"GET /gossip": "403 Forbidden", "GET /streams/orders": "200 event: end\ndata: {}\n\n", "GET /streams/orders/head/backward/1": `{}`})
	code, _, stderr := runLine("tail", "orders", "--node", node)
	if code != 0 || !strings.HasPrefix(stderr, "annals: the other nodes are not known: ") || !strings.Contains(stderr, http.StatusText(http.StatusForbidden)) {
		t.Errorf("code %d\n%s", code, stderr)
	}
}
