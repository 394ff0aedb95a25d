package torture

import (
	"context"
	"fmt"
	"net/url"
	"time"
)

// client side, as an end of a link.
const clientSide = -1

// cluster is the cluster under test. Nodes are numbered from 0; the voters come first, and one
// read-only replica may follow. Tests put a fake in its place.
type cluster interface {
	// targets lists the nodes that clients may talk to.
	targets() []target
	// voters is the number of nodes that the cluster was made of.
	voters() int
	// can says which faults are possible.
	can() abilities

	// start starts a node, without effect on one that runs. It does not wait for it to serve.
	start(ctx context.Context, node int) error
	// kill ends a node at once, terminate asks it to end and waits. Both are
	// without effect on a node that does not run.
	kill(node int) error
	terminate(ctx context.Context, node int) error
	pause(node int) error
	resume(node int) error
	running(node int) bool
	// wipe removes the data of a node that does not run, or only its consensus state.
	wipe(node int, onlyRaft bool) error

	// shape sets what happens to packets from one node (or the client side) to another.
	shape(from, to int, s shape) error
	// healNetwork undoes every shape.
	healNetwork() error
	// fillDisk leaves so many bytes free on a node's disk, freeDisk gives them back.
	fillDisk(node int, leave int64) error
	freeDisk(node int) error
	// freezeDisk makes all writes of a node hang, thawDisk lets them continue.
	freezeDisk(node int) error
	thawDisk(node int) error
	// setClock moves a node's wall clock away from the machine's.
	setClock(node int, offset time.Duration) error

	// verify checks the data of a node that does not run. The error tells the damage.
	verify(ctx context.Context, node int) error
	// folder has all files of a node.
	folder(node int) string
	// check does so with a copy of a node's data, and serve starts a node of its own
	// on it when no other runs. stop ends that node.
	check(ctx context.Context, dir string) error
	serve(ctx context.Context, dir string) (t target, stop func() error, err error)
	// logTail returns the end of what a node has logged, for reports.
	logTail(node int) string
	close() error
}

// abilities of a cluster.
type abilities struct {
	processes bool // start, kill, pause, wrong clocks, a replica
	network   bool
	disk      bool
	hang      bool // disks can
}

// shape is the state of a link in one direction; zero is a good link.
type shape struct {
	cut           bool
	delay, jitter time.Duration
	drop          float64
}

func nodeName(i int) string {
	if i < 0 {
		return "clients"
	}
	return fmt.Sprintf("node %d", i)
}

// given is a cluster that someone else runs. Nothing can be done to it: the rest of the interface
// is nil.
type given struct {
	cluster
	list []target
}

// newGiven takes the addresses of its nodes; they may carry a user and a password.
func newGiven(bases []string) (*given, error) {
	g := &given{}
	for i, b := range bases {
		u, err := url.Parse(b)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("--attach %q is not the address of a node, such as http://127.0.0.1:2113", b)
		}
		g.list = append(g.list, target{name: nodeName(i), base: u.Scheme + "://" + u.Host, index: i, login: u.User})
	}
	return g, nil
}

func (g *given) targets() []target  { return g.list }
func (g *given) voters() int        { return len(g.list) }
func (g *given) can() abilities     { return abilities{} }
func (g *given) healNetwork() error { return nil }
func (g *given) logTail(int) string { return "" }
func (g *given) close() error       { return nil }
