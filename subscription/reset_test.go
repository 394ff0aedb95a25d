package subscription_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/subscription"
)

// reset moves the group, and compares what it says, which is also what it said before.
func (b *bench) reset(kind subscription.TargetKind, at int64, want subscription.Reset) {
	b.Helper()
	to := subscription.Target{Kind: kind, At: at}
	said, err := b.Preview(b.ctx, b.key, to)
	b.must(err)
	want.Reads = said.Reads
	b.is("preview", said, want)
	done, err := b.Reset(b.ctx, b.key, to, "admin")
	b.must(err)
	b.is("reset", done, want)
	synctest.Wait()
}

func TestReset(t *testing.T) {
	type reset = subscription.Reset
	type settings = *subscription.Settings
	for _, c := range []struct {
		name string
		test func(b *bench)
	}{
		{"back to a number: what was acknowledged comes again", func(b *bench) {
			b.store.add("s", 10)
			b.create(nil)
			b.ack(b.take(6, upTo(0, 5)...)...)
			b.reset(subscription.ToNumber, 2, reset{From: 6, To: 2, Again: 4})
			b.is("checkpoint", b.checkpoint(), `"1"`)
			b.take(9, upTo(2, 9)...)
		}},
		{"forward: what was handed out is let go, and its answer passed over", func(b *bench) {
			b.store.add("s", 10)
			b.create(nil)
			got := b.take(4, upTo(0, 3)...)
			b.ack(got[0])
			b.reset(subscription.ToNumber, 8, reset{From: 1, To: 8, LeftOut: 7})
			b.is("in flight", b.info().Outstanding, 0)
			b.ack(got...)
			b.nack(subscription.Park, got...)
			b.is("parked", b.info().Parked, 0)
			b.pass(time.Minute)
			b.take(9, 8, 9)
		}},
		{"in the middle of what is out", func(b *bench) {
			b.store.add("s", 10)
			b.create(nil)
			b.take(6, upTo(0, 5)...)
			b.reset(subscription.ToNumber, 4, reset{From: 0, To: 4, Again: 2, LeftOut: 4})
			b.take(9, upTo(4, 9)...)
		}},
		{"to the start, beyond where the group began, and it is kept", func(b *bench) {
			b.store.add("s", 6)
			b.create(func(s settings) { s.StartFrom, s.MaxCheckpointCount = 3, 1 })
			b.ack(b.take(9, 3, 4, 5)...)
			b.checkpoint()
			b.reset(subscription.ToStart, 0, reset{From: 6, To: 0, Again: 6})
			b.lead()
			b.is("checkpoint", b.info().Checkpoint, -1)
			b.take(9, upTo(0, 5)...)
		}},
		{"to the end, and then events come", func(b *bench) {
			b.store.add("s", 6)
			b.create(nil)
			b.take(2, 0, 1)
			b.reset(subscription.ToEnd, 0, reset{From: 0, To: 6, LeftOut: 6})
			b.store.add("s", 2)
			b.take(9, 6, 7)
		}},
		{"of a group that waits for events", func(b *bench) {
			b.store.add("s", 3)
			b.create(nil)
			b.ack(b.take(9, 0, 1, 2)...)
			b.reset(subscription.ToNumber, 1, reset{From: 3, To: 1, Again: 2})
			b.is("read ahead", b.info().ReadBuffer, 2)
			b.take(9, 1, 2)
		}},
		{"by time and by position", func(b *bench) {
			for range 3 {
				b.store.add("s", 2)
				b.store.add("other", 1)
				b.pass(time.Minute)
			}
			b.create(nil)
			at := b.store.All("s")[2]
			b.reset(subscription.ToTime, at.Time, reset{From: 0, To: 2, LeftOut: 2})
			b.reset(subscription.ToTime, at.Time-1, reset{From: 2, To: 2})
			b.reset(subscription.ToTime, time.Now().Add(time.Hour).UnixNano(), reset{From: 2, To: 6, LeftOut: 4})
			b.reset(subscription.ToPosition, b.position("other", 1), reset{From: 6, To: 4, Again: 2})
			b.take(9, 4, 5)
			b.reset(subscription.ToPosition, at.Position, reset{From: 4, To: 2, Again: 4})
		}},
		{"of the log, through a filter", func(b *bench) {
			b.key.Stream = "$all"
			b.store.add("s", 3)
			b.create(func(s settings) { s.Filter = &subscription.Filter{OfStream: true, Prefixes: []string{"s"}} })
			b.store.add("other", 3)
			b.store.add("s", 3)
			b.ack(b.takeNames(4, "0@s", "1@s", "2@s", "3@s")...)
			first, end := b.position("s", 4), b.position("s", 2)
			b.reset(subscription.ToPosition, end, reset{From: first, To: end, Again: 2})
			b.takeNames(9, "2@s", "3@s", "4@s", "5@s")
			after := b.position("other", 2)
			b.reset(subscription.ToTime, b.store.All("other")[2].Time, reset{From: end, To: b.position("s", 0), Again: 6})
			b.reset(subscription.ToPosition, after, reset{From: b.position("s", 0), To: after, LeftOut: 3})
			b.takeNames(9, "3@s", "4@s", "5@s")
			b.reset(subscription.ToStart, 0, reset{From: b.position("s", 3), Again: 6})
			b.lead()
			b.takeNames(9, "0@s", "1@s", "2@s", "3@s", "4@s", "5@s")
		}},
		{"where there is nothing", func(b *bench) {
			b.store.add("s", 2)
			b.create(nil)
			for _, c := range []struct {
				stream string
				kind   subscription.TargetKind
				at     int64
				text   string
			}{
				{"s", subscription.ToNumber, 3, "3 is beyond the end, which is 2."},
				{"$all", subscription.ToNumber, 0, "The events of $all have positions, and no numbers."},
				{"$all", subscription.ToPosition, 1, "No event begins at C:1/P:1."},
				{"$all", subscription.ToPosition, 1 << 40, "C:1099511627776/P:1099511627776 is beyond the end"},
			} {
				if b.key.Stream = c.stream; c.stream == "$all" && c.kind == subscription.ToNumber {
					b.create(nil)
				}
				_, err := b.Reset(b.ctx, b.key, subscription.Target{Kind: c.kind, At: c.at}, "")
				settings, ok := errors.AsType[*subscription.SettingsError](err)
				if !ok || len(settings.Text) < len(c.text) || settings.Text[:len(c.text)] != c.text {
					b.Fatalf("%v, want %s", err, c.text)
				}
			}
			b.key.Group = "none"
			_, err := b.Preview(b.ctx, b.key, subscription.Target{})
			b.is("no group", errors.Is(err, subscription.ErrNotFound), true)
		}},
		{"consumers stay, and get what comes", func(b *bench) {
			b.store.add("s", 4)
			b.create(nil)
			c, err := b.Connect(b.ctx, b.key, subscription.ConnectOptions{MaxInFlight: 2})
			b.must(err)
			defer c.Close()
			m, err := c.Receive(b.ctx)
			b.must(err)
			b.reset(subscription.ToNumber, 3, reset{From: 0, To: 3, LeftOut: 3})
			c.Ack(m.ID)
			m, err = c.Receive(b.ctx)
			b.must(err)
			b.is("number", m.Event.Number, 3)
			b.is("in flight", b.info().Connections[0].InFlight, 1)
			c.Ack(m.ID)
			b.is("in flight", b.info().Connections[0].InFlight, 0)
		}},
		{"parked and replayed messages stay", func(b *bench) {
			b.store.add("s", 4)
			b.create(nil)
			b.nack(subscription.Park, b.take(3, 0, 1, 2)...)
			b.replay(2)
			replayed := b.take(1, 0)
			b.reset(subscription.ToEnd, 0, reset{From: 3, To: 4, LeftOut: 1})
			b.ack(replayed...)
			b.take(9, 1)
			b.is("parked", b.info().Parked, 1)
		}},
		{"while messages are being parked", func(b *bench) {
			b.store.add("s", 3)
			b.create(nil)
			var works atomic.Bool
			b.store.BeforeWrite.Set(func(_ context.Context, w *event.Write) error {
				if w.Stream == b.key.ParkedStream() && !works.Load() {
					return event.ErrNotReady
				}
				return nil
			})
			b.nack(subscription.Park, b.take(2, 0, 1)...)
			b.reset(subscription.ToNumber, 1, reset{From: 0, To: 1, Again: 1, LeftOut: 1})
			b.pass(10 * time.Second)
			b.ack(b.take(9, 1, 2)...)
			b.is("checkpoint", b.info().RetryBuffer, 0)
			works.Store(true)
			b.pass(time.Minute)
			b.is("parked", b.parked(), []string{"0@s", "1@s"})
			b.take(9)
		}},
		{"a checkpoint that is being written does not undo it", func(b *bench) {
			b.store.add("s", 9)
			b.create(func(s settings) { s.MaxCheckpointCount = 1 })
			hold, isHeld := make(chan struct{}), false
			b.store.BeforeWrite.Set(func(_ context.Context, w *event.Write) error {
				if w.Stream == b.key.CheckpointStream() && !isHeld {
					isHeld = true
					<-hold
				}
				return nil
			})
			b.must(b.Ack(b.ctx, b.key, ids(b.take(5, upTo(0, 4)...)...)))
			synctest.Wait()
			go func() { time.Sleep(time.Second); close(hold) }()
			b.reset(subscription.ToNumber, 2, reset{From: 5, To: 2, Again: 3})
			b.pass(time.Minute)
			b.is("checkpoint", b.checkpoint(), `"1"`)
			b.lead()
			b.take(9, upTo(2, 8)...)
		}},
		{"with an unknown outcome: it is tried until it is known", func(b *bench) {
			b.store.add("s", 9)
			b.create(nil)
			b.ack(b.take(5, upTo(0, 4)...)...)
			b.store.AfterWrite.Set(once(func(w *event.Write) bool { return w.Stream == b.key.CheckpointStream() }))
			_, err := b.Reset(b.ctx, b.key, subscription.Target{Kind: subscription.ToStart}, "")
			b.is("error", errors.Is(err, event.ErrOutcomeUnknown), true)
			b.pass(time.Minute)
			b.is("checkpoints", b.store.Data(b.key.CheckpointStream()), []string{`"-1"`, `"-1"`})
			b.take(9, upTo(0, 8)...)
		}},
		{"that is refused changes nothing", func(b *bench) {
			b.store.add("s", 3)
			b.create(nil)
			got := b.take(2, 0, 1)
			b.store.BeforeWrite.Set(always(event.ErrNotReady))
			_, err := b.Reset(b.ctx, b.key, subscription.Target{Kind: subscription.ToEnd}, "")
			b.is("error", errors.Is(err, event.ErrNotReady), true)
			b.store.BeforeWrite.Set(nil)
			b.ack(got...)
			b.take(9, 2)
			b.is("retries", b.info().RetryBuffer, 0)
		}},
	} {
		t.Run(c.name, func(t *testing.T) { run(t, c.test) })
	}
}
