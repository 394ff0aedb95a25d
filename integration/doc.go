// Package integration holds the black-box tests: they start the built binary on
// real sockets and folders, kill it, restart it and look at what clients see.
//
// Random tests print their seed; ANNALS_SEED repeats it. ANNALS_KILL_CYCLES sets
// how often the node is killed for each of its variants.
package integration
