package httpapi

import (
	"math"
	"strconv"

	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/stats/history"
)

// maxMinutes is how much of the past statistics are kept of.
const maxMinutes = int64(history.Span / (60 * 1e9))

// serveHistory answers with what the main statistics were. What is not known of a moment is null.
func serveHistory(x *exchange) error {
	minutes := maxMinutes
	if v, ok := queryLookup(x.r.URL.RawQuery, "minutes"); ok {
		if minutes, ok = parseNumber(v, math.MaxInt32); !ok || minutes == 0 {
			return badRequest("'" + v + "' is not valid minutes. Should be positive integer")
		}
	}
	s := x.s.opts.Statistics.History(min(minutes, maxMinutes))
	b := append(x.out[:0], `{"step":`...)
	b = strconv.AppendInt(b, int64(history.Step.Seconds()), 10)
	b = append(b, `,"from":"`...)
	b = s.From.AppendFormat(b, "2006-01-02T15:04:05Z")
	b = append(b, `","series":{`...)
	for i, name := range s.Names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(jsontext.AppendString(b, name), ":["...)
		for k, v := range s.Values[i] {
			if k > 0 {
				b = append(b, ',')
			}
			if math.IsNaN(v) || math.IsInf(v, 0) {
				b = append(b, "null"...)
			} else {
				b = strconv.AppendFloat(b, v, 'f', -1, 64)
			}
		}
		b = append(b, ']')
	}
	return sendOut(x, append(b, "}}"...))
}
