package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/clock"
)

// cureLimit bounds how long the end of one fault may take.
const cureLimit = 2 * time.Minute

// nemesis breaks the cluster by a schedule that follows from the seed and from who leads at the
// time. One fault is active at a time, now and then two.
type nemesis struct {
	c      Cluster
	watch  *watch
	line   *timeline
	find   *findings
	rng    *rand.Rand
	size   int // voters that the cluster was made of
	faults []fault
	slow   float64 // between faults, as of the options
	spells spells
	// another is how likely one more fault is next to those that are active.
	another  float64
	dial     dialer
	trust    Trust         // of all nodes, with certificates
	patience time.Duration // within which every node of a whole cluster must follow; 0: not judged
	// changed is called when nodes come or go.
	changed func()

	// rebuilding is a node whose disk was destroyed and has not caught up yet, -1 if there is none.
	// Until it has, no other disk may be destroyed: writes acknowledged by a majority must survive
	// on at least one disk.
	rebuilding int
	// rot is what changed on a disk and is not healed yet, rotten all files that ever did.
	rot    *rot
	rotten sync.Map
	// wiped is when the disk of a node was last destroyed.
	wiped map[int]int64
	// outcast says that the node after the voters was removed and has its data still.
	outcast bool
	// powerless are times without a majority of the voters.
	powerless []span
	// excused counts the faults by which nodes may end by themselves: disks that are full or
	// fail, and clocks by which a certificate is not valid.
	excused atomic.Int32
	// expiring are the nodes whose certificates run out. Such a node may end by itself if it says
	// that this is why. Nil: none.
	expiring atomic.Pointer[[]int]
	err      error // that no fault explains: the laboratory failed
	// life ends when the round is interrupted, and not when the time for faults is over.
	life context.Context
}

func newNemesis(c Cluster, w *watch, line *timeline, f *findings, seed uint64, faults []fault, changed func()) *nemesis {
	n := &nemesis{
		c: c, watch: w, line: line, find: f, rng: rand.New(rand.NewPCG(seed, 3<<32)), size: c.Voters(),
		rebuilding: -1, wiped: map[int]int64{}, changed: changed, another: 0.2,
		life: context.Background(),
	}
	for _, one := range faults {
		if one.fits(c) {
			n.faults = append(n.faults, one)
		}
	}
	return n
}

// stroke is an active fault.
type stroke struct {
	fault  *fault
	what   string
	at     int64
	length time.Duration
	cure   func(context.Context) error
}

// late is 1 for a stroke that is cured last. s may be nil.
func (s *stroke) late() int {
	if s != nil && s.fault.encloses() {
		return 1
	}
	return 0
}

// run strikes until the context ends, and leaves no fault except nodes that have ended by
// themselves.
func (n *nemesis) run(ctx context.Context) {
	if len(n.faults) == 0 {
		return
	}
	for n.err == nil && clock.Sleep(ctx, slower(time.Duration(500+n.rng.IntN(2500))*time.Millisecond, n.slow)) == nil {
		n.revive(ctx)
		if _, quiet := n.spells.at(n.line.now()); quiet > 0 && clock.Sleep(ctx, time.Duration(quiet)) != nil {
			return
		}
		if n.rng.IntN(judgedPauses) == 0 {
			n.together(ctx)
		}
		strokes := []*stroke{n.strike(ctx, nil)}
		for len(strokes) < mostFaults && n.rng.Float64() < n.another && strokes[0] != nil {
			if clock.Sleep(ctx, time.Duration(n.rng.IntN(1500))*time.Millisecond) != nil {
				break
			}
			if s := n.strike(ctx, strokes); s != nil {
				strokes = append(strokes, s)
			}
		}
		n.endure(ctx, strokes)
		// A fault that comes soon after it would hide the harm.
		if slices.ContainsFunc(strokes, func(s *stroke) bool { return s != nil && s.fault.judged }) {
			n.together(ctx)
		}
	}
}

const (
	// mostFaults is how many may be active at a time.
	mostFaults = 3
	// judgedPauses is one in how many pauses does not end before every node follows.
	judgedPauses = 4
)

// together waits until every node follows, as each must when no fault is active. To start a node
// again, as later faults do, would hide that it cannot.
func (n *nemesis) together(ctx context.Context) {
	if !n.c.Can().Processes || n.patience == 0 {
		return
	}
	if missing := n.missing(ctx, n.patience); missing != "" && ctx.Err() == nil {
		n.find.add(kindHeal, "%s after a fault not every node follows: %s", n.patience, missing)
	}
}

// missing waits until every node has what the leader has. It returns what each laggard lacks, and
// what nodes have logged; nothing means that the cluster has healed. Nodes that have ended are
// started again, as an operator would.
func (n *nemesis) missing(ctx context.Context, limit time.Duration) string {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		n.revive(ctx)
		text := ""
		for _, t := range n.c.Targets() {
			if err := n.watch.caughtUp(ctx, n.c.Targets(), t.Index); err != nil {
				text += fmt.Sprintf("\n%s: %v", t.Name, err)
			}
		}
		if text == "" {
			return ""
		}
		if clock.Sleep(ctx, 200*time.Millisecond) == nil {
			continue
		}
		for i := range n.c.Voters() {
			if tail := n.c.LogTail(i); tail != "" {
				text += fmt.Sprintf("\n%s logged last:\n%s", nodeName(i), tail)
			}
		}
		return text
	}
}

// strike begins a fault that may be active next to others.
func (n *nemesis) strike(ctx context.Context, others []*stroke) *stroke {
	f := n.choose(others)
	if f == nil {
		return nil
	}
	s := &stroke{fault: f, at: n.line.now(), length: f.length(n.rng)}
	n.watch.troubled(1)
	var err error
	s.what, s.cure, err = f.strike(ctx, n)
	switch {
	case errors.Is(err, errNotNow):
		n.watch.troubled(-1)
		return nil
	case ctx.Err() != nil && err != nil:
	case err != nil:
		n.fail(fmt.Errorf("%s: %w", f.name, err))
	}
	n.changed()
	return s
}

// choose picks a kind of fault by weight.
func (n *nemesis) choose(others []*stroke) *fault {
	sum := 0
	fits := func(f *fault) bool {
		return !slices.ContainsFunc(others, func(s *stroke) bool {
			other := s.fault
			// Two faults of the network would undo each other.
			return f.name == other.name || f.network && other.network || f.encloses() ||
				// Who gives out a certificate waits until clients get it, which they do not from a
				// node whose own has run out.
				f.tls && other.tls ||
				// A process whose disk hangs can neither be stopped nor killed, nor can its disk be
				// written to.
				f.hangs && other.waitsForDisk() || f.waitsForDisk() && other.hangs
		})
	}
	for i := range n.faults {
		if fits(&n.faults[i]) {
			sum += n.faults[i].weight
		}
	}
	if sum == 0 {
		return nil
	}
	dice := n.rng.IntN(sum)
	for i := range n.faults {
		if f := &n.faults[i]; fits(f) {
			if dice -= f.weight; dice < 0 {
				return f
			}
		}
	}
	return nil
}

// endure lets the faults last and ends them, in any order but for those that enclose others.
func (n *nemesis) endure(ctx context.Context, strokes []*stroke) {
	order := n.rng.Perm(len(strokes))
	slices.SortStableFunc(order, func(a, b int) int { return strokes[a].late() - strokes[b].late() })
	for _, i := range order {
		s := strokes[i]
		if s == nil {
			continue
		}
		_ = clock.Sleep(ctx, s.length)
		if s.cure != nil {
			// Not the run's context: a fault is always ended.
			cureCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cureLimit)
			if err := s.cure(cureCtx); err != nil {
				n.fail(fmt.Errorf("end of %s: %w", s.fault.name, err))
			}
			cancel()
		}
		n.watch.troubled(-1)
		n.changed()
		n.line.put(happening{At: s.at, Until: n.line.now(), Kind: happenedFault, Fault: s.fault.name, What: s.what})
	}
}

// fail sorts an error, if it is one: a node that does not stop in order is the node's fault,
// anything else the laboratory's.
func (n *nemesis) fail(err error) {
	if errors.Is(err, ErrStop) && (n.excused.Load() > 0 ||
		n.expiring.Load() != nil && strings.Contains(err.Error(), saysExpired)) {
		n.line.add(happenedNode, "a node does not end in order, which a fault explains")
		return
	}
	if errors.Is(err, ErrStop) {
		n.find.add(kindStop, "%v", err)
		return
	}
	n.err = errors.Join(n.err, err)
}

// ended takes note of a node that ended by itself. Any goroutine may call it.
func (n *nemesis) ended(node, code int, tail string) {
	expiring := n.expiring.Load()
	if n.excused.Load() > 0 || expiring != nil && slices.Contains(*expiring, node) &&
		strings.Contains(tail, saysExpired) {
		n.line.add(happenedNode, "%s ended with code %d, which a fault explains", nodeName(node), code)
		return
	}
	n.line.add(happenedNode, "%s ended by itself with code %d", nodeName(node), code)
	n.find.add(kindDied, "%s at %s with code %d; its log ends:\n%s", nodeName(node), seconds(n.line.now()), code, tail)
}

// revive starts voters that do not run although no fault is active.
func (n *nemesis) revive(ctx context.Context) {
	if !n.c.Can().Processes {
		return
	}
	for i := range n.c.Voters() {
		if !n.c.Running(i) {
			n.line.add(happenedNode, "%s is started again", nodeName(i))
			if err := n.c.Start(ctx, i); err != nil && ctx.Err() == nil {
				n.fail(err)
			}
		}
	}
}

// heal undoes everything that can be undone.
func (n *nemesis) heal(ctx context.Context) error {
	err := n.c.HealNetwork()
	if n.c.Can().Processes {
		for i := range n.c.Voters() {
			err = errors.Join(err, n.c.Resume(i))
			if n.c.Can().Hang {
				err = errors.Join(err, n.c.ThawDisk(i))
			}
			if n.c.Can().Disk {
				err = errors.Join(err, n.c.FreeDisk(i))
			}
			if n.c.Can().Errors {
				err = errors.Join(err, n.c.BreakDisk(i, 0))
			}
		}
		n.revive(ctx)
	}
	n.excused.Store(0)
	n.expiring.Store(nil)
	return errors.Join(err, n.err)
}

// leader returns the node that leads, or any node when none does.
func (n *nemesis) leader() int {
	if leader, _ := n.watch.leading(); leader >= 0 && leader < n.c.Voters() {
		return leader
	}
	return n.rng.IntN(n.c.Voters())
}

// anyVoter returns a voter, half of the time the leader.
func (n *nemesis) anyVoter() int {
	if n.rng.IntN(2) == 0 {
		return n.leader()
	}
	return n.rng.IntN(n.c.Voters())
}

// follower returns a voter that does not lead.
func (n *nemesis) follower() int {
	v := n.c.Voters()
	return (n.leader() + 1 + n.rng.IntN(max(v-1, 1))) % v
}

// role names a node with what it is at the moment.
func (n *nemesis) role(node int) string {
	if leader, term := n.watch.leading(); leader == node {
		return fmt.Sprintf("%s (leader of term %d)", nodeName(node), term)
	}
	return nodeName(node)
}

// others lists the nodes except one, without the client side.
func (n *nemesis) others(node int) []int {
	var all []int
	for _, t := range n.c.Targets() {
		if t.Index != node {
			all = append(all, t.Index)
		}
	}
	return all
}

// rebuilt says whether no disk is still destroyed.
func (n *nemesis) rebuilt(ctx context.Context) bool {
	if n.rebuilding >= 0 && n.watch.caughtUp(ctx, n.c.Targets(), n.rebuilding) == nil {
		n.line.add(happenedNode, "%s has caught up again", nodeName(n.rebuilding))
		n.watch.settled(n.rebuilding)
		n.rebuilding = -1
	}
	return n.rebuilding < 0
}

// logEnd asks a node where its log ends.
func logEnd(ctx context.Context, h *client.Client, t Target, leader bool) (int64, error) {
	a, err := exchange(ctx, h, t, read(allHead, leader, 0), 3*time.Second)
	if err != nil {
		return 0, err
	}
	if a.Status != http.StatusOK {
		return 0, fmt.Errorf("read the end of the log: %s", a)
	}
	p, err := client.ParsePage(a.Body)
	if err != nil {
		return 0, err
	}
	return nextPosition(p)
}

var errNotYet = errors.New("not yet")

// caughtUp returns nil when a node has everything that the leader had a moment ago and says that it
// follows.
func (w *watch) caughtUp(ctx context.Context, list []Target, node int) error {
	leader, ok := w.leads(list)
	if !ok {
		return fmt.Errorf("%w: no node leads", errNotYet)
	}
	want, err := logEnd(ctx, w.http, leader, true)
	if err != nil {
		return fmt.Errorf("leader: %w", err)
	}
	at := slices.IndexFunc(list, func(t Target) bool { return t.Index == node })
	if at < 0 { // It has ended since.
		return fmt.Errorf("%w: %s is not there", errNotYet, nodeName(node))
	}
	have, err := logEnd(ctx, w.http, list[at], false)
	if err != nil {
		return err
	}
	switch state := w.view(node).state; {
	case have < want:
		return fmt.Errorf("%w: %s is at position %d, the leader at %d", errNotYet, nodeName(node), have, want)
	case state != "Leader" && state != "Follower" && state != "ReadOnlyReplica":
		return fmt.Errorf("%w: %s has the state %q", errNotYet, nodeName(node), state)
	}
	return nil
}
