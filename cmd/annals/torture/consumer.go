package torture

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/event"
)

// action is how a consumer answers a message.
type action uint8

const (
	actionAck action = iota
	actionSkip
	actionStop
	actionPark
	actionRetry
	// leave is no answer: the message times out.
	actionLeave
)

var actionWords = [...]string{"ack", "skip", "stop", "park", "retry", "none"}

func (a action) String() string { return actionWords[a] }

// finishes says that the message is done with and will not be parked.
func (a action) finishes() bool { return a <= actionStop }

// delivery is one message in one answer. Times are nanoseconds since the run began.
type delivery struct {
	id        event.ID
	title     string
	call, ret int64 // of the reading
	retries   int
	group     int
	consumer  int
	node      int
}

// reply is one answer to a message.
type reply struct {
	id        event.ID
	call, ret int64
	group     int
	consumer  int
	node      int
	action    action
	outcome   outcome
}

// consumer is a client that reads messages of one group and answers most of them.
// Whatever it is given and whatever it says is kept for the check in the end.
type consumer struct {
	worker
	number int
	index  int // of the group
	group  *group
	held   []heldBack

	deliveries []delivery
	replies    []reply
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

func newConsumer(s *subscriptions, number, index int) *consumer {
	return &consumer{worker: s.load.worker(consumers + number), number: number, index: index, group: s.groups[index]}
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

// node returns whom to ask: mostly who served before, now and then anybody.
func (c *consumer) node() target {
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
	}
	h := c.take(ctx, count, c.timeout)
	if h == nil || len(h.messages) == 0 {
		return false
	}
	c.answer(ctx, h)
	return true
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
		c.deliveries = append(c.deliveries, delivery{
			id: m.id, title: m.title, call: call, ret: ret, retries: m.retries, group: c.index, consumer: c.number, node: a.from.index,
		})
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
	c.count.add(ofSubscriptions, "without answer", 1)
	c.wander()
	return false
}

// answer decides the fate of each message and tells the server.
func (c *consumer) answer(ctx context.Context, h *handout) {
	if c.rng.IntN(4) == 0 {
		c.send(ctx, actionAck, h.ackAll, ids(h.messages))
		return
	}
	var fates [len(actionWords)][]message
	for _, m := range h.messages {
		f := c.fate()
		fates[f] = append(fates[f], m)
	}
	if left := fates[actionLeave]; len(left) > 0 {
		c.count.add(ofSubscriptions, "left to time out", len(left))
		if c.rng.IntN(2) == 0 {
			// Some of these answers come in time, some after the next delivery.
			due := time.Duration(c.rng.Float64() * 2 * float64(c.group.settings.timeout()))
			c.held = append(c.held, heldBack{c.hist.now() + int64(due), ids(left)})
		}
	}
	for a, list := range fates[:actionLeave] {
		for len(list) > 0 && c.rng.IntN(2) == 0 { // Some by themselves, the rest together.
			path := list[0].ack
			if action(a) != actionAck {
				path = list[0].nack + "?action=" + c.spelling(action(a))
			}
			c.send(ctx, action(a), path, ids(list[:1]))
			list = list[1:]
		}
		if len(list) > 0 {
			c.send(ctx, action(a), c.listed(action(a), ids(list)), ids(list))
		}
	}
}

func (c *consumer) fate() action {
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

// spelling returns an action as clients write it; any unknown word means a retry.
func (c *consumer) spelling(a action) string {
	if a == actionRetry && c.rng.IntN(3) == 0 {
		return "Retyr"
	}
	return a.String()
}

// listed is the path that answers many messages at once.
func (c *consumer) listed(a action, list []event.ID) string {
	texts := make([]string, len(list))
	for i, id := range list {
		texts[i] = id.String()
	}
	path := "/ack?ids=" + strings.Join(texts, ",")
	if a != actionAck {
		path = "/nack?ids=" + strings.Join(texts, ",") + "&action=" + c.spelling(a)
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

// answerHeld acknowledges what was held back long enough.
func (c *consumer) answerHeld(ctx context.Context) {
	kept := c.held[:0]
	for _, h := range c.held {
		if h.due > c.hist.now() {
			kept = append(kept, h)
			continue
		}
		c.send(ctx, actionAck, c.listed(actionAck, h.ids), h.ids)
	}
	c.held = kept
}

// send answers messages, once: what got lost is delivered again.
func (c *consumer) send(ctx context.Context, as action, path string, list []event.ID) {
	call := c.hist.now()
	a, err := c.do(ctx, c.node(), client.Request{Method: http.MethodPost, Path: path})
	r := reply{call: call, ret: c.hist.now(), group: c.index, consumer: c.number, node: -1, action: as, outcome: judge(a, err)}
	if a != nil {
		r.node = a.from.index
	}
	if !c.usable(a, err) && r.outcome == conflict {
		r.outcome = refused
	}
	c.count.add(ofSubscriptions, as.String()+" "+r.outcome.String(), len(list))
	for _, id := range list {
		r.id = id
		c.replies = append(c.replies, r)
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
