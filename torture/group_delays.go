package torture

import (
	"cmp"
	"slices"
)

// mayWork reports whether a demand may have come into effect between two times.
func (s *step) mayWork(from, to int64) bool {
	until := s.Return + straggles
	if s.Outcome == done {
		until = s.Return + moment
	}
	return s.Outcome != refused && s.Call <= to && until >= from
}

// wait is the delay that a demand for a retry leads to, where the message had been tried so often.
func (b *groupBook) wait(s *step, retries int) int64 {
	if s.Delay != nil {
		return int64(*s.Delay)
	}
	return int64(b.group.settings.delay(retries + 1))
}

// soonest is when a message that was given at a time may come again, to by all means, and whether a
// demand for a retry is why.
func (b *groupBook) soonest(e *eventRecord, x *step, retries int, from, to int64) (at int64, isDemanded bool) {
	at = from + int64(b.group.settings.timeout()+b.group.settings.delay(retries+1))
	for _, s := range e.steps {
		if s.ID == x.ID && s.What == actionRetry && s.mayWork(from, to) {
			isDemanded = true
			at = min(at, max(s.Call, from)+b.wait(s, retries))
		}
	}
	return at, isDemanded
}

// passed: where the strategy keeps an order, no later message is given while one is delayed.
func (b *groupBook) passed() {
	if !b.group.isOrdered() {
		return
	}
	type given struct {
		number int64
		step   *step
	}
	var all []given
	for n := range b.events {
		for _, s := range b.events[n].deliveries() {
			if s.ID == b.events[n].id { // Replayed ones have lost their place.
				all = append(all, given{int64(n), s})
			}
		}
	}
	slices.SortFunc(all, func(x, y given) int { return cmp.Compare(x.step.Call, y.step.Call) })
	for n := range b.events {
		e := &b.events[n]
		for _, r := range e.steps {
			until, ok := b.delayedUntil(e, r)
			if !ok {
				continue
			}
			b.subs.count.add(ofSubscriptions, "delays", 1)
			first, _ := slices.BinarySearchFunc(all, r.Return+1, func(g given, at int64) int { return cmp.Compare(g.step.Call, at) })
			for _, g := range all[first:] {
				if g.step.Call >= until {
					break
				}
				if g.number > int64(n) && g.step.Return < until {
					b.ledger.find.add(kindPassed, "%s: number %d was given, %s, while number %d was delayed until %s; %s", b.group, g.number, g.step, n, seconds(until), b.tell(int64(n)))
				}
			}
		}
	}
}

// delayedUntil says until when a message is delayed for certain after a demand for a retry.
func (b *groupBook) delayedUntil(e *eventRecord, r *step) (until int64, ok bool) {
	if r.What != actionRetry || r.Outcome != done || r.ID != e.id {
		return 0, false
	}
	var x *step
	for _, s := range e.deliveries() {
		if s.ID == r.ID && s.Call < r.Call && (x == nil || s.Call > x.Call) {
			x = s
		}
	}
	if x == nil || x.Return > r.Call || r.Return >= x.Call+int64(b.group.settings.timeout()) || x.Retries >= b.group.settings.MaxRetries {
		return 0, false
	}
	until = r.Call + b.wait(r, x.Retries)
	for _, s := range e.steps {
		if s != r && s != x && s.ID == r.ID && s.mayWork(x.Call, r.Return) {
			return 0, false
		}
	}
	return until, until > r.Return && !b.loadedAgain(x.Call, until) && b.calm(x.Call-calmAround, until+calmAround)
}

// loadedAgain says whether the group may have been loaded again in that time.
func (b *groupBook) loadedAgain(from, to int64) bool {
	for i := range b.subs.acts {
		if a := &b.subs.acts[i]; (a.What == actRestart || (a.What == actUpdate || a.What == actReset) && a.Group == b.group) && a.mayWork(from, to) {
			return true
		}
	}
	return false
}

// paused: from a pause that was answered until its end was asked for, no leader gives anything.
func (b *groupBook) paused() {
	acts := slices.DeleteFunc(slices.Clone(b.subs.acts), func(a step) bool { return a.Group != b.group })
	for i := range acts {
		if acts[i].What != actPause || acts[i].Outcome != done {
			continue
		}
		from, to := acts[i].Return, int64(never)
		for j := range acts {
			switch a := &acts[j]; {
			case a.What != actResume || a.Outcome == refused:
			case a.Call >= acts[i].Call:
				to = min(to, a.Call)
			case a.Outcome == pending: // It may still come into effect.
				from = max(from, a.Return+straggles)
			}
		}
		for n := range b.events {
			for _, d := range b.events[n].deliveries() {
				if d.Call > from && d.Return < to && b.calm(d.Call-calmAround, d.Return+calmAround) {
					b.ledger.find.add(kindPaused, "%s was paused from %s to %s, and number %d was given; %s", b.group, seconds(from), seconds(to), n, b.tell(int64(n)))
				}
			}
		}
	}
}
