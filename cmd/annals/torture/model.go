package torture

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// end is the state of one stream as one reading shows it: its last event.
type end struct {
	number int64 // -1: no event
	last   ref
}

// call is an operation on one stream as its client began it.
type call struct {
	kind     opKind
	expected int64
	first    ref
	count    int64
}

// result is what is known of its effect: of a reading the end, of an append that
// was done its first number, of a conflict the version in the way.
type result struct {
	outcome outcome
	number  int64
	seen    ref
}

// stepStream is the sequential meaning of a stream: a list that grows at its end,
// under the condition that the end is where the caller expects it.
func stepStream(now end, in call, out result) (bool, end) {
	fits := in.expected == anyVersion || in.expected == now.number
	switch {
	case in.kind == opReadHead:
		return out.number == now.number && out.seen == now.last, now
	case out.outcome == conflict:
		return !fits && out.number == now.number, now
	}
	return fits && out.number == now.number+1, end{now.number + in.count, in.first + ref(in.count-1)}
}

func streamModel(ids identity) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return end{number: noStream} },
		Step: func(state, input, output any) (bool, any) {
			ok, next := stepStream(state.(end), input.(call), output.(result))
			return ok, next
		},
		DescribeOperation: func(input, output any) string {
			in, out := input.(call), output.(result)
			switch {
			case in.kind == opReadHead && out.number < 0:
				return "read: no stream"
			case in.kind == opReadHead:
				return fmt.Sprintf("read: %d, %s", out.number, ids.id(out.seen))
			case out.outcome == conflict:
				return fmt.Sprintf("append expecting %d: wrong, %d", in.expected, out.number)
			}
			return fmt.Sprintf("append %d of %s expecting %d: %d", in.count, ids.id(in.first), in.expected, out.number)
		},
		DescribeState: func(state any) string { return fmt.Sprintf("%d, %s", state.(end).number, ids.id(state.(end).last)) },
	}
}

// operations turns the history of all contested streams into what the checker takes.
//
// What indeterminate appends did is known from the final log: the last reading of all is
// part of the history. One that is there took effect at its number some time
// between its call and the end of the run; one that is not there never did, since
// events stay. Neither leaves the checker anything to guess, so its search stays
// short however many there are.
func (l *ledger) operations() map[*stream][]porcupine.Operation {
	by := map[*stream][]porcupine.Operation{}
	l.hist.each(func(first ref, o *op) {
		if !strings.HasPrefix(o.stream.name, l.book.prefix+registerStream) || o.kind != opAppend && o.kind != opReadHead {
			return
		}
		in := call{kind: o.kind, expected: o.expected, first: first, count: int64(o.count)}
		out := result{outcome: o.outcome, number: o.number, seen: o.seen}
		ret := o.ret
		switch {
		case o.kind == opReadHead && o.outcome != done, o.outcome == refused:
			return
		case o.outcome == pending:
			ordinal, ok := l.ordinal(first)
			if !ok {
				return
			}
			out.outcome, out.number, ret = done, l.facts[ordinal].number, never
		}
		by[o.stream] = append(by[o.stream], porcupine.Operation{ClientId: first.client(), Input: in, Call: o.call, Output: out, Return: ret})
	})
	return by
}

// linearity is the outcome of the check of all contested streams.
type linearity struct {
	Streams    int `json:"streams"`
	Operations int `json:"operations"`
	// Undecided counts the streams for which time did not suffice.
	Undecided int `json:"undecided"`
}

// linearizable checks that the operations on each contested stream look as if
// each had happened at one moment between its call and its end. show, if not nil, is
// given what explains a failure.
func (l *ledger) linearizable(ctx context.Context, limit time.Duration, show func(stream string, m porcupine.Model, info porcupine.LinearizationInfo)) linearity {
	var sum linearity
	model := streamModel(l.ids)
	deadline := time.Now().Add(limit)
	by := l.operations()
	for _, s := range l.book.all {
		history := by[s]
		if len(history) == 0 {
			continue
		}
		sum.Streams++
		sum.Operations += len(history)
		left := time.Until(deadline)
		if left <= 0 || ctx.Err() != nil {
			sum.Undecided++
			continue
		}
		switch porcupine.CheckOperationsTimeout(model, history, left) {
		case porcupine.Unknown:
			sum.Undecided++
		case porcupine.Illegal:
			l.find.add(kindLinear, "%s: no order of its %d operations explains what clients saw", s.name, len(history))
			if show != nil { // Once more, this time with an explanation, which costs more.
				_, info := porcupine.CheckOperationsVerbose(model, history, explainLimit)
				show(s.name, model, info)
			}
		}
	}
	return sum
}

// explainLimit bounds the search for an explanation of a failure that is known.
const explainLimit = 20 * time.Second
