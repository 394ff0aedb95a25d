package httpapi_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

// Each request that holds something is bounded, says what by, and gives back what it held.
func TestRequestsHaveShares(t *testing.T) {
	for name, c := range map[string]struct {
		kind   api.Kind
		ask    func(n *node) answer
		status int // where there is a share
		text   string
	}{
		"live tail": {api.Tail, func(n *node) answer { return ended(n, "/streams/s?from=start&to=0") }, 200, "Too many live connections: "},
		"live tail of the log": {api.Tail, func(n *node) answer { return ended(n, "/streams/$all?from=start&limit=1") }, 200,
			"Too many live connections: "},
		"filter": {api.Scan, func(n *node) answer { return ended(n, "/streams/$all?from=start&to=end&types=none") }, 200,
			"Too many filters look through old events: "},
		"filtered page": {api.Search, func(n *node) answer {
			return n.do("GET", "/streams/$all/filtered/head/backward/5?context=streamid&type=prefix&data=x", "", admin("Accept", appJSON))
		}, 200, "Too many filtered reads: "},
		"query": {api.Query, func(n *node) answer {
			return n.do("POST", "/projections/transient?name=q", "Q", admin("Content-Type", "application/json"))
		}, 201, "Too many transient queries: "},
		"long poll": {api.Poll, func(n *node) answer {
			return n.do("GET", "/streams/s/1/forward/5", "", admin("Accept", appJSON, "ES-LongPoll", "1"))
		}, 200, "Too many long polls: "},
		"long poll of the log": {api.Poll, func(n *node) answer {
			return n.do("GET", "/streams/$all/head/forward/5", "", admin("Accept", appJSON, "ES-LongPoll", "1"))
		}, 200, "Too many long polls: "},
	} {
		synctest.Test(t, func(t *testing.T) {
			shares := api.NewShares(api.SharesOptions{})
			n, _ := newProjector(t, func(o *httpapi.Options) { o.Shares = shares })
			n.filled("s", 1)
			if a := c.ask(n); a.status != c.status {
				t.Errorf("%s: %d %s", name, a.status, a.body)
			}
			want := 0
			if c.kind == api.Query { // Until it is gone.
				want = 1
			}
			check.Equal(t, shares.Held(c.kind), want, name, "are still held")
			for {
				if _, err := shares.Take(c.kind, access.Principal{Login: access.LoginAdmin}, "10.0.0.1:1"); err != nil {
					break
				}
			}
			a := c.ask(n)
			if a.status != 503 || a.header.Get("Retry-After") == "" || !strings.HasPrefix(a.body, c.text) {
				t.Errorf("%s: %d %q", name, a.status, a.body)
			}
		})
	}
}

// ended is the answer of a live tail that ends by itself.
func ended(n *node, path string) answer {
	d := n.tail(path)
	<-d.done
	return answer{d.status, d.header, d.text.String(), false}
}
