package ui_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// TestPartitions lists the partitions of a projection with the state of one, and shows the line
// of the source at which another has faulted.
func TestPartitions(t *testing.T) {
	n := startNode(t)
	for i := range 12 {
		appendTo(t, n, fmt.Sprintf("orders-%d", i), "OrderPlaced", fmt.Sprintf(`{"to":"town <%d>"}`, i%5))
	}
	ask(t, n, "POST", "/projections/continuous?name=by-town&type=JS&enabled=yes", "fromAll().partitionBy((e) => e.data && e.data.to).when({$init() { return {n: 0} }, $any(s) { s.n++ }})")
	ask(t, n, "POST", "/projections/continuous?name=broken&type=JS&enabled=yes", "fromAll().when({\n  $any(s, e) {\n    throw new Error('<no>');\n  }\n})")
	p := newBrowser(t).open(t, n.URL(), "admin", "#/projections/by-town")
	p.sees("5 partitions")
	p.click("button", "town <1> 7 B")
	p.find("heading", "town <1>")
	p.sees("n: 3")
	p.fill("searchbox", "Partition", "<4")
	p.sees("1 partition")
	p.none("button", "town <1> 7 B")
	p.enter("searchbox", "Partition", "town <4>")
	p.find("heading", "town <4>")
	p.sees("n: 2")
	p.clean()
	p.fits("partitions")
	p.goTo("#/projections/broken")
	p.sees("▸ 3 throw new Error('<no>');")
	p.click("button", "Reset")
	p.sees("broken throws its state away and starts again at the first event.")
	p.click("button", "Cancel")
	p.click("button", "Show line 3 in the source")
	p.find("textbox", "Source")
	p.clean()
}

// TestLists shows what is in events before they are opened: the beginning of their data, the fields
// that were chosen, and what was looked for.
func TestLists(t *testing.T) {
	n := startNode(t)
	for i := range 45 {
		appendTo(t, n, "orders-1", "OrderPlaced", fmt.Sprintf(`{"total":9223372036854775%03d,"by":{"name":"Jane <%d>"},"text":%q}`, i, i, strings.Repeat("x", 5000)))
	}
	p := newBrowser(t).open(t, n.URL(), "admin", "#/streams/orders-1")
	p.sees(`{"total": 9223372036854775044, "by": {"name": "Jane <44>"}, "text": "xxx`)
	p.click("button", "Columns")
	p.click("checkbox", "by.name")
	p.find("columnheader", "by.name")
	p.find("cell", "Jane <44>")
	p.clean()
	run(p, chromedp.Reload())
	p.find("cell", "Jane <44>")
	if kept := value[string](p, "localStorage.getItem('annals.columns')"); kept != `{"orders-1":[["by","name"]]}` {
		t.Errorf("it remembers %s", kept)
	}
	p.goTo("#/streams/orders-1?live=1")
	p.sees("Live 0 events")
	appendTo(t, n, "orders-1", "OrderPlaced", `{"by":{"name":"Live"}}`)
	p.find("cell", "Live")

	rows := func(height int64) int {
		send(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1280, Height: height, DeviceScaleFactor: 1})
		run(p, chromedp.Reload())
		p.h1("orders-1")
		return value[int](p, "document.querySelectorAll('main tbody tr').length")
	}
	p.goTo("#/streams/orders-1")
	if low, high := rows(640), rows(1280); low < 10 || high < low+15 || high > 40 {
		t.Errorf("%d rows fit into a low window, %d into a high one", low, high)
	}

	// The time as it is now, and exactly, in the zone of choice.
	const exact = `document.querySelector("main time").title`
	p.sees("s ago")
	if got := value[string](p, exact); strings.HasSuffix(got, "UTC") {
		t.Errorf("the local time is %s", got)
	}
	p.click("button", "Time zone")
	p.await("the exact time", func() error {
		if got := value[string](p, exact); !strings.HasSuffix(got, "UTC") {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})

	// What was looked for is marked, also where it is markup or far from the beginning.
	p.goTo("#/search?run=1&text=" + "%3C7%3E")
	p.sees("1 match;")
	if got := value[string](p, "[...document.querySelectorAll('mark')].map((m) => m.innerText).join()"); got != "<7>" {
		t.Errorf("marked are %q", got)
	}

	// Events of the system are there when they are asked for, then and later.
	p.goTo("#/streams/%24all")
	p.find("link", "44@orders-1")
	const system = `document.querySelectorAll("main table a[href*='streams/%24']").length`
	p.sees("of the system are hidden")
	if got := value[int](p, system); got != 0 {
		t.Errorf("%d links lead to the system", got)
	}
	p.click("checkbox", "System events")
	p.await("events of the system", func() error {
		if value[int](p, system) == 0 {
			return fmt.Errorf("there are none")
		}
		return nil
	})
	run(p, chromedp.Reload())
	p.h1("$all")
	if value[int](p, system) == 0 {
		t.Error("the choice is forgotten")
	}
	p.clean()
}

// TestLeavingAList leaves a list of names while what was typed into it waits to be looked for. The
// script sleeps as a busy machine does, so that the wait is over before the browser tells of the
// new address.
func TestLeavingAList(t *testing.T) {
	n := startNode(t)
	appendTo(t, n, "orders-1", "OrderPlaced", "{}")
	p := newBrowser(t).open(t, n.URL(), "admin", "#/search")
	for _, tab := range []string{"categories", "types", "all"} {
		p.goTo("#/streams?tab=" + tab)
		p.fill("textbox", "Prefix", "o")
		p.eval(`
			await new Promise((done) => setTimeout(done, 100));
			const next = new MessageChannel(), turn = new Promise((done) => (next.port1.onmessage = done));
			for (const end = performance.now() + 300; performance.now() < end;);
			next.port2.postMessage(0);
			await turn;
			location.hash = "#/streams/orders-1"`)
		p.h1("orders-1")
	}
}
