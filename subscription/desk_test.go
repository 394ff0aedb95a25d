package subscription_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/subscription"
)

// desk is what the desk shows from a number on: numbers, each with its note.
func (b *bench) desk(from int64) (shown string) {
	b.Helper()
	p, err := b.Parked(b.ctx, b.key, from, 500, true, event.EveryLink)
	b.must(err)
	for _, m := range p.Messages {
		shown += fmt.Sprint(m.Number, " ")
		if m.Note != nil {
			shown += m.Note.Text + " "
		}
	}
	return strings.TrimSpace(shown)
}

// left compares what is parked, by all who tell of it.
func (b *bench) left(shown string) {
	b.Helper()
	b.is("desk", b.desk(0), shown)
	p, err := b.Parked(b.ctx, b.key, 0, 1, false, event.EveryLink)
	b.must(err)
	b.is("total", p.Total, len(strings.Fields(shown)))
	b.is("count", b.info().Parked, p.Total)
	b.is("oldest", b.info().OldestParked.IsZero(), p.Total == 0)
}

func (b *bench) notParked(number int64, err error) {
	b.Helper()
	var not *subscription.NotParked
	if !errors.As(err, &not) || not.Number != number {
		b.Fatalf("%v, want that %d is not parked", err, number)
	}
}

// park has n messages of a stream of as many parked, and a checkpoint after them.
func (b *bench) park(n int) {
	b.Helper()
	b.store.add("s", n)
	b.create(func(s *subscription.Settings) { s.MinCheckpointCount, s.MaxCheckpointCount = 1, 1 })
	for left := n; left > 0; left -= 100 {
		b.nack(subscription.Park, b.read(min(left, 100))...)
	}
	b.pass(pace)
}

func deskStream(k subscription.Key) string { return "$persistentsubscription-" + k.String() + "-desk" }

// failing has writes to a stream fail before they are done.
func (b *bench) failing(stream string) {
	b.store.BeforeWrite.Set(func(_ context.Context, w *event.Write) error {
		if w.Stream == stream {
			return event.ErrBusy
		}
		return nil
	})
}

// endsIn ends the service during a write to a stream, of which nothing is done, and lets another
// node lead.
func (b *bench) endsIn(stream string) error {
	b.Helper()
	b.park(2)
	b.store.BeforeWrite.Set(func(ctx context.Context, w *event.Write) error {
		if w.Stream == stream {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	done := make(chan error)
	go func() { done <- b.ReplayParked(b.ctx, b.key, []int64{1}) }()
	synctest.Wait()
	b.Stop()
	b.store.BeforeWrite.Set(nil)
	b.begin()
	return <-done
}

func TestDesk(t *testing.T) {
	for _, c := range []struct {
		name string
		test func(b *bench)
	}{
		{"what is shown", func(b *bench) {
			b.store.add("s", 2)
			b.create(func(s *subscription.Settings) { s.MaxRetryCount = 1 })
			b.nack(subscription.Retry, b.take(2, 0, 1)...)
			b.nack(subscription.Retry, b.take(1, 0)...)
			b.nack(subscription.Park, b.take(1, 1)...)
			b.store.Append(b.key.ParkedStream(), "odd", "by hand", "")
			p, err := b.Parked(b.ctx, b.key, 0, 5, true, event.EveryLink)
			b.must(err)
			for i, want := range []string{"0 Reached retry count of 1 1 0@s t 0", "1 Client explicitly NAK'ed message.\nNacked from HTTP 1 1@s t 1", "2  none 2@" + b.key.ParkedStream() + " odd by hand"} {
				m, retries := p.Messages[i], "none"
				if m.Retries != nil {
					retries = fmt.Sprint(*m.Retries)
				}
				b.is("message", fmt.Sprint(m.Number, " ", m.Reason, " ", retries, " ", m.EventNumber, "@", m.Stream, " ", m.Event.Type, " ", string(m.Event.Data)), want)
				added, err := time.Parse(time.RFC3339Nano, m.Added)
				b.must(err)
				b.is("age", time.Since(added), time.Duration(0))
			}
			b.is("next", p.Next, -1)
			p, err = b.Parked(b.ctx, b.key, 1, 1, false, event.EveryLink)
			b.must(err)
			b.is("without payload", p.Messages[0].Event.Bare, true)
			b.is("next", fmt.Sprint(p.Next, p.Total), "2 3")
			b.store.Delete(event.SoftDelete, "s")
			p, err = b.Parked(b.ctx, b.key, 0, 1, true, event.EveryLink)
			b.must(err)
			b.is("its event is gone", fmt.Sprint(p.Messages[0].Event == nil, p.Messages[0].EventNumber, "@", p.Messages[0].Stream), "true 0@s")
		}},
		{"payloads bound the page", func(b *bench) {
			for range 5 {
				b.store.Append("s", "t", strings.Repeat("x", 7<<20), "")
			}
			b.create(nil)
			b.nack(subscription.Park, b.read(5)...)
			for from, want := range map[int64]string{0: "2 2", 2: "2 4", 4: "1 -1"} {
				p, err := b.Parked(b.ctx, b.key, from, 50, true, event.EveryLink)
				b.must(err)
				b.is("page", fmt.Sprint(len(p.Messages), " ", p.Next), want)
				for _, m := range p.Messages {
					b.is("size", len(m.Event.Data), 7<<20)
				}
			}
		}},
		{"one is replayed", func(b *bench) {
			b.park(4)
			b.must(b.ReplayParked(b.ctx, b.key, []int64{2}))
			es := b.take(9, 2)
			b.is("id", es[0].ID, b.store.All(b.key.ParkedStream())[2].ID)
			b.left("0 1 3")
			b.notParked(2, b.ReplayParked(b.ctx, b.key, []int64{0, 2}))
			b.take(9)
			b.lead()
			b.left("0 1 3")
			b.is("not answered", b.take(9, 2)[0].ID, es[0].ID)
			b.must(b.ReplayParked(b.ctx, b.key, []int64{3, 0, 3}))
			b.left("1")
			b.ack(es...)
			b.ack(b.take(9, 0, 3)...)
			b.lead()
			b.take(9)
			b.left("1")
			b.replay(-1)
			b.ack(b.take(9, 1)...)
			b.left("")
		}},
		{"one is dropped", func(b *bench) {
			b.park(5)
			b.must(b.DropParked(b.ctx, b.key, []int64{3, 1}))
			b.left("0 2 4")
			b.lead()
			b.left("0 2 4")
			b.notParked(1, b.DropParked(b.ctx, b.key, []int64{1}))
			b.notParked(9, b.DropParked(b.ctx, b.key, []int64{0, 9}))
			b.notParked(math.MaxInt64, b.DropParked(b.ctx, b.key, []int64{math.MaxInt64}))
			b.notParked(3, b.NoteParked(b.ctx, b.key, 3, "x", "ops"))
			b.replay(3)
			b.ack(b.take(9, 0, 2)...)
			b.left("4")
			b.replay(-1)
			b.ack(b.take(9, 4)...)
			b.lead()
			b.left("")
		}},
		{"notes", func(b *bench) {
			b.park(3)
			b.must(b.NoteParked(b.ctx, b.key, 1, "ours", "jane"))
			b.must(b.NoteParked(b.ctx, b.key, 2, "theirs", "ops"))
			b.lead()
			b.is("desk", b.desk(0), "0 1 ours 2 theirs")
			p, err := b.Parked(b.ctx, b.key, 1, 1, false, event.EveryLink)
			b.must(err)
			b.is("note", p.Messages[0].Note.By, "jane")
			b.must(b.NoteParked(b.ctx, b.key, 2, "", "ops"))
			b.must(b.DropParked(b.ctx, b.key, []int64{1}))
			b.left("0 2")
		}},
		{"the record stays short", func(b *bench) {
			b.park(300)
			var odd []int64
			for n := int64(1); n < 300; n += 2 {
				odd = append(odd, n)
			}
			b.must(b.DropParked(b.ctx, b.key, odd))
			for n := int64(0); n < 298; n += 2 {
				b.must(b.DropParked(b.ctx, b.key, []int64{n}))
			}
			b.must(b.NoteParked(b.ctx, b.key, 298, "last", "ops"))
			b.is("desk", b.desk(0), "298 last")
			b.is("record", len(b.store.Data(deskStream(b.key))), 1)
			b.is("data", strings.HasPrefix(b.store.Data(deskStream(b.key))[0], `{"settled":[[299,299]],"notes":{"298":{"text":"last"`), true)
			b.is("parked", len(b.parked()), 2)
		}},
		{"the record is full", func(b *bench) {
			b.park(100)
			long := strings.Repeat("x", 10_000)
			var err error
			n := int64(1)
			for ; err == nil; n++ {
				err = b.NoteParked(b.ctx, b.key, n, long, "ops")
			}
			b.is("error", err, subscription.ErrDeskFull)
			b.is("notes", n > 50, true)
			b.must(b.ReplayParked(b.ctx, b.key, []int64{99})) // It takes little.
			b.is("error", b.NoteParked(b.ctx, b.key, 98, long, "ops"), subscription.ErrDeskFull)
			b.must(b.DropParked(b.ctx, b.key, []int64{0}))
			b.must(b.DropParked(b.ctx, b.key, []int64{1}))
			b.must(b.NoteParked(b.ctx, b.key, 98, long, "ops"))
		}},
		{"a group that is deleted takes it along", func(b *bench) {
			b.park(3)
			b.must(b.DropParked(b.ctx, b.key, []int64{1}))
			b.must(b.Delete(b.ctx, b.key, ""))
			b.is("record", b.store.Data(deskStream(b.key)), []string{})
			_, err := b.Parked(b.ctx, b.key, 0, 1, false, event.EveryLink)
			b.is("error", err, subscription.ErrNotFound)
			b.create(nil)
			b.left("")
			b.nack(subscription.Park, b.take(9, 0, 1, 2)...)
			b.left("3 4 5")
			b.must(b.DropParked(b.ctx, b.key, []int64{4}))
			b.left("3 5")
		}},
		{"a client discards what is parked", func(b *bench) {
			b.park(3)
			b.must(b.DropParked(b.ctx, b.key, []int64{1}))
			b.store.Delete(event.SoftDelete, b.key.ParkedStream())
			b.left("")
			b.notParked(0, b.DropParked(b.ctx, b.key, []int64{0}))
			b.store.add("s", 1)
			synctest.Wait()
			b.nack(subscription.Park, b.take(9, 3)...)
			b.left("3")
		}},
		{"all but what is behind stopAt is replayed while the rest is settled", func(b *bench) {
			const n = 12_000
			b.store.add("s", 1)
			w := event.Write{Stream: b.key.ParkedStream(), ExpectedVersion: event.AnyVersion}
			for range n {
				w.Events = append(w.Events, event.Proposed{ID: event.ID(uuid.New()), Type: event.TypeLink, Data: []byte("0@s")})
			}
			b.create(func(s *subscription.Settings) { s.StartFrom = 1 })
			b.store.Put(w)
			b.must(b.DropParked(b.ctx, b.key, []int64{10_500}))
			b.replay(11_000)
			b.is("status", b.info().Status, "ReplayingParkedMessages, Live")
			b.notParked(10_999, b.DropParked(b.ctx, b.key, []int64{10_999}))
			b.must(b.DropParked(b.ctx, b.key, []int64{11_000}))
			var err error
			replayed := int64(0)
			for ; err == nil && replayed < 999; replayed++ {
				err = b.ReplayParked(b.ctx, b.key, []int64{11_001 + replayed})
			}
			b.is("no more fit into memory", err, event.ErrBusy)
			replayed--
			b.is("count", b.info().Parked, 999-replayed)
			got := -int(replayed)
			for es := b.read(100); len(es) > 0; es = b.read(100) {
				got += len(es)
				b.ack(es...)
			}
			b.is("replayed", got, 10_999)
			b.is("count", b.info().Parked, 999-replayed)
			b.lead()
			b.is("count", b.info().Parked, 999-replayed)
		}},
		{"a replay of one that cannot be stored", func(b *bench) {
			b.park(3)
			b.failing(deskStream(b.key))
			b.is("error", errors.Is(b.ReplayParked(b.ctx, b.key, []int64{1}), event.ErrBusy), true)
			b.store.BeforeWrite.Set(nil)
			b.pass(time.Minute)
			b.take(9)
			b.lead()
			b.take(9)
			b.left("0 1 2")
		}},
		{"a replay of one that cannot be copied yet", func(b *bench) {
			b.park(4)
			b.failing("$persistentsubscription-s::g-replaying")
			b.must(b.ReplayParked(b.ctx, b.key, []int64{0, 2}))
			b.left("1 3")
			b.is("another", b.ReplayParked(b.ctx, b.key, []int64{1}), event.ErrBusy)
			b.is("a drop waits", errors.Is(b.DropParked(b.ctx, b.key, []int64{1}), event.ErrWriteTimeout), true)
			b.take(9)
			b.store.BeforeWrite.Set(nil)
			b.pass(time.Minute)
			b.take(9, 0, 2)
			b.must(b.DropParked(b.ctx, b.key, []int64{1}))
			b.lead()
			b.ack(b.take(9, 0, 2)...)
			b.lead()
			b.take(9)
			b.left("3")
		}},
		{"a replay of all while one cannot be copied yet", func(b *bench) {
			b.park(3)
			b.failing("$persistentsubscription-s::g-replaying")
			b.must(b.ReplayParked(b.ctx, b.key, []int64{1}))
			go func() { _ = b.Replay(b.ctx, b.key, -1, 0) }()
			b.pass(time.Second)
			b.store.BeforeWrite.Set(nil)
			b.pass(time.Minute)
			b.replay(-1)
			b.ack(b.take(9, 1, 0, 2)...)
			b.lead()
			b.take(9)
			b.left("")
		}},
		{"writes whose outcome is unknown", func(b *bench) {
			b.park(6)
			for n, stream := range []string{deskStream(b.key), "$persistentsubscription-s::g-replaying", deskStream(b.key)} {
				b.store.AfterWrite.Set(once(func(w *event.Write) bool { return w.Stream == stream }))
				if err := b.ReplayParked(b.ctx, b.key, []int64{int64(n + 1)}); err != nil && !errors.Is(err, event.ErrOutcomeUnknown) {
					b.Fatal(err)
				}
				b.pass(time.Minute)
			}
			b.store.AfterWrite.Set(once(func(w *event.Write) bool { return w.Stream == deskStream(b.key) }))
			b.is("error", errors.Is(b.DropParked(b.ctx, b.key, []int64{5}), event.ErrOutcomeUnknown), true)
			b.left("0 4")
			b.ack(b.take(9, 1, 2, 3)...)
			b.lead()
			b.take(9)
			b.left("0 4")
		}},
		{"an end while one is stored", func(b *bench) {
			b.is("error", errors.Is(b.endsIn(deskStream(b.key)), event.ErrOutcomeUnknown), true)
			b.take(9)
			b.left("0 1")
		}},
		{"an end while one is copied", func(b *bench) {
			b.must(b.endsIn("$persistentsubscription-s::g-replaying"))
			b.left("0")
			b.ack(b.take(9, 1)...)
			b.lead()
			b.take(9)
			b.left("0")
		}},
		{"what was forgotten is not handed out", func(b *bench) {
			b.park(1)
			b.store.BeforeWrite.Set(func(_ context.Context, w *event.Write) error {
				if strings.HasSuffix(w.Stream, "-replaying") {
					b.Forget()
				}
				return nil
			})
			b.must(b.ReplayParked(b.ctx, b.key, []int64{0}))
			e := b.take(1, 0)[0].Event.Event()
			b.is("bare", e.Bare, true)
		}},
		{"a record that cannot be read", func(b *bench) {
			b.park(3)
			b.must(b.DropParked(b.ctx, b.key, []int64{1}))
			b.store.Append(deskStream(b.key), "odd", "by hand", "")
			b.is("count", b.info().Parked, 3) // What is settled is not known.
			b.pass(2 * time.Minute)
			b.is("stalled", strings.HasPrefix(b.info().Stalled, "parked messages cannot be counted: event 1 of stream"), true)
			b.store.Delete(event.SoftDelete, b.key.ParkedStream())
			b.is("count", b.info().Parked, 0)
			b.is("stalled when nothing is parked", b.info().Stalled, "")
		}},
		{"a parked stream that cannot be read", func(b *bench) {
			b.park(1)
			b.store.BeforeInfo.Set(func(_ context.Context, stream string) error {
				if stream == b.key.ParkedStream() {
					return errInjected
				}
				return nil
			})
			b.is("count", b.info().Parked, 0)
			b.pass(2 * time.Minute)
			b.is("stalled", b.info().Stalled, "parked messages cannot be counted: "+errInjected.Error())
			b.store.BeforeInfo.Set(nil)
			b.is("count", b.info().Parked, 1)
			b.is("stalled", b.info().Stalled, "")
		}},
		{"while the node does not lead", func(b *bench) {
			b.create(nil)
			b.Stop()
			_, err := b.Parked(b.ctx, b.key, 0, 1, false, event.EveryLink)
			b.is("error", err, event.ErrNotReady)
			b.is("error", b.DropParked(b.ctx, b.key, []int64{0}), event.ErrNotReady)
		}},
	} {
		t.Run(c.name, func(t *testing.T) { run(t, c.test) })
	}
}
