package node_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/node"
)

// rememberedLogins is how many logins a node remembers.
const rememberedLogins = 1000

// TestThousandLogins: so many users are hashed once each, and served from the cache from then on.
func TestThousandLogins(t *testing.T) {
	o := options(t.TempDir())
	o.Config.AllowAnonymousEndpointAccess = true // Looking at the metrics takes no place.
	n := open(t, o)
	login := func(i int) string { return fmt.Sprintf("user-%d", i) }
	each := func(do func(i int)) {
		var workers sync.WaitGroup
		for w := range 8 {
			workers.Go(func() {
				for i := w; i < rememberedLogins; i += 8 {
					do(i)
				}
			})
		}
		workers.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	each(func(i int) {
		body := fmt.Sprintf(`{"loginName":%q,"fullName":"","groups":[],"password":"of %d"}`, login(i), i)
		if status, text := ask(n, "POST", "/users/", body, admin("Content-Type", "application/json")...); status != http.StatusCreated {
			t.Errorf("creation of %s: %d %s", login(i), status, text)
		}
	})
	round := func() {
		each(func(i int) {
			if status, text := ask(n, "GET", "/info", "", as(login(i), fmt.Sprintf("of %d", i))...); status != http.StatusOK {
				t.Errorf("%s: %d %s", login(i), status, text)
			}
		})
	}
	before := logins(t, n)
	round()
	first := logins(t, n)
	if got := first["verified"] - before["verified"]; got != rememberedLogins || first["cached"] != before["cached"] {
		t.Errorf("the first round: %v became %v", before, first)
	}
	round()
	second := logins(t, n)
	if got := second["cached"] - first["cached"]; got != rememberedLogins || second["verified"] != first["verified"] {
		t.Errorf("the second round: %v became %v", first, second)
	}
	if second["refused"] != 0 || second["busy"] != 0 {
		t.Errorf("some were turned away: %v", second)
	}
}

// ask is call for goroutines that are not the test's: what goes wrong is the text.
func ask(n *node.Node, method, path, body string, headers ...string) (int, string) {
	request, err := http.NewRequest(method, "http://"+n.Addr()+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	request.Close = true
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, fmt.Sprint(answer.Header, answer.Body.Close())
}

// logins are the node's counts of logins by their result.
func logins(t *testing.T, n *node.Node) map[string]int {
	t.Helper()
	status, text := call(t, n, "GET", "/metrics", "")
	check.MustEqual(t, status, http.StatusOK, "metrics", text)
	counts := map[string]int{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), `annals_access_logins_total{result="`)
		if !ok {
			continue
		}
		result, value, _ := strings.Cut(rest, `"} `)
		count := check.Value(strconv.ParseFloat(value, 64)).Must(t)
		counts[result] = int(count)
	}
	return counts
}
