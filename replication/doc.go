// Package replication puts hashicorp/raft under the event log: it keeps a
// node's consensus state on disk, starts and stops raft, and runs the leader's
// write path in front of it.
//
// It knows neither the event log nor the state machine. Both are given to it:
// the state machine as a raft.FSM, the rules of deciding as a pipeline.Decider, the log
// as an interface of two methods that is asked where the log ends.
//
// DESIGN.md says how they are made and what a crash leaves.
package replication
