package source

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/annalsdb/annals/catchup"
	"github.com/annalsdb/annals/projection/position"
)

// streamsInput reads streams and merges them by log position.
type streamsInput struct {
	r       *Reader
	streams []*stream
	numbers []int64 // how far each was handed on

	heads []*stream // with something in the queue: a heap by the position of the first
	empty []*stream // the others
	bound int64     // all records before it, of the streams in empty, were merged
	seen  int64     // end of the log when nothing more was found in any of them

	order *order // nil: the order is not written

	names []string // to wait for
	after []int64
}

func newStreamsInput(r *Reader, names []string, from position.Position) *streamsInput {
	in := &streamsInput{r: r, numbers: make([]int64, len(names))}
	for i, name := range names {
		n := from.Numbers[i].Number
		s := &stream{Cursor: catchup.Cursor{Store: r.Store, Stream: name, Next: max(n, n+1), Last: -1}, index: i, read: n, until: math.MaxInt64}
		if r.category {
			s.category, _ = strings.CutPrefix(name, categoryPrefix)
		}
		in.numbers[i] = n
		in.streams = append(in.streams, s)
	}
	for _, s := range in.streams {
		s.count, _ = in.pageSize()
	}
	if r.Order != nil && len(names) > 1 {
		in.order = &order{Order: *r.Order, in: in, last: -1}
	}
	in.arrange()
	return in
}

// arrange sorts the streams into those with something queued and those without.
func (in *streamsInput) arrange() {
	in.heads, in.empty, in.bound = in.heads[:0], in.empty[:0], math.MaxInt64
	for _, s := range in.streams {
		if s.isEmpty() {
			in.empty = append(in.empty, s)
			in.bound = min(in.bound, s.horizon)
		} else {
			in.heads = append(in.heads, s)
		}
	}
	for i := len(in.heads)/2 - 1; i >= 0; i-- {
		in.sink(i)
	}
}

// sink moves a stream of the heap down to where it belongs.
func (in *streamsInput) sink(i int) {
	for h := in.heads; ; {
		low := 2*i + 1
		if low >= len(h) {
			return
		}
		if low+1 < len(h) && h[low+1].first().position < h[low].first().position {
			low++
		}
		if h[i].first().position <= h[low].first().position {
			return
		}
		h[i], h[low] = h[low], h[i]
		i = low
	}
}

func (in *streamsInput) fill(ctx context.Context) error {
	if in.order != nil {
		if done, err := in.order.resume(ctx); done || err != nil {
			return err
		}
	}
	for {
		err := in.merge(ctx)
		in.r.isBegun = in.r.isBegun || err == nil
		switch {
		case len(in.r.buffer) > 0: // An error comes again with the next call.
			if in.order != nil {
				return in.order.write(ctx)
			}
			return nil
		case err != nil:
			return err
		case in.r.Once:
			return ErrEnd
		}
		if err := in.wait(ctx); err != nil {
			return err
		}
	}
}

// merge moves records from the queues to the reader's buffer until that is full or
// nothing more can be had without waiting.
func (in *streamsInput) merge(ctx context.Context) error {
	r := in.r
	for payload := 0; len(r.buffer) < r.max.events && payload < r.max.bytes; {
		if len(in.heads) == 0 || in.heads[0].first().position >= in.bound {
			more, err := in.refresh(ctx)
			if err != nil || !more {
				return err
			}
			continue
		}
		s := in.heads[0]
		e := s.first()
		if e.Record != nil {
			payload += len(e.Data) + len(e.Metadata)
		}
		r.add(*e)
		s.pop()
		if s.isEmpty() {
			last := len(in.heads) - 1
			in.heads[0] = in.heads[last]
			in.heads = in.heads[:last]
			in.empty = append(in.empty, s)
			in.bound = min(in.bound, s.horizon)
		}
		in.sink(0)
	}
	return nil
}

// refresh reads the streams that could have a record before the first one queued. It reports
// whether to continue: something was read, or that record is the first now.
func (in *streamsInput) refresh(ctx context.Context) (more bool, err error) {
	want := int64(math.MaxInt64) // what the horizons must be above
	if len(in.heads) > 0 {
		want = in.heads[0].first().position
	}
	end, settled := in.r.Store.LogEnd(), int64(math.MaxInt64)
	if len(in.streams) > 1 {
		settled = end
	}
	for _, s := range in.empty {
		if s.isEnded || s.horizon > want {
			continue
		}
		before := s.Next
		if err := in.readPage(ctx, s, settled); err != nil {
			in.arrange()
			return false, err
		}
		more = more || s.Next > before || !s.isEmpty() || s.isEnded
	}
	in.arrange()
	if !more && len(in.heads) == 0 {
		in.seen = end
	}
	return more || len(in.heads) > 0 && in.heads[0].first().position < in.bound, nil
}

// wait waits for any of the streams.
func (in *streamsInput) wait(ctx context.Context) error {
	in.r.rest()
	in.names, in.after = in.names[:0], in.after[:0]
	for _, s := range in.streams {
		s.queue = shed(s.queue)
		if !s.isEnded {
			in.names = append(in.names, s.Stream)
			in.after = append(in.after, s.Next-1)
		}
	}
	return in.r.Store.WaitStreams(ctx, in.names, in.after)
}

func (in *streamsInput) passed(e *entry) {
	if e.recorded > 0 {
		for i, n := range in.order.places[e.recorded-1].behind {
			in.numbers[i] = max(in.numbers[i], n)
		}
	}
	in.numbers[e.stream] = max(in.numbers[e.stream], e.number)
}

func (in *streamsInput) looked() int64 { return in.seen }

func (in *streamsInput) position() position.Position { return in.positionOf(in.numbers) }

func (in *streamsInput) positionOf(numbers []int64) position.Position {
	p := position.Position{Numbers: make([]position.Number, len(numbers))}
	for i, n := range numbers {
		p.Numbers[i] = position.Number{Name: in.streams[i].Stream, Number: n}
	}
	return p
}

func (in *streamsInput) extent() (done, total int64, isAll bool) {
	isAll = true
	for i, s := range in.streams {
		// A stream that cannot be looked up now counts as unchanged.
		if info, err := s.Store.StreamInfo(context.Background(), s.Stream); err == nil {
			s.Last = max(s.Last, info.Last)
		}
		total += min(s.Last, s.until) + 1
		done += min(in.numbers[i], s.Last) + 1
		isAll = isAll && s.isEmpty() && (s.isEnded || s.Next > s.Last)
	}
	return done, total, isAll
}

func (in *streamsInput) close() {
	for _, s := range in.streams {
		s.queue, s.head = nil, 0
	}
	in.heads, in.empty = nil, slices.Clone(in.streams)
	in.order = nil
}
