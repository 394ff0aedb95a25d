package projection_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/projection"
)

// The caller that creates a projection learns when it is gone, however that comes about, and not
// before.
func TestGone(t *testing.T) {
	began := func(b *bench, name, text string) (gone func() int) {
		var n atomic.Int64
		_, _ = b.Create(b.ctx, projection.Creation{Mode: projection.Transient, Name: name, Query: text, Enabled: true, By: somebody, Gone: func() { n.Add(1) }})
		synctest.Wait()
		return func() int { synctest.Wait(); return min(int(n.Load()), 1) }
	}
	for name, c := range map[string]struct {
		name, text string
		there      bool
		end        func(b *bench)
	}{
		"deleted":  {"q", "", true, func(b *bench) { b.must(b.Delete(b.ctx, "q", projection.DeleteOptions{}, somebody)) }},
		"expired":  {"q", "", true, func(*bench) { time.Sleep(7 * time.Minute) }},
		"restart":  {"q", "", true, func(b *bench) { b.must(b.Restart(b.ctx)) }},
		"stopped":  {"q", "", true, func(b *bench) { b.Stop() }},
		"taken":    {"p", "", false, func(*bench) {}},
		"too long": {strings.Repeat("q", 1<<17), "", false, func(*bench) {}},
		"faulted":  {"q", "bad", true, func(b *bench) { b.must(b.Delete(b.ctx, "q", projection.DeleteOptions{}, somebody)) }},
	} {
		test(t, func(b *bench) {
			b.create("p", "")
			gone := began(b, c.name, c.text)
			check.Equal(t, gone() == 0, c.there, name, "it is there")
			c.end(b)
			if gone() == 0 {
				t.Errorf("%s: nobody was told", name)
			}
		})
	}
}
