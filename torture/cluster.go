package torture

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/annalsdb/annals/internal/vfs"
)

// ClientSide is the side of the clients, as an end of a link.
const ClientSide = -1

// Former is the number of the machine that a node had before it moved. Only Start, Kill, Terminate,
// Running and Certify take it.
const Former = -2

// Cluster is the cluster under test. Nodes are numbered from 0; the voters come first, and one more
// node may follow, a read-only replica. Tests put a fake in its place.
type Cluster interface {
	// Targets lists the nodes that clients may talk to.
	Targets() []Target
	// Voters is the number of nodes that the cluster was made of, and of one more after Grow.
	Voters() int
	// Grow makes the node after the voters one of them, or the last one such a node again. It has
	// the other role from its next start on; the cluster learns of it from the caller.
	Grow(more bool)
	// Can says which faults are possible.
	Can() Abilities

	// Certificates are those of nodes that have TLS and users, nil with neither.
	Certificates() *Certificates
	// Certify puts files with a new certificate in place of those of a node. A node that runs reads
	// them when it is asked to.
	Certify(node int, t Trust) (serial string, err error)

	// Start starts a node, without effect on one that runs. It does not wait for it to serve.
	Start(ctx context.Context, node int) error
	// Kill ends a node at once, Terminate asks it to end and waits. Both are
	// without effect on a node that does not run.
	Kill(node int) error
	Terminate(ctx context.Context, node int) error
	Pause(node int) error
	Resume(node int) error
	Running(node int) bool
	// Move gives a node another machine, at another address, with an empty disk. What runs on the
	// old one continues, as Former, until the next move.
	Move(node int) error
	// Wipe removes the data of a node that does not run, or only its consensus state.
	Wipe(node int, onlyRaft bool) error

	// Shape sets what happens to packets from one node (or the client side) to another.
	Shape(from, to int, s Shape) error
	// Reset breaks a share of a node's connections, and returns how many.
	Reset(node int, share float64) (int, error)
	// HealNetwork undoes every shape.
	HealNetwork() error
	// FillDisk leaves so many bytes free on a node's disk, FreeDisk gives them back.
	FillDisk(node int, leave int64) error
	FreeDisk(node int) error
	// FreezeDisk makes all writes of a node hang, ThawDisk lets them continue.
	FreezeDisk(node int) error
	ThawDisk(node int) error
	// BreakDisk has a share of what a node does with its disk fail, 0 for nothing.
	BreakDisk(node int, share float64) error
	// SetClock moves a node's wall clock away from the machine's.
	SetClock(node int, offset time.Duration) error

	// Verify checks the data of a node that does not run. The error tells the damage.
	Verify(ctx context.Context, node int) error
	// Disk has all files of a node in a folder, and that of ClientSide is the clients' own.
	Disk(node int) (files vfs.FS, folder string)
	// Check does so with a copy of a node's data, and Serve starts a node of its own
	// on it when no other runs. stop ends that node.
	Check(ctx context.Context, dir string) error
	Serve(ctx context.Context, dir string) (t Target, stop func() error, err error)
	// LogTail returns the end of what a node has logged, for reports.
	LogTail(node int) string
	Close() error
}

// Abilities of a cluster.
type Abilities struct {
	Processes bool // start, kill, pause, wrong clocks, a replica
	Network   bool
	Disk      bool
	Hang      bool // disks can
	Errors    bool // of disks
	Resets    bool // of connections
	Power     bool // it fails in the midst of changes of files
}

// Shape is the state of a link in one direction; zero is a good link.
type Shape struct {
	Cut           bool
	Delay, Jitter time.Duration
	Drop          float64
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
	Cluster
	list []Target
}

// newGiven takes the addresses of its nodes; they may carry a user and a password.
func newGiven(bases []string) (*given, error) {
	g := &given{}
	for i, b := range bases {
		u, err := url.Parse(b)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("--attach %q is not the address of a node, such as http://127.0.0.1:2113", b)
		}
		g.list = append(g.list, Target{Name: nodeName(i), Base: u.Scheme + "://" + u.Host, Index: i, Login: u.User})
	}
	return g, nil
}

func (g *given) Targets() []Target           { return g.list }
func (g *given) Voters() int                 { return len(g.list) }
func (g *given) Can() Abilities              { return Abilities{} }
func (g *given) Certificates() *Certificates { return nil }
func (g *given) HealNetwork() error          { return nil }
func (g *given) LogTail(int) string          { return "" }
func (g *given) Close() error                { return nil }
