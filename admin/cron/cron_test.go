package cron

import (
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	when := check.Value(time.Parse(time.RFC3339, text)).Must(t)
	return when.UTC()
}

func TestNext(t *testing.T) {
	cases := []struct{ name, expression, after, next string }{
		{"daily", "@daily", "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z"},
		{"spaces", "  0   2 * *\tSUN ", "2026-03-02T00:00:00Z", "2026-03-08T02:00:00Z"},
		{"just before", "0 2 * * *", "2026-03-02T01:59:59.999999999Z", "2026-03-02T02:00:00Z"},
		{"both days must match", "0 2 1-7 * SUN", "2026-03-02T00:00:00Z", "2026-04-05T02:00:00Z"},
		{"leap day", "0 0 29 2 *", "2026-03-02T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"leap day on a Sunday", "0 0 29 2 SUN", "2026-03-02T00:00:00Z", "2032-02-29T00:00:00Z"},
		{"not the local zone", "0 2 * * *", "2026-07-01T00:30:00+02:00", "2026-07-01T02:00:00Z"},
		{"zone in summer", "CRON_TZ=Europe/Berlin 0 2 * * *", "2026-07-01T00:30:00Z", "2026-07-02T00:00:00Z"},
		{"zone in winter", "CRON_TZ=Europe/Berlin 0 2 * * *", "2026-01-01T00:30:00Z", "2026-01-01T01:00:00Z"},
		{"zone and descriptor", "CRON_TZ=Asia/Tokyo @daily", "2026-01-01T00:00:00Z", "2026-01-01T15:00:00Z"},
		{"clocks go forward over it", "CRON_TZ=Europe/Berlin 30 2 * * *", "2026-03-28T12:00:00Z", "2026-03-29T01:30:00Z"},
		{"clocks go back, first", "CRON_TZ=Europe/Berlin 30 2 * * *", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"},
		{"clocks go back, once", "CRON_TZ=Europe/Berlin 30 2 * * *", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		{"clocks go back, every hour", "CRON_TZ=Europe/Berlin 30 * * * *", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"},
		{"clocks go back by half an hour", "CRON_TZ=Australia/Lord_Howe 45 1 * * *", "2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := check.Value(Parse(c.expression)).Must(t)
			check.Equal(t, s.Next(at(t, c.after)).Format(time.RFC3339), c.next, "next")
		})
	}
}

func TestParseRefuses(t *testing.T) {
	cases := []struct{ expression, says string }{
		{"hourly", "1 fields and needs five"},
		{"0 0 2 * * SUN", "6 fields and needs five"},
		{"0 2 30 2 *", "no such day"},
		{"61 2 * * *", "above maximum"},
		{"0 2 * * SOON", "SOON"},
		{"@fortnightly", "unrecognized descriptor"},
		{"@every 6h", "no fixed times"},
		{"CRON_TZ=Local 0 2 * * *", "time zone must be named"},
		{"CRON_TZ=Europe/Atlantis 0 2 * * *", "Europe/Atlantis"},
		{"CRON_TZ=Europe/Berlin", "0 fields"},
		{strings.Repeat("1,", 1000) + "1 2 * * *", "too long"},
	}
	for _, c := range cases {
		_, err := Parse(c.expression)
		switch {
		case err == nil:
			t.Errorf("%q is accepted", c.expression)
		case !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n"):
			t.Errorf("%q: %v", c.expression, err)
		}
	}
}

func TestParseEmpty(t *testing.T) {
	s, err := Parse(" ")
	if err != nil || !s.IsZero() || !s.Next(time.Now()).IsZero() || !s.Latest(time.Time{}, time.Now()).IsZero() {
		t.Errorf("%v, %v", s, err)
	}
}

func TestLatest(t *testing.T) {
	cases := []struct{ name, expression, after, until, latest string }{
		{"none", "@daily", "2026-03-01T00:00:00Z", "2026-03-01T23:59:59Z", ""},
		{"one", "@daily", "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z", "2026-03-02T00:00:00Z"},
		{"many", "* * * * *", "2026-03-01T00:00:00Z", "2026-03-02T00:00:59Z", "2026-03-02T00:00:00Z"},
		{"early in the window", "5 0 * * *", "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z", "2026-03-01T00:05:00Z"},
		{"fractions", "@hourly", "2026-03-01T00:00:00.5Z", "2026-03-01T01:00:00.2Z", "2026-03-01T01:00:00Z"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := check.Value(Parse(c.expression)).Must(t)
			got := ""
			if latest := s.Latest(at(t, c.after), at(t, c.until)); !latest.IsZero() {
				got = latest.Format(time.RFC3339)
			}
			check.Equal(t, got, c.latest, "latest")
		})
	}
}

// FuzzParse looks for expressions that are accepted and do not give rising times.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"0 2 * * SUN", "@weekly", "CRON_TZ=America/Sao_Paulo 0 0 * * *", "*/7 1-3,22-2 1-7 */5 ?", "TZ=Africa/Cairo 30 23 31 * FRI"} {
		f.Add(seed, int64(1_772_000_000))
	}
	f.Fuzz(func(t *testing.T, expression string, seconds int64) {
		s, err := Parse(expression)
		if err != nil || s.IsZero() {
			return
		}
		again, err := Parse(s.String())
		check.Must(t, err, expression, "gives", s)
		now := time.Unix(seconds%4_000_000_000, 0).UTC()
		for range 5 {
			next := s.Next(now)
			if next.IsZero() {
				return
			}
			if !next.After(now) || !again.Next(now).Equal(next) {
				t.Fatalf("%q: %v after %v", expression, next, now)
			}
			if got := s.Latest(now, next); !got.Equal(next) {
				t.Fatalf("%q: latest between %v and %v is %v", expression, now, next, got)
			}
			now = next
		}
	})
}
