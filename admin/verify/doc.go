// Package verify checks a data folder: that the log and the index are what was
// written, and agree with each other. It changes nothing in it.
//
// A folder that was scavenged is judged by what a scavenge may do: it removes the first events of a
// stream and their entries, also entries whose records stay, and never the newest event, the newest
// metadata or the tombstone. Anything else that is missing is a problem.
//
// What the bytes mean is known to package eventlog. This package runs its
// inspection as a job with an id, progress and cancellation, and collects a
// bounded report.
package verify
