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

// forward forwards parked messages, those with the numbers or all, and compares how many.
func (b *bench) forward(to string, want subscription.Forwarded, numbers ...int64) {
	b.Helper()
	got, err := b.ForwardParked(b.ctx, b.key, to, numbers, 0, event.EveryLink)
	b.must(err)
	b.is("forwarded", got, want)
}

// parks parks the next n messages.
func (b *bench) parks(n int) {
	b.Helper()
	b.nack(subscription.Park, b.read(n)...)
}

func TestForward(t *testing.T) {
	type forwarded = subscription.Forwarded
	all := func(n int64) forwarded { return forwarded{Count: n, Next: -1} }
	fails := func(b *bench, err error) {
		b.Helper()
		_, got := b.ForwardParked(b.ctx, b.key, "dead", nil, 0, event.EveryLink)
		b.is("error", errors.Is(got, err), true)
	}
	for _, c := range []struct {
		name string
		test func(b *bench)
	}{
		{"all, with where they come from", func(b *bench) {
			b.store.Put(event.Write{Stream: "s", ExpectedVersion: event.AnyVersion, Events: []event.Proposed{
				{ID: event.ID{1}, Type: "placed", Flags: event.FlagJSON, Data: []byte(`{"n":0}`), Metadata: []byte(`{"user":"jane","$deadLetter":{"group":"x::y"}}`)},
				{ID: event.ID{2}, Type: "raw", Data: []byte{1, 2}, Metadata: []byte{3}},
			}})
			b.create(nil)
			b.parks(2)
			b.forward("dead", all(2))
			b.is("parked", b.info().Parked, 0)
			got := b.store.All("dead")
			b.is("types", []any{got[0].Type, got[0].IsJSON(), got[1].Type, got[1].IsJSON()}, []any{"placed", true, "raw", false})
			b.is("data", b.store.Data("dead"), []string{`{"n":0}`, "\x01\x02"})
			for i, want := range []string{
				`{"$deadLetter":{"group":"s::g","stream":"s","eventNumber":0,"reason":"Client explicitly NAK'ed message.\nNacked from HTTP","retries":0,"at":"2000-01-01T00:00:00.0000000Z","previous":{"group":"x::y"}},"user":"jane"}`,
				`{"$deadLetter":{"group":"s::g","stream":"s","eventNumber":1,"reason":"Client explicitly NAK'ed message.\nNacked from HTTP","retries":0,"at":"2000-01-01T00:00:00.0000000Z","metadata":"Aw=="}}`,
			} {
				b.is("metadata", string(got[i].Metadata), want)
			}
			b.forward("dead", all(0))
			b.replay(-1)
			b.take(9)
		}},
		{"some, and the rest stays", func(b *bench) {
			b.store.add("s", 4)
			b.create(nil)
			b.parks(4)
			b.forward("dead", all(2), 1, 2)
			_, err := b.ForwardParked(b.ctx, b.key, "dead", []int64{0, 1}, 0, event.EveryLink)
			var not *subscription.NotParked
			b.is("again", errors.As(err, &not) && not.Number == 1, true)
			b.is("copies", b.store.Data("dead"), []string{"1", "2"})
			b.replay(-1)
			b.take(9, 0, 3)
		}},
		{"many, a part with each request", func(b *bench) {
			b.store.add("s", 1250)
			b.create(func(s *subscription.Settings) { s.BufferSize = 2000 })
			for range 13 {
				b.parks(100)
			}
			b.forward("dead", forwarded{Count: 1000, Next: 1000})
			b.forward("dead", all(250))
			b.is("copies", len(b.store.All("dead")), 1250)
		}},
		{"events that are gone stay parked", func(b *bench) {
			b.store.add("s", 3)
			b.create(nil)
			b.parks(3)
			b.store.scavenge("s", 1)
			b.forward("dead", forwarded{Count: 2, Gone: 1, Next: -1})
			b.is("parked", b.info().Parked, 1)
		}},
		{"what the caller may not see is not copied", func(b *bench) {
			b.store.add("s", 1)
			b.create(nil)
			b.parks(1)
			_, err := b.ForwardParked(b.ctx, b.key, "dead", nil, 0, event.NoLink)
			b.is("error", errors.Is(err, event.ErrNotAuthorized), true)
			b.is("parked", b.info().Parked, 1)
		}},
		{"to where nothing can be written", func(b *bench) {
			b.store.add("s", 1)
			b.create(nil)
			b.parks(1)
			b.store.Put(event.Write{Kind: event.HardDelete, Stream: "dead", ExpectedVersion: event.AnyVersion})
			fails(b, event.ErrStreamDeleted)
			b.forward("other", all(1))
		}},
		{"with an unknown outcome it is done once, also after the event is gone", func(b *bench) {
			for i, after := range []bool{true, false} {
				b.key.Group = fmt.Sprint("g", i)
				b.store.add("s", 2)
				b.create(func(s *subscription.Settings) { s.StartFrom = int64(2 * i) })
				b.parks(2)
				before := len(b.store.All("dead"))
				hook := &b.store.BeforeWrite
				if after {
					hook = &b.store.AfterWrite
				}
				hook.Set(once(func(w *event.Write) bool { return w.Stream == "dead" }))
				fails(b, event.ErrOutcomeUnknown)
				hook.Set(nil)
				b.store.add("dead", 1) // Of another writer.
				if after {
					b.store.scavenge("s", 0)
				}
				b.lead()
				b.forward("dead", all(0))
				b.is("copies", len(b.store.All("dead")), before+3)
				b.is("parked", b.info().Parked, 0)
			}
		}},
		{"a leader that ends between the write and the record", func(b *bench) {
			b.store.add("s", 2)
			b.create(nil)
			b.parks(2)
			isWritten := false
			b.store.BeforeWrite.Set(func(_ context.Context, w *event.Write) error {
				if isWritten && w.Stream == b.key.DeskStream() {
					return event.ErrNotReady
				}
				isWritten = isWritten || w.Stream == "dead"
				return nil
			})
			fails(b, event.ErrNotReady)
			b.store.BeforeWrite.Set(nil)
			_, err := b.ForwardParked(b.ctx, b.key, "elsewhere", nil, 0, event.EveryLink)
			b.must(err)
			b.is("copies", fmt.Sprint(b.store.Data("dead"), len(b.store.All("elsewhere"))), "[0 1] 0")
			b.is("parked", b.info().Parked, 0)
		}},
		{"what is being forwarded is not replayed", func(b *bench) {
			b.store.add("s", 2)
			b.create(nil)
			b.parks(2)
			b.store.AfterWrite.Set(once(func(w *event.Write) bool { return w.Stream == "dead" }))
			_, err := b.ForwardParked(b.ctx, b.key, "dead", []int64{0}, 0, event.EveryLink)
			b.is("error", errors.Is(err, event.ErrOutcomeUnknown), true)
			b.replay(-1)
			b.take(9, 1)
			b.is("copies", b.store.Data("dead"), []string{"0"})
		}},
	} {
		t.Run(c.name, func(t *testing.T) { run(t, c.test) })
	}
}

func TestReplayAtARate(t *testing.T) {
	remaining := func(b *bench, want any) {
		b.Helper()
		if r := b.info().Replaying; r != nil {
			b.is("remaining", *r, want)
		} else {
			b.is("remaining", "done", want)
		}
	}
	rated := func(b *bench, rate int) {
		b.Helper()
		b.must(b.Replay(b.ctx, b.key, -1, rate))
		synctest.Wait()
	}
	type replaying = subscription.Replaying
	for _, c := range []struct {
		name string
		test func(b *bench)
	}{
		{"so many a second, also by the next leader", func(b *bench) {
			rated(b, 2)
			b.take(9, 0, 1)
			remaining(b, replaying{Remaining: 4, Rate: 2})
			b.pass(900 * time.Millisecond)
			b.take(9)
			b.pass(100 * time.Millisecond)
			b.ack(b.take(9, 2, 3)...)
			b.lead()
			b.take(9, upTo(0, 5)...) // Two had no answer, so those after them come again too.
			b.pass(time.Minute)
			remaining(b, "done")
			b.lead()
			remaining(b, "done")
			b.is("parked", b.info().Parked, 0)
		}},
		{"faster when that is asked for", func(b *bench) {
			rated(b, 1)
			b.take(9, 0)
			rated(b, 0)
			b.take(9, 1, 2, 3, 4, 5)
			remaining(b, "done")
		}},
		{"with an unknown outcome: what is stored tells", func(b *bench) {
			b.store.AfterWrite.Set(once(func(w *event.Write) bool { return w.Stream == b.key.DeskStream() }))
			b.is("error", errors.Is(b.Replay(b.ctx, b.key, -1, 1), event.ErrOutcomeUnknown), true)
			b.pass(time.Minute)
			b.take(9, upTo(0, 5)...)
			remaining(b, "done")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, func(b *bench) {
				b.store.add("s", 6)
				b.create(func(s *subscription.Settings) { s.MessageTimeout, s.MaxCheckpointCount = time.Hour, 1 })
				b.parks(6)
				c.test(b)
			})
		})
	}
}
