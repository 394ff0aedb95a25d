package args

import (
	"math"
	"strings"
	"time"
)

// Moment reads a time, as nanoseconds since 1970. One that 64 bits of them cannot tell, before 1678
// or after 2261, is as the first or the last that they can: no event is older or newer.
func Moment(s string) (int64, bool) {
	// In a query + is a space.
	t, err := time.Parse(time.RFC3339Nano, strings.ReplaceAll(strings.ToUpper(s), " ", "+"))
	switch {
	case err != nil:
		return 0, false
	case t.UTC().Year() < 1678:
		return math.MinInt64, true
	case t.UTC().Year() > 2261:
		return math.MaxInt64, true
	}
	return t.UnixNano(), true
}
