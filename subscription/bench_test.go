package subscription_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/subscription"
)

// BenchmarkReadAck has one reader take and acknowledge 100 messages at a time.
func BenchmarkReadAck(b *testing.B) {
	store := newStore()
	store.add("s", 100*b.N)
	s, k := subscription.New(subscription.Options{Store: store}), subscription.Key{Stream: "s", Group: "g"}
	s.Start(context.Background())
	defer s.Stop()
	ready(b, s)
	if err := s.Create(b.Context(), k, subscription.DefaultSettings(), ""); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	buf := make([]event.ID, 0, 100)
	for got := 0; got < 100*b.N; {
		all, err := s.Read(b.Context(), k, 100, event.EveryLink)
		if err != nil {
			b.Fatal(err)
		}
		buf = buf[:0]
		for i := range all {
			buf = append(buf, all[i].ID)
		}
		if err := s.Ack(b.Context(), k, buf); err != nil {
			b.Fatal(err)
		}
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
	store := newStore()
	for i := range streams {
		store.add(fmt.Sprint("stream-", i), 20)
	}
	s := subscription.New(subscription.Options{Store: store})
	s.Start(t.Context())
	defer s.Stop()
	synctest.Wait()
	used := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	store.log.records = nil // Nor is the log the groups', here and below.
	before, goroutines := used(), runtime.NumGoroutine()
	for i := range groups {
		k := subscription.Key{Stream: fmt.Sprint("stream-", i%streams), Group: fmt.Sprint("group-", i)}
		set := subscription.DefaultSettings()
		set.StartFrom, set.Strategy = 20, subscription.Pinned // The strategy that remembers most.
		if err := s.Create(t.Context(), k, set, ""); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Wait()
	store.mu.Lock()
	store.streams["$persistentSubscriptionConfig"].events = nil // Not the group's.
	store.log.records = nil
	if store.waiting != groups {
		t.Errorf("%d groups wait for their streams", store.waiting)
	}
	store.mu.Unlock()
	each := (used() - before) / groups
	t.Logf("%d bytes per idle group, %d goroutines", each, runtime.NumGoroutine()-goroutines)
	if each > most {
		t.Errorf("%d bytes per idle group", each)
	}
	if n := runtime.NumGoroutine() - goroutines; n != groups {
		t.Errorf("%d goroutines for %d groups", n, groups)
	}
	count := func() [2]int {
		store.mu.Lock()
		defer store.mu.Unlock()
		return [2]int{store.reads, store.writes}
	}
	was := count()
	time.Sleep(3 * time.Second) // Of the bubble's clock: several ticks.
	synctest.Wait()
	if count() != was {
		t.Error("idle groups read or write")
	}
}
