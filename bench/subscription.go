package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/event"
)

const (
	typeMessages = "application/vnd.eventstore.competingatom+json"

	maxMessages = 100 // of one read, what the interface allows

	// Readers that find nothing rest, the longer the more often.
	shortestRest = time.Millisecond
	longestRest  = 50 * time.Millisecond
	// patience is how long nothing may be delivered before events that never came count as lost.
	patience = 5 * time.Second
	// messageTimeout is when the server hands a message out again, with the default of the setting,
	// and a little more.
	messageTimeout = 12 * time.Second
)

// The parts of the workload subscription.
const (
	partRead = iota
	partEmpty
	partAck
)

// subscribing is the workload subscription: the workers are the competing readers of one
// group, which read messages and acknowledge them, in turn.
type subscribing struct {
	o             *options
	stream, group string
	hash          uint64 // of the stream
	got           *deliveries
}

func newSubscribing(o *options, stream, group string) *subscribing {
	return &subscribing{o: o, stream: stream, hash: hashOf(stream), group: group, got: newDeliveries(o.streamEvents)}
}

func (w *subscribing) parts() []string { return []string{"read", "read empty", "ack"} }

// setup creates the group. The stream is there.
func (w *subscribing) setup(ctx context.Context, _ *session) error {
	var settings client.GroupSettings
	if !w.o.defaultSettings {
		settings = client.GroupSettings{BufferSize: w.o.bufferSize, ReadBatchSize: w.o.readBatchSize, MaxCheckpointCount: w.o.maxCheckpoint}
	}
	if err := w.control(func(g *client.Group) error { return g.Create(ctx, settings) }); err != nil {
		return fmt.Errorf("create the group %s (it takes an operator's --user and --password): %w", w.group, err)
	}
	w.got.touch(time.Now())
	return nil
}

// remove deletes the group.
func (w *subscribing) remove(ctx context.Context) error {
	if err := w.control(func(g *client.Group) error { return g.Delete(ctx) }); err != nil {
		return fmt.Errorf("delete the group %s: %w", w.group, err)
	}
	return nil
}

// control does something to the group as a whole.
func (w *subscribing) control(do func(*client.Group) error) error {
	c, err := w.o.control()
	if err != nil {
		return err
	}
	defer c.Close()
	return do(c.Group(w.stream, w.group))
}

func (w *subscribing) path() string {
	return "/subscriptions/" + escapeStream(w.stream) + "/" + escapeStream(w.group)
}

func (w *subscribing) operation(int, int) operation {
	r := &subscribeOp{
		w: w, read: w.o.get(typeMessages),
		ack: request{method: "POST", body: []byte{}, head: basicAuth(w.o.user, w.o.password)},
	}
	r.read.path = []byte(w.path() + "/" + strconv.Itoa(w.o.page) + "?embed=body")
	r.read.keep = true
	return r
}

// subscribeOp reads messages with one operation and acknowledges them with the next.
type subscribeOp struct {
	w       *subscribing
	pending []int64 // events that were read and not acknowledged, those of ack
	rest    time.Duration

	read, ack request
	resp      response
}

func (r *subscribeOp) do(ctx context.Context, c *sender) (outcome, error) {
	if len(r.pending) > 0 {
		return r.acknowledge(ctx, c)
	}
	if r.w.got.complete() {
		return outcome{}, errFinished
	}
	out, err := r.take(ctx, c)
	if err != nil {
		// What the answer held comes again when its time is over.
		r.w.got.touch(time.Now().Add(messageTimeout))
		return outcome{}, err
	}
	if out.part == partRead {
		r.rest = 0
		return out, nil
	}
	if missing := r.w.got.lost(time.Now()); missing > 0 {
		return outcome{}, &fatalError{fmt.Errorf("%d of %d events were never delivered, and nothing else has been for %s", missing, r.w.got.total, patience)}
	}
	r.rest = min(max(2*r.rest, shortestRest), longestRest)
	out.rest = r.rest
	return out, nil
}

// take reads messages.
func (r *subscribeOp) take(ctx context.Context, c *sender) (outcome, error) {
	if err := c.expect(ctx, &r.read, &r.resp, 200); err != nil {
		return outcome{}, err
	}
	page := r.resp.body
	link := relatedLink(page, "ackAll")
	if link == "" && countEntries(page) == 0 {
		return outcome{part: partEmpty, bytes: r.resp.length}, nil
	}
	numbers, err := r.w.numbersIn(link, r.pending)
	if err != nil {
		return outcome{}, err
	}
	r.pending = numbers
	r.ack.path = append(r.ack.path[:0], strings.TrimPrefix(link, c.prefix)...)
	r.w.got.add(numbers, len(numbers)-countFirst(page), time.Now())
	return outcome{part: partRead, bytes: r.resp.length}, nil
}

// acknowledge acknowledges the messages that were read. A failed attempt is repeated with the next
// operation: the repeat does no harm if the first attempt was executed.
func (r *subscribeOp) acknowledge(ctx context.Context, c *sender) (outcome, error) {
	if err := c.expect(ctx, &r.ack, &r.resp, 202, 200); err != nil {
		return outcome{}, err
	}
	n := len(r.pending)
	r.pending = r.pending[:0]
	return outcome{part: partAck, events: int64(n)}, nil
}

// numbersIn appends the numbers of the events that a link acknowledges.
func (w *subscribing) numbersIn(link string, numbers []int64) ([]int64, error) {
	_, list, ok := strings.Cut(link, "?ids=")
	if !ok {
		return nil, fmt.Errorf("%w: the link ackAll is %.80q", errMalformed, link)
	}
	for text := range strings.SplitSeq(list, ",") {
		id, err := event.ParseID(text)
		if err != nil {
			return nil, fmt.Errorf("%w: the link ackAll has the id %.80q", errMalformed, text)
		}
		number, ok := numberOf(w.hash, id, w.o.streamEvents)
		if !ok {
			return nil, &fatalError{fmt.Errorf("the message %s is not an event of %s", text, w.stream)}
		}
		numbers = append(numbers, number)
	}
	return numbers, nil
}

// deliveries is what the readers of a group were given, all together.
type deliveries struct {
	total int64 // events of the stream

	mu       sync.Mutex
	seen     []uint64  // a bit for every event
	distinct int64     // bits set
	again    int64     // messages with a count of retries
	last     time.Time // when the last message came, or later, when others are due later
}

func newDeliveries(total int64) *deliveries {
	return &deliveries{total: total, seen: make([]uint64, (total+63)/64)}
}

func (d *deliveries) add(numbers []int64, again int, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range numbers {
		word, bit := &d.seen[n/64], uint64(1)<<(n%64)
		if *word&bit == 0 {
			*word |= bit
			d.distinct++
		}
	}
	d.again += int64(again)
	if now.After(d.last) {
		d.last = now
	}
}

// touch puts off when events count as lost.
func (d *deliveries) touch(until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if until.After(d.last) {
		d.last = until
	}
}

// complete reports whether every event was delivered.
func (d *deliveries) complete() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.distinct == d.total
}

// lost returns how many events were not delivered when there is no hope for them.
func (d *deliveries) lost(now time.Time) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.last) < patience {
		return 0
	}
	return d.total - d.distinct
}

// groupStatistics is what became of the events of a group, those of the warm-up included.
type groupStatistics struct {
	Stream        string `json:"stream"`
	Group         string `json:"group"`
	BufferSize    int    `json:"bufferSize,omitempty"` // none: the server's default
	ReadBatchSize int    `json:"readBatchSize,omitempty"`
	MaxCheckpoint int    `json:"maxCheckPointCount,omitempty"`
	StreamEvents  int64  `json:"streamEvents"`
	Delivered     int64  `json:"delivered"` // different ids
	Redelivered   int64  `json:"redelivered"`
	Complete      bool   `json:"complete"` // every event was delivered at least once
	// QuietSeconds is how long before the end the last message came. A long time, unless
	// all is complete, says that the group had nothing to hand out.
	QuietSeconds float64 `json:"quietSeconds"`
}

func (w *subscribing) metrics(end time.Time) *groupStatistics {
	d := w.got
	d.mu.Lock()
	defer d.mu.Unlock()
	f := &groupStatistics{
		Stream: w.stream, Group: w.group, StreamEvents: d.total,
		Delivered: d.distinct, Redelivered: d.again, Complete: d.distinct == d.total,
	}
	f.QuietSeconds = max(0, end.Sub(d.last).Seconds())
	if !w.o.defaultSettings {
		f.BufferSize, f.ReadBatchSize, f.MaxCheckpoint = w.o.bufferSize, w.o.readBatchSize, w.o.maxCheckpoint
	}
	return f
}

// String puts the numbers in a line.
func (f *groupStatistics) String() string {
	settings, verdict := "the server's settings", fmt.Sprintf("the run ended before the stream, %.2f s after the last delivery", f.QuietSeconds)
	if f.BufferSize > 0 {
		settings = fmt.Sprintf("buffer %d, read batch %d, checkpoint %d", f.BufferSize, f.ReadBatchSize, f.MaxCheckpoint)
	}
	if f.Complete {
		verdict = "every event was delivered"
	}
	return fmt.Sprintf("group %s (%s), warm-up included: %d of %d events delivered, %d redeliveries; %s",
		f.Group, settings, f.Delivered, f.StreamEvents, f.Redelivered, verdict)
}
