package ui_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/google/uuid"

	"github.com/annalsdb/annals/internal/testkit"
)

// weight is what a tab was sent of addresses that contain a text: requests and compressed bytes.
func (p *tab) weight(part string) (requests int, bytes float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for address, size := range p.loaded {
		if strings.Contains(address, part) {
			requests++
			bytes += size
		}
	}
	return requests, bytes
}

// TestFirstLoad holds the budgets of what is sent and of what a page consists of.
func TestFirstLoad(t *testing.T) {
	n := startNode(t)
	b := newBrowser(t)
	p := b.open(t, n.URL(), "admin", "#/")
	p.h1("Overview")
	p.sees("passwords")
	requests, bytes := p.weight("")
	_, font := p.weight("/vendor/inter.woff2")
	if font == 0 || requests > 30 || bytes-font > 110<<10 {
		t.Errorf("the first page took %d requests, %.0f bytes and a font of %.0f, at most 30 and 110 KiB are wanted: %v", requests, bytes-font, font, p.loaded)
	} else {
		t.Logf("first page: %d requests, %.0f bytes and a font of %.0f", requests, bytes-font, font)
	}
	appendMany(t, n, "orders-1", 0, 30)
	p.goTo("#/projections/new")
	p.find("textbox", "Source")
	p.goTo("#/stats")
	p.h1("Statistics")
	p.await("the charts", func() error {
		if n := value[int](p, "document.querySelectorAll('.chart .trace').length"); n == 0 {
			return fmt.Errorf("none is drawn")
		}
		return nil
	})
	for _, c := range []struct {
		part string
		most float64
	}{{"/vendor/editor", 180 << 10}} {
		if requests, bytes := p.weight(c.part); requests == 0 || bytes > c.most {
			t.Errorf("%s took %d requests and %.0f bytes, at most %.0f are wanted", c.part, requests, bytes, c.most)
		} else {
			t.Logf("%s: %.0f bytes", c.part, bytes)
		}
	}
	for _, hash := range []string{"#/", "#/streams", "#/streams/orders-1", "#/options", "#/stats", "#/streams/%24all?size=100"} {
		p.goTo(hash)
		p.await("content", func() error {
			if value[bool](p, "document.querySelector('main [aria-busy=true]') !== null") {
				return fmt.Errorf("it is loading")
			}
			return nil
		})
		if nodes := value[int](p, "document.querySelectorAll('*').length"); nodes > 3000 {
			t.Errorf("%s has %d elements, at most 3000 are wanted", hash, nodes)
		}
	}
}

// TestLongOverviewIdle checks the budget of requests while the user does nothing.
func TestLongOverviewIdle(t *testing.T) {
	n := startNode(t)
	for i := range 25 { // Of twenty groups the counts are asked for, one by one.
		ask(t, n, "PUT", fmt.Sprintf("/subscriptions/orders-1/g%d", i), `{"startFrom":0}`)
	}
	appendMany(t, n, "orders-1", 0, 30)
	// All that an open Overview asks for again is asked once within the window at least, but for
	// two of each half minute.
	const window = 21 * time.Second
	idle := newBrowser(t).open(t, n.URL(), "admin", "#/")
	idle.h1("Overview")
	idle.sees("passwords")
	before, began := idle.asked(), time.Now()
	idle.await("the window", func() error {
		if time.Since(began) < window {
			return fmt.Errorf("it is open")
		}
		return nil
	})
	// The counts of twenty groups are asked for every 20 s: on a busy machine a second round may
	// fall into the window.
	if rate := float64(idle.asked()-before-20) / time.Since(began).Seconds(); rate > 2 {
		t.Errorf("an open Overview asks %.1f times a second, at most twice is wanted", rate)
	} else {
		t.Logf("an open Overview asks %.1f times a second, without those", rate)
	}
}

// asked counts the requests of the tab so far.
func (p *tab) asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

// TestBudgets measures with much data. ANNALS_BUDGETS=1 runs it; ANNALS_BUDGET_EVENTS, _NAMES and
// _MINUTES are the sizes. It fails on what is over its budget when ANNALS_BUDGETS_STRICT=1, and
// else only logs it.
func TestBudgets(t *testing.T) {
	if os.Getenv("ANNALS_BUDGETS") == "" {
		t.Skip("ANNALS_BUDGETS is not set")
	}
	events, names, minutes := size(t, "ANNALS_BUDGET_EVENTS", 200_000), size(t, "ANNALS_BUDGET_NAMES", 100_000), size(t, "ANNALS_BUDGET_MINUTES", 0.2)
	hold := func(what string, got, most float64, unit string) {
		t.Helper()
		t.Logf("%s: %.1f %s, the budget is %.0f", what, got, unit, most)
		if got > most && os.Getenv("ANNALS_BUDGETS_STRICT") == "1" {
			t.Errorf("%s: %.1f %s is over the budget of %.0f", what, got, unit, most)
		}
	}
	// The standard projections would write three links for each event.
	n := testkit.StartNode(t, t.TempDir())
	bench := func(args ...string) {
		t.Helper()
		p, code := testkit.Run(t, testkit.Command{Args: append([]string{"bench", args[0], "--node", n.URL(), "--user", "admin", "--password", "changeit", "--quiet"}, args[1:]...)})
		if code != 0 {
			t.Fatal(p.Output())
		}
	}
	bench("fill", "--streams", "1", "--events", strconv.Itoa(int(events)), "--batch", "1000", "--workers", "2")
	bench("fill", "--prefix", "name", "--streams", strconv.Itoa(int(names)), "--events", strconv.Itoa(int(names)))
	appendTo(t, n, "large", "Large", `{"list":[`+strings.Repeat(`{"text":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"},`, 4<<20/66)+`1]}`)
	b := newBrowser(t)

	slow := b.open(t, n.URL(), "nobody yet", "#/signin")
	slow.find("button", "Sign in")
	send(slow, network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: true})
	send(slow, network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{MatchedNetworkConditions: []*network.Conditions{{Latency: 100, DownloadThroughput: 4e6 / 8, UploadThroughput: 4e6 / 8}}})
	began := time.Now()
	run(slow, chromedp.Reload())
	slow.find("button", "Sign in")
	hold("first content at 4 Mbit/s and 100 ms", float64(time.Since(began).Milliseconds()), 1000, "ms")

	p := b.open(t, n.URL(), "admin", "#/")
	p.width(1280)
	p.h1("Overview")
	// watch returns after how many milliseconds something was true, as the page itself sees it.
	watch := func(do, until string) float64 {
		t.Helper()
		return value[float64](p, fmt.Sprintf(`new Promise((done, fail) => { const began = performance.now(), look = () => (%s) ? done(performance.now() - began) : performance.now() - began > 60000 ? fail(new Error("it never came")) : setTimeout(look, 5); %s; look() })`, until, do))
	}
	stream, link := "bench-000001", `!!document.querySelector("main a[href='#/streams/bench-000001/%d']")`
	last := int(events) - 1
	hold("the newest page", watch(`location.hash = "#/streams/`+stream+`"`, fmt.Sprintf(link, last)), 300, "ms")
	hold("the page before", watch(`document.querySelector("[data-key=older]").click()`, fmt.Sprintf(link, last-20)), 300, "ms")
	hold("the oldest page", watch(`document.querySelector("[data-key=oldest]").click()`, fmt.Sprintf(link, 0)), 300, "ms")
	hold("a page in the middle", watch(`location.hash = "#/streams/`+stream+fmt.Sprintf(`?from=%d"`, last/2), fmt.Sprintf(link, last/2)), 300, "ms")
	for what, text := range map[string]string{"to a number": strconv.Itoa(last / 3), "to a time": "00:00"} {
		want := fmt.Sprintf(link, 0)
		if what == "to a number" {
			want = fmt.Sprintf(link, last/3)
		}
		p.goTo("#/streams/" + stream)
		p.find("link", fmt.Sprintf("%d@%s", last, stream))
		p.fill("textbox", "Go to number or time", text)
		hold(what, watch(`document.querySelector("[aria-label='Go to number or time']").form.requestSubmit()`, want), 500, "ms")
	}
	p.mayRefuse(503)
	p.goTo("#/streams?tab=all")
	p.sees("name-000001")
	p.goTo("#/")
	p.h1("Overview")
	hold("the names of all streams", watch(`location.hash = "#/streams?tab=all"`, `!!document.querySelector("main a[href='#/streams/name-000001']")`), 500, "ms")
	hold("a payload of 4 MiB", watch(`location.hash = "#/streams/large/0"`, `!!document.querySelector("main [role=treeitem]")`), 1000, "ms")

	p.goTo("#/streams/bench-tail?live=1")
	p.mayRefuse(404).h1("bench-tail")
	p.sees("Live 0 events")
	p.eval(`window.frames_ = 0; const draw = () => { window.frames_++; requestAnimationFrame(draw) }; draw()`)
	stop := make(chan error, 1)
	go func() { stop <- feed(n, time.Duration(minutes*float64(time.Minute))) }()
	began, before := time.Now(), value[int](p, "window.frames_")
	if err := <-stop; err != nil {
		t.Fatal(err)
	}
	took := time.Since(began).Seconds()
	frames := float64(value[int](p, "window.frames_")-before) / took
	got := value[string](p, "document.querySelector('main p').innerText")
	t.Logf("live: %s in %.0f s", got, took)
	hold("30 frames a second, in percent of what is missing", max(0, 30-frames)/30*100, 0, "%")
	heap := value[float64](p, "performance.memory.usedJSHeapSize") / (1 << 20)
	hold("heap after that", heap, 150, "MB")
	hold("elements after that", float64(value[int](p, "document.querySelectorAll('*').length")), 3000, "")
}

// size is a number of the environment.
func size(t *testing.T, name string, otherwise float64) float64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// feed appends 5,000 events a second to the stream bench-tail, 500 at a time.
func feed(n *testkit.Process, during time.Duration) error {
	c := testkit.NewClient(n.URL(), nil)
	defer c.CloseIdle()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < during; <-tick.C {
		events := make([]string, 500)
		for i := range events {
			events[i] = fmt.Sprintf(`{"eventId":%q,"eventType":"T","data":{"i":%d}}`, uuid.NewString(), i)
		}
		r, err := c.Do(context.Background(), testkit.Request{Method: "POST", Path: "/streams/bench-tail", Body: []byte("[" + strings.Join(events, ",") + "]"),
			Header: map[string]string{"Authorization": basic("admin"), "Content-Type": "application/vnd.eventstore.events+json"}})
		if err != nil {
			return err
		}
		if r.Status != 201 {
			return fmt.Errorf("%d %s", r.Status, r.Body)
		}
	}
	return nil
}
