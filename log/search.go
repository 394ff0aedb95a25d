package eventlog

import (
	"fmt"
	"math"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// LastBelow returns the number of the last ordinary event of a stream that lies
// below a position, deleted or not, hidden or not; -1 when there is none. Its cost does
// not depend on how many events the stream has.
func (lk lookup) LastBelow(stream string, position int64) (number int64, err error) {
	hash := chunkfile.HashStream(stream)
	if !lk.index.MayExist(hash) {
		return -1, nil
	}
	err = lk.read(func(v view) error {
		s := numberSearch{lookup: lk, v: v, stream: stream, hash: hash, position: position}
		number, err = s.search()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("last event of stream %q below %d: %w", stream, position, err)
	}
	return number, nil
}

// numberSearch looks for the last event of a stream below a position. It can search because numbers
// and positions of one stream rise together. An entry of the index may belong to another stream of
// the same hash, or to a removed record whose stream is not known any more: such an entry only
// steers the search.
type numberSearch struct {
	lookup
	v        view
	stream   string
	hash     uint64
	position int64
	certain  bool // no checksum is believed that was right before
	scratch  []byte
	found    [1]index.Entry
}

// side is where a probe landed.
type side int

const (
	probeNothing side = iota // no entry with such a number
	probeBelow               // an event of the stream below the position
	probeBehind              // at or after it
	probeUnknown             // the entry tells nothing for certain
)

// probe looks at the highest entry numbered from..to.
func (s *numberSearch) probe(from, to int64) (side, int64, error) {
	descend := s.index.Descend
	if s.certain {
		descend = s.index.DescendCertain
	}
	found, err := descend(s.found[:0], s.hash, to, from, 1)
	if err != nil || len(found) == 0 {
		return probeNothing, 0, err
	}
	e := found[0]
	it, err := s.confirm(s.v, e, s.stream, &s.scratch)
	switch {
	case err != nil:
		return 0, 0, err
	case it == nil:
		return probeUnknown, e.Number, nil
	case e.Position < s.position:
		return probeBelow, e.Number, nil
	}
	return probeBehind, e.Number, nil
}

func (s *numberSearch) search() (int64, error) {
	// No ordinary event of the stream at or above high lies below the position, and
	// it is not worth looking between what is known and low again.
	low, high := int64(0), event.TombstoneNumber
	// An event of the stream below the position, if no entry stands between it and low.
	best := int64(-1)
	// First downward from the newest event by growing steps: most often the position is
	// near the log's end. Then by halves.
	for step, halving := int64(1), false; low < high; {
		to := max(0, high-step)
		if halving {
			to = low + (high-1-low)/2
		}
		where, number, err := s.probe(low, to)
		switch {
		case err != nil:
			return 0, err
		case where == probeBehind:
			high = number
		case where == probeUnknown && !halving && to > 0:
		default:
			low, halving = to+1, true
			switch where {
			case probeBelow:
				best = number
			case probeUnknown:
				best = -1
			}
		}
		if step <= high/2 {
			step *= 2
		} else {
			step = high
		}
	}
	if best >= 0 {
		return best, nil
	}
	return s.walk(high - 1)
}

// walk looks at every entry from a number downward that lies below the position.
func (s *numberSearch) walk(from int64) (int64, error) {
	for e, err := range s.index.Down(s.hash, from, 0) {
		if err != nil {
			return 0, err
		}
		if e.Position >= s.position {
			continue
		}
		if it, err := s.confirm(s.v, e, s.stream, &s.scratch); it != nil || err != nil {
			return e.Number, err
		}
	}
	return -1, nil
}

// PositionAt returns the position of the first record whose time, in nanoseconds since 1970, is not
// before the one given; the end of the log when there is none. Times never fall along the log, so
// it halves the chunks and walks the one where the time lies.
func (s *state) PositionAt(time int64) (position int64, err error) {
	err = s.read(func(v view) error {
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
