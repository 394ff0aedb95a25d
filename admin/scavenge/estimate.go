package scavenge

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/annalsdb/annals/event"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/chunkfile"
)

// Estimate says what a run would do now. It reads the whole log, changes nothing, and may be made
// while a run is in progress. Only one is made at a time: event.ErrBusy.
func (s *Service) Estimate(ctx context.Context, o EstimateOptions) (*Estimate, error) {
	if s.opts.InMemory {
		return nil, ErrInMemory
	}
	log, err := s.opts.Log()
	if err != nil {
		return nil, err
	}
	if !s.estimating.TryLock() {
		return nil, fmt.Errorf("another estimate is being made: %w", event.ErrBusy)
	}
	defer s.estimating.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	if err := s.opts.AwaitNow(ctx); err != nil {
		return nil, err
	}
	e := estimator{log: log, now: s.opts.Now(), gone: newTally(), all: newTally()}
	return e.do(ctx, o)
}

// estimator goes through the log once. What it knows of streams at a time is bounded.
type estimator struct {
	log  *eventlog.Log
	now  time.Time
	gone tally // what would go, by stream
	all  tally // everything, by stream

	verdicts [1 << 16]*verdict // of recent streams, by the lowest bits of the hash
}

// verdict says which events of one stream go.
type verdict struct {
	name   string
	below  int64 // events with lower numbers go
	last   int64 // the event with this number always stays
	oldest int64 // events before this time go
	why    string
	info   event.StreamInfo
}

const whyAge = "$maxAge"

func (e *estimator) do(ctx context.Context, o EstimateOptions) (*Estimate, error) {
	begun := time.Now()
	chunks, err := e.log.Chunks.List()
	if err != nil {
		return nil, err
	}
	end := e.log.Tail().End
	out := &Estimate{End: end, Threshold: o.Threshold}
	for _, c := range chunks {
		out.Chunks = append(out.Chunks, ChunkEstimate{File: c.File, First: c.First, Last: c.Last, FileBytes: c.FileBytes})
	}
	at := 0
	err = e.log.Chunks.Scan(ctx, 0, end, func(rec *eventlog.Stored) error {
		for at+1 < len(chunks) && rec.Position >= chunks[at+1].Start {
			at++
		}
		v, err := e.verdict(rec.Stream)
		if err != nil {
			return err
		}
		e.all.add(v.name, 1, int64(rec.Size), "")
		why := v.of(rec)
		if why == "" {
			return nil
		}
		c := &out.Chunks[at]
		c.Events++
		c.Bytes += int64(rec.Size)
		c.Weight += weightCertain
		e.gone.add(v.name, 1, int64(rec.Size), why)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range out.Chunks {
		c := &out.Chunks[i]
		c.Executed = executed(c.Weight, o.Threshold)
		out.Bytes += c.Bytes
		out.Events += c.Events
	}
	for _, n := range e.gone.top(o.Top) {
		out.Streams = append(out.Streams, StreamEstimate{Stream: n.name, Events: n.events, Bytes: n.bytes, Why: n.why()})
	}
	for _, n := range e.all.top(o.Top + len(e.gone.sums)) {
		if len(out.Kept) == o.Top {
			break
		}
		if _, some := e.gone.sums[n.name]; some {
			continue
		}
		v, err := e.verdict([]byte(n.name))
		if err != nil {
			return nil, err
		}
		out.Kept = append(out.Kept, StreamEstimate{Stream: n.name, Events: n.events, Bytes: n.bytes, Why: v.whyNot()})
	}
	out.Took = time.Since(begun)
	return out, nil
}

// verdict returns which events of a stream would go now.
func (e *estimator) verdict(stream []byte) (*verdict, error) {
	slot := &e.verdicts[chunkfile.HashStream(string(stream))%uint64(len(e.verdicts))]
	if v := *slot; v != nil && v.name == string(stream) {
		return v, nil
	}
	v := &verdict{name: string(stream), oldest: math.MinInt64}
	info, err := e.log.Reads.StreamInfo(v.name)
	if err != nil {
		return nil, err
	}
	v.info, v.last = info, info.Last
	deleted := info.HardDeleted
	m := &info.Metadata
	switch {
	case v.name == event.RedactionsStream:
	case event.IsMetaStream(v.name):
		v.below, v.why = info.Last, "metadata replaced"
		if deleted = deleted && !event.IsMetaStream(event.OriginalOf(v.name)); deleted {
			v.below, v.why = math.MaxInt64, "deleted"
		}
	case deleted:
		v.below, v.why = event.TombstoneNumber, "deleted"
	default:
		v.below = m.MinVisible(info.Last)
		switch {
		case m.SoftDeleted():
			v.why = "deleted"
		case v.below > m.TruncateBefore:
			v.why = "$maxCount"
		default:
			v.why = "$tb"
		}
		v.below, v.oldest = min(v.below, info.Last), m.Oldest(e.now)
	}
	*slot = v
	return v, nil
}

// of says why an event goes, empty if it stays.
func (v *verdict) of(rec *eventlog.Stored) string {
	switch {
	case rec.Number < v.below:
		return v.why
	case rec.Time < v.oldest && rec.Number < v.last:
		return whyAge
	}
	return ""
}

// whyNot says why nothing of the stream goes.
func (v *verdict) whyNot() string {
	m := &v.info.Metadata
	switch {
	case v.name == event.RedactionsStream:
		return "what was redacted is kept for ever"
	case event.IsMetaStream(v.name):
		return "only the newest metadata is left"
	case v.info.HardDeleted:
		return "only the tombstone is left"
	case v.info.Last < 0:
		return "it has no events"
	case m.SoftDeleted():
		return "deleted, and the last event always stays"
	case m.MaxCount == 0 && m.MaxAge == 0 && m.TruncateBefore == 0:
		if v.info.MetaLast < 0 {
			return "it has no metadata"
		}
		return "its metadata have none of $maxCount, $maxAge and $tb"
	}
	var why []string
	if m.MaxCount > 0 {
		why = append(why, fmt.Sprintf("$maxCount %d leaves all that is there", m.MaxCount))
	}
	if m.TruncateBefore > 0 {
		why = append(why, fmt.Sprintf("nothing is left below $tb %d", m.TruncateBefore))
	}
	if m.MaxAge > 0 {
		why = append(why, fmt.Sprintf("no event but the last is older than $maxAge %v", m.MaxAge))
	}
	return strings.Join(why, ", ")
}

// tallyMost is how many streams a tally knows at most. Beyond, those with the
// fewest bytes are forgotten, so that sums of streams that were forgotten once are too low.
const tallyMost = 1 << 16

// tally adds up events and bytes by stream, in bounded memory.
type tally struct{ sums map[string]*sum }

type sum struct {
	name    string
	events  int64
	bytes   int64
	reasons map[string]int64 // events by reason
}

func newTally() tally { return tally{map[string]*sum{}} }

func (t *tally) add(name string, events, bytes int64, why string) {
	s := t.sums[name]
	if s == nil {
		if len(t.sums) == tallyMost {
			t.shrink()
		}
		s = &sum{name: name}
		t.sums[name] = s
	}
	s.events += events
	s.bytes += bytes
	if why != "" {
		if s.reasons == nil {
			s.reasons = map[string]int64{}
		}
		s.reasons[why] += events
	}
}

// shrink forgets the smaller half.
func (t *tally) shrink() {
	for _, s := range t.top(len(t.sums))[len(t.sums)/2:] {
		delete(t.sums, s.name)
	}
}

// top returns the streams with most bytes, at most n, the largest first.
func (t *tally) top(n int) []*sum {
	all := slices.SortedFunc(maps.Values(t.sums), func(a, b *sum) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.name, b.name))
	})
	return all[:min(n, len(all))]
}

// why is the reason that most events of the stream go for.
func (s *sum) why() string {
	best := ""
	for why, events := range s.reasons {
		if best == "" || events > s.reasons[best] || events == s.reasons[best] && why < best {
			best = why
		}
	}
	return best
}
