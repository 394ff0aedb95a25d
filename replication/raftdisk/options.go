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
	Files    vfs.FS // where the folder raft lies; bbolt goes past it
	Dir      string // the data directory; everything lies in its folder raft
	LogStore LogStore

	// Memory holds votes and the Raft log in place of files, when Files is in memory too.
	Memory *raft.InmemStore

	ClusterID   event.ID // of the event log in Dir
	DirectoryID event.ID // of the data directory
	Log         Log

	Node    event.ID           // of a node whose state is made now; default: a new one
	Joining bool               // state that is made now is of a node that others are to admit
	Lineage event.ID           // of a node whose state is made now
	Address raft.ServerAddress // where the other nodes reach this one; default: its id

	TrailingEntries int // so many sizes of entries are remembered
}
