// Package eventlog is the event log of one node: chunk files of records and frames, checkpoint
// files, the index over them, reads by stream and by position, and the notification that the log
// moved.
//
// It knows bytes, but nothing of Raft, HTTP or users. One goroutine appends frames; their content
// is decided elsewhere. Any number of goroutines read from immutable snapshots, and never wait for
// the writer. DESIGN.md describes every file format and what a crash leaves.
package eventlog
