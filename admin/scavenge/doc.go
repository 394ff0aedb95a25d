// Package scavenge frees space on one node, and physically removes what deletion
// and metadata hide, while the node serves.
//
// A run works for a scavenge point: an event in the stream $scavengePoints that the leader has
// written and every node has applied, and which completed the chunk it is in. Its position says
// which records are concerned, its time what is too old. So what a run removes follows from the log
// alone, and two nodes that scavenge for the same point remove the same events, whenever they do. A
// database next to the index (package state) keeps what is known during a run and between runs. It
// describes the files of this node and nothing else. A run that was stopped, or ended with the
// process, is resumed by the next one.
//
// DESIGN.md has the phases, the rules of what is removed, and what a crash leaves.
package scavenge
