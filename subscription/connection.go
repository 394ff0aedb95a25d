package subscription

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/bell"
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
	g    *group
	done chan struct{} // closed when the connection ends

	// The group's mutex guards the fields below.
	consumer
	ended error // why the connection ended, nil: it did not
}

// consumer is a connection as the core knows it.
type consumer struct {
	most             int           // messages without an answer that it takes
	arrived          chan struct{} // one element: there may be something to receive; the group's
	unread           []*message    // pushed and not received yet
	inFlight         int           // messages without an answer, unread ones included
	buckets          int           // of a pinned strategy
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
		m, ok, ended := c.take()
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
	if m, ok, _ = c.take(); ok {
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

// take returns the next unread message, if there is one, and why the connection ended.
func (c *Connection) take() (m Message, ok bool, ended error) {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	if len(c.unread) == 0 {
		return m, false, c.ended
	}
	m = c.unread[0].handed()
	c.unread = c.unread[1:]
	if len(c.unread) > 0 {
		bell.Ring(c.arrived) // For another one that waits.
	}
	c.g.settle(c.g.now())
	return m, true, c.ended
}

// Ack answers messages as processed.
func (c *Connection) Ack(ids ...event.ID) { c.g.ack(ids) }

// Nack answers messages as not processed.
func (c *Connection) Nack(ids []event.ID, action Action, reason string) {
	c.g.nack(ids, action, reason, nil)
}

// Close ends the connection. Messages that it has not answered are handed out again at once.
func (c *Connection) Close() {
	g := c.g
	g.apply(func(core *core, now time.Time) {
		if at := slices.Index(g.connections, c); at >= 0 {
			g.connections = slices.Delete(g.connections, at, at+1)
			c.end(event.ErrClosed)
			core.leave(&c.consumer, now)
		}
	})
}

// connect adds a consumer to the group.
func (g *group) connect(o ConnectOptions) (*Connection, error) {
	o.MaxInFlight = max(1, o.MaxInFlight)
	c := &Connection{ConnectOptions: o, g: g, done: make(chan struct{})}
	c.most, c.arrived = o.MaxInFlight, make(chan struct{}, 1)
	if g.Settings.ExtraStatistics {
		c.latencies = new(latencies)
	}
	limit := g.Settings.MaxSubscriberCount
	ok := g.apply(func(core *core, now time.Time) {
		if limit <= 0 || len(g.connections) < limit {
			c.measured, g.connections = now, append(g.connections, c)
			core.join(&c.consumer)
		}
	})
	switch {
	case !ok:
		return nil, event.ErrNotReady
	case c.measured.IsZero():
		return nil, ErrTooManySubscribers
	}
	return c, nil
}

// end ends all that wait to receive. The caller holds the group's mutex.
func (c *Connection) end(why error) {
	if c.ended == nil {
		c.ended, c.unread = why, nil
		close(c.done)
	}
}

// free reports whether another message fits.
func (c *consumer) free() bool { return c.inFlight < c.most && len(c.unread) < c.most }

// returned takes a message back, answered or not.
func (c *consumer) returned(m *message, now time.Time) {
	c.inFlight--
	if at := slices.Index(c.unread, m); at >= 0 {
		c.unread = slices.Delete(c.unread, at, at+1) // Its time was over before it was read.
	} else if c.latencies != nil {
		c.latencies.add(now.Sub(m.given))
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
