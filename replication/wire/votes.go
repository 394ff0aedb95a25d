package wire

import "github.com/hashicorp/raft"

// byID has a message name its sender by the id where raft reads an address. raft knows by those
// bytes whom it gave its vote in a term, and whether a candidate is the leader itself. A node that
// took over another's address is not that node: it has neither its vote nor its leadership.
//
// What goes out bears the address, as in all versions: the other node compares it with what gossip
// knows (RaftOptions.Candidate), and does the same as this one.
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
