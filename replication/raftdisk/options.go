package raftdisk

import (
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
)

// Log is what consensus state needs to know of the event log.
type Log interface {
	// Tail describes the end of the log: what is applied and readable.
	Tail() event.Tail
	// ChainAt returns the chain of the log at a position where a frame ends, and
	// whether one ends there. An error says that this cannot be read.
	ChainAt(position int64) (chain event.Chain, ok bool, err error)
}

// Options say where consensus state lies and what it is made with.
type Options struct {
	Dir string // the data directory; everything lies in its folder raft
	// where that folder lies; default: the operating system, or memory. If it is the operating
	// system bbolt shares only its patience
	Files    vfs.FS
	LogStore LogStore // kind of Raft log; default BoltDB

	// Memory holds votes and the Raft log in place of files, when Files is in memory too.
	Memory *raft.InmemStore

	ClusterID   event.ID // of the event log in Dir; raft/ belongs to one cluster
	DirectoryID event.ID // of the data directory; raft/ belongs to one directory
	Log         Log

	// Node is the id of a node whose consensus state is made now; default: a new
	// one. Existing state keeps its own.
	Node event.ID

	// Others are the nodes that are about to join the cluster which this one founds.
	Others int

	// Joining says that consensus state which is made now belongs to a node that
	// others are to admit to their cluster. By default the node is the only voter of a cluster.
	Joining bool

	// The cluster incarnation of a node whose consensus state is made now. A node that continues
	// from a copy alone gets a new one.
	Incarnation event.ID

	// Address is where the other nodes reach a node whose consensus state is made now; default: its
	// id.
	Address raft.ServerAddress

	// TrailingEntries bounds the entries that a snapshot covers and that are kept all the same;
	// default 16,384, with BoltDB, which slows down as they grow, 1,024. So many sizes of entries
	// are remembered.
	TrailingEntries int
}
