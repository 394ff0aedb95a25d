package clock_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/clock"
)

func TestClock(t *testing.T) {
	if now, err := clock.Open(""); now != nil || err != nil {
		t.Errorf("without a file there is a clock, %v", err)
	}
	file := filepath.Join(t.TempDir(), "clock")
	if _, err := clock.Open(file); err == nil {
		t.Error("a file that is not there is a clock")
	}
	if err := clock.Set(file, time.Hour); err != nil {
		t.Fatal(err)
	}
	now, err := clock.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, offset := range []time.Duration{time.Hour, 0, -25 * time.Hour, 1, -1, 100 * 365 * 24 * time.Hour, 300 * time.Millisecond} {
		if err := clock.Set(file, offset); err != nil {
			t.Fatal(err)
		}
		before := time.Now().Add(offset)
		if got, after := now(), time.Now().Add(offset); got.Before(before) || got.After(after) {
			t.Errorf("%s: it is %s, not from %s to %s", offset, got, before, after)
		}
	}
}
