// Package schedule scavenges the whole cluster by the clock, one node at a time.
//
// A Schedule is a cron expression. At each of its due times a round begins, in
// which every node of the cluster that has a schedule takes one turn: followers
// and read-only replicas first and in any order, the leader last and after it
// handed leadership over. A turn is one scavenge of that node.
//
// The nodes do not talk to each other. What was done and whose turn it is stands
// in the stream $scavengeSchedule, and a node that is to change that appends an
// event with the number of the last one that it has seen: of two nodes that want
// the same turn one gets it. Every node runs a Scheduler, which folds the stream
// into a small state, decides its own next step from that state and from who is
// alive, takes that step, and begins again. The fold and the decision are pure.
// DESIGN.md has the events, the rules and why they are so.
package schedule
