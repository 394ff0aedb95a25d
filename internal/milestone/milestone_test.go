package milestone

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/annalsdb/annals/internal/check"
)

// Each waiter is woken once its position was passed, and not before; one that gave up is forgotten.
func TestList(t *testing.T) {
	var l List
	waiters := make([]*Waiter, 1000)
	for i, position := range rand.Perm(len(waiters)) {
		waiters[position] = l.Add(int64(position))
		check.Equal(t, l.Add(int64(position)), waiters[position], "another one")
		l.Remove(waiters[position])
		if i%3 == 0 {
			l.Remove(waiters[position])
			waiters[position] = nil
		}
	}
	for end := int64(0); end <= 1000; end += 7 {
		l.Pass(end)
		for position, w := range waiters {
			if w == nil {
				continue
			}
			select {
			case <-w.Woken:
				check.Equal(t, int64(position) < end, true, position, "was woken at", end)
				l.Remove(w) // It may not know yet.
			default:
				check.Equal(t, int64(position) >= end, true, position, "sleeps at", end)
			}
		}
	}
	l.Pass(1000)
	check.Equal(t, len(l.waiters)+len(l.at), 0, "left")
}

func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Line
		var all sync.WaitGroup
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan string, 4)
		wait := func(position int64) {
			all.Go(func() { ended <- fmt.Sprint(position, l.Wait(ctx, position, nil)) })
			synctest.Wait()
		}
		wait(5)
		wait(3)
		wait(9)
		l.Move(4)
		check.Equal(t, <-ended, "3 <nil>")
		l.Move(2) // What was done is to be done again.
		l.Move(5)
		synctest.Wait()
		check.Equal(t, [2]any{len(ended), l.End()}, [2]any{0, int64(5)}, "ended at")
		l.Move(6)
		check.Equal(t, <-ended, "5 <nil>")
		wait(5)
		check.Equal(t, <-ended, "5 <nil>", "at once")
		cancel(errors.New("gone"))
		check.Equal(t, <-ended, "9 gone")
		all.Wait()
		check.Equal(t, len(l.waiting.waiters), 0, "left")
		for range 100 {
			l.Move(0)
			check.NoError(t, l.Wait(ctx, 7, func() { l.Move(8) }))
		}
	})
}
