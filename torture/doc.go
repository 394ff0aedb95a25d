// Package torture breaks a cluster on purpose and proves what it did with the data.
//
// A round starts a cluster in a laboratory (or takes a given one), lets clients write and read over
// HTTP, and meanwhile kills, freezes, wipes and separates its nodes by a schedule that follows from
// a seed. Clients write down every operation with the times of its begin and end. When the faults
// are over the cluster must heal within a bound; then everything is read back from every node and
// compared with what the clients know. Three books are kept. The history has the operations of each
// client. The ledger is the part of it that says what was acknowledged. The book of the log has the
// one order of events as the readers saw it: the first reader of a place defines it, all later
// readers must see the same. This catches a node that at any time shows an event that is not in the
// final order. Groups of competing consumers have a book as well: every message that a consumer was
// given and every answer it gave. Checkpoints and parked messages are events, so the log shows
// them. The rest of a group's state is in the memory of the leader, and many messages may come
// again after a fault; the check reports only violations that no fault can excuse. An operator
// starts and stops scavenges on all nodes meanwhile. Events that limits and deletions hide may be
// removed from one node and not from another. So the log is counted without the events of all
// streams that can lose some. Those have a book of their own, in which an event keeps its place
// between the events that stay. Clients that limit their streams know which events may be gone and
// which must be. In the end every node is scavenged up to one point: then nothing may differ, each
// limited stream has exactly the events that its limits leave, and every node is asked as the
// leader for decisions about removed events. A projection copies the events of some streams to
// another and counts them, and a system projection links the events of the run's category. An
// operator stops and enables them. In the end both hold each event once, in the order of the log.
//
// Some clients move money between accounts, each time in one write to several streams, with checks
// on these and others, by all interfaces that do so. How much an event moves follows from its id.
// The money of all accounts is the same at each place of the log.
// Deciders read by queries on any node, by HTTP and by gRPC, and write under the condition that
// nothing came which they have not read: they take seats and names, spend budgets, and choose
// courses, next to clients that write without asking. Each tag has a bound that holds at each place
// of the log, and each success and refusal is what the log before its position demands.
// Other clients follow indexes and queries over all nodes; in the end these hold just the events of
// the log.
//
// An operator copies the database of a node every few seconds. In the end a node is started on some
// of the copies, and shows the log up to the copy's end. An administrator blanks the data of single
// events on some nodes. In the end these data are in none of their files.
//
// Event ids name the operation that wrote the event, and the data of an event follows from its id,
// so a reader knows without asking which event belongs where.
package torture
