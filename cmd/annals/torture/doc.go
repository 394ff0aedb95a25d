// Package torture breaks a cluster on purpose and proves what it did with the data.
//
// A round starts a cluster in a laboratory (or takes a given one), lets clients
// write and read over HTTP, and meanwhile kills, freezes, wipes and separates its
// nodes by a schedule that follows from a seed. Clients write down every operation
// with the moments of its beginning and end. When the faults are over the cluster
// must heal within a bound; then everything is read back from every node and held
// against what the clients know.
//
// Three books are kept. The history has the operations of each client. The ledger
// is the part of it that says what was acknowledged. The book of the log has the
// one order of events as the readers saw it: the first that reads a place defines
// it, all later ones must see the same. A node that ever shows something
// that is not in the final order is caught by that, at whatever time and place.
//
// Groups of competing consumers have a book as well: every message that a
// consumer was given and every answer it gave. Checkpoints and parked messages are
// events, so the log tells what became of the rest. What a group does lives in the
// memory of the leader, and much of it may come again after a fault; the check
// claims only what no fault can excuse.
//
// An operator starts and stops scavenges on all nodes meanwhile. Events that limits
// and deletions hide may be gone here and not there, so the log is counted without
// the events of all streams that can lose some; those have a book of their own, in
// which an event keeps its place between the ones that stay. Clients that limit their
// streams know what may be gone and what must be. In the end every node is scavenged
// up to one point: then nothing may differ, each limited stream has left what its
// limits leave, and every node is asked as the leader for decisions about what is gone.
//
// A projection copies the events of some streams to another and counts them, and the
// system's own links the events of the run's category. An operator stops them and lets
// them go on. In the end both hold each event once, in the order of the log.
//
// An operator copies the database of a node every few seconds. In the end a node is
// started on some of the copies, and shows the log up to the copy's end.
//
// An administrator has the data of single events blanked on some nodes. In the end
// these data are in no file of theirs.
//
// Event ids name the operation that wrote the event, and the data of an event
// follows from its id, so a reader can tell what belongs where without asking.
package torture
