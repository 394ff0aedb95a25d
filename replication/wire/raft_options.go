package wire

import (
	"cmp"
	"context"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// RaftOptions are those of a Raft. The zero value works.
type RaftOptions struct {
	// Address returns the host:port of a node as it is known at this moment;
	// default, and for nodes not known: the address in raft's configuration.
	Address func(id raft.ServerID) (string, bool)

	Timeout time.Duration // for a message and its answer; default 10 s
	// for the answer to a heartbeat or a vote, and half of what connecting may take; default:
	// Timeout
	Patience time.Duration
	// messages of a pipeline that wait for their answers; default 16, 1: no pipelines
	MaxInFlight int
	MaxRPCBytes int // of entries in one message, or a single larger entry; default 16 MiB

	// Append is called with every message of entries before raft is, and may change
	// it. It must not block. Default: nothing is done.
	Append func(*raft.AppendEntriesRequest)

	// InTerm runs a function if this node's term, as raft stored it, is the given one, and has raft
	// come to no other meanwhile. It reports whether it did. Default: it never does.
	InTerm func(term uint64, do func()) bool

	// Silent returns why this node must neither send messages nor answer any; nil while it
	// need not be silent. Other nodes get the reason. Default: it never must.
	Silent func() error

	// Candidate says whether a node that stands for election may be one, at the address that it
	// says it is reached at. It must not block. Default: all may.
	Candidate func(node, address string) error

	// Prepare is called with every snapshot that another node wants to install, before raft is
	// asked. The snapshot is handed to raft when it returns nil; else the other node gets the error
	// and raft never hears of it. It must return when its context is over: when a newer snapshot
	// came, the time is up, or Raft is closed. It is never called twice at a time, must not change
	// its bytes, and holds up nothing else. Default: everything is handed to raft at once.
	Prepare        func(ctx context.Context, index, term uint64, content []byte) error
	PrepareTimeout time.Duration // default 8 s
	MaxSnapshot    int64         // in bytes; default 64 MiB

	// Holds is asked when raft has refused a snapshot, and reports whether this node has all
	// entries that the snapshot covers. The answer says then that it was installed: the other node
	// would send the same one for ever, if the answers to what it sent before were lost and it has
	// removed the entries since. Default: it does not.
	Holds func(index, term uint64) bool

	Logger hclog.Logger // default: the port's
}

// EnsureDefaults replaces zero values by defaults.
func (o *RaftOptions) EnsureDefaults() {
	if o.Address == nil {
		o.Address = func(raft.ServerID) (string, bool) { return "", false }
	}
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.Patience = cmp.Or(o.Patience, o.Timeout)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, 16)
	o.MaxRPCBytes = cmp.Or(o.MaxRPCBytes, 16<<20)
	o.PrepareTimeout = cmp.Or(o.PrepareTimeout, 8*time.Second)
	o.MaxSnapshot = cmp.Or(o.MaxSnapshot, 64<<20)
	if o.InTerm == nil {
		o.InTerm = func(uint64, func()) bool { return false }
	}
	if o.Silent == nil {
		o.Silent = func() error { return nil }
	}
	if o.Holds == nil {
		o.Holds = func(uint64, uint64) bool { return false }
	}
	if o.Prepare == nil {
		o.Prepare = func(context.Context, uint64, uint64, []byte) error { return nil }
	}
}
