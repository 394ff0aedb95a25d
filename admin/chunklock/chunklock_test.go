package chunklock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/annalsdb/annals/admin/chunklock"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

func TestOneHolder(t *testing.T) {
	var l chunklock.Lock
	first := check.Value(l.TryLock()).Must(t)
	check.MustBe(t, check.Err(l.TryLock()), event.ErrChunksLocked, "second holder")
	first.Unlock()
	second := check.Value(l.TryLock()).Must(t)
	first.Unlock() // Not its hold any more.
	if _, err := l.TryLock(); !errors.Is(err, event.ErrChunksLocked) {
		t.Fatalf("the first holder let go of the second one's hold: %v", err)
	}
	second.Unlock()
}

func TestLockWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l chunklock.Lock
		first := check.Value(l.TryLock()).Must(t)
		got := make(chan error, 3)
		for range 3 {
			go func() {
				hold, err := l.Lock(t.Context())
				got <- err
				hold.Unlock()
			}()
		}
		synctest.Wait()
		if len(got) > 0 {
			t.Fatal("a job did not wait")
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		check.MustBe(t, check.Err(l.Lock(ended)), context.Canceled, "with a context that has ended")
		first.Unlock()
		for range 3 {
			check.Must(t, <-got)
		}
	})
}
