package system

import (
	"testing"
	"testing/synctest"

	"github.com/annalsdb/annals/internal/check"
)

func TestDriveThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := make(chan drive, 1)
		v := volume{mount: "/", last: drive{total: 5}, pending: hung}
		for range 3 {
			if got := v.read(); got.total != 5 {
				t.Fatalf("got %+v", got)
			}
		}
		hung <- drive{total: 6}
		if got := v.read(); got.total != 6 || v.pending != nil {
			t.Fatalf("got %+v", got)
		}
	})
}

func TestLiesIn(t *testing.T) {
	for _, c := range []struct {
		dir, mount string
		want       bool
	}{
		{"/data/db", "/", true}, {"/data/db", "/data", true}, {"/data/db", "/data/db", true}, {"/data/db", "/data/d", false},
		{"/data", "/data/db", false}, {"/", "/", true}, {"/data", "/other", false},
	} {
		check.Equal(t, liesIn(c.dir, c.mount), c.want, c.dir, "in", c.mount)
	}
}
