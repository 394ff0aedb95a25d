package lab_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/lab"
)

// skew sets the clocks of a host, or skips the test.
func skew(t *testing.T, h *lab.Host, offset time.Duration) {
	t.Helper()
	if err := h.SkewClock(offset); errors.Is(err, lab.ErrNoClock) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
}

// checkClock demands that a program's clock is off by an offset.
func checkClock(t *testing.T, c *connection, offset time.Duration) {
	t.Helper()
	before := time.Now().Add(offset)
	text := c.must(t, "time")
	after := time.Now().Add(offset)
	nanoseconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if now := time.Unix(0, nanoseconds); now.Before(before) || now.After(after) {
		t.Errorf("the program says it is %s, not from %s to %s", now, before, after)
	}
}

func TestSkewClock(t *testing.T) {
	forEachKind(t, func(t *testing.T, l *lab.Lab) {
		h := l.Host(0)
		skew(t, h, time.Hour)
		launch(t, h, "server", "ready")
		launch(t, l.Host(1), "server", "ready")
		c, other := connect(t, h), connect(t, l.Host(1))
		checkClock(t, c, time.Hour)
		for _, offset := range []time.Duration{0, -25 * time.Hour, 1, -1, 999999999, -999999999, lab.MaxSkew, -lab.MaxSkew / 4, 300 * time.Millisecond} {
			skew(t, h, offset)
			checkClock(t, c, offset)
			checkClock(t, other, 0)
		}
		for _, p := range h.Processes() {
			do(t, p.Terminate(patience))
		}
		launch(t, h, "server", "ready")
		checkClock(t, connect(t, h), 300*time.Millisecond)
	})
}

func TestSkewClockInTime(t *testing.T) {
	l := openLab(t, lab.Options{Hosts: 1})
	h := l.Host(0)
	if err := h.SkewClock(lab.MaxSkew + 1); err == nil {
		t.Error("a clock is off by more than is allowed")
	}
	launch(t, h, "server", "ready")
	switch err := h.SkewClock(time.Hour); {
	case errors.Is(err, lab.ErrNoClock):
		t.Skip(err)
	case err == nil:
		t.Error("a process with the clock of the machine was skewed")
	}
	do(t, h.Processes()[0].Kill())
	skew(t, h, time.Minute)
	launch(t, h, "server", "ready")
	checkClock(t, connect(t, h), time.Minute)
}
