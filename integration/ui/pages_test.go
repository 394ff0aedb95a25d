package ui_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/internal/testkit"
)

func basic(login string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(login+":changeit"))
}

// startNode starts a node with projections and some data.
func startNode(t *testing.T, options ...string) *testkit.Process {
	t.Helper()
	n := testkit.StartNode(t, t.TempDir(), append([]string{"--run-projections=All", "--start-standard-projections"}, options...)...)
	return n
}

// node is one that answers: a process, or a client of another.
type node interface {
	Do(context.Context, testkit.Request) (testkit.Response, error)
}

// ask makes a request as admin and wants a success.
func ask(t *testing.T, n node, method, path, body string, header ...string) string {
	t.Helper()
	h := map[string]string{"Authorization": basic("admin"), "Content-Type": "application/json"}
	for i := 0; i < len(header); i += 2 {
		h[header[i]] = header[i+1]
	}
	var text string
	testkit.Eventually(t, settleLimit, func() error {
		r, err := n.Do(context.Background(), testkit.Request{Method: method, Path: path, Body: []byte(body), Header: h})
		if err == nil && (r.Status >= 500 || r.Status == http.StatusRequestTimeout) {
			err = fmt.Errorf("%d %s", r.Status, r.Body)
		}
		if err == nil && r.Status >= 300 {
			t.Fatalf("%s %s: %d %s", method, path, r.Status, r.Body)
		}
		text = string(r.Body)
		return err
	})
	return text
}

// appendTo appends one event.
func appendTo(t *testing.T, n *testkit.Process, stream, eventType, data string) {
	t.Helper()
	ask(t, n, "POST", "/streams/"+address(stream)[2:], data, "ES-EventType", eventType, "ES-EventId", uuid.NewString())
}

// TestPages opens every page.
func TestPages(t *testing.T) { openPages(t, []string{"admin"}, "Light") }

// TestLongPages opens every page in both themes as each kind of user.
func TestLongPages(t *testing.T) { openPages(t, []string{"admin", "ops", ""}, "Light", "Dark") }

func openPages(t *testing.T, logins []string, themes ...string) {
	t.Helper()
	n := startNode(t)
	for i := range 30 {
		appendTo(t, n, "orders-1", "OrderPlaced", fmt.Sprintf(`{"n":%d,"total":9223372036854775807,"items":[{"sku":"a"},{"sku":"b"}]}`, i))
	}
	ask(t, n, "PUT", "/subscriptions/orders-1/mail", `{"startFrom":0}`)
	b := newBrowser(t)
	pages := []struct{ hash, h1 string }{
		{"#/", "Overview"}, {"#/streams", "Streams"}, {"#/streams/orders-1", "orders-1"}, {"#/streams/orders-1/3", "3@orders-1"}, {"#/streams/orders-1/append", "Append event"}, {"#/streams/orders-1/metadata", "Access and limits"},
		{"#/streams/%24all", "$all"}, {"#/correlation/none", "Correlation"}, {"#/search", "Search"}, {"#/search?by=index&run=1&q=" + url.QueryEscape(`{"items":[{"types":["OrderPlaced","OrderPaid"],"categories":["orders"]},{"tags":["a"]}]}`), "Search"},
		{"#/streams?tab=categories", "Streams"}, {"#/streams?tab=types", "Streams"}, {"#/streams/%24idx-ce-orders", "$idx-ce-orders"}, {"#/subscriptions", "Subscriptions"}, {"#/subscriptions/new", "New subscription"}, {"#/subscriptions/orders-1/mail", "mail"},
		{"#/subscriptions/orders-1/mail/edit", "Edit mail"}, {"#/subscriptions/orders-1/mail/parked", "Parked messages"}, {"#/projections", "Projections"}, {"#/projections/new", "New projection"}, {"#/projections/%24by_category", "$by_category"}, {"#/projections/%24by_category/edit", "Edit $by_category"},
		{"#/query", "Query"}, {"#/cluster", "Cluster"}, {"#/stats", "Statistics"}, {"#/options", "Options"}, {"#/scavenge", "Scavenge"}, {"#/backup", "Backup"}, {"#/activity", "Activity"}, {"#/users", "Users"}, {"#/users/new", "New user"}, {"#/users/ops", "ops"}, {"#/account", "Account"}, {"#/nonsense", "Not found"},
	}
	for _, login := range logins {
		for _, theme := range themes {
			t.Run(login+theme, func(t *testing.T) {
				p := b.open(t, n.URL(), login, "#/").mayRefuse(404)
				if login != "admin" {
					p.mayRefuse(401)
				}
				p.theme(theme)
				for _, c := range pages {
					began := time.Now()
					p.goTo(c.hash)
					p.h1(c.h1)
					p.picture(login + theme + " " + c.hash[1:])
					if login == "admin" {
						p.fits(theme + " " + c.hash[1:])
					}
					if d := time.Since(began); d > 2*time.Second {
						t.Logf("%s took %v", c.hash, d)
					}
					p.clean()
					p.check()
				}
			})
		}
	}
}
