package clock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/clock"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if err := clock.Sleep(t.Context(), time.Hour); err != nil || time.Since(begun) != time.Hour {
			t.Errorf("slept %s, %v", time.Since(begun), err)
		}
		why := errors.New("because")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		check.Is(t, clock.Sleep(ctx, time.Hour), why, "with a context that has ended")
	})
}

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := clock.NewDeadline(t.Context(), time.Second)
		if at, ok := d.Deadline(); !ok || time.Until(at) != time.Second || d.Err() != nil {
			t.Errorf("%v, %v, %v", at, ok, d.Err())
		}
		child, cancel := context.WithTimeout(d, time.Minute)
		defer cancel()
		<-child.Done()
		check.MustEqual(t, d.Err(), context.DeadlineExceeded)
		check.Equal(t, child.Err(), context.DeadlineExceeded)
		d.Release()

		d = clock.NewDeadline(t.Context(), time.Second) // No one waits for it.
		time.Sleep(time.Second)
		check.Equal(t, d.Err(), context.DeadlineExceeded)
		<-d.Done()
		d.Release()

		parent, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		d = clock.NewDeadline(parent, time.Second)
		if at, _ := d.Deadline(); time.Until(at) != time.Millisecond {
			t.Errorf("%v", at)
		}
		stop()
		check.Equal(t, d.Err(), context.Canceled)
	})
}
