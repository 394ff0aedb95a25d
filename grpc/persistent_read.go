package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/persistent"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/subscription"
)

// consumer is one call of Read.
type consumer struct {
	s      *Server
	stream persistent.PersistentSubscriptions_ReadServer
	key    subscription.Key
	texts  bool // ids are sent as texts
	conn   *subscription.Connection

	release func() // of its share
}

// Read pushes messages to a consumer and takes its answers, until the client or the group ends.
//
// This goroutine sends. A second one receives and hands each answer on at once, so nothing waits
// between the two. It ends with the client's half-close or with the call: Recv returns as soon as
// this method has.
func (p *persistentService) Read(stream persistent.PersistentSubscriptions_ReadServer) error {
	first, err := stream.Recv()
	switch {
	case errors.Is(err, io.EOF):
		return invalid("the options are missing")
	case err != nil:
		return received(stream.Context(), err)
	}
	c := &consumer{s: p.s, stream: stream}
	if err := c.connect(stream.Context(), first.GetOptions()); err != nil {
		return ofGroup(c.key, err)
	}
	defer c.release()
	defer c.conn.Close()
	p.s.metrics.subscriptions.Add(1)
	defer p.s.metrics.subscriptions.Add(-1)

	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	defer context.AfterFunc(p.s.draining, func() { end(event.ErrNotReady) })()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if err := p.s.guard(persistent.PersistentSubscriptions_Read_FullMethodName, c.receive); err != nil {
			end(err)
		}
	}()
	err = c.send(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if callOf(ctx).ended.Err() != nil {
		<-answered // Messages that were answered before the end are not handed out again.
	}
	return c.why(err)
}

// connect begins to consume from the group that the first message names.
func (c *consumer) connect(ctx context.Context, o *persistent.ReadReq_Options) (err error) {
	if o == nil {
		return invalid("the first message must have the options")
	}
	if c.key, err = keyOf(o.GetStreamIdentifier(), o.GetAll() != nil, o.GetGroupName()); err != nil {
		return err
	}
	_, c.texts = o.GetUuidOption().GetContent().(*persistent.ReadReq_Options_UUIDOption_String_)
	if err := c.s.opts.Permit(ctx, &api.Consume.May, callOf(ctx).who(), c.key.Stream, ""); err != nil {
		return err
	}
	if err := c.s.opts.Lead(); err != nil {
		return err
	}
	// It may have been given another source than its own stream.
	source, err := c.s.opts.Subscriptions.SourceOf(c.key)
	if err == nil {
		err = c.s.opts.Permit(ctx, &api.Consume.May, callOf(ctx).who(), source, "")
	}
	if err != nil {
		return err
	}
	c.s.needs(ctx, access.ReadRight, api.ReadBy(c.key.Stream), api.ReadBy(source))
	by := callOf(ctx)
	who := by.who().Login
	if by.who().IsAnonymous() {
		who = anonymous
	}
	if c.release, err = c.s.take(ctx, api.Consumer); err != nil {
		return err
	}
	c.conn, err = c.s.opts.Subscriptions.Connect(ctx, c.key, subscription.ConnectOptions{
		From: by.from, User: who, Name: by.name, MaxInFlight: int(o.GetBufferSize()),
		Links: &linkRights{ctx, c.s, by},
	})
	if err != nil {
		c.release()
	}
	return err
}

// why is the end of the call, by what ended the connection.
func (c *consumer) why(err error) error {
	if (errors.Is(err, event.ErrNotReady) || errors.Is(err, event.ErrClosed)) && c.s.draining.Err() == nil {
		if lost := c.s.opts.Lead(); lost != nil {
			return lost
		}
	}
	return onGroup(c.key, err)
}

// receive takes the client's answers until it sends no more.
func (c *consumer) receive() error {
	var a groupAnswer
	for {
		err := c.stream.RecvMsg(&a)
		switch {
		case errors.Is(err, io.EOF):
			return nil // It may continue to consume.
		case err != nil:
			return received(c.stream.Context(), err)
		case a.form == 0:
			return invalid("a message after the first must be an ack or a nack")
		case a.err != nil:
			return a.err
		case a.form == isAck:
			c.conn.Ack(a.ids...)
		default:
			c.conn.Nack(a.ids, actionOf(a.action), a.reason)
		}
	}
}

// actionOf reads the action of a nack. An unknown action means retry.
func actionOf(a persistent.ReadReq_Nack_Action) subscription.Action {
	switch a {
	case persistent.ReadReq_Nack_Park:
		return subscription.Park
	case persistent.ReadReq_Nack_Skip:
		return subscription.Skip
	case persistent.ReadReq_Nack_Stop:
		return subscription.Stop
	}
	return subscription.Retry
}

// send sends the confirmation, and then messages as they come.
func (c *consumer) send(ctx context.Context) error {
	out := sender{stream: c.stream}
	if err := out.message(&persistent.ReadResp{Content: &persistent.ReadResp_SubscriptionConfirmation_{
		SubscriptionConfirmation: &persistent.ReadResp_SubscriptionConfirmation{SubscriptionId: c.key.String()},
	}}); err != nil {
		return err
	}
	for {
		m, ok, err := c.conn.TryReceive(ctx)
		if err != nil {
			return err
		}
		if !ok {
			callOf(ctx).flush()
			if m, err = c.conn.Receive(ctx); err != nil {
				return err
			}
		}
		if err := c.message(ctx, &out, &m); err != nil {
			return err
		}
	}
}

// message sends a message, unless its event is gone, which counts as answered. Whether the client
// may read the stream is looked at for each message.
func (c *consumer) message(ctx context.Context, out *sender, m *subscription.Message) error {
	if err := c.s.authorize(ctx, c.key.Stream, access.ReadRight); err != nil {
		return err
	}
	bytes := 2 * int64(m.Event.PayloadBytes()) // It is read as well.
	_, err := callOf(ctx).send(ctx, bytes, out, func() (*[]byte, error) {
		e, err := m.Event.Complete(func(r *event.Record) error { return c.s.opts.Store.ReadPayload(ctx, r) })
		if err != nil {
			return nil, err
		}
		return frameOf(e, c.texts, m.Retries), nil
	})
	switch {
	case errors.Is(err, event.ErrEventNotFound):
		c.conn.Ack(m.ID)
	case err != nil:
		return fmt.Errorf("send event %d of %q: %w", m.Event.Number, m.Event.Stream, err)
	default:
		c.s.metrics.events.Inc()
	}
	return nil
}
