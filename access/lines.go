package access

import (
	"cmp"
	"slices"
	"time"
)

// The rules of the waiting line. The caller of every method here holds turns.mu.

// ring holds what takes turns; the first has the next one. A thousand
// elements at most are moved for a turn, which lasts a tenth of a second.
type ring[T comparable] []T

func (r *ring[T]) push(x T) { *r = append(*r, x) }

func (r *ring[T]) remove(x T) {
	if i := slices.Index(*r, x); i >= 0 {
		*r = slices.Delete(*r, i, i+1)
	}
}

// open adds a line.
func (t *turns) open(at place) *line {
	s := t.sources[at.from]
	if s == nil {
		s = &source{from: at.from}
		t.sources[at.from] = s
	}
	s.lines++
	l := &line{at: at, source: s}
	t.lines[at] = l
	return l
}

// closeUnused forgets a line in which nothing happens any more.
func (t *turns) closeUnused(l *line) {
	if len(l.queue) > 0 || l.running != nil {
		return
	}
	delete(t.lines, l.at)
	if l.source.lines--; l.source.lines == 0 {
		delete(t.sources, l.source.from)
	}
}

// find returns the check of the same credentials.
func (l *line) find(d *digest) *check {
	if c := l.running; c != nil && c.shared && c.digest == *d {
		return c
	}
	for _, c := range l.queue {
		if c.shared && c.digest == *d {
			return c
		}
	}
	return nil
}

// count adds n to the checks that wait.
func (t *turns) count(l *line, n int) {
	t.waiting += n
	l.source.waiting += n
	t.metrics.waiting.Add(int64(n))
}

// arrange makes a line ready in which checks wait and none is under way, at once or when its pause is over.
func (t *turns) arrange(l *line) {
	if pause := t.pause(l.at); pause > 0 {
		l.rest = time.AfterFunc(pause, func() { t.rested(l) })
		return
	}
	l.class = t.classOf(l.at)
	l.ready = true
	s := l.source
	if len(s.ready[l.class]) == 0 {
		t.ready[l.class].push(s)
	}
	s.ready[l.class].push(l)
}

// rested is called when a line's pause is over. It takes the lock itself.
func (t *turns) rested(l *line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.rest == nil {
		return // All who waited left at that moment; the line is closed.
	}
	l.rest = nil
	t.arrange(l)
	t.dispatch()
}

// classOf tells known lines from the others.
func (t *turns) classOf(at place) class {
	if _, ok := t.known.get(at); ok || at.from.management {
		return known
	}
	return unknown
}

// pause returns how long a line must not go on because of its failures.
func (t *turns) pause(at place) time.Duration {
	f, ok := t.failed.get(at)
	if !ok {
		return 0
	}
	since := time.Since(f.at)
	if since >= failureMemory {
		t.failed.remove(at)
		return 0
	}
	return min(maxPause, pauseUnit<<min(f.row, 10)) - since
}

// unready takes a line out of the order of turns.
func (t *turns) unready(l *line) {
	s := l.source
	l.ready = false
	s.ready[l.class].remove(l)
	if len(s.ready[l.class]) == 0 {
		t.ready[l.class].remove(s)
	}
}

// dispatch gives the free slots to those whose turn it is.
func (t *turns) dispatch() {
	for t.free > 0 {
		l := t.next()
		if l == nil {
			return
		}
		c := l.queue[0]
		l.queue = slices.Delete(l.queue, 0, 1)
		l.running = c
		t.count(l, -1)
		t.free--
		c.tellNext()
	}
}

// next takes the line that has the next turn out of the order, nil when none is ready.
func (t *turns) next() *line {
	of := unknown
	if len(t.ready[known]) > 0 && (len(t.ready[unknown]) == 0 || t.row < knownTurns) {
		of = known
	}
	if len(t.ready[of]) == 0 {
		return nil
	}
	t.row++
	if of == unknown {
		t.row = 0
	}
	s := t.ready[of][0]
	l := s.ready[of][0]
	t.ready[of].remove(s)
	t.ready[of].push(s) // Behind all others; unready removes it if this was its only line.
	t.unready(l)
	return l
}

// end notes that nothing is under way in a line any more.
func (t *turns) end(l *line) {
	l.running = nil
	if len(l.queue) > 0 {
		t.arrange(l)
	}
	t.closeUnused(l)
}

// remove takes a check away that still waits.
func (t *turns) remove(c *check) {
	l := c.line
	at := slices.Index(l.queue, c)
	l.queue = slices.Delete(l.queue, at, at+1)
	t.count(l, -1)
	t.queue.Leave(1)
	if len(l.queue) > 0 {
		return
	}
	if l.ready {
		t.unready(l)
	}
	if l.rest != nil {
		l.rest.Stop()
		l.rest = nil
	}
	t.closeUnused(l)
}

// pushOut refuses the check for which there is least reason to wait: the newest
// of the longest line of the origin with most checks. Among equals, lines where
// nobody ever logged in come first, and then whoever came last.
func (t *turns) pushOut() {
	var worst *line
	for _, l := range t.lines {
		if len(l.queue) > 0 && (worst == nil || t.worse(l, worst) > 0) {
			worst = l
		}
	}
	c := worst.queue[len(worst.queue)-1]
	t.remove(c)
	t.metrics.pushedOut.Inc()
	for _, told := range c.callers {
		told <- pushedOut
	}
	c.callers = nil
}

// worse compares two lines for pushOut. The numbers of checks make it a strict order.
func (t *turns) worse(a, b *line) int {
	if c := cmp.Compare(a.source.waiting, b.source.waiting); c != 0 {
		return c
	}
	return cmp.Or(
		cmp.Compare(t.classOf(b.at), t.classOf(a.at)),
		cmp.Compare(len(a.queue), len(b.queue)),
		cmp.Compare(a.queue[len(a.queue)-1].number, b.queue[len(b.queue)-1].number),
	)
}

// tellNext gives the turn of a check to the one who has waited for it longest.
func (c *check) tellNext() {
	told := c.callers[0]
	c.callers = slices.Delete(c.callers, 0, 1)
	told <- yourTurn
}

// drop removes a caller.
func (c *check) drop(told chan signal) {
	if i := slices.Index(c.callers, told); i >= 0 {
		c.callers = slices.Delete(c.callers, i, i+1)
	}
}
