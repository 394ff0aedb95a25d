package torture

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

func TestClock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "clock")
	check.Fails(t, check.Err(OpenClock(file)), "a file that is not there is a clock")
	check.Must(t, setClock(file, time.Hour))
	now := check.Value(OpenClock(file)).Must(t)
	for _, offset := range []time.Duration{time.Hour, 0, -25 * time.Hour, 1, -1, 100 * 365 * 24 * time.Hour, 300 * time.Millisecond} {
		check.Must(t, setClock(file, offset))
		before := time.Now().Add(offset)
		if got, after := now(), time.Now().Add(offset); got.Before(before) || got.After(after) {
			t.Errorf("%s: it is %s, not from %s to %s", offset, got, before, after)
		}
	}
}
