package subscription_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/subscription"
)

func (b *bench) pause() {
	b.Helper()
	b.must(b.Pause(b.ctx, b.key, "ann"))
	synctest.Wait()
}

func (b *bench) resume() {
	b.Helper()
	b.must(b.Resume(b.ctx, b.key, "ann"))
	synctest.Wait()
}

// after has a message tried again after a time.
func (b *bench) after(d time.Duration, all ...subscription.Message) {
	b.Helper()
	b.must(b.Nack(b.ctx, b.key, ids(all...), subscription.Retry, "", &d))
	synctest.Wait()
}

func TestDelays(t *testing.T) {
	type settings = *subscription.Settings
	for _, c := range []struct {
		name string
		test func(b *bench)
	}{
		{"a consumer gets a delayed message when it is due, not at a tick", func(b *bench) {
			b.create(func(s settings) { s.RetryDelay = 250 * time.Millisecond })
			c := b.connect(5)
			b.store.add("s", 2)
			ms := got(c)
			b.pass(123 * time.Millisecond)
			c.Nack(ids(ms[0]), subscription.Retry, "")
			b.pass(249 * time.Millisecond)
			b.is("early", len(got(c)), 0)
			b.is("delayed", fmt.Sprint(b.info().Delayed, b.info().RetryBuffer), "1 1")
			b.pass(time.Millisecond)
			ms = got(c)
			b.is("message", fmt.Sprint(numbers(ms), ms[0].Retries), "[0] 1")
			b.is("delayed", fmt.Sprint(b.info().Delayed, b.info().RetryBuffer), "0 0")
		}},
		{"a new leader hands it out at once, as one that was never tried", func(b *bench) {
			b.store.add("s", 1)
			b.create(nil)
			b.after(time.Hour, b.take(1, 0)...)
			b.take(1)
			b.lead()
			b.is("retries", b.take(1, 0)[0].Retries, 0)
		}},
		{"a delayed message of a redacted event has no data when it is due", func(b *bench) {
			b.store.add("s", 1)
			b.create(nil)
			b.after(time.Second, b.take(1, 0)...)
			b.Forget()
			b.pass(time.Second)
			b.is("bare", b.take(1, 0)[0].Event.Bare, true)
		}},
		{"few messages have a checkpoint after a while", func(b *bench) {
			b.store.add("s", 9)
			b.create(func(s settings) { s.CheckpointAtLeastEvery = 200 * time.Millisecond })
			b.pass(10 * time.Second)
			b.ack(b.take(1, 0)...)
			b.pass(100 * time.Millisecond)
			b.ack(b.take(1, 1)...)
			b.is("checkpoints", b.store.Data(b.key.CheckpointStream()), []string{})
			b.pass(100 * time.Millisecond)
			b.is("checkpoints", b.store.Data(b.key.CheckpointStream()), []string{`"1"`})
			writes := b.store.Writes.Load()
			b.pass(time.Hour)
			b.is("writes of a group of which nothing is answered", b.store.Writes.Load(), writes)
		}},
		{"a pause is a fact of the log, and does nothing twice", func(b *bench) {
			b.store.add("s", 2)
			b.create(nil)
			c := b.connect(1)
			out := got(c)
			b.pause()
			first := b.info().Paused
			b.pass(time.Minute)
			b.is("by", first.By, "ann")
			b.must(b.Pause(b.ctx, b.key, "ben"))
			b.is("still", b.info().Paused, first)
			b.is("entries of the configuration", len(b.store.All(configStream)), 2)
			c.Ack(ids(out...)...)
			b.is("handed out", len(got(c))+len(b.read(9)), 0)
			b.update(nil)
			b.is("connection", ended(c), subscription.ErrDropped)
			for _, next := range []func(){b.lead, func() { b.must(b.Restart(b.ctx)) }, func() { b.Stop(); b.begin() }} {
				next()
				c = b.connect(5)
				b.is("info", []any{b.info().Status, b.info().Paused.By, b.info().Paused.At.Equal(first.At)}, "[Paused ann true]")
				b.is("handed out", len(got(c))+len(b.read(9)), 0)
			}
			b.resume()
			b.resume()
			b.is("after it", numbers(got(c)), []int64{0, 1})
			b.is("status", b.info().Status, "Live")
			b.lead()
			b.take(2, 0, 1)
			b.key.Group = "none"
			b.is("error", b.Pause(b.ctx, b.key, ""), subscription.ErrNotFound)
		}},
		{"a pause with an unknown outcome is found out", func(b *bench) {
			b.store.add("s", 1)
			b.create(nil)
			c := b.connect(5)
			b.store.AfterWrite.Set(once(func(w *event.Write) bool { return w.Stream == configStream }))
			b.is("error", errors.Is(b.Pause(b.ctx, b.key, "ann"), event.ErrOutcomeUnknown), true)
			synctest.Wait()
			b.is("status", b.info().Status, "Paused")
			b.resume()
			b.is("handed out", numbers(got(c)), []int64{0})
		}},
		{"a pause that is not stored is none", func(b *bench) {
			b.store.add("s", 1)
			b.create(nil)
			b.store.BeforeWrite.Set(func(context.Context, *event.Write) error { return event.ErrBusy })
			b.is("error", errors.Is(b.Pause(b.ctx, b.key, "ann"), event.ErrBusy), true)
			b.store.BeforeWrite.Set(nil)
			synctest.Wait()
			b.take(1, 0)
		}},
		{"a time-out in a pause counts, and parks at the limit", func(b *bench) {
			b.store.add("s", 2)
			b.create(func(s settings) { s.MaxRetryCount = 1 })
			b.nack(subscription.Retry, b.take(1, 0)...)
			b.take(2, 0, 1)
			b.pause()
			b.pass(12 * time.Second)
			i := b.info()
			b.is("state", fmt.Sprintf("%d %d %d %q", i.Parked, i.RetryBuffer, i.Outstanding, i.Stalled), `1 1 0 ""`)
			b.resume()
			b.is("retries", b.take(9, 1)[0].Retries, 1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) { run(t, c.test) })
	}
}
