package atom

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

func FuzzPosition(f *testing.F) {
	for _, s := range []string{"", "0", strings.Repeat("0", 32), strings.Repeat("F", 32), "00000000000000640000000000000064", "zz"} {
		f.Add(s, int64(len(s)))
	}
	f.Fuzz(func(t *testing.T, s string, n int64) {
		if p, ok := ParsePosition(s); ok {
			if p < 0 || len(s) != positionDigits {
				t.Fatalf("%q gave %d", s, p)
			}
			if again := string(AppendPosition(nil, p)); !strings.EqualFold(again[:16], s[:16]) {
				t.Fatalf("%q became %q", s, again)
			}
		}
		if n < 0 {
			return
		}
		if p, ok := ParsePosition(string(AppendPosition(nil, n))); !ok || p != n {
			t.Fatalf("%d became %d, %v", n, p, ok)
		}
	})
}

func TestAppendTime(t *testing.T) {
	var w Writer
	for _, at := range []time.Time{
		time.Unix(0, 0), time.Unix(0, 999), time.Unix(0, math.MaxInt64), time.Unix(0, -1), time.Date(1999, 12, 31, 23, 59, 59, 999999999, time.UTC),
		time.Date(1999, 12, 31, 23, 59, 59, 1000, time.UTC), time.Date(2024, 2, 29, 1, 2, 3, 4000, time.UTC), time.Date(2024, 2, 29, 1, 2, 3, 123456789, time.UTC),
	} {
		want := at.UTC().Format("2006-01-02T15:04:05.000000Z")
		check.Equal(t, string(AppendTime(nil, at.UnixNano())), want, at)
		check.Equal(t, string(w.appendTime(nil, at.UnixNano())), want, at, "behind the one before")
	}
}
