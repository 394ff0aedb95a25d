package subscription_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/subscription"
)

// large appends events of 2 MiB, each of them with one of two causes.
func (b *bench) large(stream string, count int) {
	for i := range count {
		b.store.Append(stream, "t", strings.Repeat("x", 2<<20), fmt.Sprintf(`{"$correlationId":"cause %d"}`, i%2))
	}
}

// payload is what messages hold in memory.
func payload(all []subscription.Message) (bytes int) {
	for i := range all {
		e := all[i].Event.Event()
		bytes += len(e.Data) + len(e.Metadata)
	}
	return bytes
}

// TestLargeEvents: what a group holds of events that it read ahead, or handed out,
// is bounded in bytes too.
func TestLargeEvents(t *testing.T) {
	t.Run("read", func(t *testing.T) {
		run(t, func(b *bench) {
			b.large("s", 60)
			b.create(func(s *subscription.Settings) { s.StartFrom, s.BufferSize, s.ReadBatchSize = 0, 50, 25 })
			all := b.take(60, upTo(0, 59)...)
			if held := payload(all); held > 24<<20 {
				t.Errorf("%d bytes are held", held)
			}
			b.ack(all[0])
			// Again, parked and replayed, they are the same messages.
			b.nack(subscription.Retry, all[1])
			b.take(1, 1)
			b.nack(subscription.Park, all[2], all[3])
			b.is("parked", len(b.parked()), 2)
			b.replay(-1)
			again := b.take(5, 2, 3)
			b.is("target", again[0].Event.Event().Stream, "s")
			b.lead()
			for _, m := range b.read(60) {
				if e := m.Event.Event(); e.Stream != "s" {
					t.Errorf("after a change of leaders event %d of %s came", e.Number, e.Stream)
				}
			}
		})
	})
	t.Run("pinned by cause", func(t *testing.T) {
		run(t, func(b *bench) {
			b.create(func(s *subscription.Settings) {
				s.Strategy, s.BufferSize, s.ReadBatchSize = subscription.PinnedByCorrelation, 50, 25
			})
			one, two := b.connect(20), b.connect(20)
			b.large("s", 20)
			for _, c := range []*subscription.Connection{one, two} {
				ns := numbers(got(c))
				for _, n := range ns {
					check.Equal(t, n%2, ns[0]%2, "one connection got", ns)
				}
			}
		})
	})
}

// TestForget: after a redaction no message has data that were read before it,
// wherever the message is. Each is handed out as often as without a redaction.
func TestForget(t *testing.T) {
	run(t, func(b *bench) {
		write := func(count int) {
			for range count {
				b.store.Append("s", "t", "data", "metadata")
			}
		}
		write(8)
		b.create(func(s *subscription.Settings) { s.StartFrom = 0 })
		all := b.take(4, upTo(0, 3)...) // 4 to 7 are read ahead.
		b.nack(subscription.Park, all[0])
		b.nack(subscription.Retry, all[1])
		b.is("parked", len(b.parked()), 1)
		b.replay(-1)
		b.pass(0)
		b.Forget()
		again := b.take(10, 1, 0, 4, 5, 6, 7)
		for i := range again {
			if e := again[i].Event.Event(); !e.Bare || len(e.Data)+len(e.Metadata) > 0 || e.Type != "t" {
				t.Errorf("message %d: %d@%s bears %d bytes", i, e.Number, e.Stream, len(e.Data))
			}
		}
		b.ack(again...)
		b.ack(all[2:]...)
		write(1)
		b.pass(0)
		if last := b.take(1, 8); last[0].Event.Bare {
			t.Error("an event that came later is bare")
		}
	})
}
