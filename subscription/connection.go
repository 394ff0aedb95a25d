package subscription

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/annalsdb/annals/event"
)

// ConnectOptions says who wants to be pushed to.
type ConnectOptions struct {
	From, User, Name string
	MaxInFlight      int // messages without an answer that the consumer takes; below 1 counts as 1
	// Links decides which targets of links the consumer is shown: the other links come as dead
	// ones. nil: none.
	Links event.LinkReader
}

// ErrTooManySubscribers says that a group has as many connections as it may have.
var ErrTooManySubscribers = errors.New("maximum subscribers reached")

// Connection is a consumer that messages are pushed to. Its methods may be
// called from any goroutine.
type Connection struct {
	ConnectOptions
	g       *group
	arrived chan struct{} // one element: there may be something to receive
	done    chan struct{} // closed when the connection ends

	// The group's mutex guards the fields below.
	unread           []*message // pushed and not received yet
	ended            error      // why the connection ended, nil: it did not
	inFlight         int        // messages without an answer, unread ones included
	buckets          int        // of a pinned strategy
	total, sinceLast int64
	measured         time.Time
	latencies        *latencies // nil without ExtraStatistics
}

// ErrDropped says that a connection ended because its group is loaded again: it was
// updated, or all groups are. A new connection can be made.
var ErrDropped = errors.New("connection dropped: the group is loaded again")

// Receive waits for the next message. Besides the context's error it returns why the connection has
// ended: event.ErrClosed by Close, ErrNotFound as the group was deleted, ErrDropped as it is loaded
// again, and event.ErrNotReady as this node does not lead any more, or ends. It also fails when the
// consumer's rights cannot be found out.
func (c *Connection) Receive(ctx context.Context) (Message, error) {
	for {
		c.g.mu.Lock()
		m, ok := c.take()
		ended := c.ended
		c.g.mu.Unlock()
		switch {
		case ok:
			return m, c.g.show(ctx, &m, c.Links)
		case ended != nil:
			return m, ended
		}
		select {
		case <-c.arrived:
		case <-c.done:
		case <-c.g.term.ctx.Done():
			return Message{}, event.ErrNotReady
		case <-ctx.Done():
			return Message{}, ctx.Err()
		}
	}
}

// TryReceive returns a message if there is one already. When there is none, Receive tells why.
func (c *Connection) TryReceive(ctx context.Context) (m Message, ok bool, err error) {
	c.g.mu.Lock()
	m, ok = c.take()
	c.g.mu.Unlock()
	if ok {
		err = c.g.show(ctx, &m, c.Links)
	}
	return m, ok, err
}

// show returns the part of a message that a consumer may see.
func (g *group) show(ctx context.Context, m *Message, links event.LinkReader) error {
	shown, err := m.Event.For(links, func(stream string) (event.StreamInfo, error) { return g.store.StreamInfo(ctx, stream) })
	if err != nil {
		return fmt.Errorf("find out whether event %d of %q may be shown: %w", m.Event.Number, m.Event.Stream, err)
	}
	m.Event = shown
	return nil
}

// take returns the next unread message, if there is one. The caller holds the group's mutex.
func (c *Connection) take() (m Message, ok bool) {
	if len(c.unread) == 0 {
		return m, false
	}
	m = c.unread[0].handed()
	c.unread = c.unread[1:]
	if len(c.unread) > 0 {
		signal(c.arrived) // For another one that waits.
	}
	c.g.settle()
	return m, true
}

// Ack answers messages as processed.
func (c *Connection) Ack(ids ...event.ID) { c.g.ack(ids) }

// Nack answers messages as not processed.
func (c *Connection) Nack(ids []event.ID, action Action, reason string) {
	c.g.nack(ids, action, reason)
}

// Close ends the connection. Messages that it has not answered are handed out again at once.
func (c *Connection) Close() {
	g := c.g
	g.mu.Lock()
	defer g.mu.Unlock()
	at := slices.Index(g.connections, c)
	if at < 0 {
		return
	}
	g.connections = slices.Delete(g.connections, at, at+1)
	c.end(event.ErrClosed)
	for m := g.out.head; m != nil; {
		next := g.out.next(m)
		if m.to == c {
			g.again(m)
		}
		m = next
	}
	g.strategy.left(c)
	g.settle()
}

// connect adds a consumer to the group.
func (g *group) connect(o ConnectOptions) (*Connection, error) {
	o.MaxInFlight = max(1, o.MaxInFlight)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, event.ErrNotReady
	}
	if limit := g.Settings.MaxSubscriberCount; limit > 0 && len(g.connections) >= limit {
		return nil, ErrTooManySubscribers
	}
	c := &Connection{ConnectOptions: o, g: g, arrived: make(chan struct{}, 1), done: make(chan struct{}), measured: g.now()}
	if g.Settings.ExtraStatistics {
		c.latencies = new(latencies)
	}
	g.connections = append(g.connections, c)
	g.strategy.joined(c)
	g.settle()
	return c, nil
}

// end ends all that wait to receive. The caller holds the group's mutex.
func (c *Connection) end(why error) {
	if c.ended == nil {
		c.ended, c.unread = why, nil
		close(c.done)
	}
}

// free reports whether another message fits. The caller holds the group's mutex.
func (c *Connection) free() bool {
	return c.ended == nil && c.inFlight < c.MaxInFlight && len(c.unread) < c.MaxInFlight
}

// took and returned count the messages that the consumer has. The caller holds the group's mutex.
func (c *Connection) took(m *message) {
	c.inFlight++
	c.g.strategy.handed(m)
}

func (c *Connection) returned(m *message) {
	c.inFlight--
	c.g.strategy.returned(m)
	if at := slices.Index(c.unread, m); at >= 0 {
		c.unread = slices.Delete(c.unread, at, at+1) // Its time was over before it was read.
	} else if c.latencies != nil {
		c.latencies.add(c.g.now().Sub(m.given))
	}
}

func (c *Connection) info(now time.Time) ConnectionInfo {
	i := ConnectionInfo{From: c.From, User: c.User, Name: c.Name, Total: c.total, InFlight: c.inFlight, AvailableSlots: max(0, c.MaxInFlight-c.inFlight)}
	i.PerSecond, i.SinceLast = perSecond(&c.sinceLast, &c.measured, now)
	if c.latencies != nil {
		i.Latencies = c.latencies.statistics()
	}
	return i
}

// dispatch pushes the messages that can be pushed. The caller holds mu.
func (g *group) dispatch() {
	if len(g.connections) == 0 {
		return
	}
	now := g.now()
	for _, l := range []*list{&g.retry, &g.replays, &g.buffer} {
		for m := l.head; m != nil; {
			if l == &g.buffer && !g.mayHandOut() {
				return
			}
			next := l.next(m)
			to, full := g.strategy.choose(m)
			if full {
				return
			}
			if to != nil {
				to.total++
				to.sinceLast++
				g.handOut(m, to, now)
				g.metrics.delivered.Inc()
				to.unread = append(to.unread, m)
				signal(to.arrived)
			}
			m = next
		}
	}
}
