package ui_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/testkit"
)

// TestLongJobs does what people do most, and counts their acts: a click, or typing and Enter.
func TestLongJobs(t *testing.T) {
	n := startNode(t, "--backup-to", t.TempDir())
	for i := range 60 {
		appendTo(t, n, "orders-1", "OrderPlaced", fmt.Sprintf(`{"n":%d,"total":9223372036854775807}`, i))
	}
	ask(t, n, "POST", "/streams/orders-2", `[{"eventId":"00000000-0000-4000-8000-000000000001","eventType":"Asked","data":{},"metadata":{"$correlationId":"c1"}},
		{"eventId":"00000000-0000-4000-8000-000000000002","eventType":"Answered","data":{},"metadata":{"$correlationId":"c1","$causationId":"00000000-0000-4000-8000-000000000001"}}]`, "Content-Type", "application/vnd.eventstore.events+json")
	b := newBrowser(t)
	job := func(name string, most int, f func(t *testing.T, p *tab)) {
		t.Run(name, func(t *testing.T) {
			p := b.open(t, n.URL(), "admin", "#/")
			p.h1("Overview")
			f(t, p)
			if p.acts > most {
				t.Errorf("it took %d acts, at most %d are wanted", p.acts, most)
			}
		})
	}
	job("is all well", 0, func(_ *testing.T, p *tab) {
		p.find("region", "What needs you")
		p.sees("passwords: the default password still lets in")
	})
	job("find a stream", 1, func(_ *testing.T, p *tab) {
		p.enter("searchbox", "Go to stream or event", "orders-1")
		p.h1("orders-1")
		p.find("link", "59@orders-1")
	})
	job("an event by the search box", 1, func(_ *testing.T, p *tab) {
		p.enter("searchbox", "Go to stream or event", "7@orders-1")
		p.h1("7@orders-1")
		p.find("tree", "Data")
		p.sees("9223372036854775807")
	})
	job("go to a number", 2, func(_ *testing.T, p *tab) {
		p.enter("searchbox", "Go to stream or event", "orders-1")
		p.h1("orders-1")
		p.enter("textbox", "Go to number or time", "17")
		p.none("link", "59@orders-1")
		p.find("link", "17@orders-1")
		p.enter("textbox", "Go to number or time", "00:00")
		p.acts-- // The second of two ways.
		p.find("link", "0@orders-1")
	})
	job("what is in it and what followed", 3, func(_ *testing.T, p *tab) {
		p.goTo("#/streams/orders-2")
		p.click("link", "1@orders-2")
		p.h1("1@orders-2")
		p.click("link", "Correlation")
		p.h1("Correlation")
		p.find("image", "Correlation graph")
		p.find("tree", "Events")
		p.sees("2 events")
	})
	job("watch what arrives", 2, func(t *testing.T, p *tab) {
		p.enter("searchbox", "Go to stream or event", "orders-3")
		p.mayRefuse(404).h1("orders-3")
		p.click("button", "Live")
		p.sees("Live 0 events")
		appendTo(t, n, "orders-3", "Arrived", `{}`)
		p.find("link", "0@orders-3")
	})
	job("repeat an event with a change", 4, func(_ *testing.T, p *tab) {
		p.enter("searchbox", "Go to stream or event", "3@orders-1")
		p.h1("3@orders-1")
		p.click("link", "Append like this")
		p.holds("textbox", "Data", "9223372036854775807")
		p.fill("textbox", "Data", `{"n":3,"total":9223372036854775806}`)
		p.acts++
		p.click("button", "Append")
		p.find("link", "60@orders-1")
		p.sees("Written as 60@orders-1.")
	})
	job("a projection", 3, func(_ *testing.T, p *tab) {
		p.goTo("#/projections/new")
		p.h1("New projection")
		p.fill("textbox", "Name", "counter")
		p.click("button", "Preview")
		p.sees("Done:")
		p.click("button", "Create")
		p.h1("counter")
		p.goTo("#/projections/%24by_category/edit") // Its source has the line ends of others.
		p.find("button", "Preview")
		p.find("textbox", "Source")
		p.none("region", "Difference")
	})
	job("repair a projection", 3, func(t *testing.T, p *tab) {
		ask(t, n, "POST", "/projections/continuous?name=totals&enabled=yes&type=JS", `fromStream('orders-1').when({$any(s, e) { s.total.wrong.way }})`)
		p.goTo("#/projections/totals")
		p.sees("Faulted")
		p.click("link", "Edit")
		p.h1("Edit totals")
		p.fill("textbox", "Source", `fromStream('orders-1').when({$init() { return {n: 0} }, $any(s) { s.n++ }}) // `)
		p.find("region", "Difference")
		p.click("button", "Preview")
		p.sees("Done:")
		p.sees("n: 6")
		p.click("button", "Save")
		p.h1("totals")
	})
	job("see what would be freed", 1, func(_ *testing.T, p *tab) {
		p.goTo("#/scavenge")
		p.click("button", "Dry run")
		p.find("region", "Estimate")
		p.find("image", "Space by stream")
	})
	job("free space", 2, func(_ *testing.T, p *tab) {
		p.goTo("#/scavenge")
		p.click("button", "Start")
		p.find("dialog", "Start")
		p.sees("None has run since this node was started.")
		p.click("button", "Start")
		p.none("dialog", "Start")
		p.sees("Success")
	})
	job("make a backup", 2, func(_ *testing.T, p *tab) {
		p.goTo("#/backup")
		p.click("button", "Back up now")
		p.sees("The last one Success")
		p.find("table", "Backups")
	})
	job("who did what", 2, func(_ *testing.T, p *tab) {
		p.click("link", "Activity")
		p.sees("POST /admin/backup")
	})
	job("who is there", 2, func(_ *testing.T, p *tab) {
		p.click("link", "Users")
		p.click("link", "ops")
		p.h1("ops")
		p.find("button", "Reset password")
	})
	job("who may do what", 2, func(_ *testing.T, p *tab) {
		p.goTo("#/streams/orders-1")
		p.click("link", "Access and limits")
		p.fill("textbox", "Read", "ops")
		p.fill("textbox", "Keep at most", "1000")
		p.click("button", "Save")
		p.sees("Saved.")
		p.find("button", "▸ 0") // The version that was written is there, and the word still is.
		p.stays("Saved.")
		p.fill("textbox", "Keep at most", "1001")
		p.none("StaticText", "Saved.")
	})
}

// TestLateAnswer has the answer to where a time lies come when its page was left: it leads nowhere.
func TestLateAnswer(t *testing.T) {
	n := startNode(t)
	appendTo(t, n, "orders-1", "OrderPlaced", "{}")
	appendTo(t, n, "orders-2", "OrderPlaced", "{}")
	p := newBrowser(t).open(t, n.URL(), "admin", "#/streams/orders-1")
	p.find("link", "0@orders-1")
	p.eval(`const get = window.fetch, wait = new Promise((done) => (window.release = done));
		window.fetch = async (...all) => { const r = await get(...all); if (String(all[0]).includes("/at/")) { window.held = true; await wait } return r }`)
	p.enter("textbox", "Go to number or time", "00:00")
	p.await("the question", func() error {
		if !value[bool](p, "window.held === true") {
			return errors.New("it is not asked")
		}
		return nil
	})
	p.goTo("#/streams/orders-2")
	p.find("link", "0@orders-2")
	p.eval("window.release(); await new Promise((done) => setTimeout(done, 200))")
	if got := value[string](p, "location.hash"); got != "#/streams/orders-2" {
		t.Errorf("the page is %s", got)
	}
}

// TestConflict shows the present version when the expected one is wrong.
func TestConflict(t *testing.T) {
	n := startNode(t)
	appendTo(t, n, "a", "T", `{}`)
	p := newBrowser(t).open(t, n.URL(), "admin", "#/streams/a/append").mayRefuse(400)
	p.fill("textbox", "Event type", "T")
	p.fill("textbox", "Expected version", "7")
	p.click("button", "Append")
	p.sees("Wrong expected version")
	p.click("button", "Expect 0")
	p.click("button", "Append")
	p.sees("Written as 1@a.")
	p.fill("textbox", "Data", `{"a":}`)
	p.sees("Line 1, column 6: A value was expected here.")
}

// TestSeveral appends to two streams at once, with a check on each. Nothing is written while one of
// them does not hold.
func TestSeveral(t *testing.T) {
	n := startNode(t)
	appendTo(t, n, "b", "T", `{}`)
	p := newBrowser(t).open(t, n.URL(), "admin", "#/streams/a/append").mayRefuse(409)
	p.fill("textbox", "Event type", "T")
	p.fill("textbox", "Expected version", "-1")
	p.click("button", "One more event")
	p.fill("textbox", "Stream 2", "b")
	p.fill("textbox", "Expected version 2", "7")
	p.click("button", "Append")
	p.sees("Nothing was written.")
	p.sees("The stream is at 0 now.")
	p.clean()
	p.fill("textbox", "Expected version 2", "0")
	p.click("button", "Append")
	p.sees("Written as 0@a, 1@b.")
}

// TestDelete deletes a stream softly, makes it again, and deletes it for ever.
func TestDelete(t *testing.T) {
	n := startNode(t)
	appendTo(t, n, "gone", "T", `{}`)
	p := newBrowser(t).open(t, n.URL(), "admin", "#/streams/gone").mayRefuse(404, 410)
	p.click("button", "Delete stream")
	p.find("dialog", "Delete stream")
	p.sees("All events up to number 0 of gone can no longer be read. An append makes the stream again, and its numbers go on from 1.")
	p.click("button", "Delete stream")
	p.sees("Stream not found. It was deleted, and an append makes it again: its next event is number 1.")
	p.none("button", "Delete stream")
	appendTo(t, n, "gone", "T", `{}`)
	p.goTo("#/streams")
	p.goTo("#/streams/gone")
	p.click("button", "Delete stream")
	p.click("checkbox", "For ever")
	p.fill("textbox", "Type gone to go on", "gone")
	p.click("button", "Delete stream")
	p.sees("Stream deleted.")
	for _, name := range []string{"Live", "Newest", "Go", "Delete stream"} {
		p.none("button", name)
	}
	p.none("link", "Append event")
	p.clean()
	p.goTo("#/streams/gone/0")
	p.h1("0@gone")
	p.sees("Stream deleted.")
	p.none("link", "Next event")
}

// TestSignIn signs in and out, and looks around without.
func TestSignIn(t *testing.T) {
	n := startNode(t)
	p := newBrowser(t).open(t, n.URL(), "nobody yet", "#/streams/a").mayRefuse(401, 404)
	p.h1("Sign in")
	p.fill("textbox", "Login", "admin")
	p.enter("textbox", "Password", "wrong")
	p.sees("Wrong login or password.")
	p.enter("textbox", "Password", "changeit")
	p.h1("a")
	p.click("button", "Theme")
	p.click("menuitemradio", "Dark")
	p.await("dark", func() error {
		if got := value[string](p, "document.documentElement.dataset.theme"); got != "dark" {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	p.sees("Local")
	p.click("button", "Time zone")
	p.sees("UTC")
	p.click("button", "Account")
	p.click("menuitem", "Account")
	p.h1("Account")
	p.click("button", "Account")
	p.click("menuitem", "Sign out")
	p.h1("Sign in")
	p.click("link", "Look around without signing in")
	p.h1("Overview")
	p.goTo("#/users")
	p.find("heading", "Not allowed")
	if got := value[int](p, "document.cookie.length + Object.values(localStorage).join('').includes('changeit')"); got != 0 {
		t.Error("there is a cookie or a password in localStorage")
	}
}

// TestSearch says how far it looked when it is done, and when it stops at a full page.
func TestSearch(t *testing.T) {
	n := startNode(t)
	for i := range 120 {
		appendTo(t, n, "orders-1", "OrderPlaced", fmt.Sprintf(`{"n":"<%d>"}`, i))
	}
	p := newBrowser(t).open(t, n.URL(), "admin", "#/search")
	p.fill("textbox", "Stream begins with", "orders-")
	p.fill("textbox", "Text", "<7>")
	p.click("button", "Search")
	p.sees("1 match; looked at ")
	p.sees(", back to the start, which is all.")
	p.fill("textbox", "Text", "")
	p.click("button", "Search")
	p.sees("100 matches; looked at ")
	p.sees(", back to 2")
	p.click("button", "Look further")
	p.sees("120 matches; looked at ")
	p.sees(", back to the start, which is all.")
	p.fill("textbox", "Stream begins with", "")
	p.fill("textbox", "In one stream", "orders-1")
	p.click("button", "Search")
	p.click("button", "Look further")
	p.sees("120 matches; looked at 120 events, back to the start, which is all.")
	p.clean()
}

// TestFind finds events by their tags, follows those that come, and binds an append to what was
// found.
func TestFind(t *testing.T) {
	n := startNode(t)
	write := func(stream, seat string) {
		t.Helper()
		ask(t, n, "POST", "/streams/"+stream, fmt.Sprintf(`[{"eventId":"00000000-0000-4000-8000-0000000000%s","eventType":"SeatTaken","data":{},"metadata":{"$tags":["show:7","seat:%s"]}}]`, seat, seat),
			"Content-Type", "application/vnd.eventstore.events+json")
	}
	write("show-7", "11")
	write("show-7", "12")
	p := newBrowser(t).open(t, n.URL(), "admin", "#/search?by=index").mayRefuse(409)
	p.enter("textbox", "Tags", "show:7")
	p.find("button", "Remove show:7")
	p.enter("textbox", "Types", "SeatTaken")
	p.click("button", "Find")
	p.sees("2 events, up to position ")
	p.click("button", "Live")
	write("show-7", "13")
	p.sees("3 events, up to position ")
	p.click("button", "Or")
	p.enter("textbox", "Tags 2", "nobody has it")
	p.enter("textbox", "Tags", "seat:12")
	p.click("button", "Find")
	p.sees("1 event, up to position ")
	p.click("link", "1@show-7")
	p.click("link", "seat:12")
	p.h1("$idx-tag-seat:12")
	p.find("link", "1@show-7")
	p.goTo("#/streams/show-7/append")
	p.fill("textbox", "Event type", "SeatTaken")
	p.eval("document.querySelector('details').open = true")
	p.fill("textbox", "Condition", `{"failIfEventsMatch":{"items":[{"tags":["seat:12"]}]}}`)
	p.click("button", "Append")
	p.sees("Nothing was written.")
	p.click("link", "1@show-7")
	p.h1("1@show-7")
	p.clean()
}

// TestUsers creates a user, changes it and deletes it.
func TestUsers(t *testing.T) {
	n := startNode(t)
	b := newBrowser(t)
	p := b.open(t, n.URL(), "admin", "#/users").mayRefuse(404)
	p.click("link", "New user")
	p.h1("New user")
	p.fill("textbox", "Login", "jane")
	p.fill("textbox", "Full name", "Jane")
	p.fill("textbox", "Groups", "$ops, staff")
	p.fill("textbox", "Password", "secret")
	p.click("button", "Create")
	p.h1("jane")
	for _, verb := range []string{"Disable", "Enable"} {
		p.click("button", verb)
		p.find("dialog", verb)
		p.click("button", verb)
		p.none("dialog", verb)
	}
	p.fill("textbox", "Full name", "Jane Doe")
	p.click("button", "Save")
	p.stays("Saved.")
	p.click("button", "Reset password")
	p.fill("textbox", "New password", "other")
	p.click("button", "Reset password")
	p.none("dialog", "Reset password")
	p.none("StaticText", "Saved.")
	p.click("button", "Delete user")
	p.fill("textbox", "Type jane to go on", "jane")
	p.click("button", "Delete user")
	p.h1("Users")
	p.none("link", "jane")

	ops := b.open(t, n.URL(), "ops", "#/users").mayRefuse(401)
	ops.find("heading", "Not allowed")
	ops.none("link", "New user")
}

// TestSubscriptions creates a group, parks a message, looks at it and replays it.
func TestSubscriptions(t *testing.T) {
	n := startNode(t)
	appendTo(t, n, "s", "T", `{"a":1}`)
	p := newBrowser(t).open(t, n.URL(), "admin", "#/subscriptions")
	p.click("link", "New subscription")
	p.fill("textbox", "Stream", "s")
	p.fill("textbox", "Group", "g")
	p.click("button", "Create")
	p.h1("g")
	ids := ask(t, n, "GET", "/subscriptions/s/g/1?embed=rich", "", "Accept", "application/vnd.eventstore.competingatom+json")
	_, id, _ := strings.Cut(ids, `nack/`)
	ask(t, n, "POST", "/subscriptions/s/g/nack/"+id[:36]+"?action=park", "")
	p.click("link", "Parked messages")
	p.find("table", "Parked messages")
	p.click("button", "Look at 0")
	p.find("tree", "Data")
	p.click("button", "Replay all")
	p.find("dialog", "Replay all")
	p.click("button", "Replay")
	p.sees("No message is parked.")
	p.goTo("#/subscriptions/s/g")
	p.click("button", "Delete subscription")
	p.find("dialog", "Delete subscription")
	p.click("button", "Delete subscription")
	p.h1("Subscriptions")
}

// TestOverview names a projection that has faulted once, though the node's own examination has it
// too.
func TestOverview(t *testing.T) {
	n := startNode(t)
	appendTo(t, n, "s", "T", `{}`)
	ask(t, n, "POST", "/projections/continuous?name=broken&enabled=yes&emit=no", `fromAll().when({ $any() { throw new Error("no"); } })`)
	testkit.Eventually(t, settleLimit, func() error {
		if got := ask(t, n, "GET", "/admin/doctor", ""); !strings.Contains(got, "broken has faulted") {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
	p := newBrowser(t).open(t, n.URL(), "admin", "#/")
	p.sees("Projection broken has faulted")
	p.sees("passwords") // What the node says of itself is there.
	p.await("one line", func() error {
		if got := value[int](p, `[...document.querySelectorAll(".needs li")].filter((l) => l.innerText.includes("broken")).length`); got != 1 {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

// stays waits for a text, and fails the test if what the page still reads takes it away.
func (p *tab) stays(text string) {
	p.t.Helper()
	p.sees(text)
	for range 20 {
		p.eval("await new Promise((resolve) => setTimeout(resolve, 100))")
		if !strings.Contains(value[string](p, "document.body.innerText"), text) {
			p.t.Fatalf("%q has gone", text)
		}
	}
}

// TestOwnFirst hides streams of the system, and lists them after all others when they are asked
// for.
func TestOwnFirst(t *testing.T) {
	n := startNode(t)
	for _, name := range []string{"#first", "orders-1", "zebra", "$own"} {
		appendTo(t, n, name, "T", `{}`)
	}
	p := newBrowser(t).open(t, n.URL(), "admin", "#/streams")
	const names = "[...document.querySelectorAll('main tbody td.name:first-child')].map((c) => c.innerText)"
	for _, tab := range []string{"Recently changed", "Recently created", "All streams"} {
		p.click("tab", tab)
		p.await(tab+" without those of the system", func() error {
			got := value[[]string](p, names)
			if slices.Sort(got); !slices.Equal(got, []string{"#first", "orders-1", "zebra"}) {
				return fmt.Errorf("%q", got)
			}
			return nil
		})
		p.sees("hidden")
	}
	p.click("checkbox", "System streams")
	for _, tab := range []string{"Recently changed", "Recently created", "All streams"} {
		p.click("tab", tab)
		p.await(tab, func() error {
			got := value[[]string](p, names)
			if len(got) < 4 || !slices.Contains(got, "$own") || !slices.Contains(got, "zebra") {
				return fmt.Errorf("%q", got)
			}
			slices.Sort(got[:3])
			if !slices.Equal(got[:3], []string{"#first", "orders-1", "zebra"}) {
				return fmt.Errorf("%q", got)
			}
			if i := slices.IndexFunc(got, func(s string) bool { return strings.HasPrefix(s, "$") }); i != 3 {
				return fmt.Errorf("%q", got)
			}
			return nil
		})
	}
	p.check()
	if got := value[[]string](p, names); len(slices.Compact(slices.Sorted(slices.Values(got)))) != len(got) {
		t.Errorf("a stream is there twice: %q", got)
	}
}

// TestDialogsFit opens dialogs from tables, wide and narrow: everything in a dialog is inside its
// frame.
func TestDialogsFit(t *testing.T) {
	n := startNode(t)
	p := newBrowser(t).open(t, n.URL(), "admin", "#/cluster")
	for _, width := range []int64{1280, 320} {
		p.width(width)
		for _, name := range []string{"Shut down " + strings.TrimPrefix(n.URL(), "http://"), "Resign"} {
			p.click("button", name)
			p.find("dialog", name)
			p.picture(fmt.Sprintf("%d %s", width, name[:4]))
			if got := value[string](p, `(() => { const d = document.querySelector("dialog"), b = d.getBoundingClientRect(), p = [...d.querySelectorAll("*")].find((e) => e.getBoundingClientRect().right > b.right); return d.scrollWidth > d.clientWidth || b.right > innerWidth || p ? d.innerText + b.right : "" })()`); got != "" {
				t.Errorf("in a window of %d: %s does not fit: %s", width, name, got)
			}
			p.click("button", "Cancel")
			p.none("dialog", name)
		}
	}
}
