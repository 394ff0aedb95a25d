// Package fsm is the Raft state machine of the event log and the leader's
// decider in front of it.
//
// The decider turns writes into the bytes of an entry: it checks expected
// versions, recognises retried writes, numbers events and gives them a time and
// a position. The machine appends those bytes on every node behind a fence: an
// entry goes in if and only if the log ends where, and with the history, that
// the decider saw. DESIGN.md tells why.
package fsm
