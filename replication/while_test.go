package replication_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/replication"
)

// TestWhile: the context ends when what held has not held for four looks in turn.
func TestWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var holds atomic.Bool
		holds.Store(true)
		begun := time.Now()
		ctx, end := replication.While(t.Context(), time.Second, holds.Load)
		away := func(holding bool, after time.Duration) {
			time.Sleep(after)
			check.NoError(t, ctx.Err())
			holds.Store(holding)
		}
		away(false, 10*time.Second+time.Millisecond)
		away(true, 3*time.Second) // That is no more than a pause.
		away(false, 10*time.Second)
		<-ctx.Done()
		check.Equal(t, time.Since(begun), 27*time.Second, "ended after")
		end()
		ctx, end = replication.While(t.Context(), time.Second, func() bool { return true })
		end()
		check.Equal(t, ctx.Err() != nil, true, "ends with its caller")
	})
}
