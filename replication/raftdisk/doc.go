// Package raftdisk is raft's storage on one node: votes and term, the Raft log, snapshots, and the
// node's identity. All of it is made once and together, in the folder raft of a data directory:
//
//	raft/identity    the node's ids, and the creation id that all parts share
//	raft/stable.db   votes and the current term, bbolt
//	raft/log.db      the Raft log as a bbolt file,
//	raft/segments/   or as segment files
//	raft/snapshots/  snapshots: what the event log holds up to an entry
//	raft/bootstrap, raft/joining, raft/pulled   the promise and the marks of a node
//
// The first write or sync that fails stops the node. Before raft starts, State.CheckStart compares
// these parts with each other and with the event log.
package raftdisk
