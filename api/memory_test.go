package api_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

const mib = 1 << 20

func claim(m *api.Memory) *api.Claim {
	c := new(api.Claim)
	c.Use(m)
	return c
}

// Requests get their turn in the order in which they asked, as soon as there is room for them.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := api.NewMemory(8 * mib) // 7 of them for large requests
		first := claim(m)
		check.Must(t, first.Grow(t.Context(), 6*mib))
		var mu sync.Mutex
		var order []int64
		var all sync.WaitGroup
		for _, bytes := range []int64{4 * mib, mib, 2 * mib} {
			all.Go(func() {
				c := claim(m)
				check.NoError(t, c.Grow(t.Context(), bytes), bytes, "bytes")
				mu.Lock()
				order = append(order, bytes/mib)
				mu.Unlock()
				time.Sleep(time.Second)
				c.Release()
			})
			synctest.Wait()
		}
		if claim(m).Try(mib) {
			t.Error("a request overtook those in line")
		}
		first.Shrink(3 * mib) // Room for the first in line, and no more.
		synctest.Wait()
		if len(order) == 0 || order[0] != 4 {
			t.Errorf("the first in line waits: %v", order)
		}
		first.Release()
		all.Wait()
		if len(order) != 3 || order[0] != 4 || m.Used() != 0 {
			t.Errorf("order %v, %d bytes are left", order, m.Used())
		}
	})
}

// What is refused, and that nothing of it stays.
func TestNoTurn(t *testing.T) {
	for _, c := range []struct {
		name  string
		ctx   func() (context.Context, context.CancelFunc)
		bytes int64
		after time.Duration
		err   error
	}{
		{"more than there is", nil, 9 * mib, 0, event.ErrNoRoom},
		{"no turn", nil, 2 * mib, 3 * time.Second, event.ErrNoRoom},
		{"client left", func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), time.Second)
		}, 2 * mib, time.Second, context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := api.NewMemory(8 * mib)
				first := claim(m)
				if !first.Try(6 * mib) {
					t.Fatal("there is no room")
				}
				ctx := t.Context()
				if c.ctx != nil {
					var cancel context.CancelFunc
					ctx, cancel = c.ctx()
					defer cancel()
				}
				begun, second := time.Now(), claim(m)
				if err := second.Grow(ctx, c.bytes); !errors.Is(err, c.err) || time.Since(begun) != c.after {
					t.Errorf("%v after %s", err, time.Since(begun))
				}
				second.Release()
				first.Release()
				if m.Used() != 0 || !claim(m).Try(7*mib) {
					t.Errorf("%d bytes stay", m.Used())
				}
			})
		})
	}
}

// Small requests are served when large ones have all there is, and are bounded themselves.
func TestSmallRequests(t *testing.T) {
	m := api.NewMemory(8 * mib)
	large := claim(m)
	if !large.Try(7 * mib) {
		t.Fatal("there is no room")
	}
	served := 0
	for claim(m).Try(api.SmallRequest) {
		served++
	}
	check.Equal(t, served, mib/api.SmallRequest, "small requests")
}

// Those that wait are bounded in number.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := api.NewMemory(8 * mib)
		large := claim(m)
		large.Add(8 * mib) // More than there is: it is held already.
		var waiting sync.WaitGroup
		for range 256 {
			waiting.Go(func() { check.Is(t, claim(m).Grow(t.Context(), mib), event.ErrNoRoom) })
		}
		synctest.Wait()
		begun := time.Now()
		if err := claim(m).Grow(t.Context(), mib); !errors.Is(err, event.ErrNoRoom) || time.Since(begun) != 0 {
			t.Errorf("one more: %v", err)
		}
		waiting.Wait()
		large.Release()
		check.Equal(t, m.Used(), 0, "bytes stay")
	})
}

// A memory that all use at once counts right.
func TestMemoryAtOnce(t *testing.T) {
	m := api.NewMemory(mib)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 300 {
				c := claim(m)
				if err := c.Grow(t.Context(), int64(1+(i+j)%7)*50<<10); err == nil {
					c.Shrink(30 << 10)
				}
				c.Release()
			}
		})
	}
	all.Wait()
	check.Equal(t, m.Used(), 0, "bytes stay")
}

func BenchmarkSmallClaim(b *testing.B) {
	m := api.NewMemory(1 << 30)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			var c api.Claim
			c.Use(m)
			_ = c.Grow(b.Context(), 256)
			c.Release()
		}
	})
}
