// Package integration holds the black-box tests: they start the built binary on
// real sockets and folders, kill it, restart it and look at what clients see.
//
// Clusters run on the hosts of an emulated network (package lab), whose links,
// disks and processes are broken while clients write. Without the rights for that
// hosts are loopback addresses, and what needs more is skipped.
//
// Random tests print their seed; ANNALS_SEED repeats it. ANNALS_KILL_CYCLES sets
// how often the node is killed for each of its variants, ANNALS_BOOTSTRAP_ORDERS
// in how many random orders the nodes of a cluster are started.
package integration
