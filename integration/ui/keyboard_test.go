package ui_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// TestKeyboard presses the keys that work on every page.
func TestKeyboard(t *testing.T) {
	n := startNode(t)
	for i := range 45 {
		appendTo(t, n, "orders-1", "OrderPlaced", fmt.Sprintf(`{"n":%d}`, i))
	}
	p := newBrowser(t).open(t, n.URL(), "admin", "#/")
	p.width(1280) // The height of the window says how many rows a page has.
	p.h1("Overview")
	// A page takes the focus at once: later it would take it from a field that is typed into.
	p.eval(`window.late = []; let seen = document.querySelector('h1'); new MutationObserver(() => {
		const h = document.querySelector('h1');
		if (h && h !== seen && document.activeElement !== h) window.late.push(h.innerText);
		seen = h;
	}).observe(document.body, {childList: true, subtree: true})`)
	for _, c := range []struct{ key, h1 string }{{"f", "Search"}, {"u", "Subscriptions"}, {"p", "Projections"}, {"m", "Cluster"}, {"c", "Scavenge"}, {"a", "Activity"}, {"o", "Overview"}, {"s", "Streams"}} {
		p.keys("g" + c.key)
		p.h1(c.h1)
		p.focused("h1")
	}
	if late := value[string](p, "window.late.join()"); late != "" {
		t.Errorf("these pages are there before they have the focus: %s", late)
	}
	p.keys("/")
	p.focused("#search")
	p.keys("gs?" + kb.Escape) // Typed, since a field has the focus; Esc leaves it.
	p.h1("Streams")
	p.none("dialog", "Keyboard shortcuts")
	p.focused("body")
	p.keys("/orders-1" + kb.Enter)
	p.h1("orders-1")
	p.focused("h1")
	p.find("link", "44@orders-1")
	p.keys("[")
	p.find("link", "24@orders-1")
	p.none("link", "44@orders-1")
	p.keys("]")
	p.find("link", "44@orders-1")
	p.keys("e")
	p.find("link", "0@orders-1")
	p.none("link", "44@orders-1")
	p.keys("n")
	p.find("link", "44@orders-1")
	p.none("link", "0@orders-1")
	p.keys("c")
	p.sees("Copied.")
	p.keys("jjjk" + kb.Enter)
	p.find("tree", "Data")
	p.sees("n: 43")
	p.focused("[aria-label='Open 43']")
	p.keys("j") // An opened row's details are not a row of their own.
	p.focused("[aria-label='Open 42']")
	p.keys("k" + kb.Enter)
	p.none("tree", "Data")
	p.keys("l")
	p.sees("Live 0 events")
	p.keys("l")
	p.find("link", "44@orders-1")

	// A dialog gives the focus back to what opened it.
	p.keys("j?")
	p.find("dialog", "Keyboard shortcuts")
	p.keys("gs" + kb.Escape)
	p.none("dialog", "Keyboard shortcuts")
	p.focused("[aria-label='Open 44']")
	p.walk("button", "Delete stream")
	p.keys(kb.Enter)
	p.find("dialog", "Delete stream")
	p.walk("button", "Cancel")
	p.keys(kb.Enter)
	p.none("dialog", "Delete stream")
	p.focused("button")
	if got := value[string](p, "document.activeElement.innerText"); got != "Delete stream" {
		t.Errorf("after the dialog the focus is on %q", got)
	}

	// Menus, by arrows.
	p.walk("button", "Theme")
	p.keys(kb.Enter)
	p.focused("[role=menuitemradio]")
	p.keys(kb.ArrowDown + kb.ArrowDown + kb.Enter)
	p.focused("[aria-label=Theme]")
	if got := value[string](p, "document.documentElement.dataset.theme"); got != "dark" {
		t.Errorf("the theme is %q", got)
	}
	p.keys(kb.Enter)
	p.focused("[role=menuitemradio]")
	p.keys(kb.Escape)
	p.focused("[aria-label=Theme]")
	p.walk("button", "Account")
	p.keys(kb.Enter)
	p.focused("[role=menuitem]")
	p.keys(kb.Enter)
	p.h1("Account")
	p.focused("h1")

	// A user need not tab through the navigation to reach the content.
	p.keys("go")
	p.h1("Overview")
	p.walk("link", "To the content")
	p.keys(kb.Enter)
	p.focused("h1")
	p.sees("the default password still lets in")
	// The row that there is no backup, and so the page of backups. On a slow disk another row is
	// first.
	p.sees(", backup: ")
	before := value[int](p, `[...document.querySelectorAll("main .needs li")].findIndex((li) => /, backup: /.test(li.innerText))`)
	p.keys(strings.Repeat("j", before+1) + kb.Enter)
	p.h1("Backup")
}

// TestLongJobsByKeyboard does jobs 2 to 6 with keys alone.
func TestLongJobsByKeyboard(t *testing.T) {
	n := startNode(t)
	for i := range 30 {
		appendTo(t, n, "orders-1", "OrderPlaced", fmt.Sprintf(`{"n":%d,"total":9223372036854775807}`, i))
	}
	ask(t, n, "POST", "/streams/orders-2", `[{"eventId":"00000000-0000-4000-8000-000000000001","eventType":"Asked","data":{},"metadata":{"$correlationId":"c1"}},
		{"eventId":"00000000-0000-4000-8000-000000000002","eventType":"Answered","data":{"a":[1,2]},"metadata":{"$correlationId":"c1","$causationId":"00000000-0000-4000-8000-000000000001"}}]`, "Content-Type", "application/vnd.eventstore.events+json")
	p := newBrowser(t).open(t, n.URL(), "admin", "#/")
	p.h1("Overview")

	// 2 and 3: find a stream, go to a number and to a time.
	p.keys("/orders-1" + kb.Enter)
	p.h1("orders-1")
	p.find("link", "29@orders-1")
	p.walk("textbox", "Go to number or time")
	p.keys("7" + kb.Enter)
	p.none("link", "29@orders-1")
	p.find("link", "7@orders-1")
	p.walk("textbox", "Go to number or time")
	p.keys(strings.Repeat(kb.Backspace, 5) + "00:00" + kb.Enter)
	p.await("the time", func() error {
		if got := value[string](p, "location.hash"); got != "#/streams/orders-1?from=0&at=0" {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})

	// 4: what is in an event, why did it happen, what followed.
	p.keys(kb.Escape + "/1@orders-2" + kb.Enter)
	p.h1("1@orders-2")
	p.walkTo("[role=treeitem]")
	p.keys(kb.ArrowDown + kb.ArrowLeft)
	p.sees("a: [ 2 ]")
	p.keys(kb.ArrowRight + kb.ArrowRight)
	p.focused("[title='a[0]']")
	p.walk("link", "Correlation")
	p.keys(kb.Enter)
	p.h1("Correlation")
	p.focused("h1")
	p.find("image", "Correlation graph")
	p.walkTo("[role=treeitem]")
	p.keys(kb.ArrowDown)
	p.focused("[role=treeitem]:nth-child(2)")
	p.keys(kb.Enter)
	p.h1("1@orders-2")

	// 5: watch what arrives.
	p.keys("/orders-3" + kb.Enter)
	p.mayRefuse(404).h1("orders-3")
	p.keys("l")
	p.sees("Live 0 events")
	appendTo(t, n, "orders-3", "Arrived", `{"x":1}`)
	p.find("link", "0@orders-3")
	p.keys("j" + kb.Enter)
	p.find("tree", "Data")

	// 6: repeat an event with one value changed.
	p.keys("/3@orders-1" + kb.Enter)
	p.h1("3@orders-1")
	p.walk("link", "Append like this")
	p.keys(kb.Enter)
	p.h1("Append event")
	p.holds("textbox", "Data", "9223372036854775807")
	p.walk("textbox", "Data")
	p.keys(strings.Repeat(kb.ArrowUp, 5) + kb.ArrowDown + kb.ArrowDown + kb.End + kb.Backspace + "6")
	p.walk("button", "Append")
	p.keys(kb.Enter)
	p.sees("Written as 30@orders-1.")
	p.goTo("#/streams/orders-1/30")
	p.h1("30@orders-1")
	p.sees("9223372036854775806")
}
