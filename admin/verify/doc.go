// Package verify checks a data folder: that the log and the index are what was
// written, and agree with each other. It changes nothing in it.
//
// What the bytes mean is known to package eventlog. This package runs its
// inspection as a job with an id, progress and cancellation, and collects a
// bounded report.
package verify
