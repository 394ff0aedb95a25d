package torture

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
)

// transfers judges writes to several streams: each is in the log whole, with nothing between its
// events, or nowhere; one that was acknowledged is there under the numbers and the position of its
// answer; one that was refused is not there. The money of all accounts together is the same after
// each.
func (l *ledger) transfers() {
	type answered struct {
		at, position int64
		first        ref
		o            *op
	}
	between := map[int]*fluidFact{} // what was seen before an ordinal and may be removed
	for _, f := range l.book.fluids {
		between[f.ordinal] = f
	}
	var all []answered
	l.hist.each(func(first ref, o *op) {
		if o.kind != opTransfer {
			return
		}
		if start, whole := l.whole(first, o, between); whole && o.outcome == done {
			all = append(all, answered{int64(start), o.transfer.position, first, o})
		}
	})
	slices.SortFunc(all, func(a, b answered) int { return cmp.Compare(a.at, b.at) })
	for i, a := range all {
		last := l.facts[a.at+int64(a.o.count)-1]
		if i > 0 && a.position <= all[i-1].position || last.after >= 0 && a.position >= last.after {
			l.find.add(kindOrder, "the answered position is not that of event %d of the log, which ends at %d: %s",
				a.at+int64(a.o.count)-1, last.after, l.ids.describe(a.first, a.o))
		}
	}
	l.sum()
}

// whole judges where the events of one transfer are. It returns the ordinal of the first.
func (l *ledger) whole(first ref, o *op, between map[int]*fluidFact) (start int, whole bool) {
	var ordinals []int
	for i := range int(o.count) {
		if at, ok := l.where[first+ref(i)]; ok {
			ordinals = append(ordinals, at)
		}
	}
	switch {
	case len(ordinals) == 0:
		if o.outcome == done {
			l.find.add(kindLost, "acknowledged by %s and not in the log: %s", nodeName(int(o.node)), l.ids.describe(first, o))
		}
		return 0, false
	case o.outcome == conflict || o.outcome == refused:
		l.find.add(kindUnwanted, "event %d of the log: %s", ordinals[0], l.ids.describe(first, o))
		return 0, false
	case len(ordinals) < int(o.count):
		l.find.add(kindTorn, "%d of %d events are there: %s", len(ordinals), o.count, l.ids.describe(first, o))
		return 0, false
	}
	start = ordinals[0]
	for i, at := range ordinals {
		if at != start+i || i > 0 && between[at] != nil {
			l.find.add(kindTorn, "the events are at %v in the log, with others between them: %s", ordinals, l.ids.describe(first, o))
			return 0, false
		}
		if o.outcome == done && l.facts[at].number != o.transfer.numbers[i] {
			l.find.add(kindOrder, "%s should have the number %d: event %d of: %s", l.book.say(l.facts[at]), o.transfer.numbers[i], i, l.ids.describe(first, o))
			return 0, false
		}
	}
	return start, true
}

// sum adds the money of all accounts along the log.
func (l *ledger) sum() {
	sum := 0
	for at, f := range l.facts {
		inside := f.ref.client() != 0 && l.ids.isTransfer(f.ref) && f.ref.index() > 0
		if sum != 0 && !inside {
			l.find.add(kindSum, "before event %d of the log, %s, all accounts together have %d", at, l.book.say(f), sum)
			return
		}
		if l.ids.isTransfer(f.ref) {
			sum += l.ids.amount(f.ref)
		}
	}
	if sum != 0 {
		l.find.add(kindSum, "at the end of the log all accounts together have %d", sum)
	}
}

// accounts has the numbers of the last events of the accounts of a bank.
type accounts [bankAccounts]int64

// moved is an operation on the accounts of one bank.
type moved struct {
	first ref
	op
	place int // of a reading
}

// holds says whether a check holds.
func (now *accounts) holds(c accountCheck) bool {
	if c.version == streamExists {
		return now[c.account] >= 0
	}
	return now[c.account] == c.version
}

// step is the sequential meaning: all checks hold and all streams grow, or nothing happens because
// of just those checks that do not hold.
func (now accounts) step(o *moved) (bool, accounts) {
	if o.kind == opReadHead {
		return now[o.place] == o.number, now
	}
	t := o.transfer
	var broken []accountCheck
	for _, c := range t.checks {
		if !now.holds(c) {
			broken = append(broken, accountCheck{c.account, now[c.account]})
		}
	}
	if o.outcome == conflict {
		return t.explains(broken), now
	}
	if len(broken) > 0 {
		return false, now
	}
	for i, n := range t.numbers {
		if now[t.events[i]]++; now[t.events[i]] != n {
			return false, now
		}
	}
	return true, now
}

// explains says whether a refusal told of checks that do not hold in the state at hand: of all, or
// of that of the stream that is written first.
func (t *transfer) explains(broken []accountCheck) bool {
	if !t.onlyFirst {
		return slices.Equal(broken, t.broken)
	}
	for _, account := range t.accounts() {
		if i := slices.IndexFunc(broken, func(c accountCheck) bool { return c.account == account }); i >= 0 {
			return len(t.broken) == 1 && t.broken[0] == broken[i]
		}
	}
	return false
}

func bankModel(ids identity) porcupine.Model {
	return porcupine.Model{
		Init: func() any {
			var none accounts
			for i := range none {
				none[i] = noStream
			}
			return none
		},
		Step: func(state, input, _ any) (bool, any) {
			ok, next := state.(accounts).step(input.(*moved))
			return ok, next
		},
		DescribeOperation: func(input, _ any) string { return ids.describe(input.(*moved).first, &input.(*moved).op) },
		DescribeState:     func(state any) string { return fmt.Sprint(state) },
	}
}

// banks turns the history of accounts into what the checker takes, with unknown outcomes as in
// operations.
func (l *ledger) banks() map[*bank][]porcupine.Operation {
	of := map[*stream]*bank{}
	l.hist.each(func(_ ref, o *op) {
		if o.kind == opTransfer && of[o.stream] == nil {
			for _, s := range o.transfer.bank.accounts {
				of[s] = o.transfer.bank
			}
		}
	})
	by := map[*bank][]porcupine.Operation{}
	l.hist.each(func(first ref, o *op) {
		b := of[o.stream]
		if b == nil || o.outcome == refused || o.kind == opReadHead && o.outcome != done {
			return
		}
		one := &moved{first, *o, b.place(o.stream.name)}
		if o.outcome == pending {
			if _, whole := l.where[first+ref(o.count-1)]; !whole {
				return
			}
			t := *o.transfer
			t.numbers = nil
			for i := range t.events {
				n, _ := l.number(first + ref(i))
				t.numbers = append(t.numbers, n)
			}
			one.transfer, one.outcome, one.ret = &t, done, never
		}
		by[b] = append(by[b], porcupine.Operation{ClientId: first.client(), Input: one, Call: one.call, Return: one.ret})
	})
	return by
}
