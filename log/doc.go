// Package eventlog is the event log of one node: chunk files of records and
// frames, checkpoint files, the index over them, reads by stream and by
// position, and the notification that the log moved.
//
// It knows bytes and nothing of Raft, HTTP or users. One goroutine appends
// frames whose content others decided; any number of goroutines read, from
// immutable snapshots, and never wait for the writer. DESIGN.md describes every
// file format and what a crash leaves behind.
package eventlog
