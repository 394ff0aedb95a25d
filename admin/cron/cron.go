// Package cron computes the times at which scheduled work is due.
package cron

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // CRON_TZ names zones, and a machine need not have a database of them.

	"github.com/netresearch/go-cron"
)

// searchYears is how far ahead a due time is looked for. A 29th of February that
// is a given day of the week comes every 28 years, or 40 around 2100.
const searchYears = 40

// Schedule says when work is due. The zero value is never due.
type Schedule struct {
	expression string
	spec       *cron.SpecSchedule
}

// Parse reads a cron expression: minute, hour, day of the month, month and day of
// the week, or one of @hourly, @daily (@midnight), @weekly, @monthly and @yearly
// (@annually). Days must match both fields of days, so that "0 2 1-7 * SUN" is the
// first Sunday of a month. Times are UTC unless "CRON_TZ=Europe/Berlin " or the
// like stands before it. An empty expression gives the schedule that is never due.
func Parse(expression string) (Schedule, error) {
	text := strings.Join(strings.Fields(expression), " ")
	if text == "" {
		return Schedule{}, nil
	}
	wrong := func(format string, args ...any) (Schedule, error) {
		return Schedule{}, fmt.Errorf("cron expression %q: %w", text, fmt.Errorf(format, args...))
	}
	zone, rest := "", text
	for _, prefix := range []string{"CRON_TZ=", "TZ="} {
		if after, ok := strings.CutPrefix(text, prefix); ok {
			zone, rest, _ = strings.Cut(after, " ")
		}
	}
	switch {
	case strings.EqualFold(zone, "Local"):
		return wrong("the time zone must be named, for nodes may have different local ones")
	case strings.HasPrefix(rest, "@every"):
		return wrong("@every has no fixed times that all nodes agree on: say when, for example \"0 2 * * SUN\"")
	case strings.HasPrefix(rest, "@"):
	case len(strings.Fields(rest)) != 5:
		return wrong("it has %d fields and needs five: minute, hour, day of the month, month, day of the week; or @daily and the like", len(strings.Fields(rest)))
	}
	parsed, err := cron.StandardParser().WithMaxSearchYears(searchYears).Parse(text)
	if err != nil {
		return wrong("%w", err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return wrong("it has no fixed times")
	}
	s := Schedule{expression: text, spec: spec}
	if spec.Location == time.Local { // Where the parser says local no zone was given.
		spec.Location = time.UTC
	}
	if s.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return wrong("there is no such day")
	}
	return s, nil
}

// IsZero reports whether the schedule is never due.
func (s Schedule) IsZero() bool { return s.spec == nil }

// String returns the expression, with single spaces.
func (s Schedule) String() string { return s.expression }

// Next returns the first due time after t, in UTC; zero if there is none.
//
// Where clocks are set forward, times that do not exist are due as much later.
// Where they are set back, times that come twice are due the first time only,
// unless every hour is.
func (s Schedule) Next(t time.Time) time.Time {
	if s.spec == nil {
		return time.Time{}
	}
	const everyHour = 1 << 63 // the parser's mark of "*"
	for t = t.Round(0).UTC(); ; {
		next := s.spec.Next(t)
		if next.IsZero() || s.spec.Hour&everyHour != 0 || !repeated(next.In(s.spec.Location)) {
			return next
		}
		t = next
	}
}

// repeated reports whether clocks showed the same time shortly before.
func repeated(t time.Time) bool {
	_, now := t.Zone()
	for _, back := range []time.Duration{30 * time.Minute, time.Hour, 2 * time.Hour} {
		if _, before := t.Add(-back).Zone(); before-now == int(back/time.Second) {
			return true
		}
	}
	return false
}

// Latest returns the last due time that is after one time and not after another;
// zero if there is none.
func (s Schedule) Latest(after, until time.Time) (due time.Time) {
	for next := s.Next(after); !next.IsZero() && !next.After(until); next = s.Next(next) {
		due = next
	}
	return due
}
