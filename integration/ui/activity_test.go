package ui_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/annalsdb/annals/internal/testkit"
)

// TestActivity shows who did what: to operators, filtered by the node, a page at a time,
// and what clients sent as text.
func TestActivity(t *testing.T) {
	n := startNode(t)
	b := newBrowser(t)
	p := b.open(t, n.URL(), "admin", "#/activity")
	p.h1("Activity")
	p.sees("Nothing was changed yet")
	p.clean()

	ask(t, n, "POST", "/users/", `{"loginName":`+quote(markup)+`,"fullName":"f","groups":["$admins"],"password":"changeit"}`)
	refused := func(method, path, login string, status int) {
		t.Helper()
		r, err := n.Do(context.Background(), testkit.Request{Method: method, Path: path, Header: map[string]string{"Authorization": login}})
		if err != nil || r.Status != status {
			t.Fatalf("%s %s: %v, %v", method, path, r, err)
		}
	}
	refused(http.MethodDelete, "/users/"+url.PathEscape(markup)+"x?token=hidden&why="+url.QueryEscape(markup), basic(markup), http.StatusNotFound)
	for i := range 120 {
		ask(t, n, "POST", fmt.Sprintf("/admin/node/priority/%d", i), "", "Authorization", basic("ops"))
	}
	refused(http.MethodPost, "/admin/shutdown", "Basic eDp5", http.StatusUnauthorized)
	rows := func(what string, want int) {
		t.Helper()
		p.await(what, func() error {
			if got := value[int](p, "document.querySelectorAll('table[aria-label=Activity] tbody tr').length"); got != want {
				return fmt.Errorf("%d rows, not %d", got, want)
			}
			return nil
		})
	}
	p.sees("POST /admin/shutdown 401")
	p.sees("POST /admin/node/priority/119 200")
	rows("the newest", 100)
	p.click("button", "Older")
	p.sees("POST /admin/node/priority/0 200")
	p.sees("POST /users/ 201")
	p.sees(markup)
	p.sees("?token=***&why=")
	rows("the older", 23)
	p.clean()
	p.click("button", "Newer")
	rows("the newer", 100)
	p.eval("window.asked = window.fetch; window.fetch = () => Promise.reject(new Error('cut'))")
	p.click("button", "Oldest")
	p.sees("The node cannot be reached.")
	p.eval("window.fetch = window.asked")
	p.click("button", "Oldest")
	p.sees("POST /users/ 201")
	p.sees("POST /admin/node/priority/97 200")
	rows("the oldest", 100)
	p.click("button", "Newest")
	p.sees("POST /admin/shutdown 401")

	p.enter("textbox", "Filter", markup)
	p.sees("1 match, which is all.")
	rows("by login", 1)
	p.fill("textbox", "Filter", "/users")
	p.eval("const s = document.querySelector('form select'); s.value = 'path'; s.dispatchEvent(new Event('change', {bubbles: true}))")
	p.click("button", "Apply")
	p.sees("2 matches, which is all.")
	p.eval("const s = document.querySelector('form select'); s.value = 'nobody'; s.dispatchEvent(new Event('change', {bubbles: true}))")
	p.click("button", "Apply")
	p.sees("1 match, which is all.")
	p.sees("nobody")
	p.clean()
	p.click("button", "Show all")
	rows("all again", 100)
	if value[bool](p, "window.ran === 1") {
		t.Error("what a client sent was run")
	}

	q := b.open(t, n.URL(), "ops", "#/activity")
	q.h1("Activity")
	q.find("table", "Activity")
	q.sees("POST /admin/shutdown 401")
	nobody := b.open(t, n.URL(), "", "#/activity").mayRefuse(401)
	nobody.h1("Activity")
	nobody.find("heading", "Not allowed")
	nobody.clean()
}

// TestActivityAbsent: a node that does not offer it says so.
func TestActivityAbsent(t *testing.T) {
	n := startNode(t)
	p := newBrowser(t).open(t, n.URL(), "admin", "#/")
	p.h1("Overview")
	store := value[string](p, "document.querySelector('script[type=module]').src.replace('main.js', 'store.js')")
	p.goTo("#/activity")
	p.h1("Activity")
	p.eval(fmt.Sprintf("const m = await import(%q); const i = m.info.value; m.info.set({...i, features: {...i.features, activity: false}})", store))
	p.sees("This node does not offer a record of who did what.")
}
