package subscription_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/subscription"
)

func TestCheckpoint(t *testing.T) {
	type settings = *subscription.Settings
	often := func(s settings) { s.MinCheckpointCount, s.MaxCheckpointCount = 1, 1 }
	for _, c := range []struct {
		name string
		test func(b *bench)
	}{
		{"what is stored", func(b *bench) {
			b.store.add("s", 1)
			b.create(often)
			b.ack(b.take(1, 0)...)
			e := b.store.All("$persistentsubscription-s::g-checkpoint")[0]
			b.is("event", []any{e.Type, string(e.Data), e.IsJSON()}, []any{"SubscriptionCheckpoint", `"0"`, true})
			b.is("metadata", b.store.Metadata(b.key.CheckpointStream()),
				`{"$maxCount":2,"$acl":{"$r":"$admins","$w":"$admins","$d":"$admins","$mr":"$admins","$mw":"$admins"}}`)
		}},
		{"one write at a time, and another for what came meanwhile", func(b *bench) {
			b.store.add("s", 3)
			b.create(often)
			es := b.take(3, 0, 1, 2)
			release := make(chan struct{})
			under, most := 0, 0
			b.store.BeforeWrite.Set(func(context.Context, *event.Write) error {
				under++
				most = max(most, under)
				<-release
				under--
				return nil
			})
			b.ack(es[0])
			b.ack(es[1])
			b.ack(es[2])
			b.is("writes under way", most, 1)
			close(release)
			synctest.Wait()
			b.is("checkpoints, one right behind the other", len(b.store.All(b.key.CheckpointStream())), 1)
			b.is("checkpoint", b.checkpoint(), `"2"`)
			b.is("checkpoints", len(b.store.All(b.key.CheckpointStream())), 2)
		}},
		{"writes that fail are tried again, rarely", func(b *bench) {
			b.store.add("s", 1)
			b.create(often)
			tries := 0
			b.store.BeforeWrite.Set(func(context.Context, *event.Write) error { tries++; return event.ErrBusy })
			b.ack(b.take(1, 0)...)
			b.pass(time.Minute)
			if tries < 10 || tries > 30 {
				b.Errorf("%d tries in a minute", tries)
			}
			b.is("stalled", b.info().Stalled, "the checkpoint could not be written: write metadata of stream $persistentsubscription-s::g-checkpoint: server is too busy")
			b.store.BeforeWrite.Set(nil)
			b.pass(10 * time.Second)
			b.is("checkpoint", b.checkpoint(), `"0"`)
			b.is("stalled", b.info().Stalled, "")
		}},
		{"a leader goes on behind it, another wrote it", func(b *bench) {
			b.store.add("s", 20)
			b.create(nil)
			for _, last := range []struct{ eventType, data string }{
				{"SubscriptionCheckpoint", `"5"`}, {"$SubscriptionCheckpoint", `"5"`}, {"SubscriptionCheckpoint", `5`},
			} {
				b.store.Append(b.key.CheckpointStream(), last.eventType, last.data, "")
				b.lead()
				b.is("number", b.info().Checkpoint, 5)
				b.take(2, 6, 7)
			}
			b.store.Append(b.key.CheckpointStream(), "nonsense", `"9"`, "")
			b.lead()
			b.take(2, 6, 7)
		}},
		{"an update begins at it, or at the start", func(b *bench) {
			b.store.add("s", 10)
			b.create(often)
			b.ack(b.take(3, 0, 1, 2)...)
			b.take(2, 3, 4)
			b.update(func(s settings) { s.StartFrom = 8 })
			b.take(2, 3, 4)
			b.must(b.Delete(b.ctx, b.key, "admin"))
			b.is("checkpoint", b.checkpoint(), "")
			b.create(func(s settings) { s.StartFrom = 8 })
			b.take(9, 8, 9)
			b.update(nil)
			b.take(2, 0, 1)
		}},
		{"an idle group has no timer", func(b *bench) {
			b.store.add("s", 20)
			b.create(nil)
			b.ack(b.take(20, upTo(0, 19)...)...)
			b.pass(3 * time.Second)
			b.is("checkpoint", b.checkpoint(), `"19"`)
			writes, reads := b.store.Writes.Load(), b.store.Reads.Load()
			b.pass(24 * time.Hour)
			b.is("writes and reads", []int64{b.store.Writes.Load(), b.store.Reads.Load()}, []int64{writes, reads})
		}},
	} {
		t.Run(c.name, func(t *testing.T) { run(t, c.test) })
	}
}
