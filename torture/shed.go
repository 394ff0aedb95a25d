package torture

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/annalsdb/annals/event"
)

// shedStyle is how a stream is limited.
type shedStyle int

const (
	shedCount  shedStyle = iota // $maxCount that only falls
	shedBefore                  // $tb that only rises
	shedAge                     // one $maxAge
	shedMonth                   // a $maxAge that no event reaches, even with a wrong clock
	shedSoft                    // deleted and written to again
	shedLoose                   // limits that change at will, also to none
	shedHard                    // deleted for good in the end
)

// allStyles are the streams of one client that limits its streams, erasing those of one that only
// deletes.
var (
	allStyles = []shedStyle{shedCount, shedBefore, shedAge, shedMonth, shedSoft, shedLoose, shedHard}
	erasing   = []shedStyle{shedSoft, shedSoft, shedSoft, shedSoft}
)

func (s shedStyle) String() string {
	return [...]string{"count", "before", "age", "month", "soft", "loose", "hard"}[s]
}

// shed is a stream that loses events. One client writes to it and knows what it holds.
type shed struct {
	*stream
	style shedStyle
	// refs are the events by number.
	refs []ref
	// written are the appends that were acknowledged.
	written []ref

	maxCount, before int64 // 0 for none
	maxAge           time.Duration
	metas            int // metadata records written
	deleted, hard    bool
	unsure           bool // the outcome of the last write is not known, so neither is anything else

	// lost is the number below which events may be gone: they were hidden at some time.
	lost int64
}

// last is the number of the last event, -1 if there is none.
func (s *shed) last() int64 { return int64(len(s.refs)) - 1 }

// visible is the number from which on limits, but for that of age, let events be seen.
func (s *shed) visible() int64 {
	if s.deleted || s.hard {
		return math.MaxInt64
	}
	low := s.before
	if s.maxCount > 0 {
		low = max(low, s.last()-s.maxCount+1)
	}
	return low
}

// discard is the number below which a scavenge removes events now. The last event stays.
func (s *shed) discard() int64 {
	if s.hard {
		return math.MaxInt64
	}
	return min(s.visible(), max(s.last(), 0))
}

// changed notes what was hidden. It comes after every write that is known to have worked.
func (s *shed) changed() { s.lost = max(s.lost, s.discard()) }

// mayLack says whether an event may be gone.
func (s *shed) mayLack(number int64) bool {
	return s.unsure || number < s.lost || s.ages() && number < s.last()
}

// ages says whether events may get too old within a round.
func (s *shed) ages() bool { return s.maxAge > 0 && s.style != shedMonth }

// agreed says whether all nodes must agree on an event once they were scavenged up to
// the same point: limits that were loosened may have been applied here and not there.
func (s *shed) agreed(number int64) bool {
	return !s.unsure && (s.style != shedLoose || number >= s.lost || number < s.discard())
}

// metadata is the document for the limits as they are.
func (s *shed) metadata(rng *rand.Rand) string {
	text := fmt.Sprintf(`{"n":%d`, rng.Uint32())
	if s.maxCount > 0 {
		text += fmt.Sprintf(`,"$maxCount":%d`, s.maxCount)
	}
	if s.maxAge > 0 {
		text += fmt.Sprintf(`,"$maxAge":%d`, int64(s.maxAge/time.Second))
	}
	if s.before > 0 {
		text += fmt.Sprintf(`,"$tb":%d`, s.before)
	}
	return text + "}"
}

// tighten changes the limits as the style has it. age is what a limit of age allows.
func (s *shed) tighten(rng *rand.Rand, age time.Duration) {
	switch s.style {
	case shedCount, shedHard:
		s.maxCount = max(1, s.maxCount*9/10)
		if s.metas == 0 {
			s.maxCount = 40
		}
	case shedBefore:
		s.before = min(s.before+rng.Int64N(8), s.last()+1)
	case shedAge:
		s.maxAge = age
	case shedMonth:
		s.maxAge = 30 * 24 * time.Hour
	case shedSoft:
	default:
		s.maxCount, s.before = 0, 0
		if rng.IntN(3) > 0 {
			s.maxCount = 1 + rng.Int64N(30)
		}
		if rng.IntN(3) == 0 {
			s.before = rng.Int64N(s.last() + 2)
		}
	}
}

// serverID is the id of a record that is not told by its data, such as one of metadata.
func (t identity) serverID(r ref) event.ID {
	var id event.ID
	binary.BigEndian.PutUint64(id[:8], t.tag+1)
	binary.BigEndian.PutUint64(id[8:], uint64(r))
	return id
}
