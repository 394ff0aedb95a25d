// Package bootstrap decides how nodes without any state become one cluster: which node creates it,
// and which nodes wait to join it. It never creates two from one set of nodes, whatever messages
// are lost, which nodes crash when, and however wrong the nodes see each other meanwhile.
//
// One node proposes a cluster to an exact set of nodes, each of these durably
// promises itself to that one, and the proposer that holds all promises creates
// the cluster alone and adds the others. A promise ends only by the proposer's
// own word. DESIGN.md has the rules, the argument, and what can get stuck.
//
// The rules are a state machine without clock, disk or network (core). An
// Engine drives it with real ones; the tests drive it through simulated ones.
package bootstrap
