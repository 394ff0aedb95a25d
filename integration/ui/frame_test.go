package ui_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var legend = regexp.MustCompile(`^Memory [0-9]{2}:[0-9]{2}:[0-9]{2} process [0-9.]+ MiB heap [0-9.]+ MiB`)

// TestFrame uses what is around every page, in a wide window and on a telephone.
func TestFrame(t *testing.T) {
	n := startNode(t)
	appendMany(t, n, "orders-1", 0, 60)
	p := newBrowser(t).open(t, n.URL(), "admin", "#/streams/orders-1?size=50")
	p.width(1280)
	p.find("link", "59@orders-1")

	// The warning of the default password stays until it is dismissed in this tab.
	p.sees("admin has the default password.")
	p.click("button", "Dismiss")
	p.none("button", "Dismiss")
	run(p, chromedp.Reload())
	p.find("link", "59@orders-1")
	p.none("button", "Dismiss")

	p.click("button", "Keyboard shortcuts")
	p.find("dialog", "Keyboard shortcuts")
	p.keys(kb.Escape)
	p.none("dialog", "Keyboard shortcuts")
	p.focused("[aria-label='Keyboard shortcuts']")

	// The head of a table stays below that of the page.
	p.eval("scrollTo(0, 600)")
	p.await("the head of the table in sight", func() error {
		const gap = "document.querySelector('thead th').getBoundingClientRect().top - document.querySelector('header').getBoundingClientRect().bottom"
		if got := value[float64](p, gap); value[float64](p, "scrollY") < 100 || got < -1 || got > 1 {
			return fmt.Errorf("it is %.0f pixels from the head of the page", got)
		}
		return nil
	})

	// On a telephone the navigation is behind a button, and a row is a card.
	p.width(390)
	p.none("link", "Cluster")
	p.click("button", "Menu")
	p.find("link", "Cluster")
	p.focused("nav a")
	p.keys(kb.Escape)
	p.none("link", "Cluster")
	p.focused("[aria-label=Menu]")
	p.keys(kb.Enter)
	p.click("link", "Cluster")
	p.h1("Cluster")
	p.none("link", "Projections")
	p.await("cards", func() error {
		const label = "getComputedStyle(document.querySelector('main tbody td:nth-child(2)'), '::before').content"
		if got := value[string](p, label); got != `"State"` {
			return fmt.Errorf("the second value of the card is called %s", got)
		}
		return nil
	})
	p.clean()

	// The legend of a chart tells the figure of now, and the one under the pointer with its time.
	p.width(1280)
	p.goTo("#/stats")
	p.await("a figure in the legend", func() error {
		p.eval("const c = document.querySelector('[role=img][aria-label=Memory]'), b = c?.getBoundingClientRect(); c?.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: b.right - 14, clientY: b.top + 5}))")
		if got := value[string](p, "[...document.querySelectorAll('.legend')].map((l) => l.innerText.replace(/\\s+/g, ' ')).find((l) => l.startsWith('Memory')) ?? ''"); !legend.MatchString(got) {
			return fmt.Errorf("it says %q", got)
		}
		return nil
	})
}
