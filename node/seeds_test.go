package node

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/network"
)

// TestAskSeed: what a node's address for clients answers becomes ports between nodes, and nothing
// else does.
func TestAskSeed(t *testing.T) {
	const one, two = `{"isAlive":true,"internalTcpIp":"10.0.0.1","internalTcpPort":1112,"internalSecureTcpPort":0}`,
		`{"isAlive":true,"internalTcpIp":"b.example","internalTcpPort":0,"internalSecureTcpPort":1113}`
	cases := []struct {
		name, body string
		status     int
		want       []string
		err        string
	}{
		{"members", `{"members":[` + one + "," + two + `]}`, 200, []string{"10.0.0.1:1112", "b.example:1113"}, ""},
		{"dead member", `{"members":[` + one + "," + strings.Replace(two, "true", "false", 1) + `]}`, 200, []string{"10.0.0.1:1112"}, ""},
		{"all addresses", `{"members":[` + strings.Replace(one, "10.0.0.1", "0.0.0.0", 1) + `]}`, 200, []string{"seed.example:1112"}, ""},
		{"IPv6", `{"members":[` + strings.Replace(one, "10.0.0.1", "fd00::1", 1) + `]}`, 200, []string{"[fd00::1]:1112"}, ""},
		{"no port yet", `{"members":[` + strings.Replace(one, "1112", "0", 1) + `]}`, 200, nil, ""},
		{"begins", "", 503, nil, ""},
		{"no members", `{}`, 200, nil, "names no member"},
		{"no JSON", "<html>", 200, nil, "invalid character"},
		{"not found", "", 404, nil, "404 Not Found"},
		{"redirected", "", 302, nil, "302 Found"},
		{"without end", strings.Repeat(" ", 2<<20), 200, nil, "unexpected end"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/gossip" {
					t.Errorf("asked for %s", r.URL)
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			defer server.Close()
			n := &Node{config: config.Default(), network: network.TCP{}}
			got, err := n.askSeed(t.Context(), server.Listener.Addr().String(), "seed.example")
			if !slices.Equal(got, c.want) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}
