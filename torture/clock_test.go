package torture

import (
	"path/filepath"
	"testing"
	"time"
)

func TestClock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "clock")
	if _, err := OpenClock(file); err == nil {
		t.Error("a file that is not there is a clock")
	}
	if err := setClock(file, time.Hour); err != nil {
		t.Fatal(err)
	}
	now, err := OpenClock(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, offset := range []time.Duration{time.Hour, 0, -25 * time.Hour, 1, -1, 100 * 365 * 24 * time.Hour, 300 * time.Millisecond} {
		if err := setClock(file, offset); err != nil {
			t.Fatal(err)
		}
		before := time.Now().Add(offset)
		if got, after := now(), time.Now().Add(offset); got.Before(before) || got.After(after) {
			t.Errorf("%s: it is %s, not from %s to %s", offset, got, before, after)
		}
	}
}
