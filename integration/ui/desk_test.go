package ui_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// park has a group give up the messages that wait for it.
func park(t *testing.T, n node, group, count string, header ...string) {
	t.Helper()
	const competing = "application/vnd.eventstore.competingatom+json"
	messages := ask(t, n, "GET", group+"/"+count+"?embed=rich", "", append(header, "Accept", competing)...)
	for _, one := range strings.Split(messages, `/nack/`)[1:] {
		if id, _, ok := strings.Cut(one, `"`); ok && len(id) == 36 {
			ask(t, n, "POST", group+"/nack/"+id+"?action=park", "", header...)
		}
	}
}

// TestDesk does what a consumer that has stopped asks for: from what needs you to its
// parked messages, to look at one, replay it, drop others, and leave a note.
func TestDesk(t *testing.T) {
	n := startNode(t)
	for range 7 {
		appendTo(t, n, "orders-1", "OrderPlaced", `{"text":`+quote(markup)+`}`)
	}
	ask(t, n, "PUT", "/subscriptions/orders-1/mail", `{"startFrom":0}`)
	park(t, n, "/subscriptions/orders-1/mail", "7")
	b := newBrowser(t)
	p := b.open(t, n.URL(), "admin", "#/")
	p.click("link", "7 messages parked by mail of orders-1.")
	p.h1("Parked messages")
	p.find("table", "Parked messages")
	if p.acts > 1 {
		t.Errorf("it took %d acts to see what was parked", p.acts)
	}
	p.click("button", "Replay 1")
	p.find("dialog", "Replay 1")
	p.click("button", "Replay")
	p.none("button", "Replay 1")
	if p.acts > 3 {
		t.Errorf("it took %d acts to replay one", p.acts)
	}
	p.sees("6 messages are parked.")
	p.click("button", "Look at 0")
	p.find("tree", "Data")
	p.sees("<script>window.ran=1</script>")
	p.clean()

	p.click("button", "Note for 0")
	p.find("dialog", "Note")
	p.fill("textbox", "Note", markup+" later")
	p.click("button", "Save")
	p.none("dialog", "Note")
	p.sees(markup + " later")
	p.click("checkbox", "Choose 2")
	p.find("button", "Drop 1 message")
	p.click("button", "Drop 2")
	p.find("dialog", "Drop 2")
	p.click("button", "Drop")
	p.none("button", "Drop 2")
	p.none("button", "Drop 1 message") // The one that was chosen has gone.
	p.sees("5 messages are parked.")

	q := b.open(t, n.URL(), "ops", "#/subscriptions/orders-1/mail/parked")
	q.h1("Parked messages")
	q.sees(markup + " later")
	q.walkTo("[aria-label='Choose 0']")
	q.keys(" ")
	q.walkTo("[aria-label='Choose 4']")
	q.keys(" ")
	q.walk("button", "Drop 2 messages")
	q.keys(kb.Enter)
	q.find("dialog", "Drop 2 messages")
	q.walk("textbox", "Type mail to go on")
	q.keys("mail")
	q.walk("button", "Drop")
	q.keys(kb.Enter)
	q.none("dialog", "Drop 2 messages")
	q.sees("3 messages are parked.")
	q.clean()
	replay := func(name, then string) {
		t.Helper()
		q.walk("button", name)
		q.keys(kb.Enter)
		q.find("dialog", name)
		q.walk("button", "Replay")
		q.keys(kb.Enter)
		q.none("dialog", name)
		q.sees(then)
	}
	replay("Replay up to 5", "1 message is parked.")
	replay("Replay 6", "No message is parked.")
	q.check()
	if value[bool](p, "window.ran === 1") || value[bool](q, "window.ran === 1") {
		t.Error("what was stored was run")
	}

	nobody := b.open(t, n.URL(), "", "#/subscriptions/orders-1/mail/parked").mayRefuse(401)
	nobody.h1("Parked messages")
	nobody.find("heading", "Not allowed")
	nobody.clean()
}
