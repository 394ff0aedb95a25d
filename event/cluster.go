package event

import "time"

// NodeState is the state of a node, spelled as gossip shows it; /info shows it in lower case.
type NodeState string

// States of a node.
const (
	StateInitializing NodeState = "Initializing" // opening its files
	// looking for the other nodes, or for who leads
	StateDiscoverLeader NodeState = "DiscoverLeader"
	StateUnknown        NodeState = "Unknown"    // knows no leader
	StatePreReplica     NodeState = "PreReplica" // asking the leader to be admitted
	StateCatchingUp     NodeState = "CatchingUp" // fetching what it lacks
	// has everything and no vote: the cluster has its voters
	StateClone    NodeState = "Clone"
	StateFollower NodeState = "Follower" //
	// elected, applying what was committed before
	StatePreLeader    NodeState = "PreLeader"
	StateLeader       NodeState = "Leader"       //
	StateShuttingDown NodeState = "ShuttingDown" //
	StateShutdown     NodeState = "Shutdown"     //
	// a read-only replica that knows no leader
	StateReadOnlyLeaderless NodeState = "ReadOnlyLeaderless"
	// a read-only replica that is catching up
	StatePreReadOnlyReplica NodeState = "PreReadOnlyReplica"
	StateReadOnlyReplica    NodeState = "ReadOnlyReplica" //
	// finishing writes before another node leads
	StateResigningLeader NodeState = "ResigningLeader"
	// known to clients; no node of ours is ever in it
	StateManager NodeState = "Manager"
)

// Member is one node of the cluster as another node knows it. Positions are
// -1 and the epoch is zero as long as they are not known.
type Member struct {
	Node     ID
	Time     time.Time // when this was true
	State    NodeState
	Alive    bool
	ReadOnly bool // a read-only replica
	Voter    bool // counts in the quorum
	Priority int
	Version  string

	ReplicationHost   string // where other nodes reach it
	ReplicationPort   int
	ReplicationSecure bool // with TLS
	HTTPHost          string
	HTTPPort          int

	LastCommit    int64 // position of the last applied record
	Writer        int64 // end of the log
	Chaser        int64 // applied and indexed up to here
	EpochPosition int64 // of the term's first record
	EpochNumber   int64 // the term
	EpochID       ID    // made of cluster id and term
}

// ClusterView is the cluster as one node sees it.
type ClusterView struct {
	Node       ID // whose view it is
	Members    []Member
	ServerHost string // where clients reach this node
	ServerPort int
}
