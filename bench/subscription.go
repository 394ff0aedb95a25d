package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/annalsdb/annals/client"
)

const (
	typeMessages = "application/vnd.eventstore.competingatom+json"

	maxMessages = 100 // of one read, what the interface allows

	// eventsPerSecond is for how fast a group the stream is long enough, unless its length is
	// given.
	eventsPerSecond = 300_000

	// Readers that find nothing rest, the longer the more often.
	shortestRest = time.Millisecond
	longestRest  = 50 * time.Millisecond
	// patience is how long nothing may be delivered before events that never came count as lost.
	patience = 5 * time.Second
	// messageTimeout is when the server hands a message out again, with the default of the setting,
	// and a little more.
	messageTimeout = 12 * time.Second
)

var subscriptionKind = &kind{
	name: "subscription", short: "Read the messages of a persistent subscription and acknowledge them",
	flags: runs + "stream-events size batch page buffer-size read-batch-size max-checkpoint-count default-settings",
	usages: map[string]string{
		"stream-events": fmt.Sprintf("events of the stream, 0 for %d for each second of warm-up and run", eventsPerSecond),
		"batch":         "events of one request that writes the stream",
		"page":          "messages of one read, at most 100",
	},
	long: `Write a stream of --stream-events events, create a group on it, and have --workers
competing readers that each read a page of messages with bodies and acknowledge it
with the link that came with it, until all are acknowledged or --duration is over.
Stream and group have a new name, <prefix>-subscription-<id>; the group is deleted in
the end, the stream stays. Creating a group takes an operator's --user and --password.

The table has a row for reads that brought messages, for those that brought none
(after which a reader rests for 1 to 50 ms), and for acknowledgements. events/s are
events acknowledged. The line below says how many of the events were delivered at
least once. A group that hands out nothing for 5 seconds while events are missing ends the
run with an error; of a shorter run the line says how long nothing came.

`,
	preset: func(o *options) {
		o.workers, o.page, o.batch = 4, maxMessages, 500
		o.duration, o.warmup = 3*time.Second, 500*time.Millisecond
	},
	make: func(o *options) (*workload, error) {
		if o.streamEvents == 0 {
			o.streamEvents = max(1, int64(eventsPerSecond*(o.warmup+o.duration).Seconds()))
		}
		if o.page > maxMessages {
			return nil, fmt.Errorf("--page %d is more than the %d messages that one read may bring", o.page, maxMessages)
		}
		if !o.defaultSettings && (o.readBatchSize < 1 || o.bufferSize <= o.readBatchSize) {
			return nil, fmt.Errorf("--buffer-size %d is not more than --read-batch-size %d, or that is not positive", o.bufferSize, o.readBatchSize)
		}
		return subscribing(o), nil
	},
}

// The parts of the workload subscription.
const (
	partRead = iota
	partEmpty
	partAck
)

// subscribing is the workload subscription: the workers are the competing readers of one
// group, which read messages and acknowledge them, in turn.
func subscribing(o *options) *workload {
	name := o.prefix + "-subscription-" + newIDs().next().String()[:8]
	got := &deliveries{last: time.Now(), metrics: groupStatistics{Stream: name, Group: name, StreamEvents: o.streamEvents}}
	var settings client.GroupSettings
	if !o.defaultSettings {
		settings = client.GroupSettings{BufferSize: o.bufferSize, ReadBatchSize: o.readBatchSize, MaxCheckpointCount: o.maxCheckpoint}
		got.metrics.BufferSize, got.metrics.ReadBatchSize, got.metrics.MaxCheckpoint = o.bufferSize, o.readBatchSize, o.maxCheckpoint
	}
	// control does something to the group as a whole.
	control := func(what string, do func(*client.Group) error) error {
		if err := o.control(func(c *client.Client) error { return do(c.Group(name, name)) }); err != nil {
			return fmt.Errorf("%s the group %s (it takes an operator's --user and --password): %w", what, name, err)
		}
		return nil
	}
	w := &workload{name: "subscription", parts: []string{"read", "read empty", "ack"}}
	w.setup = func(ctx context.Context, s *session) error {
		if err := prepare(ctx, s, layout{prefix: o.prefix, streams: 1, events: o.streamEvents}, name); err != nil {
			return err
		}
		if err := control("create", func(g *client.Group) error { return g.Create(ctx, settings) }); err != nil {
			return err
		}
		// An interrupt leaves no group.
		w.close = func() error {
			return control("delete", func(g *client.Group) error { return g.Delete(context.WithoutCancel(ctx)) })
		}
		got.touch(time.Now())
		return nil
	}
	w.operation = func(int, int) operation {
		r := &subscribeOp{got: got, read: o.request("GET", "Accept: "+typeMessages), ack: o.request("POST")}
		r.read.path = []byte("/subscriptions/" + inPath(name) + "/" + inPath(name) + "/" + strconv.Itoa(o.page) + "?embed=body")
		r.read.keep, r.ack.body = true, []byte{}
		return r
	}
	w.finish = func(r *result) error {
		r.Group = got.statistics(time.Now())
		if r.Operations == 0 && r.Group.Complete {
			return errors.New("the warm-up left no events to measure with: more --stream-events or less --warmup is needed")
		}
		return nil
	}
	return w
}

// subscribeOp reads messages with one operation and acknowledges them with the next.
type subscribeOp struct {
	got     *deliveries
	pending int64 // events that were read and not acknowledged, those of ack
	rest    time.Duration

	read, ack request
	resp      response
}

func (r *subscribeOp) do(ctx context.Context, c *sender) (outcome, error) {
	if r.pending > 0 {
		// A failed attempt is repeated with the next operation: the repeat does no harm if the
		// first attempt was executed.
		if err := c.expect(ctx, &r.ack, &r.resp, 202, 200); err != nil {
			return outcome{}, err
		}
		out := outcome{part: partAck, events: r.pending}
		r.pending = 0
		return out, nil
	}
	missing, quiet := r.got.missing(time.Now())
	if missing <= 0 {
		return outcome{}, errFinished
	}
	if err := c.expect(ctx, &r.read, &r.resp, 200); err != nil {
		// What the answer held comes again when its time is over.
		r.got.touch(time.Now().Add(messageTimeout))
		return outcome{}, err
	}
	page := r.resp.body.Bytes()
	n := int64(countEntries(page))
	if n > 0 {
		head := headOf(page)
		link := head.link("ackAll")
		if link == "" {
			return outcome{}, fmt.Errorf("%w: %d messages without a link ackAll", errMalformed, n)
		}
		r.pending, r.rest = n, 0
		r.ack.path = append(r.ack.path[:0], strings.TrimPrefix(link, c.prefix)...)
		r.got.add(int64(countFirst(page)), n)
		return outcome{part: partRead, bytes: r.resp.length}, nil
	}
	if quiet >= patience {
		return outcome{}, &fatalError{fmt.Errorf("%d events were never delivered, and nothing else has been for %s", missing, patience)}
	}
	r.rest = min(max(2*r.rest, shortestRest), longestRest)
	return outcome{part: partEmpty, bytes: r.resp.length, rest: r.rest}, nil
}

// groupStatistics is what became of the events of a group, those of the warm-up included.
type groupStatistics struct {
	Stream        string `json:"stream"`
	Group         string `json:"group"`
	BufferSize    int    `json:"bufferSize,omitempty"` // none: the server's default
	ReadBatchSize int    `json:"readBatchSize,omitempty"`
	MaxCheckpoint int    `json:"maxCheckPointCount,omitempty"`
	StreamEvents  int64  `json:"streamEvents"`
	Delivered     int64  `json:"delivered"` // for the first time
	Redelivered   int64  `json:"redelivered"`
	Complete      bool   `json:"complete"` // every event was delivered at least once
	// QuietSeconds is how long before the end the last message came. A long time, unless
	// all is complete, says that the group had nothing to hand out.
	QuietSeconds float64 `json:"quietSeconds"`
}

// deliveries is what the readers of a group were given, all together.
type deliveries struct {
	mu      sync.Mutex
	metrics groupStatistics
	last    time.Time // when the last message came, or later, when others are due later
}

// add counts messages, of which some came for the first time.
func (d *deliveries) add(first, all int64) {
	d.touch(time.Now())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.metrics.Delivered += first
	d.metrics.Redelivered += all - first
}

// touch puts off when events count as lost.
func (d *deliveries) touch(until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if until.After(d.last) {
		d.last = until
	}
}

// missing returns how many events were not delivered, and for how long nothing was.
func (d *deliveries) missing(now time.Time) (int64, time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.metrics.StreamEvents - d.metrics.Delivered, now.Sub(d.last)
}

func (d *deliveries) statistics(end time.Time) *groupStatistics {
	missing, quiet := d.missing(end)
	f := d.metrics
	f.Complete, f.QuietSeconds = missing <= 0, max(0, quiet.Seconds())
	return &f
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
