package torture

import "slices"

// forwarded: the stream of forwarded messages has each once, under an id of its own.
func (c *groupCheck) forwarded() {
	stream := forwardStream(c.ledger.book.prefix)
	first := map[string]*fluidFact{}
	for _, k := range c.ledger.book.kept {
		if k.entry.Stream != stream {
			continue
		}
		c.subs.count.add(ofSubscriptions, "forwarded", 1)
		if other := first[k.entry.ID]; other != nil {
			c.ledger.find.add(kindForwarded, "%s: event %d of the log, number %d, is a copy of the same message as event %d, number %d: %s",
				stream, k.ordinal, k.entry.Number, other.ordinal, other.entry.Number, k.entry.Metadata)
			continue
		}
		first[k.entry.ID] = k
	}
}

// hasReset reports whether the group was reset, perhaps.
func (b *groupBook) hasReset() bool {
	return slices.ContainsFunc(b.subs.acts, func(a step) bool { return a.What == actReset && a.Group == b.group && a.Outcome != refused })
}

// movedBack: after a reset each event from its place on is given again. One that no consumer saw,
// since its answer was given up, is answered or parked after that. Of one that never came finished
// tells.
func (b *groupBook) movedBack() {
	if b.lacks {
		return
	}
	for n := range b.events {
		var last *step // reset to a place before it, unless a later one left it out
		for i := range b.subs.acts {
			switch a := &b.subs.acts[i]; {
			case a.What != actReset || a.Group != b.group || a.Outcome == refused:
			case a.To > int64(n):
				last = nil
			case a.Outcome == done:
				last = a
			}
		}
		e := &b.events[n]
		if last == nil || len(e.steps)+len(e.parked) == 0 || slices.ContainsFunc(e.steps, func(s *step) bool { return s.Return >= last.Call }) ||
			slices.ContainsFunc(e.parked, func(k *fluidFact) bool { return b.there(k) >= last.Call }) {
			continue
		}
		b.ledger.find.add(kindUnmoved, "%s was reset to %d, %s, and number %d was not given again; %s", b.group, last.To, last, n, b.tell(int64(n)))
	}
}
