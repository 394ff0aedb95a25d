package subscription_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/subscription"
)

// BenchmarkReadAck has one reader take and acknowledge 100 messages at a time.
func BenchmarkReadAck(b *testing.B) {
	store := newStore(b)
	for range b.N {
		store.add("s", 100)
	}
	s, k := subscription.New(subscription.Options{Store: store}), subscription.Key{Stream: "s", Group: "g"}
	s.Start(context.Background())
	defer s.Stop()
	ready(b, s)
	check.Must(b, s.Create(b.Context(), k, subscription.DefaultSettings(), ""))
	b.ReportAllocs()
	b.ResetTimer()
	buf := make([]event.ID, 0, 100)
	for got := 0; got < 100*b.N; {
		all := check.Value(s.Read(b.Context(), k, 100, event.EveryLink)).Must(b)
		buf = buf[:0]
		for i := range all {
			buf = append(buf, all[i].ID)
		}
		check.Must(b, s.Ack(b.Context(), k, buf))
		got += len(all)
	}
	b.ReportMetric(float64(100*b.N)/b.Elapsed().Seconds(), "messages/s")
}

func ready(t testing.TB, s *subscription.Service) {
	testkit.Eventually(t, 10*time.Second, func() error {
		_, err := s.List(context.Background(), "")
		return err
	})
}

// An idle group is one parked goroutine and what it remembers. In a bubble all
// stand still when things are counted.
func TestIdleGroupsAreSmall(t *testing.T) {
	synctest.Test(t, testIdleGroupsAreSmall)
}

func testIdleGroupsAreSmall(t *testing.T) {
	const groups, streams, most = 250, 50, 24 << 10
	store := newStore(t)
	for i := range streams {
		store.add(fmt.Sprint("stream-", i), 20)
	}
	s := subscription.New(subscription.Options{Store: store})
	s.Start(t.Context())
	synctest.Wait()
	for i := range groups {
		k := subscription.Key{Stream: fmt.Sprint("stream-", i%streams), Group: fmt.Sprint("group-", i)}
		set := subscription.DefaultSettings()
		set.StartFrom, set.Strategy = 20, subscription.Pinned // The strategy that remembers most.
		check.Must(t, s.Create(t.Context(), k, set, ""))
	}
	s.Stop()
	used := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	before, goroutines := used(), runtime.NumGoroutine()
	s = subscription.New(subscription.Options{Store: store})
	s.Start(t.Context())
	defer s.Stop()
	synctest.Wait()
	check.Equal(t, store.Waits.Now(), groups, "groups wait for their streams")
	each := (used() - before) / groups
	t.Logf("%d bytes per idle group, %d goroutines", each, runtime.NumGoroutine()-goroutines)
	if each > most {
		t.Errorf("%d bytes per idle group", each)
	}
	check.Equal(t, runtime.NumGoroutine()-goroutines, groups+1, "goroutines of the service and its groups")
	count := func() [2]int64 { return [2]int64{store.Reads.Load(), store.Writes.Load()} }
	was := count()
	time.Sleep(3 * time.Second) // Of the bubble's clock: several ticks.
	synctest.Wait()
	check.Equal(t, count(), was, "idle groups read or write")
}
