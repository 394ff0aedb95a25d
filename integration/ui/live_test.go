package ui_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/testkit"
)

// hide makes the tab hidden, or shown again, as far as scripts can tell.
func (p *tab) hide(hidden bool) {
	p.t.Helper()
	state := map[bool]string{true: "hidden", false: "visible"}[hidden]
	p.eval(fmt.Sprintf(`Object.defineProperty(document, "hidden", {configurable: true, value: %t});
		Object.defineProperty(document, "visibilityState", {configurable: true, value: %q});
		document.dispatchEvent(new Event("visibilitychange"))`, hidden, state))
}

// tails counts the live tails that the tab holds.
func (p *tab) tails() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, address := range p.pending {
		if strings.Contains(address, "embed=body&maxData=") {
			n++
		}
	}
	return n
}

// rowsAre waits until the table of events has the numbers from high to low and nothing else.
func (p *tab) rowsAre(high, low int) {
	p.t.Helper()
	var want []string
	for i := high; i >= low; i-- {
		want = append(want, fmt.Sprint(i))
	}
	p.await(fmt.Sprintf("rows %d to %d", high, low), func() error {
		if got := value[string](p, `[...document.querySelectorAll("table[aria-label=Events] button[aria-label^=Open]")].map((b) => b.ariaLabel.slice(5)).join()`); got != strings.Join(want, ",") {
			return fmt.Errorf("they are %s", got)
		}
		return nil
	})
}

// TestLiveHidden hides a live page: it lets its connection go, and shown again it has what came in
// between, in order and once, be it the first events of the stream or later ones.
func TestLiveHidden(t *testing.T) {
	n := startNode(t)
	p := newBrowser(t).open(t, n.URL(), "admin", "#/streams/s?live=1").mayRefuse(404)
	p.sees("Live 0 events")
	rest := func(want int) {
		t.Helper()
		p.await("tails", func() error {
			if got := p.tails(); got != want {
				return fmt.Errorf("there are %d, %d are wanted", got, want)
			}
			return nil
		})
	}
	written := 0
	grow := func(by int) {
		t.Helper()
		appendMany(t, n, "s", written, by)
		written += by
	}
	rest(1)
	for _, by := range []int{3, 1, 300} {
		p.hide(true)
		p.sees("Paused")
		rest(0)
		grow(by)
		p.hide(false)
		rest(1)
		p.rowsAre(written-1, max(0, written-120))
		grow(1)
		p.rowsAre(written-1, max(0, written-120))
	}
	p.sees(fmt.Sprintf("%d events since it began, the newest 120 are shown", written))
	if nodes := value[int](p, "document.querySelectorAll('*').length"); nodes > 3000 {
		t.Errorf("the page has %d elements, at most 3000 are wanted", nodes)
	}
	grow(800)
	p.click("button", "Show 500")
	p.rowsAre(written-1, written-500)
	grow(1)
	p.rowsAre(written-1, written-500)
	p.click("button", "Live")
	rest(0)
}

// appendMany appends so many events, whose data say their number.
func appendMany(t *testing.T, n *testkit.Process, stream string, from, count int) {
	t.Helper()
	var events []string
	for i := range count {
		events = append(events, fmt.Sprintf(`{"eventId":"00000000-0000-4000-8000-%012d","eventType":"T","data":{"i":%d}}`, from+i, from+i))
	}
	ask(t, n, "POST", "/streams/"+url.PathEscape(stream), "["+strings.Join(events, ",")+"]", "Content-Type", "application/vnd.eventstore.events+json")
}

// TestLiveBroken kills the node of a live page and starts it again, and then stops it in order.
func TestLiveBroken(t *testing.T) {
	dir := t.TempDir()
	n := testkit.StartNode(t, dir)
	at, err := url.Parse(n.URL())
	if err != nil {
		t.Fatal(err)
	}
	p := newBrowser(t).open(t, n.URL(), "admin", "#/streams/s?live=1").mayRefuse(404, 503).mayBreak()
	p.sees("Live 0 events")
	appendMany(t, n, "s", 0, 2)
	p.rowsAre(1, 0)
	for i, end := range []func(*testkit.Process){(*testkit.Process).Kill, (*testkit.Process).Stop} {
		end(n)
		p.sees("trying again")
		n = testkit.Launch(t, testkit.Command{Args: []string{"node", "--db", dir, "--node-port", at.Port()}})
		n.AwaitServing()
		appendMany(t, n, "s", 2+2*i, 2)
		p.rowsAre(3+2*i, 0)
	}
}
