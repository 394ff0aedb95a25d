package subscription_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/subscription"
)

// awaiting begins to wait until the group has done what lies at a position.
func (b *bench) awaiting(position int64, patience time.Duration) (ended chan error) {
	ended = make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		defer cancel()
		ended <- b.Await(ctx, b.key, position)
	}()
	synctest.Wait()
	return ended
}

// last is the position of the last event of the log.
func (b *bench) last() int64 {
	all := b.store.Positions()
	return all[len(all)-1]
}

func TestAwait(t *testing.T) {
	sleeps := func(b *bench, ended chan error, when string) {
		b.Helper()
		synctest.Wait()
		b.is(when, len(ended), 0)
	}
	for _, c := range []struct {
		name string
		test func(b *bench)
	}{
		{"answers", func(b *bench) {
			b.create(nil)
			b.store.add("s", 3)
			ended := b.awaiting(b.last(), time.Hour)
			all := b.take(2, 0, 1)
			b.ack(all...)
			sleeps(b, ended, "the last is not handed out")
			third := b.take(1, 2)
			sleeps(b, ended, "the last is not answered")
			b.store.add("s", 1)
			b.nack(subscription.Retry, third...)
			sleeps(b, ended, "the last comes again")
			b.ack(b.take(1, 2)...)
			b.must(<-ended)
			b.is("done before the one that came later", b.Done(b.key) > b.last(), false)
		}},
		{"out of order", func(b *bench) {
			b.create(nil)
			b.store.add("s", 2)
			ended := b.awaiting(b.last(), time.Hour)
			all := b.take(2, 0, 1)
			b.ack(all[1])
			sleeps(b, ended, "the first is not answered")
			b.nack(subscription.Park, all[0])
			b.must(<-ended)
		}},
		{"events of other streams", func(b *bench) {
			b.create(nil)
			b.store.add("s", 1)
			b.ack(b.take(1, 0)...)
			b.store.add("other", 5)
			b.must(<-b.awaiting(b.last(), 0))
			far := b.last() + 1<<10
			ended := b.awaiting(far, time.Hour)
			for b.store.LogEnd() <= far {
				sleeps(b, ended, "the log is not there")
				b.store.add("other", 2)
			}
			b.must(<-ended)
		}},
		{"a page that began before the log was there", func(b *bench) {
			b.create(nil)
			b.store.add("s", 1)
			b.ack(b.take(1, 0)...)
			isRead := make(chan struct{})
			b.store.BeforeRead.Set(func(context.Context, event.StreamRead) error { <-isRead; return nil })
			b.store.add("s", 1)
			synctest.Wait()
			b.store.add("other", 1)
			ended := b.awaiting(b.last(), time.Hour)
			close(isRead)
			b.ack(b.take(1, 1)...)
			b.must(<-ended)
		}},
		{"the stream is not there, or gone", func(b *bench) {
			b.create(nil)
			b.store.add("other", 1)
			b.must(<-b.awaiting(b.last(), 0))
			b.store.add("s", 1)
			b.store.Delete(event.HardDelete, "s")
			synctest.Wait()
			ended := b.awaiting(b.last(), time.Hour)
			b.ack(b.read(1)...)
			b.must(<-ended)
		}},
		{"a filter of the log", func(b *bench) {
			b.key.Stream = event.AllStream
			b.create(func(s *subscription.Settings) {
				s.StartFrom, s.Filter = 0, &subscription.Filter{OfStream: true, Prefixes: []string{"s"}}
			})
			b.store.add("s", 1)
			b.store.add("other", 3)
			ended := b.awaiting(b.last(), time.Hour)
			b.ack(b.take(1, 0)...)
			b.must(<-ended)
			b.store.add("other", 1)
			synctest.Wait()
			b.must(<-b.awaiting(b.last(), 0))
		}},
		{"loaded again, and led by another", func(b *bench) {
			b.create(nil)
			b.store.add("s", 1)
			ended := b.awaiting(b.last(), time.Hour)
			b.update(func(s *subscription.Settings) { s.MaxRetryCount = 3 })
			sleeps(b, ended, "the group was changed")
			b.ack(b.take(1, 0)...)
			b.must(<-ended)
			b.store.add("s", 1)
			ended = b.awaiting(b.last(), time.Hour)
			b.Stop()
			check.Is(b, <-ended, event.ErrNotReady)
			b.begin()
		}},
		{"moved", func(b *bench) {
			b.create(nil)
			b.store.add("s", 2)
			b.ack(b.take(2, 0, 1)...)
			b.must(<-b.awaiting(b.last(), 0))
			_, err := b.Reset(b.ctx, b.key, subscription.Target{Kind: subscription.ToStart}, "admin")
			b.must(err)
			synctest.Wait()
			sleeps(b, b.awaiting(b.last(), time.Minute), "all comes again")
			_, err = b.Reset(b.ctx, b.key, subscription.Target{Kind: subscription.ToEnd}, "admin")
			b.must(err)
			synctest.Wait()
			b.must(<-b.awaiting(b.last(), time.Minute))
			b.pass(time.Minute)
		}},
		{"time, and no such group", func(b *bench) {
			check.Is(b, b.Await(b.ctx, b.key, 0), subscription.ErrNotFound)
			b.create(nil)
			b.store.add("s", 1)
			ended := b.awaiting(b.last(), time.Second)
			b.pass(2 * time.Second)
			b.is("late", errors.Is(<-ended, context.DeadlineExceeded), true)
			ended = b.awaiting(b.last(), time.Hour)
			b.must(b.Delete(b.ctx, b.key, "admin"))
			check.Is(b, <-ended, subscription.ErrNotFound)
		}},
	} {
		t.Run(c.name, func(t *testing.T) { run(t, c.test) })
	}
}
