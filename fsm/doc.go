// Package fsm is the Raft state machine of the event log and the leader's
// decider in front of it.
//
// The decider turns writes into the bytes of an entry: it checks expected versions, recognises
// retried writes, numbers events and gives them a time and a position. The machine appends those
// bytes on every node, if they pass a fence: an entry is appended if and only if the log has the
// end and the history that the decider saw. DESIGN.md says why.
package fsm
