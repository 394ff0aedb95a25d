package bootstrap

import (
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/annalsdb/annals/event"
)

// A world is one simulated schedule: nodes that start, crash, restart and get
// lost, gossip that lags and lies, and a network that loses, repeats, delays and
// reorders. It ends with everything healed that can be. One goroutine, one
// seed, no clock: the same seed gives the same schedule.
type world struct {
	rng     *rand.Rand
	now     time.Time
	events  schedule
	serial  int
	ids     uint64
	size    int
	nodes   []*simNode
	healed  bool
	cheat   cheat
	scratch []Peer                           // the core keeps nothing of it
	trace   func(format string, args ...any) // nil: none

	formed  []*Proposal // in the order in which they were
	broken  error       // the first violation
	counted counts
}

// counts tell whether the schedules exercise what they should.
type counts struct {
	formed, undecided, bound, crashedSaves, gaveUp, released, lost, disjoint int
}

func (c *counts) add(d counts) {
	c.formed += d.formed
	c.undecided += d.undecided
	c.bound += d.bound
	c.crashedSaves += d.crashedSaves
	c.gaveUp += d.gaveUp
	c.released += d.released
	c.lost += d.lost
	c.disjoint += d.disjoint
}

// cheat breaks a rule on purpose, to see that the simulation notices. In a
// world that cheats only the outcome is checked: which clusters form.
type cheat int

const (
	honest           cheat = iota
	promiseTwice           // a bound node promises itself to another proposal
	answerBeforeSave       // a crash may fall between an answer and the save before it
	releaseByTime          // a bound node frees itself after a while
)

// simNode is a node with its disk.
type simNode struct {
	index    int
	address  string
	readOnly bool
	newcomer bool // took the place of a lost one

	disk    Record   // survives a crash
	cluster event.ID // has state of this cluster; survives a crash
	lost    bool     // with its disk

	core    *core // nil while down
	life    int   // counts starts; what was scheduled in an earlier life is void
	outcome *Outcome
	boundAt time.Time
	view    []*Peer // by index of the other node; nil: not seen
}

type happening struct {
	at     time.Time
	serial int
	do     func()
}

type schedule []*happening

func (s schedule) Len() int { return len(s) }
func (s schedule) Less(i, j int) bool {
	return s[i].at.Before(s[j].at) || s[i].at.Equal(s[j].at) && s[i].serial < s[j].serial
}
func (s schedule) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s *schedule) Push(x any)   { *s = append(*s, x.(*happening)) }
func (s *schedule) Pop() any {
	last := len(*s) - 1
	h := (*s)[last]
	*s = (*s)[:last]
	return h
}

const (
	maxNodes   = 10 // 5 voters, 2 more, a reader, and 2 in the place of lost ones
	simPoll    = 100 * time.Millisecond
	simGone    = time.Second
	simTimeout = 500 * time.Millisecond
	simHealing = 10 * time.Second // within so long after the healing everything must be settled
)

func newWorld(seed uint64, how cheat) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1e9, 0), cheat: how}
	w.size = []int{3, 3, 3, 4, 5}[w.rng.IntN(5)]
	voters := w.size + []int{0, 0, 0, 1, 2}[w.rng.IntN(5)]
	readers := w.rng.IntN(2)
	for i := range voters + readers {
		w.add(i >= voters)
	}
	return w
}

func (w *world) newID() event.ID {
	w.ids++
	var id event.ID
	binary.BigEndian.PutUint64(id[:], w.rng.Uint64())
	binary.BigEndian.PutUint64(id[8:], w.ids)
	return id
}

func (w *world) add(readOnly bool) *simNode {
	n := &simNode{index: len(w.nodes), readOnly: readOnly, disk: Record{Node: w.newID()}, view: make([]*Peer, maxNodes)}
	n.address = fmt.Sprint(n.index)
	w.nodes = append(w.nodes, n)
	return n
}

func (w *world) logf(format string, args ...any) {
	if w.trace != nil {
		w.trace("%8.3f "+format, append([]any{w.now.Sub(time.Unix(1e9, 0)).Seconds()}, args...)...)
	}
}

func (w *world) violate(format string, args ...any) {
	if w.broken == nil {
		w.broken = fmt.Errorf(format, args...)
		w.logf("VIOLATION: %v", w.broken)
	}
}

func (w *world) after(d time.Duration, do func()) {
	w.serial++
	heap.Push(&w.events, &happening{w.now.Add(d), w.serial, do})
}

// upTo returns a random duration below max.
func (w *world) upTo(limit time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(int64(limit)))
}

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

func (w *world) runUntil(end time.Time, settled func() bool) {
	check := w.now
	for len(w.events) > 0 && w.broken == nil && !w.events[0].at.After(end) {
		h := heap.Pop(&w.events).(*happening)
		w.now = h.at
		h.do()
		if settled != nil && w.now.Sub(check) >= simPoll {
			check = w.now
			if settled() {
				return
			}
		}
	}
	w.now = end
}

// run plays the whole schedule and returns the first violation.
func (w *world) run() error {
	for _, n := range w.nodes {
		w.after(w.upTo(2*time.Second), func() { w.start(n) })
	}
	chaos := time.Second + w.upTo(5*time.Second)
	for range w.rng.IntN(6) {
		n := w.nodes[w.rng.IntN(len(w.nodes))]
		w.after(w.upTo(chaos), func() { w.crash(n) })
	}
	for range w.rng.IntN(12) {
		w.after(w.upTo(chaos), w.lie)
	}
	if w.chance(30) {
		w.after(w.upTo(chaos), w.lose)
	}
	if w.chance(8) {
		w.after(w.upTo(chaos), w.lose)
	}
	w.runUntil(w.now.Add(chaos), nil)
	w.heal()
	w.runUntil(w.now.Add(simHealing), w.settled)
	if w.broken == nil && w.cheat == honest {
		w.checkEnd()
	}
	return w.broken
}

// start boots a node from its disk.
func (w *world) start(n *simNode) {
	if n.lost || n.core != nil {
		return
	}
	n.life++
	o := &Options{Node: n.disk.Node, Cluster: n.cluster, ClusterSize: w.size, ReadOnly: n.readOnly, GoneAfter: simGone}
	o.EnsureDefaults()
	n.core = newCore(o, n.disk, w.newID)
	n.outcome, n.boundAt = nil, w.now
	if !w.healed {
		clear(n.view)
	}
	w.logf("%d starts: %+v %v", n.index, n.disk.Promise, n.disk.Formed)
	w.spread(n)
	w.meet(n)
	w.tick(n)
}

// crash stops a node; it comes back later.
func (w *world) crash(n *simNode) {
	if n.core == nil {
		return
	}
	w.logf("%d crashes", n.index)
	n.core = nil
	w.spread(n)
	if !n.lost {
		w.after(w.upTo(2*time.Second), func() { w.start(n) })
	}
}

// lose takes away a node with its disk. Sometimes another one gets its address.
func (w *world) lose() {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	if n.lost || n.newcomer {
		return
	}
	w.logf("%d is lost", n.index)
	w.counted.lost++
	n.lost = true
	w.crash(n)
	if w.chance(50) {
		m := w.add(n.readOnly)
		m.address, m.newcomer = n.address, true
		w.after(w.upTo(2*time.Second), func() { w.start(m) })
	}
}

// truth is what gossip would show of a node if it were perfect.
func (w *world) truth(n *simNode) Peer {
	return Peer{
		Node: n.disk.Node, Cluster: n.cluster, Address: n.address, ReadOnly: n.readOnly,
		Alive: n.core != nil, ClusterSize: w.size, Since: w.now,
	}
}

// spread tells the others about a change of a node, sooner or later.
func (w *world) spread(n *simNode) {
	for _, m := range w.nodes {
		if m != n {
			w.after(w.lag(), func() { w.show(m, n, w.truth(n)) })
		}
	}
}

// meet tells a node that has started about the others.
func (w *world) meet(n *simNode) {
	for _, m := range w.nodes {
		if m != n && m.life > 0 {
			w.after(w.lag(), func() { w.show(n, m, w.truth(m)) })
		}
	}
}

func (w *world) lag() time.Duration {
	if w.healed {
		return w.upTo(50 * time.Millisecond)
	}
	return w.upTo(700 * time.Millisecond)
}

func (w *world) show(to, of *simNode, p Peer) {
	if to.core == nil {
		return
	}
	to.view[of.index] = &p
	w.wake(to, input{})
}

// lie has a node see another one dead, or not at all, or alive though it is not, until
// something changes.
func (w *world) lie() {
	to, of := w.nodes[w.rng.IntN(len(w.nodes))], w.nodes[w.rng.IntN(len(w.nodes))]
	if to == of || to.core == nil {
		return
	}
	if w.chance(30) {
		to.view[of.index] = nil
		return
	}
	p := w.truth(of)
	p.Alive = !p.Alive
	w.show(to, of, p)
}

// heal ends all that goes wrong. What is lost stays lost.
func (w *world) heal() {
	w.logf("healing")
	w.healed = true
	for _, n := range w.nodes {
		w.start(n)
	}
	for _, n := range w.nodes {
		for _, m := range w.nodes {
			if m != n && (!m.lost || w.chance(50)) {
				p := w.truth(m)
				n.view[m.index] = &p
			} else {
				n.view[m.index] = nil
			}
		}
	}
}

// tick is the node's timer.
func (w *world) tick(n *simNode) {
	life := n.life
	w.wake(n, input{})
	if n.core == nil || n.outcome != nil || n.life != life {
		return
	}
	w.after(simPoll, func() {
		if n.core != nil && n.life == life {
			w.tick(n)
		}
	})
}

// wake has a node take a step that no call waits for.
func (w *world) wake(n *simNode, in input) {
	if n.outcome == nil && n.core != nil {
		w.step(n, in)
	}
}

// step lets a node take a step and carries out its effects. It returns the answer to the request,
// if there is one.
func (w *world) step(n *simNode, in input) *Answer {
	in.now = w.now
	w.scratch = w.scratch[:0]
	for _, p := range n.view {
		if p != nil {
			w.scratch = append(w.scratch, *p)
		}
	}
	in.peers = w.scratch
	w.cheatBefore(n, &in)
	effects := n.core.step(in)
	if w.cheat == answerBeforeSave {
		slices.SortStableFunc(effects, func(a, b effect) int { return rank(a) - rank(b) })
	}
	var answer *Answer
	for _, e := range effects {
		switch e := e.(type) {
		case save:
			if w.crashes(n) {
				w.logf("%d crashes before a save", n.index)
				return answer
			}
			w.saved(n, e.record)
			if w.crashes(n) {
				w.logf("%d crashes after a save", n.index)
				return answer
			}
		case reply:
			w.checkAnswer(n, &e.answer)
			answer = &e.answer
		case call:
			w.send(n, e)
		case decide:
			w.decided(n, e.outcome)
		case say:
			w.logf("%d says: %s %v", n.index, e.message, e.args)
		}
	}
	return answer
}

// rank puts answers first.
func rank(e effect) int {
	if _, ok := e.(reply); ok {
		return 0
	}
	return 1
}

func (w *world) cheatBefore(n *simNode, in *input) {
	bond := n.core.bond()
	switch {
	case bond == nil:
	case w.cheat == promiseTwice && in.request != nil && in.request.Kind == Promise && !bond.is(in.request.Proposal),
		w.cheat == releaseByTime && w.now.Sub(n.boundAt) > time.Second:
		n.core.record.Promise = nil
	}
}

// crashes decides whether a node crashes during a save.
func (w *world) crashes(n *simNode) bool {
	if w.healed || !w.chance(8) {
		return false
	}
	w.counted.crashedSaves++
	w.crash(n)
	return true
}

var (
	errTimeout = errors.New("timeout")
	errRefused = errors.New("no node there")
)

// send carries a call: the request and the answer may be lost or late, and the
// request may arrive again at any later time.
func (w *world) send(from *simNode, c call) {
	life, done := from.life, false
	finish := func(a Answer, err error) {
		if !done && from.life == life && from.core != nil {
			done = true
			w.wake(from, input{result: &result{c.to, a, err}})
		}
	}
	w.after(simTimeout, func() { finish(Answer{}, errTimeout) })
	deliver := func() {
		to := w.at(c.address)
		if to == nil {
			w.after(w.delay(), func() { finish(Answer{}, errRefused) })
			return
		}
		a := w.receive(to, c.request)
		if a == nil || !w.healed && w.chance(15) {
			return
		}
		w.after(w.delay(), func() { finish(*a, nil) })
	}
	if w.healed || !w.chance(15) {
		w.after(w.delay(), deliver)
	}
	if !w.healed && w.chance(10) {
		w.after(w.upTo(4*time.Second), func() {
			if to := w.at(c.address); to != nil {
				w.receive(to, c.request)
			}
		})
	}
}

func (w *world) delay() time.Duration {
	if !w.healed && w.chance(10) {
		return w.upTo(2 * simTimeout)
	}
	return time.Millisecond + w.upTo(20*time.Millisecond)
}

// at finds who listens at an address.
func (w *world) at(address string) *simNode {
	for _, n := range w.nodes {
		if n.address == address && n.core != nil {
			return n
		}
	}
	return nil
}

// receive hands a request to a node the way Engine.Handle does.
func (w *world) receive(n *simNode, r Request) *Answer {
	if n.outcome != nil {
		a := n.core.passive(r)
		w.checkAnswer(n, &a)
		return &a
	}
	return w.step(n, input{request: &r})
}
