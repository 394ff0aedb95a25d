package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/clock"
)

// errNotNow says that a fault cannot strike in the present state.
var errNotNow = errors.New("not at this time")

// fault is one way to break a cluster.
type fault struct {
	name, doc string
	weight    int
	// shortest and longest bound how long it lasts, in milliseconds.
	shortest, longest int
	nodes             int // voters that it needs at least
	network           bool
	disk              bool
	hangs             bool // a disk
	errors            bool // of a disk
	resets            bool // of connections
	power             bool // fails in the midst of changes of files
	ends              bool // stops or ends processes
	tls               bool // has certificates
	judged            bool // after it every node must follow before the next one
	// destroys says that the data on a disk are lost.
	destroys bool
	// outer says that it begins before all others and ends after them: see encloses.
	outer bool
	// strike begins the fault and returns its cure, nil if there is none.
	strike func(ctx context.Context, n *nemesis) (what string, cure func(context.Context) error, err error)
}

// waitsForDisk reports whether a fault could not begin or end while a disk hangs.
func (f *fault) waitsForDisk() bool { return f.ends || f.disk }

// encloses reports whether a fault begins while no other is active, and ends last: then a node must
// catch up.
func (f *fault) encloses() bool { return f.destroys || f.outer }

func (f *fault) length(rng *rand.Rand) time.Duration {
	return time.Duration(f.shortest+rng.IntN(f.longest-f.shortest+1)) * time.Millisecond
}

func (f *fault) fits(c Cluster) bool {
	can := c.Can()
	return can.Processes && c.Voters() >= f.nodes && (!f.network || can.Network) && (!f.disk || can.Disk) && (!f.hangs || can.Hang) && (!f.errors || can.Errors) && (!f.resets || can.Resets) && (!f.power || can.Power) && (!f.tls || c.Certificates() != nil)
}

// allFaults is the list from which --faults chooses.
func allFaults() []fault {
	return []fault{
		{name: "kill", doc: "kill -9 of one node, half of the time the leader", weight: 12, shortest: 50, longest: 6000, nodes: 1, ends: true, strike: strikeKill},
		{name: "kill-all", doc: "kill -9 of all nodes at once", weight: 4, shortest: 50, longest: 3000, nodes: 1, ends: true, strike: strikeKillAll},
		{name: "terminate", doc: "SIGTERM of one node", weight: 5, shortest: 50, longest: 4000, nodes: 1, ends: true, strike: strikeTerminate},
		{name: "rolling", doc: "SIGTERM and restart of one node after the other", weight: 3, shortest: 0, longest: 0, nodes: 2, ends: true, strike: strikeRolling},
		{name: "pause", doc: "SIGSTOP for less than an election timeout", weight: 5, shortest: 100, longest: 800, nodes: 1, ends: true, strike: strikePause},
		{name: "pause-long", doc: "SIGSTOP for much longer than an election timeout", weight: 6, shortest: 3000, longest: 9000, nodes: 1, ends: true, strike: strikePause},
		{name: "isolate-leader", doc: "the leader reaches no other node, clients may reach it", weight: 8, shortest: 2000, longest: 9000, nodes: 2, network: true, strike: strikeIsolate((*nemesis).leader)},
		{name: "isolate-follower", doc: "a follower reaches no other node", weight: 5, shortest: 2000, longest: 9000, nodes: 2, network: true, strike: strikeIsolate((*nemesis).follower)},
		{name: "one-way", doc: "a node hears the others and is not heard, or the reverse", weight: 7, shortest: 2000, longest: 8000, nodes: 2, network: true, strike: strikeOneWay},
		{name: "halves", doc: "a minority and a majority cannot reach each other", weight: 6, shortest: 2000, longest: 9000, nodes: 3, network: true, strike: strikeHalves},
		{name: "bridge", doc: "two nodes cannot reach each other, the others reach both", weight: 5, shortest: 2000, longest: 8000, nodes: 3, network: true, strike: strikeBridge},
		{name: "delay", doc: "packets take long, and overtake each other", weight: 5, shortest: 2000, longest: 8000, nodes: 2, network: true, strike: strikeDelay},
		{name: "drop", doc: "packets get lost", weight: 5, shortest: 2000, longest: 8000, nodes: 2, network: true, strike: strikeDrop},
		{name: "reset", doc: "connections of a node break, some or all; only simulated", weight: 5, shortest: 0, longest: 1000, nodes: 1, resets: true, strike: strikeReset},
		{name: "resign", doc: "the leader is asked to resign", weight: 5, shortest: 200, longest: 1500, nodes: 2, strike: strikeResign},
		{name: "resign-given-up", doc: "the leader is asked to resign while a follower hangs, by clients that do not wait", weight: 5, shortest: 500, longest: 4000, nodes: 3, ends: true, strike: strikeResignGivenUp},
		{name: "clock", doc: "a node's wall clock is wrong, by seconds, hours or years", weight: 5, shortest: 2000, longest: 9000, nodes: 1, strike: strikeClock},
		{name: "disk-hang", doc: "a node's disk hangs: reads work, writes and syncs do not end", weight: 7, shortest: 300, longest: 9000, nodes: 1, hangs: true, strike: strikeDiskHang},
		{name: "disk-full", doc: "disks are full, of a follower, the leader or all", weight: 6, shortest: 2000, longest: 7000, nodes: 1, disk: true, strike: strikeDiskFull},
		{name: "disk-errors", doc: "reads, writes and syncs of a disk fail now and then; only simulated", weight: 5, shortest: 300, longest: 5000, nodes: 1, ends: true, disk: true, errors: true, strike: strikeDiskErrors},
		{name: "power", doc: "nodes lose their power, or a change fails, just when they change their files; only simulated", weight: 8, shortest: 0, longest: 1000, nodes: 1, ends: true, disk: true, power: true, judged: true, strike: strikePower},
		{name: "wipe", doc: "a follower loses all its data and comes back empty", weight: 3, shortest: 500, longest: 4000, nodes: 3, ends: true, destroys: true, strike: strikeWipe(false)},
		{name: "wipe-raft", doc: "a follower loses its consensus state and keeps its log", weight: 3, shortest: 500, longest: 4000, nodes: 3, ends: true, destroys: true, strike: strikeWipe(true)},
		{name: "rot", doc: "a bit or a sector of a complete chunk changes on the disk of a running node", weight: 8, shortest: 200, longest: 4000, nodes: 3, ends: true, destroys: true, strike: strikeRot("chunk-[0-9]*.[0-9]*", 1, rotMargin)},
		{name: "index-rot", doc: "a bit or a sector of a table of postings changes on the disk of a running node", weight: 5, shortest: 200, longest: 4000, nodes: 1, ends: true, destroys: true, strike: strikeRot(postingsTables, 0, 0)},
		{name: "stream-index-rot", doc: "a bit or a sector of an index table of streams, or of its filter, changes on the disk of a running node", weight: 6, shortest: 200, longest: 4000, nodes: 1, ends: true, destroys: true, strike: strikeRot(streamTables, 0, 0)},
		{name: "index-loss", doc: "a node is stopped or killed, and its index of postings removed", weight: 4, shortest: 50, longest: 3000, nodes: 1, ends: true, strike: strikeIndexLoss},
		{name: "storm", doc: "links are cut and healed, nodes killed and started, disks filled and freed, many times within seconds", weight: 12, shortest: 0, longest: 0, nodes: 2, network: true, ends: true, judged: true, strike: strikeStorm},
		{name: "straggler", doc: "a follower is cut off or dead, the leader is asked to resign, its links come back one by one or at once, and it is killed meanwhile", weight: 6, shortest: 0, longest: 2000, nodes: 3, network: true, ends: true, judged: true, strike: strikeStraggler},
		{name: "full-alone", doc: "the leader is cut off, its disk fills, and it comes back before there is space", weight: 5, shortest: 1000, longest: 6000, nodes: 3, network: true, disk: true, judged: true, strike: strikeFullAlone},
		{name: "replica", doc: "a read-only replica comes or goes", weight: 2, shortest: 500, longest: 2000, nodes: 2, ends: true, strike: strikeReplica},
		{name: "replace", doc: "the operator removes a voter, which another machine at another address replaces; the old one continues or comes back", weight: 12, shortest: 500, longest: 9000, nodes: 3, ends: true, destroys: true, judged: true, strike: strikeReplace},
		{name: "grow", doc: "the operator adds a voter beyond the size of the cluster, a new node or the replica, and removes it again", weight: 10, shortest: 500, longest: 9000, nodes: 3, ends: true, destroys: true, judged: true, strike: strikeGrow},
		{name: "renew", doc: "nodes get new certificates while they run, of the same authority or another; only with --tls", weight: 8, shortest: 0, longest: 0, nodes: 1, tls: true, judged: true, strike: strikeRenew},
		{name: "expire", doc: "certificates of one node or of all run out while they run, or would have if they were not renewed; only with --tls", weight: 8, shortest: 0, longest: 6000, nodes: 3, ends: true, tls: true, judged: true, outer: true, strike: strikeExpire},
	}
}

// FaultNames lists the kinds of faults.
func FaultNames() (names []string) {
	for _, f := range allFaults() {
		names = append(names, f.name)
	}
	return names
}

// chooseFaults returns the faults of a list of names, all for an empty one.
func chooseFaults(names []string) ([]fault, error) {
	all := allFaults()
	if len(names) == 0 {
		return all, nil
	}
	var chosen []fault
	for _, name := range names {
		if name == "none" && len(names) == 1 {
			return nil, nil
		}
		i := slices.IndexFunc(all, func(f fault) bool { return f.name == name })
		if i < 0 {
			return nil, fmt.Errorf("--faults %q is none of %s", name, strings.Join(FaultNames(), ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

func strikeKill(_ context.Context, n *nemesis) (string, func(context.Context) error, error) {
	node := n.anyVoter()
	what := "kill -9 of " + n.role(node)
	return what, func(ctx context.Context) error { return n.c.Start(ctx, node) }, n.c.Kill(node)
}

func strikeKillAll(_ context.Context, n *nemesis) (string, func(context.Context) error, error) {
	all := n.rng.Perm(n.c.Voters())
	start := func(ctx context.Context) error {
		return each(all, func(i int) error { return n.c.Start(ctx, i) })
	}
	return "kill -9 of all nodes", start, each(all, n.c.Kill)
}

func strikeTerminate(ctx context.Context, n *nemesis) (string, func(context.Context) error, error) {
	node := n.anyVoter()
	what := "SIGTERM of " + n.role(node)
	return what, func(ctx context.Context) error { return n.c.Start(ctx, node) }, n.c.Terminate(ctx, node)
}

// strikeRolling restarts each node when the one before it has caught up, as an
// operator does for a new version.
func strikeRolling(ctx context.Context, n *nemesis) (string, func(context.Context) error, error) {
	restarted := 0
	for _, i := range n.rng.Perm(n.c.Voters()) {
		if ctx.Err() != nil {
			break
		}
		err := n.c.Terminate(ctx, i)
		if err = errors.Join(err, n.c.Start(context.WithoutCancel(ctx), i)); err != nil {
			return "rolling restart", nil, err
		}
		restarted++
		n.awaitCaughtUp(ctx, i, 20*time.Second)
	}
	return fmt.Sprintf("rolling restart of %d nodes", restarted), nil, nil
}

// awaitCaughtUp waits for a node, but not for ever: whether it heals is judged at the end.
func (n *nemesis) awaitCaughtUp(ctx context.Context, node int, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		if n.watch.caughtUp(ctx, n.c.Targets(), node) == nil {
			return true
		}
		if !n.c.Running(node) || clock.Sleep(ctx, 100*time.Millisecond) != nil {
			return false
		}
	}
}

func strikePause(_ context.Context, n *nemesis) (string, func(context.Context) error, error) {
	node := n.anyVoter()
	what := "SIGSTOP of " + n.role(node)
	return what, func(context.Context) error { return n.c.Resume(node) }, n.c.Pause(node)
}

func strikeClock(_ context.Context, n *nemesis) (string, func(context.Context) error, error) {
	node := n.anyVoter()
	longest := []time.Duration{5 * time.Second, 3 * time.Hour, 10 * 365 * 24 * time.Hour}
	if n.c.Voters() == 1 {
		// A single node has no other node to learn from that its clock is wrong by years.
		longest = longest[:2]
	}
	most := longest[n.rng.IntN(len(longest))]
	offset := time.Duration(n.rng.Int64N(int64(2*most))) - most
	what := fmt.Sprintf("the clock of %s is wrong by %s", n.role(node), offset.Round(time.Millisecond))
	if n.c.Certificates() == nil {
		return what, func(context.Context) error { return n.c.SetClock(node, 0) }, n.c.SetClock(node, offset)
	}
	n.excused.Add(1) // It does not start with a certificate that is not valid yet by its clock.
	return what, func(context.Context) error {
		defer n.excused.Add(-1)
		return n.c.SetClock(node, 0)
	}, n.c.SetClock(node, offset)
}

// each calls do for all of a list, even after an error.
func each[T any](list []T, do func(T) error) (err error) {
	for _, one := range list {
		err = errors.Join(err, do(one))
	}
	return err
}

// cut is one direction between two ends.
type cut struct{ from, to int }

// between lists both directions of the links between a node and others.
func between(node int, others ...int) (links []cut) {
	for _, o := range others {
		links = append(links, cut{node, o}, cut{o, node})
	}
	return links
}

func (n *nemesis) shapeAll(links []cut, s Shape) error {
	return each(links, func(l cut) error { return n.c.Shape(l.from, l.to, s) })
}

// healLinks returns the cure of faults of the network.
func healLinks(c Cluster) func(context.Context) error {
	return func(context.Context) error { return c.HealNetwork() }
}

func strikeIsolate(who func(*nemesis) int) func(context.Context, *nemesis) (string, func(context.Context) error, error) {
	return func(_ context.Context, n *nemesis) (string, func(context.Context) error, error) {
		node := who(n)
		what := n.role(node) + " is cut off from the other nodes"
		ends := n.others(node)
		// A leader that only clients can reach is the worse case: it may be asked.
		if n.rng.IntN(4) == 0 {
			ends = append(ends, ClientSide)
			what += " and from the clients"
		}
		return what, healLinks(n.c), n.shapeAll(between(node, ends...), Shape{Cut: true})
	}
}

func strikeOneWay(_ context.Context, n *nemesis) (string, func(context.Context) error, error) {
	node := n.anyVoter()
	mute := n.rng.IntN(2) == 0
	var links []cut
	for _, o := range n.others(node) {
		if mute {
			links = append(links, cut{node, o})
		} else {
			links = append(links, cut{o, node})
		}
	}
	what := n.role(node) + " hears the other nodes and is not heard"
	if !mute {
		what = n.role(node) + " is heard by the other nodes and hears nothing"
	}
	return what, healLinks(n.c), n.shapeAll(links, Shape{Cut: true})
}

func strikeHalves(_ context.Context, n *nemesis) (string, func(context.Context) error, error) {
	order := n.rng.Perm(n.c.Voters())
	small := order[:(len(order)-1)/2]
	large := order[len(small):]
	var links []cut
	for _, a := range small {
		links = append(links, between(a, slices.DeleteFunc(n.others(a), func(b int) bool { return slices.Contains(small, b) })...)...)
	}
	return fmt.Sprintf("nodes %v and %v cannot reach each other", small, large), healLinks(n.c), n.shapeAll(links, Shape{Cut: true})
}

func strikeBridge(_ context.Context, n *nemesis) (string, func(context.Context) error, error) {
	a, b := n.leader(), n.follower()
	if a == b {
		return "", nil, errNotNow
	}
	return fmt.Sprintf("%s and %s cannot reach each other", n.role(a), n.role(b)), healLinks(n.c),
		n.shapeAll(between(a, b), Shape{Cut: true})
}

// around chooses links: those of one node, or all. Clients are not concerned.
func (n *nemesis) around() (what string, links []cut) {
	nodes := []int{n.anyVoter()}
	what = n.role(nodes[0]) + " and other nodes"
	if n.rng.IntN(3) == 0 {
		nodes, what = n.rng.Perm(n.c.Voters()), "all nodes"
	}
	for _, a := range nodes {
		links = append(links, between(a, n.others(a)...)...)
	}
	return what, links
}

func strikeDelay(_ context.Context, n *nemesis) (string, func(context.Context) error, error) {
	who, links := n.around()
	s := Shape{Delay: time.Duration(5+n.rng.IntN(250)) * time.Millisecond, Jitter: time.Duration(n.rng.IntN(100)) * time.Millisecond}
	return fmt.Sprintf("packets between %s take %s and up to %s more", who, s.Delay, s.Jitter), healLinks(n.c), n.shapeAll(links, s)
}

func strikeDrop(_ context.Context, n *nemesis) (string, func(context.Context) error, error) {
	who, links := n.around()
	s := Shape{Drop: 0.02 + 0.3*n.rng.Float64()}
	return fmt.Sprintf("%.0f %% of the packets between %s are lost", 100*s.Drop, who), healLinks(n.c), n.shapeAll(links, s)
}

func strikeReset(_ context.Context, n *nemesis) (string, func(context.Context) error, error) {
	node := n.anyVoter()
	share := []float64{0.05, 0.3, 1}[n.rng.IntN(3)]
	broken, err := n.c.Reset(node, share)
	return fmt.Sprintf("%d connections of %s break", broken, n.role(node)), nil, err
}

func strikeResign(ctx context.Context, n *nemesis) (string, func(context.Context) error, error) {
	leader, ok := n.watch.leads(n.c.Targets())
	if !ok {
		return "", nil, errNotNow
	}
	what := n.role(leader.Index) + " was asked to resign"
	a, err := exchange(ctx, n.watch.http, leader, client.Request{Method: http.MethodPost, Path: "/admin/node/resign"}, 5*time.Second)
	switch {
	case err != nil:
		what += ": no answer"
	case a.Status != http.StatusOK && a.Status < 500:
		n.find.add(kindAnswer, "POST /admin/node/resign: %s", a)
	}
	return what, nil, nil
}

// strikeResignGivenUp leaves the leader alone with hand-overs that cannot be completed.
func strikeResignGivenUp(ctx context.Context, n *nemesis) (string, func(context.Context) error, error) {
	leader, ok := n.watch.leads(n.c.Targets())
	if !ok || leader.Index >= n.c.Voters() {
		return "", nil, errNotNow
	}
	stopped := n.follower()
	if err := n.c.Pause(stopped); err != nil {
		return "", nil, err
	}
	tries := 1 + n.rng.IntN(4)
	for range tries {
		// No answer is what is wanted; one that comes all the same tells nothing.
		_, _ = exchange(ctx, n.watch.http, leader, client.Request{Method: http.MethodPost, Path: "/admin/node/resign"}, time.Duration(20+n.rng.IntN(400))*time.Millisecond)
	}
	return fmt.Sprintf("%s was asked %d times to resign and not waited for, %s stopped", n.role(leader.Index), tries, nodeName(stopped)),
		func(context.Context) error { return n.c.Resume(stopped) }, nil
}

func strikeDiskHang(_ context.Context, n *nemesis) (string, func(context.Context) error, error) {
	node := n.anyVoter()
	what := "the disk of " + n.role(node) + " hangs"
	return what, func(context.Context) error { return n.c.ThawDisk(node) }, n.c.FreezeDisk(node)
}

// leftOnDisk is what a full disk has left: nothing, so little that some writes still succeed, or a
// part of what nodes keep in reserve. With that a node continues and takes no entries.
var leftOnDisk = [...]int64{0, 4096, 64 << 10, 16 << 20, 48 << 20, 100 << 20}

func strikeDiskFull(_ context.Context, n *nemesis) (string, func(context.Context) error, error) {
	var nodes []int
	what := ""
	switch n.rng.IntN(3) {
	case 0:
		nodes, what = []int{n.follower()}, "a follower"
	case 1:
		nodes, what = []int{n.leader()}, "the leader"
	default:
		nodes, what = n.rng.Perm(n.c.Voters()), "all nodes"
	}
	left := leftOnDisk[n.rng.IntN(len(leftOnDisk))]
	n.excused.Add(1)
	err := each(nodes, func(i int) error { return n.c.FillDisk(i, left) })
	return fmt.Sprintf("disk of %s %v is full up to %d bytes", what, nodes, left), func(ctx context.Context) error {
		defer n.excused.Add(-1)
		// Starting one that runs is without effect.
		return errors.Join(each(nodes, n.c.FreeDisk), each(nodes, func(i int) error { return n.c.Start(ctx, i) }))
	}, err
}

func strikeDiskErrors(_ context.Context, n *nemesis) (string, func(context.Context) error, error) {
	node := n.anyVoter()
	share := []float64{0.001, 0.01, 0.2, 1}[n.rng.IntN(4)]
	what := fmt.Sprintf("the disk of %s fails %.1f %% of the time", n.role(node), 100*share)
	n.excused.Add(1)
	return what, func(ctx context.Context) error {
		defer n.excused.Add(-1)
		return errors.Join(n.c.BreakDisk(node, 0), n.c.Start(ctx, node))
	}, n.c.BreakDisk(node, share)
}

// strikeWipe destroys the disk of one follower. It strikes only when every disk
// destroyed before was rebuilt, and never before the cluster had a leader.
func strikeWipe(onlyRaft bool) func(context.Context, *nemesis) (string, func(context.Context) error, error) {
	return func(ctx context.Context, n *nemesis) (string, func(context.Context) error, error) {
		if leader, _ := n.watch.leading(); leader < 0 || !n.rebuilt(ctx) {
			return "", nil, errNotNow
		}
		node := n.follower()
		n.rebuilding, n.wiped[node] = node, n.line.now()
		n.watch.renewed(node)
		what := fmt.Sprintf("%s loses all its data", nodeName(node))
		if onlyRaft {
			what = fmt.Sprintf("%s loses its consensus state", nodeName(node))
		}
		err := n.c.Kill(node)
		return what, func(ctx context.Context) error {
			if err := n.c.Start(ctx, node); err != nil {
				return err
			}
			if n.awaitCaughtUp(ctx, node, 30*time.Second) {
				n.rebuilt(ctx)
			}
			return nil
		}, errors.Join(err, n.c.Wipe(node, onlyRaft))
	}
}

func strikeReplica(ctx context.Context, n *nemesis) (string, func(context.Context) error, error) {
	replica := n.size
	if n.c.Voters() > n.size { // It is to vote.
		return "", nil, errNotNow
	}
	if n.c.Running(replica) {
		return "the read-only replica goes", nil, n.c.Terminate(ctx, replica)
	}
	if n.outcast { // A member that was removed does not join by itself.
		if err := (operator{n}).forget(replica); err != nil {
			return "", nil, err
		}
	}
	return "a read-only replica comes", nil, n.c.Start(ctx, replica)
}
