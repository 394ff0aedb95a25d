package ui_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"

	"github.com/annalsdb/annals/internal/testkit"
)

// module is the address of a module of the page.
func (p *tab) module(path string) string {
	p.t.Helper()
	return value[string](p, "document.querySelector('script[type=module]').src.replace('main.js', "+quote(path)+")")
}

// take hands out messages of a group over HTTP and answers as many of them.
func take(t *testing.T, n node, group string, count, answered int) {
	t.Helper()
	messages := ask(t, n, "GET", fmt.Sprintf("%s/%d?embed=rich", group, count), "", "Accept", "application/vnd.eventstore.competingatom+json")
	var ids []string
	for _, one := range strings.Split(messages, `/ack/`)[1:] {
		if id, _, ok := strings.Cut(one, `"`); ok && len(id) == 36 {
			ids = append(ids, id)
		}
	}
	if len(ids) != count {
		t.Fatalf("%d messages are wanted: %s", count, messages)
	}
	if answered > 0 {
		ask(t, n, "POST", group+"/ack?ids="+strings.Join(ids[:answered], ","), "")
	}
}

// TestStalled names a group stalled that has messages and hands out none for a minute, and no
// other: with fewer messages than a checkpoint waits for, the checkpoint lags though all of them
// were answered. A group that is paused, or waits for delays alone, is not stalled.
func TestStalled(t *testing.T) {
	n := startNode(t)
	for i := range 3 {
		appendTo(t, n, "s", "T", fmt.Sprintf(`{"n":%d}`, i))
	}
	for _, c := range []struct {
		group           string
		handed, answers int
	}{{"delayed", 3, 2}, {"done", 3, 3}, {"paused", 0, 0}, {"untouched", 0, 0}, {"unanswered", 3, 2}, {"rest", 2, 2}} {
		ask(t, n, "PUT", "/subscriptions/s/"+c.group, `{"startFrom":0,"messageTimeoutMilliseconds":600000}`)
		if c.handed > 0 {
			take(t, n, "/subscriptions/s/"+c.group, c.handed, c.answers)
		}
	}
	ask(t, n, "POST", "/subscriptions/s/paused/pause", "")
	id := regexp.MustCompile(`"eventId": *"([^"]*)`).FindStringSubmatch(ask(t, n, "GET", "/streams/s/0", "", "Accept", "application/vnd.eventstore.atom+json"))[1]
	ask(t, n, "POST", "/subscriptions/s/delayed/nack/"+id+"?after=1h", "")
	p := newBrowser(t).open(t, n.URL(), "admin", "#/subscriptions")
	p.find("table", "Subscriptions")
	groups := p.module("parts/groups.js")
	watch := "import(" + quote(groups) + ").then((m) => m.watchGroups()).then((l) => l.map((g) => `${g.group} ${g.text}${g.stalled ? ' stalled' : ''}`).sort().join('; '))"
	const now = "delayed 1 event; done 0 events; paused 3 events; rest 1 event; unanswered 1 event; untouched 3 events"
	p.await("what waits", func() error { // Groups read ahead in their own time.
		if got := value[string](p, watch); got != now {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
	p.eval("const now = Date.now; Date.now = () => now() + 61000")
	const later = "delayed 1 event; done 0 events; paused 3 events; rest 1 event stalled; unanswered 1 event stalled; untouched 3 events stalled"
	if got := value[string](p, watch); got != later {
		t.Errorf("a minute later: %s", got)
	}
	take(t, n, "/subscriptions/s/rest", 1, 1)
	if got, want := value[string](p, watch), strings.Replace(later, "rest 1 event stalled", "rest 0 events", 1); got != want {
		t.Errorf("when it was handed out: %s", got)
	}
	p.sees("untouched s stalled 3") // As the table shows it.
	p.sees("done s Live 0")
	p.goTo("#/subscriptions/s/done")
	p.sees("Behind 0 events")
	p.sees("Checkpoint none yet")
	p.goTo("#/subscriptions/s/paused")
	p.sees("Paused by admin")
	p.click("button", "Resume")
	p.sees("Status Live")
	p.find("button", "Pause")
}

// TestDeskOfAll looks after the parked messages of a group of $all, which is made and consumed over
// gRPC alone.
func TestDeskOfAll(t *testing.T) {
	n := startNode(t, "--insecure")
	for range 3 {
		appendTo(t, n, "orders-1", "OrderPlaced", `{"a":1}`)
	}
	ctx, cancel := context.WithTimeout(t.Context(), settleLimit)
	defer cancel()
	parkOfAll(ctx, t, n, "mail", 3)

	p := newBrowser(t).open(t, n.URL(), "admin", "#/")
	p.click("link", "3 messages parked by mail of $all.")
	p.h1("Parked messages")
	p.sees("3 messages are parked.")
	p.click("button", "Look at 0")
	p.find("tree", "Data")
	p.click("button", "Note for 1")
	p.fill("textbox", "Note", "known to Jane")
	p.click("button", "Save")
	p.sees("known to Jane")
	for i, act := range []string{"Replay", "Drop"} {
		name := fmt.Sprintf("%s %d", act, i)
		p.click("button", name)
		p.find("dialog", name)
		p.click("button", act)
		p.none("button", name)
	}
	p.sees("1 message is parked.")
	p.click("button", "Replay all")
	p.click("button", "Replay")
	p.sees("No message is parked.")
	p.clean()

	// It is changed over HTTP. What HTTP cannot do with such a group is said, not offered.
	p.click("link", "mail")
	p.h1("mail")
	p.find("link", "Parked messages")
	p.click("link", "Edit")
	p.fill("spinbutton", "Retry delay", "500")
	p.click("button", "Save")
	p.h1("mail")
	p.sees("Retry delay milliseconds 500")
	p.sees("Start position C:0/P:0")
	p.goTo("#/subscriptions/new")
	p.fill("textbox", "Stream", "$all")
	p.sees("over gRPC")
	p.goTo("#/subscriptions/%24all/mail")
	p.click("button", "Delete subscription")
	p.find("dialog", "Delete subscription")
	p.click("button", "Delete subscription")
	p.h1("Subscriptions")
	p.none("link", "mail")
}

// parkOfAll makes a group of $all and parks so many messages of it.
func parkOfAll(ctx context.Context, t *testing.T, n *testkit.Process, group string, count int) {
	t.Helper()
	config, err := kurrentdb.ParseConnectionString("esdb://" + strings.TrimPrefix(n.URL(), "http://") + "?tls=false")
	if err != nil {
		t.Fatal(err)
	}
	config.Logger = kurrentdb.NoopLogging()
	client, err := kurrentdb.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := client.CreatePersistentSubscriptionToAll(ctx, group, kurrentdb.PersistentAllSubscriptionOptions{
		StartFrom: kurrentdb.Start{}, Filter: &kurrentdb.SubscriptionFilter{Type: kurrentdb.StreamFilterType, Prefixes: []string{"orders-"}},
	}); err != nil {
		t.Fatal(err)
	}
	messages, err := client.SubscribeToPersistentSubscriptionToAll(ctx, group, kurrentdb.SubscribeToPersistentSubscriptionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range count {
		m := messages.Recv()
		if m.EventAppeared == nil {
			t.Fatal("the subscription ended: ", m.SubscriptionDropped)
		}
		if err := messages.Nack("no such customer", kurrentdb.NackActionPark, m.EventAppeared.Event); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, settleLimit, func() error {
		if got := ask(t, n, "GET", "/subscriptions/$all/"+group+"/info", ""); !strings.Contains(strings.ReplaceAll(got, " ", ""), fmt.Sprintf(`"parkedMessageCount":%d`, count)) {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
	if err := messages.Close(); err != nil {
		t.Error(err)
	}
}

// TestGroupOperations pauses a group, moves it after a look at what that means, gives it delays,
// and hands its parked messages on.
func TestGroupOperations(t *testing.T) {
	n := startNode(t)
	appendMany(t, n, "orders-1", 0, 5)
	const group = "/subscriptions/orders-1/mail"
	ask(t, n, "PUT", group, `{"startFrom":0}`)
	park(t, n, group, "5")
	p := newBrowser(t).open(t, n.URL(), "admin", "#"+group).mayRefuse(400, 404)
	p.h1("mail")
	p.click("button", "Pause")
	p.sees("Paused by admin")
	p.clean()
	p.click("button", "Resume")
	p.find("button", "Pause")

	p.click("button", "Reset")
	p.sees("events come again, and 0 events are left out")
	p.choose("Read on from", "at")
	p.fill("textbox", "Place", "nowhere")
	p.sees("to must be start, end, an event number, a position or a time (RFC 3339)")
	p.fill("textbox", "Place", "2")
	p.sees("to 2.")
	p.clean()
	p.click("button", "Reset")
	p.none("dialog", "Reset")

	edit := func(change func()) {
		t.Helper()
		p.click("link", "Edit")
		change()
		p.click("button", "Save")
		p.h1("mail")
	}
	edit(func() {
		p.fill("spinbutton", "Retry delay", "1000")
		p.fill("spinbutton", "Backoff factor", "1.5")
	})
	p.sees("factor 1.5")

	// The group reads the log from now on, and what comes from other streams.
	edit(func() {
		p.fill("textbox", "Source", "$all")
		p.choose("Choose events by", "stream")
		p.enter("textbox", "Prefixes", "orders-")
		p.find("button", "Remove orders-")
		p.clean()
		p.fits("Edit mail")
	})
	p.sees("Source $all")
	edit(func() {
		p.click("button", "Remove orders-")
		p.fill("textbox", "Regular expression", "^orders-[0-9]+$")
	})
	p.sees("^orders-[0-9]+$")
	edit(func() {
		p.fill("textbox", "Source", "")
		p.choose("Choose events by", "")
	})
	p.none("StaticText", "$all")

	p.click("link", "Parked messages")
	p.find("table", "Parked messages")
	forward := func(button string) {
		t.Helper()
		p.click("button", button)
		p.fill("textbox", "To stream", "dead-letters")
		p.click("button", "Forward")
	}
	p.click("checkbox", "Choose 0")
	forward("Forward 1 message")
	p.sees("1 message was forwarded to dead-letters.")
	p.none("checkbox", "Choose 0")
	forward("Forward all")
	p.sees("No message is parked.")
	p.goTo("#/streams/dead-letters")
	p.find("link", "4@dead-letters")

	park(t, n, group, "5")
	p.goTo("#" + group + "/parked")
	p.find("table", "Parked messages")
	p.click("button", "Replay all")
	p.fill("spinbutton", "Messages a second", "1")
	p.sees("will be handed to the consumers again, 1 a second.")
	p.click("button", "Replay")
	p.goTo("#" + group)
	p.sees("still to be replayed, 1 a second.")
}

// TestRebuild builds a second version of a projection from its page, compares the two, and swaps.
func TestRebuild(t *testing.T) {
	n := startNode(t)
	appendMany(t, n, "orders-1", 0, 3)
	ask(t, n, "POST", "/projections/continuous?name=totals&type=JS&enabled=yes", "fromStream('orders-1').when({$init() { return {n: 0} }, $any(s) { s.n++ }})")
	p := newBrowser(t).open(t, n.URL(), "admin", "#/projections/totals")
	p.sees("n: 3")
	// A checkpoint is what the second version follows.
	for _, verb := range []string{"Disable", "Enable"} {
		p.click("button", verb)
		p.sees(map[string]string{"Disable": "Stopped", "Enable": "Running"}[verb])
	}
	p.click("link", "Edit")
	p.fill("textbox", "Source", "fromStream('orders-1').when({$init() { return {n: 0} }, $any(s) { s.n += 2 }}) // ")
	p.click("button", "Rebuild")
	p.h1("totals")
	p.find("region", "Rebuild")
	p.sees("Ready")
	p.click("button", "Compare")
	p.sees("1 state compared, 1 differs.")
	p.click("button", "All together")
	p.sees(`+ "n": 6`)
	p.clean()
	p.fits("rebuild")
	p.click("button", "Swap")
	p.find("dialog", "Swap")
	p.click("button", "Swap")
	p.none("region", "Rebuild")
	p.sees("n: 6")
}
