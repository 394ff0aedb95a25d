package eventlog

import (
	"fmt"
	"math"

	"github.com/annalsdb/annals/log/chunkfile"
)

// PositionAt returns the position of the first record whose time, in nanoseconds since 1970, is not
// before the one given; the end of the log when there is none. Times never fall along the log, so
// it halves the chunks and walks the one where the time lies.
func (rd *Reader) PositionAt(time int64) (position int64, err error) {
	err = rd.read(func(v view) error {
		// The record lies in one of the chunks from first to below limit.
		first, limit := 0, len(v.set.byNumber)
		for first+1 < limit {
			middle := first + (limit-first)/2
			_, at, err := v.recordFrom(chunkfile.ChunkStart(middle), math.MinInt64)
			if err != nil {
				return fmt.Errorf("look for a time: %w", err)
			}
			if at < time {
				first = middle
			} else {
				limit = middle
			}
		}
		if position, _, err = v.recordFrom(chunkfile.ChunkStart(first), time); err != nil {
			return fmt.Errorf("look for a time: %w", err)
		}
		return nil
	})
	return position, err
}

// recordFrom returns the position and the time of the first record at or after a position whose
// time is not before the one given. If there is none, it returns the end of the log and a time that
// never comes.
func (v view) recordFrom(position, time int64) (at, when int64, err error) {
	for it, at := range v.forward(position, &err) {
		if it.IsRecord() && it.Time() >= time {
			return at, it.Time(), nil
		}
	}
	return v.tail.End, math.MaxInt64, err
}
