package replication

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/hang"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/replication/pipeline"
	"github.com/annalsdb/annals/replication/raftdisk"
	"github.com/annalsdb/annals/stats"
)

// Options of a Replica. FSM, Decider and Log must be given, and Dir unless
// InMemory is set; what else is zero gets a default.
type Options struct {
	// Memory is made when InMemory is set, and Address is that of the Transport, if there is one
	raftdisk.Options

	// keep nothing on disk; copies of the options share the memory that EnsureDefaults makes
	InMemory bool

	// FSM applies entries. Its answer to an entry that its fence refuses is an error for which
	// errors.Is(err, event.ErrEntryRefused) holds; its answer to an appended entry is nil; any
	// other answer ends the node. Persist writes JSON with the tail of the log and its complete
	// chunks. It gets batches only.
	FSM     raft.BatchingFSM
	Decider pipeline.Decider

	// Transport connects the nodes. The default connects this node to no other. Close closes it if
	// it has a method Close.
	Transport raft.Transport

	// Priority biases elections: a node that knows of a voter with a higher one stands before it.
	// The function returns whether there is one; default: none.
	Outranked func() bool

	// LeastVoters is how many voters there must be for anything to be answered: a majority
	// of those that the cluster is to have. Default: 1.
	LeastVoters int

	// Called when a snapshot was received whose data this node does not have. It must not block.
	Behind func()

	// Awaited returns the index of the first entry that another node, which is alive
	// and catching up, still has to get from a leader; 0: there is no such node.
	Awaited func() uint64

	// LeaderAddress returns the address for clients, scheme://host:port, of the
	// leader with the given node id; empty when not known.
	LeaderAddress func(node string) string

	// NodeAddress returns where other nodes reach the node with the given id; empty when not known.
	// Lines of the log name nodes by it.
	NodeAddress func(node string) string
	// Stopping reports that the node is about to end: its log is quieter then.
	Stopping func() bool

	// OnFatal is called with the first error after which the node must stop: a failed write or sync
	// of consensus state, or a state machine that failed. The error names the file. It is called on
	// the goroutine that met the error, before that returns anything, and should end the process.
	// It must not wait for Close. The default panics.
	OnFatal func(error)

	// OnFlush, when given, is called with how long it took to store entries in the Raft log,
	// with its sync. It must not block.
	OnFlush func(took time.Duration)

	// Disk watches operations on the disk that hang. What writes elsewhere for the same
	// node shares it. Default: one for the consensus state.
	Disk *hang.Watch

	Logger hclog.Logger    // default: none
	Stats  *stats.Registry // where the metrics are registered; default: nowhere

	// several voters: without a leader for so long, a node stands for election; default 1 s
	ElectionTimeout time.Duration
	// the same for an only voter, which waits for no other; default 50 ms
	LoneElectionTimeout time.Duration
	DrainTimeout        time.Duration // Close waits so long for the entry in flight; default 5 s
	CloseTimeout        time.Duration // Close gives up after so long; default 20 s

	QueueRequests int   // requests not yet answered; default 8192
	QueueBytes    int64 // of their data; default 64 MiB

	SnapshotBytes   int64  // a snapshot is written after so many bytes of entries, default 64 MiB,
	SnapshotEntries uint64 // or so many entries, default 2,048

	// Those that another node needs to catch up are kept as well: until so many bytes
	// were stored meanwhile, default 1 GiB, and as long as that node gets on: it may stand still
	// for HoldTime, default 30 s, negative: nothing is kept for it. EraseLog
	// waits for it that long.
	HoldBytes int64
	HoldTime  time.Duration
}

// EnsureDefaults replaces zero values by defaults.
func (o *Options) EnsureDefaults() {
	o.ElectionTimeout = cmp.Or(o.ElectionTimeout, time.Second)
	o.LoneElectionTimeout = cmp.Or(o.LoneElectionTimeout, 50*time.Millisecond)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, 5*time.Second)
	o.CloseTimeout = cmp.Or(o.CloseTimeout, 20*time.Second)
	o.HoldTime = cmp.Or(o.HoldTime, 30*time.Second)
	if o.InMemory && o.Memory == nil {
		o.Files, o.Memory = vfs.NewMem(), raft.NewInmemStore()
	}
	o.Files = cmp.Or(o.Files, vfs.OS)
	o.LogStore = cmp.Or(o.LogStore, raftdisk.BoltDB)
	o.Logger = cmp.Or(o.Logger, hclog.NewNullLogger())
	o.Disk = cmp.Or(o.Disk, new(hang.Watch))
	if o.OnFatal == nil {
		o.OnFatal = func(err error) { panic(err) }
	}
	if o.Outranked == nil {
		o.Outranked = func() bool { return false }
	}
	if o.Behind == nil {
		o.Behind = func() {}
	}
	if o.Awaited == nil {
		o.Awaited = func() uint64 { return 0 }
	}
	if o.LeaderAddress == nil {
		o.LeaderAddress = func(string) string { return "" }
	}
	if o.NodeAddress == nil {
		o.NodeAddress = func(string) string { return "" }
	}
	if o.Stopping == nil {
		o.Stopping = func() bool { return false }
	}
	trailing := 16384
	if o.LogStore == raftdisk.BoltDB {
		trailing = 1024
	}
	o.SnapshotBytes = cmp.Or(o.SnapshotBytes, 64<<20)
	o.SnapshotEntries = cmp.Or(o.SnapshotEntries, 2048)
	o.TrailingEntries = cmp.Or(o.TrailingEntries, trailing)
	o.HoldBytes = cmp.Or(o.HoldBytes, 1<<30)
}

// Validate reports what cannot work.
func (o *Options) Validate() error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(o.FSM == nil || o.Decider == nil || o.Log == nil, "FSM, Decider and Log must be given")
	bad(o.Dir == "" && !o.InMemory, "Dir must be given unless InMemory is set")
	bad(!o.InMemory && (o.ClusterID.IsZero() || o.DirectoryID.IsZero()), "ClusterID and DirectoryID must be given")
	bad(o.LogStore != raftdisk.BoltDB && o.LogStore != raftdisk.Wal, "LogStore %q: must be %s or %s", o.LogStore, raftdisk.BoltDB, raftdisk.Wal)
	bad(o.ElectionTimeout < 10*time.Millisecond || o.LoneElectionTimeout < 10*time.Millisecond,
		"election timeouts must be 10ms at least")
	bad(o.DrainTimeout < 0 || o.CloseTimeout < 0, "timeouts must not be negative")
	bad(o.QueueRequests < 0 || o.QueueBytes < 0, "bounds of the queue must not be negative")
	bad(o.SnapshotBytes < 1 || o.TrailingEntries < 1 || o.HoldBytes < 1, "bounds of snapshots must be positive")
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("replication options: %w", err)
	}
	return nil
}

// disk is what consensus state is opened or made with.
func (o *Options) disk() *raftdisk.Options {
	d := o.Options
	if o.Transport != nil {
		d.Address = o.Transport.LocalAddr()
	}
	return &d
}
