package wire

import "github.com/hashicorp/raft"

// byID puts the sender's id into a message where raft reads an address. raft uses those bytes to
// recognize the candidate that got its vote in a term, and to see whether a candidate is the leader
// itself. A node that took over another's address is not that node: it has neither its vote nor its
// leadership.
//
// Outgoing messages carry the address, as in all versions: the other node compares it with what
// gossip knows (RaftOptions.Candidate), and does the same as this one.
func byID(command any) {
	var header *raft.RPCHeader
	switch m := command.(type) {
	case *raft.AppendEntriesRequest:
		header = &m.RPCHeader
	case *raft.RequestVoteRequest:
		header = &m.RPCHeader
	case *raft.RequestPreVoteRequest:
		header = &m.RPCHeader
	case *raft.InstallSnapshotRequest:
		header = &m.RPCHeader
	default:
		return
	}
	if len(header.ID) > 0 {
		header.Addr = header.ID
	}
}
