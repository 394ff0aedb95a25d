package hang_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/internal/hang"
)

func TestOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w hang.Watch
		quick, slow := &hang.Op{Doing: "write"}, &hang.Op{Doing: "sync", Slow: 10}
		expect := func(want *hang.Op, wantSince time.Duration) {
			t.Helper()
			if op, since := w.Overdue(time.Second); op != want || since != wantSince {
				t.Errorf("after %v: %v for %v, want %v for %v", time.Now(), op, since, want, wantSince)
			}
		}
		a := w.Begin(slow)
		time.Sleep(time.Second)
		b := w.Begin(quick)
		time.Sleep(time.Second - time.Nanosecond)
		expect(nil, 0)
		time.Sleep(time.Nanosecond)
		expect(quick, time.Second)
		w.End(b)
		expect(nil, 0)
		time.Sleep(8 * time.Second)
		expect(slow, 10*time.Second)
		w.End(a)
		expect(nil, 0)
	})
}

// More operations than are watched break nothing, and their places are free again.
func TestMoreThanAreWatched(t *testing.T) {
	var w hang.Watch
	op := new(hang.Op)
	for range 2 {
		var begun []int
		for range 1000 {
			begun = append(begun, w.Begin(op))
		}
		if got, _ := w.Overdue(0); got != op {
			t.Error("none is running")
		}
		for _, at := range begun {
			w.End(at)
		}
		if got, _ := w.Overdue(0); got != nil {
			t.Error("one is still running")
		}
	}
	var none *hang.Watch
	none.End(none.Begin(op))
}

// A place that is taken again while it is looked at is never reported for the old operation.
func TestPlacesAreTakenAnew(t *testing.T) {
	var w hang.Watch
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 8 {
		wg.Go(func() {
			op := new(hang.Op)
			for {
				select {
				case <-stop:
					return
				default:
					at := w.Begin(op)
					if rand.IntN(100) == 0 {
						time.Sleep(time.Microsecond)
					}
					w.End(at)
				}
			}
		})
	}
	for range 2000 {
		if op, since := w.Overdue(time.Hour); op != nil {
			t.Fatalf("overdue after %v", since)
		}
	}
	close(stop)
	wg.Wait()
}

func BenchmarkWatch(b *testing.B) {
	var w hang.Watch
	op := new(hang.Op)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			w.End(w.Begin(op))
		}
	})
}
