package subscription_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/subscription"
)

func (b *bench) connect(slots int) *subscription.Connection {
	b.Helper()
	c, err := b.Connect(b.ctx, b.key, subscription.ConnectOptions{Name: "c", MaxInFlight: slots, Links: event.EveryLink})
	b.must(err)
	synctest.Wait()
	return c
}

// got takes what arrived at a connection.
func got(c *subscription.Connection) (all []subscription.Message) {
	for {
		synctest.Wait()
		m, ok, err := c.TryReceive(context.Background())
		if !ok || err != nil {
			return all
		}
		all = append(all, m)
	}
}

// ended returns why a connection ended, when it has.
func ended(c *subscription.Connection) error {
	for {
		if _, err := c.Receive(context.Background()); err != nil {
			return err
		}
	}
}

func TestConnections(t *testing.T) {
	type settings = *subscription.Settings
	for _, c := range []struct {
		name string
		test func(b *bench)
	}{
		{"who leaves has its messages tried again at once", func(b *bench) {
			b.create(nil)
			one := b.connect(5)
			b.store.add("s", 3)
			ms := got(one)
			one.Ack(ids(ms[0])...)
			one.Close()
			one.Close()
			b.is("ended", ended(one), event.ErrClosed)
			two := b.connect(5)
			ms = got(two)
			b.is("two", numbers(ms), []int64{1, 2})
			b.is("retries", ms[0].Retries, 1)
		}},
		{"so many and no more", func(b *bench) {
			b.create(func(s settings) { s.MaxSubscriberCount = 1 })
			one := b.connect(1)
			_, err := b.Connect(b.ctx, b.key, subscription.ConnectOptions{})
			b.is("error", err, subscription.ErrTooManySubscribers)
			one.Close()
			b.connect(1)
		}},
		{"dropped by an update, a restart, a deletion, and at the end", func(b *bench) {
			b.create(nil)
			c := b.connect(1)
			b.update(nil)
			b.is("updated", ended(c), subscription.ErrDropped)
			c.Close()
			b.is("still", ended(c), subscription.ErrDropped)
			c = b.connect(1)
			b.must(b.Restart(b.ctx))
			b.is("restarted", ended(c), subscription.ErrDropped)
			synctest.Wait()
			c = b.connect(1)
			b.must(b.Delete(b.ctx, b.key, ""))
			b.is("deleted", ended(c), subscription.ErrNotFound)
			b.create(nil)
			c = b.connect(1)
			b.Stop()
			b.is("stopped", ended(c), event.ErrNotReady)
		}},
		{"the end of what the term was started with", func(b *bench) {
			b.create(nil)
			b.Stop()
			ctx, cancel := context.WithCancel(b.ctx)
			b.Start(ctx)
			synctest.Wait()
			c := b.connect(1)
			cancel()
			b.is("ended", ended(c), event.ErrNotReady)
		}},
		{"one who waits learns why at once", func(b *bench) {
			b.create(nil)
			c := b.connect(1)
			got := make(chan error)
			go func() { got <- ended(c) }()
			synctest.Wait()
			b.must(b.Delete(b.ctx, b.key, ""))
			b.is("deleted", <-got, subscription.ErrNotFound)
		}},
		{"answers before the end count", func(b *bench) {
			b.create(func(s settings) { s.MinCheckpointCount, s.MaxCheckpointCount = 1, 1 })
			one := b.connect(5)
			b.store.add("s", 3)
			ms := got(one)
			one.Ack(ids(ms[:2]...)...)
			one.Nack(ids(ms[2]), subscription.Park, "")
			one.Close()
			one.Ack(ids(ms...)...)
			b.is("checkpoint", b.checkpoint(), `"2"`)
			b.is("parked", b.parked(), []string{"2@s"})
			b.is("outstanding", b.info().Outstanding, 0)
		}},
		{"who is connected", func(b *bench) {
			b.create(nil)
			c, err := b.Connect(b.ctx, b.key, subscription.ConnectOptions{From: "10.0.0.1:5", User: "ops", Name: "mail", MaxInFlight: 0})
			b.must(err)
			b.store.add("s", 3)
			b.is("one at a time", numbers(got(c)), []int64{0})
			i := b.info().Connections[0]
			i.PerSecond = 0
			b.is("info", i, subscription.ConnectionInfo{From: "10.0.0.1:5", User: "ops", Name: "mail", Total: 1, SinceLast: 1, InFlight: 1})
		}},
		{"latencies", func(b *bench) {
			b.create(func(s settings) { s.ExtraStatistics = true })
			c := b.connect(1)
			for i := range 10 {
				b.store.add("s", 1)
				ms := got(c)
				b.pass(time.Duration(i+1) * 10 * time.Millisecond)
				c.Ack(ids(ms...)...)
			}
			l := b.info().Connections[0].Latencies
			b.is("latencies", l, []subscription.Latency{{"Mean", 55}, {"Median", 60}, {"Fastest", 10}, {"Quintile 1", 30}, {"Quintile 2", 50},
				{"Quintile 3", 70}, {"Quintile 4", 90}, {"Quintile 5", 100}, {"90%", 100}, {"95%", 100}, {"99%", 100}, {"99.5%", 100}, {"99.9%", 100}, {"Highest", 100}})
		}},
		{"pinned by source stream", func(b *bench) {
			b.create(func(s settings) { s.Strategy, s.ResolveLinks = subscription.Pinned, true })
			one, two := b.connect(10), b.connect(10)
			b.store.add("a", 9)
			b.store.add("b", 9)
			for _, link := range []string{"0@a", "0@b", "1@a", "1@b", "2@a"} {
				b.store.Append("s", event.TypeLink, link, "")
			}
			first, second := got(one), got(two)
			b.is("all", len(first)+len(second), 5)
			for _, of := range [][]subscription.Message{first, second} {
				for i := range of {
					b.is("stream", of[i].Event.TargetStream, of[0].Event.TargetStream)
				}
			}
		}},
		{"pinned by another member of the metadata", func(b *bench) {
			b.member = func() string { return "trace" }
			b.lead()
			b.create(func(s settings) { s.Strategy = subscription.PinnedByCorrelation })
			one, two := b.connect(9), b.connect(9)
			for i, trace := range []string{"x", "y", "x", "y"} {
				b.store.Put(event.Write{Stream: "s", ExpectedVersion: event.AnyVersion, Events: []event.Proposed{{
					ID: event.ID(uuid.New()), Type: "t", Metadata: fmt.Appendf(nil, `{"$correlationId":"%d","trace":%q}`, i, trace)}}})
				synctest.Wait()
			}
			b.is("one", numbers(got(one)), []int64{0, 2})
			b.is("two", numbers(got(two)), []int64{1, 3})
		}},
	} {
		t.Run(c.name, func(t *testing.T) { run(t, c.test) })
	}
}
