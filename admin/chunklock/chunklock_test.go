package chunklock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/annalsdb/annals/admin/chunklock"
	"github.com/annalsdb/annals/event"
)

func TestOneHolder(t *testing.T) {
	var l chunklock.Lock
	first, err := l.TryLock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.TryLock(); !errors.Is(err, event.ErrChunksLocked) {
		t.Fatalf("second holder: %v", err)
	}
	first.Unlock()
	second, err := l.TryLock()
	if err != nil {
		t.Fatal(err)
	}
	first.Unlock() // Not its hold any more.
	if _, err := l.TryLock(); !errors.Is(err, event.ErrChunksLocked) {
		t.Fatalf("the first holder let go of the second one's hold: %v", err)
	}
	second.Unlock()
}

func TestLockWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l chunklock.Lock
		first, err := l.TryLock()
		if err != nil {
			t.Fatal(err)
		}
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
		if _, err := l.Lock(ended); !errors.Is(err, context.Canceled) {
			t.Fatalf("with a context that has ended: %v", err)
		}
		first.Unlock()
		for range 3 {
			if err := <-got; err != nil {
				t.Fatal(err)
			}
		}
	})
}
