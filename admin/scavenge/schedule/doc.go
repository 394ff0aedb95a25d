// Package schedule scavenges the whole cluster by the clock, one node at a time.
//
// A schedule is a cron expression. At each of its due times a round begins, in
// which every node of the cluster that has a schedule takes one turn: followers
// and read-only replicas first, the leader last and after it handed leadership
// over. A turn is one scavenge of that node.
//
// The leader says whose turn it is. It asks all nodes time and again how far they are, decides its
// next step from that and from the record that it keeps in the stream $scavengeSchedule, and stores
// the record before the step has an effect: the next leader continues from there. The decision is
// pure. DESIGN.md has the rules and why they are so.
package schedule
