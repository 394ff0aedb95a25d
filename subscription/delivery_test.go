package subscription_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/subscription"
)

func TestDelivery(t *testing.T) {
	type settings = *subscription.Settings
	for _, c := range []struct {
		name string
		test func(b *bench)
	}{
		{"in order, to one reader each", func(b *bench) {
			b.store.add("s", 5)
			b.create(nil)
			b.take(2, 0, 1)
			b.take(9, 2, 3, 4)
			b.take(9)
		}},
		{"a group may be made before its stream", func(b *bench) {
			b.create(nil)
			b.is("status", b.info().Status, "Live")
			b.take(1)
			b.store.add("s", 2)
			b.take(5, 0, 1) // Without any time to notice.
		}},
		{"an append is there at once", func(b *bench) {
			b.create(nil)
			for n := range int64(30) {
				b.store.add("s", 1)
				b.take(5, n)
			}
		}},
		{"from a number", func(b *bench) {
			b.store.add("s", 4)
			b.create(func(s settings) { s.StartFrom = 2 })
			b.take(9, 2, 3)
		}},
		{"from a number that comes later", func(b *bench) {
			b.create(func(s settings) { s.StartFrom = 2 })
			b.is("status", b.info().Status, "Live")
			b.store.add("s", 4)
			b.take(9, 2, 3)
		}},
		{"what comes after the creation, also for a later leader and after an update", func(b *bench) {
			b.store.add("s", 4)
			b.create(func(s settings) { s.StartFrom = -1 })
			b.take(9)
			b.store.add("s", 1)
			b.lead()
			b.is("start", b.info().Settings.StartFrom, -1)
			b.take(9, 4)
			b.update(func(s settings) { s.StartFrom = -1 })
			b.take(9, 4)
			b.store.add("s", 1)
			b.take(9, 5)
		}},
		{"an update before the first checkpoint loses nothing", func(b *bench) {
			b.store.add("s", 4)
			b.create(func(s settings) { s.StartFrom = -1 })
			b.store.add("s", 3)
			b.ack(b.take(2, 4, 5)[:1]...)
			for range 2 {
				b.update(func(s settings) { s.StartFrom = -1 })
				b.take(9, 4, 5, 6)
			}
			b.lead()
			b.take(9, 4, 5, 6)
		}},
		{"a start that an update names counts, -1 keeps the one there is", func(b *bench) {
			b.store.add("s", 4)
			b.create(func(s settings) { s.StartFrom = 2 })
			b.update(func(s settings) { s.StartFrom = -1 })
			b.take(9, 2, 3)
			b.update(func(s settings) { s.StartFrom = 1 })
			b.take(9, 1, 2, 3)
		}},
		{"a checkpoint beyond the end is said", func(b *bench) {
			b.store.add("s", 4)
			b.create(func(s settings) { s.MinCheckpointCount, s.MaxCheckpointCount = 1, 1 })
			b.is("before", b.info().Stalled, "")
			b.store.Append(b.key.CheckpointStream(), "$SubscriptionCheckpoint", `"9"`, "")
			b.lead()
			b.take(9)
			b.is("stalled", b.info().Stalled, "the checkpoint 9 is beyond the end, 4: the group gets nothing until events reach it")
			b.is("newest", b.info().LastKnown, 3)
			b.store.add("s", 7)
			b.take(9, 10)
			b.is("after", b.info().Stalled, "")
		}},
		{"a timeout brings a message back before new ones, to a second", func(b *bench) {
			b.store.add("s", 3)
			b.create(nil)
			b.take(2, 0, 1)
			b.pass(9900 * time.Millisecond)
			b.is("outstanding", b.info().Outstanding, 2)
			b.pass(1200 * time.Millisecond)
			b.is("retries", b.info().RetryBuffer, 2)
			got := b.take(9, 0, 1, 2)
			b.is("retry counts", []int{got[0].Retries, got[1].Retries, got[2].Retries}, []int{1, 1, 0})
		}},
		{"timeout 0 ends at the next tick", func(b *bench) {
			b.store.add("s", 1)
			b.create(func(s settings) { s.MessageTimeout = 0 })
			b.take(1, 0)
			b.take(1)
			b.pass(time.Second)
			b.take(1, 0)
		}},
		{"links are resolved, dead ones delivered as they are", func(b *bench) {
			b.store.add("a", 2)
			b.store.Append("s", event.TypeLink, "1@a", "")
			link := b.store.Append("s", event.TypeLink, "7@a", "")
			b.create(func(s settings) { s.ResolveLinks = true })
			es := b.take(9, 1, 1)
			b.is("stream", es[0].Event.Event().Stream, "a")
			b.is("id of the link", es[1].ID, link)
			b.is("state", es[1].Event.Link, event.LinkDead)
			b.nack(subscription.Park, es...)
			b.is("parked", b.parked(), []string{"1@a", "7@a"})
		}},
		{"a link is itself when links are not resolved", func(b *bench) {
			b.store.add("a", 2)
			b.store.Append("s", event.TypeLink, "1@a", "")
			b.create(nil)
			es := b.take(9, 0)
			b.nack(subscription.Park, es...)
			b.is("parked", b.parked(), []string{"0@s"})
		}},
		{"events that are hidden or gone are passed over", func(b *bench) {
			b.store.add("s", 300)
			b.store.SetMetadata("s", `{"$tb":250}`)
			b.store.scavenge("s", 251, 252, 299)
			b.create(nil)
			b.is("count", len(b.read(100)), 47)
			b.is("status", b.info().Status, "Live")
			b.store.add("s", 1)
			b.take(9, 300)
		}},
		{"a long gap", func(b *bench) {
			b.store.add("s", 20_000)
			b.store.Scavenge(func(r *event.Record) bool { return r.Stream == "s" && r.Number < 19_900 })
			b.create(nil)
			b.is("few reads", b.store.Reads.Load() < 40, true)
			b.is("numbers", numbers(b.read(100)), upTo(19_900, 19_999))
		}},
		{"expired events are passed over", func(b *bench) {
			b.store.add("s", 30)
			b.store.SetMetadata("s", `{"$maxAge":60}`)
			b.pass(2 * time.Minute)
			b.create(nil)
			b.take(9)
			b.store.add("s", 1)
			b.take(9, 30)
		}},
		{"a stream that is deleted and comes again", func(b *bench) {
			b.store.add("s", 3)
			b.store.Delete(event.SoftDelete, "s")
			b.create(nil)
			b.is("status", b.info().Status, "Live")
			b.take(9)
			b.store.add("s", 2)
			b.take(9, 3, 4)
			b.store.Delete(event.SoftDelete, "s")
			b.store.add("s", 1)
			synctest.Wait()
			b.take(9, 5)
		}},
		{"a stream that is deleted for good", func(b *bench) {
			b.store.add("s", 3)
			b.create(nil)
			b.ack(b.take(9, 0, 1, 2)...)
			b.store.Delete(event.HardDelete, "s")
			synctest.Wait()
			reads := b.store.Reads.Load()
			b.pass(time.Hour)
			b.is("status", b.info().Status, "Live")
			b.is("reads while nothing can come", b.store.Reads.Load(), reads)
			b.take(9)
		}},
		{"groups of a stream are independent", func(b *bench) {
			b.store.add("s", 2)
			b.create(nil)
			b.take(9, 0, 1)
			b.key.Group = "other"
			b.create(nil)
			b.take(9, 0, 1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) { run(t, c.test) })
	}
}

func TestReadingAhead(t *testing.T) {
	type settings = *subscription.Settings
	for _, c := range []struct {
		name string
		test func(b *bench)
	}{
		{"history is read while more than a batch is free, and again when there is room", func(b *bench) {
			b.store.add("s", 100)
			b.create(func(s settings) { s.BufferSize, s.ReadBatchSize = 25, 10 })
			b.is("buffered", b.info().ReadBuffer, 20)
			b.is("status", b.info().Status, "Behind")
			b.is("numbers", numbers(b.read(5)), upTo(0, 4))
			synctest.Wait()
			b.is("buffered while no more than a batch is free", b.info().ReadBuffer, 15)
			b.take(1, 5)
			synctest.Wait()
			b.is("buffered after a read and without an answer", b.info().ReadBuffer, 24)
			for n := int64(6); n < 100; {
				got := b.read(7)
				b.is("numbers", numbers(got), upTo(n, n+int64(len(got))-1))
				n += int64(len(got))
				synctest.Wait()
			}
			b.is("status at the end", b.info().Status, "Live")
		}},
		{"one read of many in spite of small batches", func(b *bench) {
			b.create(nil)
			b.store.add("s", 100)
			b.is("numbers", numbers(b.read(100)), upTo(0, 99))
		}},
		{"a read is filled up from the stream when the buffer holds less", func(b *bench) {
			b.store.add("s", 200)
			b.create(func(s settings) { s.BufferSize, s.ReadBatchSize = 25, 10 })
			b.is("buffered", b.info().ReadBuffer, 20)
			b.is("numbers", numbers(b.read(100)), upTo(0, 99))
			b.nack(subscription.Retry, b.read(1)...)
			b.is("numbers with a retry", numbers(b.read(50)), upTo(100, 149))
		}},
		{"what came a moment ago is behind what is buffered", func(b *bench) {
			b.create(nil)
			b.store.add("s", 1)
			synctest.Wait()
			b.store.add("s", 1)
			b.take(5, 0, 1)
		}},
		{"a stored buffer that holds no batch", func(b *bench) {
			b.store.Append("$persistentSubscriptionConfig", "PersistentConfig1",
				`{"version":"1","entries":[{"stream":"s","group":"g","historyBufferSize":1,"readBatchSize":50,"preferRoundRobin":true,"maxRetryCount":3}]}`, "")
			b.lead()
			b.store.add("s", 3)
			synctest.Wait()
			b.is("strategy", b.info().Settings.Strategy, "RoundRobin")
			for n := range int64(3) {
				b.take(1, n)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) { run(t, c.test) })
	}
}
