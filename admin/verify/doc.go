// Package verify checks a data folder: the log and the index must have the bytes that were written,
// and must agree with each other. It changes nothing in it.
//
// A folder that was scavenged is judged by what a scavenge may do: it removes the first events of a
// stream and their entries, also entries whose records stay, and never the newest event, the newest
// metadata or the tombstone. Anything else that is missing is a problem. Package eventlog knows
// what the bytes mean. This package runs its inspection as a job with an id, progress and
// cancellation, and collects a bounded report.
package verify
