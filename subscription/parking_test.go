package subscription_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/subscription"
)

func TestParking(t *testing.T) {
	type settings = *subscription.Settings
	for _, c := range []struct {
		name string
		test func(b *bench)
	}{
		{"what is written", func(b *bench) {
			b.store.add("s", 3)
			b.create(func(s settings) { s.MaxRetryCount = 0 })
			es := b.take(3, 0, 1, 2)
			b.nack(subscription.Park, es[2])
			b.nack(subscription.Retry, es[0])
			all := b.store.All(b.key.ParkedStream())
			b.is("stream", b.key.ParkedStream(), "$persistentsubscription-s::g-parked")
			b.is("count", b.info().Parked, 2)
			for i, want := range []struct {
				data, reason string
				number       float64
			}{{"2@s", "Client explicitly NAK'ed message.\nNacked from HTTP", 2}, {"0@s", "Reached retry count of 0", 0}} {
				b.is("type", all[i].Type, "$>")
				b.is("data", string(all[i].Data), want.data)
				b.is("JSON", all[i].IsJSON(), false)
				var m map[string]any
				b.must(json.Unmarshal(all[i].Metadata, &m))
				b.is("reason", m["reason"], want.reason)
				b.is("number", m["subscriptionEventNumber"], want.number)
				check.NoError(b, check.Err(time.Parse(time.RFC3339Nano, m["added"].(string))))
			}
			b.is("oldest", b.info().OldestParked.Equal(all[0].When()), true)
		}},
		{"a write whose outcome is unknown is not written twice", func(b *bench) {
			b.store.add("s", 2)
			b.create(nil)
			es := b.take(2, 0, 1)
			n := 0
			b.store.AfterWrite.Set(func(context.Context, *event.Write) error {
				if n++; n <= 3 {
					return errInjected
				}
				return nil
			})
			b.nack(subscription.Park, es...)
			b.is("unanswered until it is known to be parked", b.checkpoint(), "")
			b.pass(5 * time.Second)
			b.is("parked", b.parked(), []string{"0@s", "1@s"})
			b.take(9)
		}},
		{"after five tries it is handed out again", func(b *bench) {
			b.store.add("s", 1)
			b.create(nil)
			b.store.BeforeWrite.Set(always(event.ErrBusy))
			b.nack(subscription.Park, b.take(1, 0)...)
			b.pass(time.Minute)
			b.is("retry buffer", b.info().RetryBuffer, 1)
			b.store.BeforeWrite.Set(nil)
			b.nack(subscription.Park, b.take(1, 0)...)
			b.is("parked", b.parked(), []string{"0@s"})
		}},
		{"many at once, in order", func(b *bench) {
			b.store.add("s", 400)
			b.create(nil)
			var all []subscription.Message
			for len(all) < 400 {
				all = append(all, b.read(100)...)
				synctest.Wait()
			}
			writes := b.store.Writes.Load()
			b.nack(subscription.Park, all...)
			b.is("parked", len(b.parked()), 400)
			b.is("first and last", []string{b.parked()[0], b.parked()[399]}, []string{"0@s", "399@s"})
			b.is("few writes", b.store.Writes.Load()-writes <= 5, true)
		}},
	} {
		t.Run(c.name, func(t *testing.T) { run(t, c.test) })
	}
}

// parkAll parks the first n events of the stream in the given order.
func (b *bench) parkAll(order ...int) {
	b.Helper()
	es := b.read(len(order))
	for _, i := range order {
		b.nack(subscription.Park, es[i])
	}
}

func TestReplay(t *testing.T) {
	for _, c := range []struct {
		name string
		test func(b *bench)
	}{
		{"all, in parked order, before what is new", func(b *bench) {
			b.store.add("s", 4)
			b.create(nil)
			b.parkAll(1, 0, 2)
			b.replay(-1)
			b.is("count at once", b.info().Parked, 0)
			b.is("retries", b.info().RetryBuffer, 3)
			es := b.take(9, 1, 0, 2, 3)
			b.is("id", es[0].ID, b.store.All(b.key.ParkedStream())[0].ID)
			b.is("retry count", es[0].Retries, 0)
			m := b.store.Metadata(b.key.ParkedStream())
			for _, want := range []string{`"$tb":3`, `"$r":"$admins"`, `"$mw":"$admins"`} {
				b.is("metadata has "+want, strings.Contains(m, want), true)
			}
			b.ack(es...)
			b.is("outstanding", b.info().Outstanding, 0)
			b.lead()
			b.is("what is replayed after a change of leader", b.info().RetryBuffer, 0)
		}},
		{"a client that asked for it finds them at once", func(b *bench) {
			b.store.add("s", 3)
			b.create(nil)
			b.parkAll(1, 0)
			b.must(b.Replay(b.ctx, b.key, -1, 0))
			b.take(9, 1, 0, 2)
		}},
		{"nobody waits longer than the first try for a store that does not write", func(b *bench) {
			b.store.add("s", 1)
			b.create(nil)
			b.parkAll(0)
			b.store.BeforeWrite.Set(always(errInjected))
			b.must(b.Replay(b.ctx, b.key, -1, 0))
			b.take(9)
			b.store.BeforeWrite.Set(nil)
			b.pass(time.Minute)
			b.take(9, 0)
		}},
		{"up to a number", func(b *bench) {
			b.store.add("s", 3)
			b.create(nil)
			b.parkAll(1, 0, 2)
			b.replay(2)
			b.take(2, 1, 0)
			b.take(2)
			b.is("count", b.info().Parked, 1)
			b.replay(0)
			b.replay(1)
			b.take(2)
			b.is("metadata", event.ParseMetadata([]byte(b.store.Metadata(b.key.ParkedStream()))).TruncateBefore, 2)
			b.is("count", b.info().Parked, 1)
		}},
		{"nothing is parked", func(b *bench) {
			b.create(nil)
			b.replay(-1)
			b.is("status", b.info().Status, "Live")
		}},
		{"what fails again is parked again", func(b *bench) {
			b.store.add("s", 2)
			b.create(nil)
			b.parkAll(0, 1)
			b.replay(-1)
			b.nack(subscription.Park, b.take(1, 0)...)
			b.is("parked", b.parked(), []string{"0@s"})
			b.is("count", b.info().Parked, 1)
			all := b.store.All(b.key.ParkedStream())
			b.is("number in the subscribed stream", strings.Contains(string(all[2].Metadata), `"subscriptionEventNumber":0`), true)
		}},
		{"unanswered ones are there for the next leader", func(b *bench) {
			b.store.add("s", 3)
			b.create(func(s *subscription.Settings) { s.MinCheckpointCount, s.MaxCheckpointCount = 1, 1 })
			b.parkAll(2, 0, 1)
			b.is("checkpoint", b.checkpoint(), `"2"`)
			b.replay(-1)
			es := b.take(2, 2, 0)
			b.lead()
			b.is("count", b.info().Parked, 0)
			again := b.take(9, 2, 0, 1)
			b.is("id", again[0].ID, es[0].ID)
			b.is("link", again[0].Event.Stream, b.key.ParkedStream())
			b.ack(again...)
			b.lead()
			b.take(9)
		}},
		{"a change of leader between copying and truncating", func(b *bench) {
			b.store.add("s", 2)
			b.create(func(s *subscription.Settings) { s.MinCheckpointCount, s.MaxCheckpointCount = 1, 1 })
			b.parkAll(0, 1)
			b.pass(pace)
			b.store.BeforeWrite.Set(func(_ context.Context, w *event.Write) error {
				if w.Stream == "$$"+b.key.ParkedStream() {
					return event.ErrBusy
				}
				return nil
			})
			b.replay(-1)
			b.take(9)
			b.Stop()
			b.store.BeforeWrite.Set(nil)
			b.begin()
			b.is("count", b.info().Parked, 0)
			b.ack(b.take(9, 0, 1)...)
			b.is("parked", b.parked(), []string{})
		}},
		{"a truncation whose outcome is unknown", func(b *bench) {
			const n = 250 // More than two pages.
			b.store.add("s", n)
			b.create(func(s *subscription.Settings) { s.MinCheckpointCount, s.MaxCheckpointCount = 1, 1 })
			for left := n; left > 0; left -= 50 {
				b.nack(subscription.Park, b.read(50)...)
			}
			b.pass(pace)
			b.store.AfterWrite.Set(once(func(w *event.Write) bool { return w.Stream == "$$"+b.key.ParkedStream() }))
			b.replay(-1)
			b.pass(time.Minute)
			b.is("to be handed out", b.info().RetryBuffer, n)
			var got []int64
			for len(got) < n {
				es := b.read(100)
				if len(es) == 0 {
					break
				}
				b.ack(es...)
				got = append(got, numbers(es)...)
			}
			b.lead()
			b.is("replayed", got, upTo(0, n-1))
		}},
		{"copies whose outcome is unknown", func(b *bench) {
			b.store.add("s", 3)
			b.create(func(s *subscription.Settings) { s.MinCheckpointCount, s.MaxCheckpointCount = 1, 1 })
			b.parkAll(0, 1, 2)
			b.pass(pace)
			b.store.AfterWrite.Set(once(func(w *event.Write) bool { return strings.HasSuffix(w.Stream, "-replaying") }))
			b.replay(-1)
			b.pass(time.Minute)
			b.take(9, 0, 1, 2)
			b.lead()
			b.take(9, 0, 1, 2)
		}},
		{"what an operator shows again", func(b *bench) {
			b.store.add("s", 2)
			b.create(func(s *subscription.Settings) { s.MinCheckpointCount, s.MaxCheckpointCount = 1, 1 })
			b.parkAll(0, 1)
			b.replay(-1)
			b.ack(b.take(9, 0, 1)...)
			b.store.SetMetadata(b.key.ParkedStream(), `{"$tb":0}`)
			b.replay(-1)
			b.take(9, 0, 1)
			b.lead()
			b.ack(b.take(9, 0, 1)...)
			b.lead()
			b.take(9)
		}},
		{"a client discards what is parked", func(b *bench) {
			b.store.add("s", 4)
			b.create(nil)
			b.parkAll(0, 1)
			b.store.Delete(event.SoftDelete, b.key.ParkedStream())
			b.is("count", b.info().Parked, 0)
			b.replay(-1)
			b.nack(subscription.Park, b.take(1, 2)...)
			b.is("count", b.info().Parked, 1)
			b.replay(-1)
			b.take(9, 2, 3)
		}},
		{"those that are answered do not come again, but for the last hundred", func(b *bench) {
			b.store.add("s", 150)
			b.create(func(s *subscription.Settings) { s.MinCheckpointCount, s.MaxCheckpointCount = 1, 1 })
			for range 3 {
				b.nack(subscription.Park, b.read(50)...)
			}
			b.replay(-1)
			es := b.take(100, upTo(0, 99)...)
			b.ack(es[:99]...)
			b.lead()
			b.is("replayed again", b.info().RetryBuffer, 150)
			b.ack(b.take(100, upTo(0, 99)...)...)
			b.lead()
			b.ack(b.take(100, upTo(100, 149)...)...)
			b.lead()
			b.is("replayed again", b.info().RetryBuffer, 0)
		}},
		{"their source is gone", func(b *bench) {
			b.store.add("s", 1)
			b.create(nil)
			b.parkAll(0)
			b.store.Delete(event.SoftDelete, "s")
			b.replay(-1)
			es := b.read(1)
			b.is("data", string(es[0].Event.Data), "0@s")
			b.nack(subscription.Park, es...)
			b.is("parked", b.parked(), []string{"0@s"})
		}},
		{"more than fit into memory at once", func(b *bench) {
			const n = 12_000
			b.store.add("s", 1)
			w := event.Write{Stream: b.key.ParkedStream(), ExpectedVersion: event.AnyVersion}
			for range n {
				w.Events = append(w.Events, event.Proposed{ID: event.ID(uuid.New()), Type: event.TypeLink, Data: []byte("0@s")})
			}
			b.create(nil)
			b.store.Put(w)
			b.replay(-1)
			b.is("status", b.info().Status, "ReplayingParkedMessages, Live")
			b.is("count", b.info().Parked, 0)
			got := 0
			for i := 0; i < n; i += 100 {
				es := b.read(100)
				got += len(es)
				b.ack(es...)
			}
			b.is("replayed", got, n)
			b.is("status", b.info().Status, "Live")
		}},
	} {
		t.Run(c.name, func(t *testing.T) { run(t, c.test) })
	}
}
