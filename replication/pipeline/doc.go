// Package pipeline is the leader's write path: it turns clients' writes into Raft entries and
// answers them once an entry is applied. Many writes share an entry, and one entry is in flight at
// a time.
//
// It sees raft through a few functions, so that it runs without it, and knows neither the event log
// nor the rules of deciding: these are a Decider. outcome.go handles writes whose entry raft gives
// back.
package pipeline
