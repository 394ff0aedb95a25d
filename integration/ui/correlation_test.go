package ui_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/annalsdb/annals/internal/testkit"
)

// TestCorrelationTimes shows when events happened, not when a projection made links to them.
func TestCorrelationTimes(t *testing.T) {
	n := startNode(t)
	ask(t, n, "POST", "/projection/$by_correlation_id/command/disable", "")
	const events = `[{"eventId":"00000000-0000-4000-8000-00000000000%d","eventType":"%s","data":{},"metadata":{"$correlationId":"c1"%s}}]`
	write := func(id int, eventType, cause string) {
		t.Helper()
		ask(t, n, "POST", "/streams/orders-2", fmt.Sprintf(events, id, eventType, cause), "Content-Type", "application/vnd.eventstore.events+json")
	}
	write(1, "Asked", "")
	time.Sleep(300 * time.Millisecond) // Links are made faster one after the other.
	write(2, "Answered", `,"$causationId":"00000000-0000-4000-8000-000000000001"`)
	var feed struct{ Entries []struct{ Updated time.Time } }
	if err := json.Unmarshal([]byte(ask(t, n, "GET", "/streams/orders-2", "", "Accept", "application/vnd.eventstore.atom+json")), &feed); err != nil || len(feed.Entries) != 2 {
		t.Fatal(err, feed)
	}
	answered, asked := feed.Entries[0].Updated.UTC(), feed.Entries[1].Updated.UTC()
	ask(t, n, "POST", "/projection/$by_correlation_id/command/enable", "")
	testkit.Eventually(t, settleLimit, func() error {
		text := ask(t, n, "GET", "/streams/$all/head/backward/50", "", "Accept", "application/vnd.eventstore.atom+json")
		if len(regexp.MustCompile(`"title":\s*"[01]@\$bc-c1"`).FindAllString(text, -1)) != 2 {
			return fmt.Errorf("no two links: %s", text)
		}
		return nil
	})
	p := newBrowser(t).open(t, n.URL(), "admin", "#/correlation/c1")
	p.eval("localStorage.setItem('annals.zone', 'UTC')")
	run(p, chromedp.Reload())
	p.h1("Correlation")
	p.sees("2 events.")
	const shown = "2006-01-02 15:04:05.000 UTC"
	p.sees("Asked 0@orders-2 " + asked.Truncate(time.Millisecond).Format(shown))
	p.sees("Answered 1@orders-2 " + answered.Truncate(time.Millisecond).Format(shown))
	p.sees(" ms after its cause")
	p.clean()
}
