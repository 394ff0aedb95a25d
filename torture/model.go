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

// tried is an operation on one stream with all that is known of its effect.
type tried struct {
	first ref
	op
}

// step is the sequential meaning of a stream: a list that grows at its end,
// under the condition that the end is where the caller expects it.
func (now end) step(o *tried) (bool, end) {
	fits := o.expected == anyVersion || o.expected == now.number
	switch {
	case o.kind == opReadHead:
		return o.number == now.number && o.seen == now.last, now
	case o.outcome == conflict:
		return !fits && o.number == now.number, now
	}
	return fits && o.number == now.number+1, end{now.number + int64(o.count), o.first + ref(o.count-1)}
}

func streamModel(ids identity) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return end{number: noStream} },
		Step: func(state, input, _ any) (bool, any) {
			ok, next := state.(end).step(input.(*tried))
			return ok, next
		},
		DescribeOperation: func(input, _ any) string { return ids.describe(input.(*tried).first, &input.(*tried).op) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%d, %s", state.(end).number, ids.id(state.(end).last)) },
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
		one := &tried{first, *o}
		switch {
		case o.kind == opReadHead && o.outcome != done, o.outcome == refused:
			return
		case o.outcome == pending:
			ordinal, ok := l.where[first]
			if !ok {
				return
			}
			one.outcome, one.number, one.ret = done, l.facts[ordinal].number, never
		}
		by[o.stream] = append(by[o.stream], porcupine.Operation{ClientId: first.client(), Input: one, Call: one.call, Return: one.ret})
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
	deadline := time.Now().Add(limit)
	one := func(name string, model porcupine.Model, history []porcupine.Operation) {
		sum.Streams++
		sum.Operations += len(history)
		left := time.Until(deadline)
		if left <= 0 || ctx.Err() != nil {
			sum.Undecided++
			return
		}
		switch porcupine.CheckOperationsTimeout(model, history, left) {
		case porcupine.Unknown:
			sum.Undecided++
		case porcupine.Illegal:
			l.find.add(kindLinear, "%s: no order of its %d operations explains what clients saw", name, len(history))
			if show != nil { // Once more, this time with an explanation, which costs more.
				_, info := porcupine.CheckOperationsVerbose(model, history, explainLimit)
				show(name, model, info)
			}
		}
	}
	by := l.operations()
	for _, s := range l.book.all {
		if len(by[s]) > 0 {
			one(s.name, streamModel(l.ids), by[s])
		}
	}
	for b, history := range l.banks() {
		one(b.name, bankModel(l.ids), history)
	}
	return sum
}

// explainLimit bounds the search for an explanation of a failure that is known.
const explainLimit = 20 * time.Second
