package throttle

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Lines[int]{Every: time.Minute}
		want := func(key, skipped int, due bool) {
			t.Helper()
			if n, ok := l.Due(key); n != skipped || ok != due {
				t.Errorf("%d: %d skipped, due %t; want %d, %t", key, n, ok, skipped, due)
			}
		}
		want(1, 0, true)
		want(1, 0, false)
		want(1, 0, false)
		want(2, 0, true)
		time.Sleep(time.Minute)
		want(1, 2, true)
		for i := range 3 * most {
			l.Due(i)
		}
		check.Equal(t, len(l.last), most, "lines are remembered")
		want(3*most, 0, false)
		time.Sleep(time.Minute)
		want(3*most, 0, true)
		check.Equal(t, len(l.last), 1, "lines are remembered after a minute")
	})
}
