// Package simulation runs whole clusters of nodes in one process and in virtual time: nodes as they
// are, over disks and a network in memory, with the clients, faults and judges of package torture.
// A seed decides on sizes, clients and faults. DESIGN.md says what is real and which parts are
// imitated.
package simulation
