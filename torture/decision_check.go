package torture

import (
	"cmp"
	"context"
	"slices"
	"sort"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/event"
)

// readDecisions reads the events of deciders from one node: where each lies, and with what tags.
// The log was read before.
func readDecisions(ctx context.Context, l *load, node Target) {
	if l.ids.deciders == 0 {
		return
	}
	r := finalReader{l, node}
	o := client.QueryOptions{Count: client.PageLimit}
	for more := true; more; {
		query := client.Query{Items: []client.QueryItem{{Types: decided[:], Categories: []string{"torture"}}}}
		a, err := r.answer(ctx, asks(query, o))
		p := client.QueryPage{}
		if err == nil {
			err = a.Decode(&p)
		}
		if err != nil {
			l.find.add(kindHeal, "%s: decisions cannot be read: %v", node.Name, err)
			return
		}
		for _, e := range p.Events {
			if l.found(&e) != 0 {
				l.book.decided = append(l.book.decided, e)
			}
		}
		if o.Until == nil {
			o.Until = p.Position
		}
		o.After, more = p.Next, p.Next != nil
	}
	l.book.decidedRead = true
}

// decisionLog is what conditions are judged by.
type decisionLog struct {
	*ledger
	all []client.Found
	at  map[ref]int      // in all
	by  map[string][]int // by a tag, or by the name of a stream
}

// decisions judges writes under conditions: the bounds of all tags hold at each place of the log;
// no event failed the conditions of one that is there; one that was refused was refused for just
// those conditions and checks that did not hold at the position of its answer.
func (l *ledger) decisions() {
	if !l.book.decidedRead {
		return
	}
	d := &decisionLog{l, l.book.decided, map[ref]int{}, map[string][]int{}}
	d.lay()
	type ack struct{ ret, position int64 }
	acks := []ack{{0, -1}}
	l.hist.each(func(first ref, o *op) {
		if at, there := d.at[first]; there && o.kind == opDecision && !o.decision.plain {
			d.held(first, o, at)
			if o.outcome == done {
				acks = append(acks, ack{o.ret, o.decision.told.Position})
			}
		}
	})
	slices.SortFunc(acks, func(a, b ack) int { return cmp.Compare(a.ret, b.ret) })
	for i := range acks[1:] {
		acks[i+1].position = max(acks[i+1].position, acks[i].position)
	}
	l.hist.each(func(first ref, o *op) {
		if o.kind == opDecision && o.outcome == conflict {
			known := acks[sort.Search(len(acks), func(i int) bool { return acks[i].ret >= max(1, o.call) })-1].position
			if known > o.decision.broken.Position {
				l.find.add(kindStale, "position %d was acknowledged before: %s", known, l.ids.describe(first, o))
			}
			d.refused(first, o)
		}
	})
}

// lay goes through the log.
func (d *decisionLog) lay() {
	var order []ref
	for _, f := range d.facts {
		if !f.ref.isForeign() && d.ids.isDecision(f.ref) {
			order = append(order, f.ref)
		}
	}
	sums := map[string]int{}
	for i, e := range d.all {
		id, _ := event.ParseID(e.ID) // It was read before.
		r, _ := d.ids.ref(id)
		o := d.hist.find(r)
		if i >= len(order) || order[i] != r || o == nil || o.kind != opDecision || e.Stream != o.stream.name || !slices.Equal(e.Tags, o.decision.tags()) {
			d.find.add(kindFound, "event %d of deciders is %+v, which is not what the log has there", i, e)
			return
		}
		d.at[r] = i
		d.by[e.Stream] = append(d.by[e.Stream], i)
		for _, l := range o.decision.labels {
			d.by[l.tag] = append(d.by[l.tag], i)
			if sums[l.tag] += d.ids.weight(r); l.most > 0 && sums[l.tag] > l.most {
				d.find.add(kindCondition, "with the event at position %d, %s has %d of %d at most: %s", e.Position, l.tag, sums[l.tag], l.most, d.ids.describe(r-ref(r.index()), o))
			}
		}
	}
	if len(d.all) < len(order) {
		d.find.add(kindFound, "queries find %d of %d events of deciders; id %s is missing", len(d.all), len(order), d.ids.id(order[len(d.all)]))
	}
}

// held judges a write that is there.
func (d *decisionLog) held(first ref, o *op, at int) {
	dec, here := o.decision, d.all[at].Position
	for i := range dec.conditions {
		if e := d.match(&dec.conditions[i], here-1); e != nil {
			d.find.add(kindCondition, "it is at position %d, and %+v fails its condition %d: %s", here, *e, i, d.ids.describe(first, o))
		}
	}
	for _, c := range dec.checks {
		if number := d.all[at].Number; number != c.Expected+1 {
			d.find.add(kindCondition, "it has the number %d: %s", number, d.ids.describe(first, o))
		}
	}
	last := at + int(o.count) - 1
	if o.outcome == done && (last >= len(d.all) || d.all[last].Position != dec.told.Position) {
		d.find.add(kindOrder, "its last event is not at the position answered: %s", d.ids.describe(first, o))
	}
}

// refused judges a refusal.
func (d *decisionLog) refused(first ref, o *op) {
	dec, want := o.decision, client.ViolationError{}
	for i := range dec.conditions {
		if e := d.match(&dec.conditions[i], dec.broken.Position); e != nil {
			want.Conflicts = append(want.Conflicts, client.Conflict{Condition: i, Position: e.Position, Stream: e.Stream, Number: e.Number, ID: e.ID, Type: e.Type})
		}
	}
	for i, c := range dec.checks {
		of := d.by[c.Stream]
		number := sort.Search(len(of), func(k int) bool { return d.all[of[k]].Position > dec.broken.Position }) - 1
		if int64(number) != c.Expected {
			want.Violations = append(want.Violations, client.Violation{Check: i, Stream: c.Stream, Expected: c.Expected, Actual: int64(number)})
		}
	}
	isSame := slices.Equal(dec.broken.Conflicts, want.Conflicts) && slices.Equal(dec.broken.Violations, want.Violations)
	if len(want.Conflicts)+len(want.Violations) == 0 || !isSame {
		d.find.add(kindCondition, "it was refused, and what failed is %+v: %s", want, d.ids.describe(first, o))
	}
}

// match returns the first event that fails a condition, up to a position; nil if none does.
func (d *decisionLog) match(c *client.Condition, until int64) (first *client.Found) {
	after := int64(-1)
	if c.After != nil {
		after = *c.After
	}
	for i := range c.Query.Items {
		q := &c.Query.Items[i]
		of := d.by[slices.Concat(q.Tags, q.Streams)[0]]
		for k := sort.Search(len(of), func(k int) bool { return d.all[of[k]].Position > after }); k < len(of); k++ {
			e := &d.all[of[k]]
			if e.Position > until || first != nil && e.Position > first.Position {
				break
			}
			lacks := slices.ContainsFunc(q.Tags, func(tag string) bool { return !slices.Contains(e.Tags, tag) })
			if !lacks && (q.Types == nil || slices.Contains(q.Types, e.Type)) && (q.Streams == nil || slices.Contains(q.Streams, e.Stream)) {
				first = e
				break
			}
		}
	}
	return first
}
