package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/event"
)

// What happens between the run and a group. The words of answers are those of the wire.
const (
	delivered  = "delivery"
	actionAck  = "ack"
	actionSkip = "skip"
	actionStop = "stop"
	actionPark = "park"
	// retry is a demand to give the message again; leave gives no answer, so the message times
	// out.
	actionRetry = "retry"
	actionLeave = "none"
	actReplay   = "replay of parked messages"
	actPause    = "pause"
	actResume   = "end of a pause"
	actReset    = "reset"
	actForward  = "forwarding of parked messages"
	actUpdate   = "update"
	actRestart  = "restart of the subsystem"
)

// answers are what a consumer says to a message. Those that finish it are for good, and it will not
// be parked; after those that remove it, it is out of the group.
var (
	answers  = []string{actionAck, actionSkip, actionStop, actionPark, actionRetry}
	removing = answers[:4]
	finishes = answers[:3]
)

// step is one of these: a message given to a consumer, an answer to a message, or an act of the
// operator. Times are nanoseconds since the run began.
type step struct {
	What     string   `json:"what"`
	Group    *group   `json:"group,omitempty"` // nil: all
	Consumer int      `json:"consumer"`        // -1: the operator
	Node     int      `json:"node"`
	Call     int64    `json:"call"`
	Return   int64    `json:"return"`
	ID       event.ID `json:"id,omitzero"` // of the message
	Title    string   `json:"title,omitempty"`
	Retries  int      `json:"retries,omitempty"`
	Outcome  outcome  `json:"outcome"`
	// of a demand for a retry; nil: that of the group
	Delay *time.Duration `json:"delay,omitempty"`
	To    int64          `json:"to,omitempty"` // of a reset: the first event that comes again
}

func (s *step) String() string {
	delay := ""
	if s.Delay != nil {
		delay = " after " + s.Delay.String()
	}
	return fmt.Sprintf("%s to %s: %s%s %s, consumer %d, %s, retry count %d: %s",
		seconds(s.Call), seconds(s.Return), s.What, delay, s.ID, s.Consumer, nodeName(s.Node), s.Retries, s.Outcome)
}

// consumer is a client that reads messages of one group and answers most of them. All its messages
// and answers are kept for the check in the end.
type consumer struct {
	worker
	number int
	group  *group
	held   []heldBack

	steps []step
}

// heldBack are messages that the consumer answers later, perhaps too late.
type heldBack struct {
	due int64
	ids []event.ID
}

const (
	largestRead = 50
	// drainedRead is how many messages are read at once in the end.
	drainedRead = 100
)

func newConsumer(s *subscriptions, number int, g *group) *consumer {
	return &consumer{worker: s.load.worker(consumers + number), number: number, group: g}
}

func (c *consumer) turn(ctx context.Context) time.Duration {
	switch {
	case !c.hist.reserve():
		return enough
	case c.handle(ctx):
		return c.pause(0, 40)
	}
	return c.pause(20, 200)
}

// node returns the node to ask: mostly the one that served before, now and then any node.
func (c *consumer) node() Target {
	if c.rng.IntN(8) == 0 {
		return c.wander()
	}
	return c.choose()
}

// handle reads once and answers. It reports whether there was something.
func (c *consumer) handle(ctx context.Context) bool {
	c.answerHeld(ctx)
	count := 1 + c.rng.IntN(largestRead)
	switch c.rng.IntN(40) {
	case 0: // It goes away in the middle of the answer, or before there is one.
		c.take(ctx, count, time.Duration(1+c.rng.IntN(15))*time.Millisecond)
		c.crash()
		return false
	case 1: // It goes away with all it has.
		c.take(ctx, count, c.timeout)
		c.crash()
		return false
	case 2:
		c.look(ctx)
		return false
	}
	h := c.take(ctx, count, c.timeout)
	if h == nil || len(h.messages) == 0 {
		return false
	}
	c.answer(ctx, h)
	return true
}

// look asks for the group, or for all groups: one that is there is never said not to be.
func (c *consumer) look(ctx context.Context) {
	path := c.group.path() + "/info"
	if c.rng.IntN(2) == 0 {
		path = "/subscriptions"
	}
	a, err := c.do(ctx, c.node(), client.Request{Method: http.MethodGet, Path: path, Header: map[string]string{"Accept": client.MediaJSON}})
	if c.usable(a, err) && !strings.Contains(string(a.Body), strconv.Quote(c.group.stream)) {
		c.find.add(kindAnswer, "%s: GET %s lacks %s", c.place(a.from), path, c.group)
	}
}

// crash forgets what it holds and comes back on another node.
func (c *consumer) crash() {
	c.held = nil
	c.count.add(ofSubscriptions, "crashes", 1)
	c.wander()
}

// take reads messages. It returns nil when there is no answer with messages in it.
func (c *consumer) take(ctx context.Context, count int, limit time.Duration) *handout {
	embed := [...]string{"", "rich", "body"}[c.rng.IntN(3)]
	call := c.hist.now()
	a, err := c.doWithin(ctx, c.node(), c.group.read(count, embed), limit)
	ret := c.hist.now()
	if !c.usable(a, err) {
		return nil
	}
	h, err := parseHandout(a.Body)
	if err != nil {
		c.find.add(kindAnswer, "%s: %v", c.place(a.from), err)
		return nil
	}
	if len(h.messages) > count {
		c.find.add(kindAnswer, "%s gives %d messages of %s, asked for %d", c.place(a.from), len(h.messages), c.group, count)
	}
	for _, m := range h.messages {
		c.steps = append(c.steps, step{delivered, c.group, c.number, a.from.Index, call, ret, m.id, m.title, m.retries, done, nil, 0})
	}
	c.count.add(ofSubscriptions, "deliveries", len(h.messages))
	return h
}

// usable sorts answers. One that no fault explains is reported.
func (c *consumer) usable(a *answer, err error) bool {
	switch judge(a, err) {
	case done:
		return true
	case conflict:
		c.find.add(kindAnswer, "%s: %s", c.group, a)
	}
	c.count.add(ofSubscriptions, "readsFailed", 1)
	c.wander()
	return false
}

// answer decides the fate of each message and tells the server.
func (c *consumer) answer(ctx context.Context, h *handout) {
	if c.rng.IntN(4) == 0 {
		c.send(ctx, actionAck, nil, h.ackAll, ids(h.messages))
		return
	}
	fates := map[string][]message{}
	for _, m := range h.messages {
		f := c.fate()
		fates[f] = append(fates[f], m)
	}
	if left := fates[actionLeave]; len(left) > 0 {
		c.count.add(ofSubscriptions, "leftUnanswered", len(left))
		if c.rng.IntN(2) == 0 {
			// Some of these answers come in time, some after the next delivery.
			due := time.Duration(c.rng.Float64() * 2 * float64(c.group.settings.timeout()))
			c.held = append(c.held, heldBack{c.hist.now() + int64(due), ids(left)})
		}
	}
	for _, a := range answers {
		list := fates[a]
		for len(list) > 0 && c.rng.IntN(2) == 0 { // Some by themselves, the rest together.
			path, after := list[0].ack, c.after()
			if a != actionAck {
				path = list[0].nack + "?action=" + c.spelling(a, after)
			}
			c.send(ctx, a, after, path, ids(list[:1]))
			list = list[1:]
		}
		if len(list) > 0 {
			after := c.after()
			c.send(ctx, a, after, c.listed(a, after, ids(list)), ids(list))
		}
	}
}

func (c *consumer) fate() string {
	switch dice := c.rng.IntN(100); {
	case dice < 82:
		return actionAck
	case dice < 85:
		return actionSkip
	case dice < 86:
		return actionStop
	case dice < 89:
		return actionPark
	case dice < 94:
		return actionRetry
	}
	return actionLeave
}

// after is a delay that a consumer asks for, nil: it leaves that to the group.
func (c *consumer) after() *time.Duration {
	if c.group.settings.RetryDelay == 0 || c.rng.IntN(2) == 0 {
		return nil
	}
	return new(time.Duration(c.rng.IntN(int(longestAfter/time.Millisecond))) * time.Millisecond)
}

// spelling returns an action as clients write it, a retry with its delay; any unknown word means a
// retry.
func (c *consumer) spelling(a string, after *time.Duration) string {
	if a != actionRetry {
		return a
	}
	if c.rng.IntN(3) == 0 {
		a = "Retyr"
	}
	if after != nil {
		a += "&after=" + after.String()
	}
	return a
}

// listed is the path that answers many messages at once.
func (c *consumer) listed(a string, after *time.Duration, list []event.ID) string {
	texts := make([]string, len(list))
	for i, id := range list {
		texts[i] = id.String()
	}
	path := "/ack?ids=" + strings.Join(texts, ",")
	if a != actionAck {
		path = "/nack?ids=" + strings.Join(texts, ",") + "&action=" + c.spelling(a, after)
	}
	return c.group.path() + path
}

func ids(messages []message) []event.ID {
	list := make([]event.ID, len(messages))
	for i, m := range messages {
		list[i] = m.id
	}
	return list
}

// answerHeld acknowledges messages that were held back long enough.
func (c *consumer) answerHeld(ctx context.Context) {
	kept := c.held[:0]
	for _, h := range c.held {
		if h.due > c.hist.now() {
			kept = append(kept, h)
			continue
		}
		c.send(ctx, actionAck, nil, c.listed(actionAck, nil, h.ids), h.ids)
	}
	c.held = kept
}

// send answers messages, once: what got lost is delivered again. after is the delay of a retry.
func (c *consumer) send(ctx context.Context, as string, after *time.Duration, path string, list []event.ID) {
	call := c.hist.now()
	a, err := c.do(ctx, c.node(), client.Request{Method: http.MethodPost, Path: path})
	r := step{What: as, Group: c.group, Consumer: c.number, Node: -1, Call: call, Return: c.hist.now(), Outcome: judge(a, err)}
	if a != nil {
		r.Node = a.from.Index
	}
	if !c.usable(a, err) && r.Outcome == conflict {
		r.Outcome = refused
	}
	if as == actionRetry {
		r.Delay = after
	}
	c.count.add(ofSubscriptions, as+" "+r.Outcome.String(), len(list))
	for _, id := range list {
		r.ID = id
		c.steps = append(c.steps, r)
	}
}

// info asks what a group still has to do.
func (c *consumer) info(ctx context.Context) (*groupInfo, error) {
	a, err := c.do(ctx, c.node(), client.Request{Method: http.MethodGet, Path: c.group.path() + "/info", Header: map[string]string{"Accept": client.MediaJSON}})
	if err != nil {
		return nil, err
	}
	if a.Status != http.StatusOK {
		return nil, errors.New(a.String())
	}
	i := &groupInfo{}
	return i, json.Unmarshal(a.Body, i)
}
