package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// banks are sets of accounts. Transfers stay within one, which is what is checked at once.
	banks = 5
	// bankAccounts is the number of accounts of a bank.
	bankAccounts = 10
	// mostAccounts is how many streams a transfer writes to.
	mostAccounts = 5
)

// bank is some streams, each of which has the money of an account. After so many operations
// another one takes its place, as with contested streams.
type bank struct {
	name       string
	generation int
	accounts   [bankAccounts]*stream
}

// someBank takes one operation of a bank.
func (l *load) someBank(rng *rand.Rand) *bank {
	i := rng.IntN(banks)
	generation := l.generation(registers+int(games)+i, operationsPerRegister)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bank[i] == nil || l.bank[i].generation < generation {
		b := &bank{name: fmt.Sprintf("%sbank-%d-%d", l.prefix, i, generation), generation: generation}
		for k := range b.accounts {
			b.accounts[k] = l.keepPlain(fmt.Sprintf("%s-%d", b.name, k))
		}
		l.bank[i] = b
	}
	return l.bank[i]
}

// transfer is what is special about a write to several streams.
type transfer struct {
	bank *bank
	// events has the account of each event. Those of one account follow each other.
	events []int
	checks []accountCheck

	// What the last answer told.
	position int64   // of the last event
	numbers  []int64 // of the events
	broken   []accountCheck
	// onlyFirst says that broken has the first check that does not hold, and no other.
	onlyFirst bool
	repeated  bool
}

// accountCheck is what an account is expected to be like: the number of its last event, noStream,
// or streamExists. Of a broken check it is what the account was like.
type accountCheck struct {
	account int
	version int64
}

// streamExists expects that a stream has an event.
const streamExists = -4

func (t *transfer) stream(event int) *stream { return t.bank.accounts[t.events[event]] }

// accounts are those that events are for, each once.
func (t *transfer) accounts() []int { return slices.Compact(slices.Clone(t.events)) }

// sessions says whether a session can carry it: it checks only what it writes to.
func (t *transfer) sessions() bool {
	return !slices.ContainsFunc(t.checks, func(c accountCheck) bool { return !slices.Contains(t.events, c.account) })
}

func (t *transfer) String() string {
	return fmt.Sprintf("transfer in %s to accounts %v, checks %v, answered with numbers %v, broken checks %v, position %d",
		t.bank.name, t.events, t.checks, t.numbers, t.broken, t.position)
}

// transferer is a client that moves money: it writes to several streams at once, with checks on
// these and on others, by any interface of any node.
type transferer struct{ *writer }

func newTransferer(l *load, j *journal) {
	t := &transferer{newWriter(l, j)}
	l.employ(t.turn)
}

func (t *transferer) turn(ctx context.Context) time.Duration {
	if !t.hist.reserve() {
		return enough
	}
	switch dice := t.rng.IntN(100); {
	case dice < 15:
		t.readHead(ctx, t.someBank(t.rng).accounts[t.rng.IntN(bankAccounts)])
	case dice < 25 && len(t.recent) > 0:
		t.again(ctx)
	default:
		t.move(ctx)
	}
	return time.Duration(t.rng.ExpFloat64() * float64(t.pace))
}

// expect chooses what to expect of an account. As versions only rise and accounts are never
// deleted, a check that did not hold once never will: a refusal is certain even if an earlier
// attempt is of unknown outcome.
func (t *transferer) expect(b *bank, account int) accountCheck {
	last, heard := t.known[b.accounts[account]]
	if !heard {
		last = noStream
	}
	switch dice := t.rng.IntN(12); {
	case dice < 1:
		last = noStream
	case dice < 2:
		last = max(noStream, last-1) // As a rule too old.
	case dice < 5 && last >= 0:
		last = streamExists
	}
	return accountCheck{account, last}
}

// move begins a transfer and repeats it by any interface until its outcome is certain or patience
// ends.
func (t *transferer) move(ctx context.Context) {
	b := t.someBank(t.rng)
	order := t.rng.Perm(bankAccounts)
	events := t.ids.moves(t.journal.next())
	written := min(events, mostAccounts)
	if events > 2 && t.rng.IntN(4) == 0 {
		written = events - 1
	}
	tr := &transfer{bank: b, events: slices.Concat(slices.Repeat(order[:1], events-written), order[:written])}
	for _, account := range order[:written] {
		if t.rng.IntN(3) > 0 {
			tr.checks = append(tr.checks, t.expect(b, account))
		}
	}
	if t.rng.IntN(2) == 0 {
		for _, account := range order[written : written+1+t.rng.IntN(3)] {
			tr.checks = append(tr.checks, t.expect(b, account))
		}
	}
	var a told
	begun := op{kind: opTransfer, stream: b.accounts[order[0]], transfer: tr, count: uint16(events)}
	first, o := t.repeat(ctx, begun, patience, func(first ref, o *op) verdict {
		a = t.send(ctx, tr, first)
		o.node = int8(a.from.Index)
		return a.verdict
	})
	if a.outcome == done && a.by == doorHTTP && len(t.indexers) > 0 && t.rng.IntN(3) == 0 {
		t.finds(ctx, a, first+ref(events-1))
	}
	t.conclude(first, o, a)
}

// conclude notes what the last answer told.
func (t *transferer) conclude(first ref, o *op, a told) {
	tr := o.transfer
	t.count.add(ofTransfers, written[o.outcome], 1)
	switch o.outcome {
	case done:
		tr.position, tr.numbers, tr.repeated = a.position, a.numbers, a.repeated
		for i, n := range tr.numbers {
			s := tr.stream(i)
			t.known[s] = max(t.known[s], n)
			t.book.acknowledge(s, n, first+ref(i), 1)
		}
		t.count.add(ofTransfers, a.by.String(), 1)
		t.count.add(ofTransfers, "eventsAcknowledged", int(o.count))
		t.gaps.success(o.ret)
		t.remember(first)
	case conflict:
		tr.broken, tr.onlyFirst, tr.position = a.broken, a.by == doorSession, a.position
		for _, c := range a.broken {
			t.known[tr.bank.accounts[c.account]] = c.version
		}
	}
}

// again sends a transfer that was acknowledged once more, by any interface. The answer must be the
// same, whatever its checks say now.
func (t *transferer) again(ctx context.Context) {
	first := t.recent[t.rng.IntN(len(t.recent))]
	o := t.journal.ops[first.operation()]
	tr := o.transfer
	switch a := t.send(ctx, tr, first); {
	case a.outcome == pending || a.outcome == refused && a.odd == "":
		t.wander()
	case a.outcome != done || !slices.Equal(a.numbers, tr.numbers) || a.position != tr.position || a.by == doorHTTP && !a.repeated:
		t.find.add(kindIdempotence, "%s; sent again by %s: %+v", t.ids.describe(first, o), a.by, a)
	default:
		t.count.add(ofTransfers, "sentAgain", 1)
	}
}
