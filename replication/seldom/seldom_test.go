package seldom

import (
	"testing"
	"testing/synctest"
	"time"
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
		if len(l.last) != most {
			t.Errorf("%d lines are remembered", len(l.last))
		}
		want(3*most, 0, false)
		time.Sleep(time.Minute)
		want(3*most, 0, true)
		if len(l.last) != 1 {
			t.Errorf("%d lines are remembered after a minute", len(l.last))
		}
	})
}
