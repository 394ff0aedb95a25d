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
	v, err := rd.view()
	if err != nil {
		return 0, err
	}
	defer v.release()
	defer rd.met(&err)
	defer chunkfile.GuardFaults(&err)()
	cu := cursor{v: v}
	// The record lies in one of the chunks from first to below limit.
	first, limit := 0, len(v.set.byNumber)
	for first+1 < limit {
		middle := first + (limit-first)/2
		_, at, err := cu.recordFrom(chunkfile.ChunkStart(middle), math.MinInt64)
		if err != nil {
			return 0, fmt.Errorf("look for a time: %w", err)
		}
		if at < time {
			first = middle
		} else {
			limit = middle
		}
	}
	if position, _, err = cu.recordFrom(chunkfile.ChunkStart(first), time); err != nil {
		return 0, fmt.Errorf("look for a time: %w", err)
	}
	return position, nil
}

// recordFrom returns the position and the time of the first record at or after a position whose
// time is not before the one given. If there is none, it returns the end of the log and a time that
// never comes.
func (cu *cursor) recordFrom(position, time int64) (at, when int64, err error) {
	if err := cu.seekForward(position); err != nil {
		return 0, 0, err
	}
	for {
		it, at, err := cu.next()
		switch {
		case err != nil:
			return 0, 0, err
		case it == nil:
			return cu.v.tail.End, math.MaxInt64, nil
		case it.IsRecord() && it.Time() >= time:
			return at, it.Time(), nil
		}
	}
}
