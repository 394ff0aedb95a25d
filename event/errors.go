package event

import (
	"errors"
	"fmt"
	"strings"
)

// What a read can find instead of data.
var (
	// never written, soft-deleted, or only metadata
	ErrStreamNotFound = errors.New("stream not found")
	// hard-deleted, or soft-deleted and required to exist
	ErrStreamDeleted = errors.New("stream deleted")
	// no such number, or hidden, expired, gone
	ErrEventNotFound = errors.New("event not found")
	ErrBadPosition   = errors.New("not a position of the log") // no record begins there
)

// What managing users can meet.
var (
	ErrUserNotFound = errors.New("user not found") // never created, or deleted
	// another password than the existing user's, or changed at the same time
	ErrUserConflict = errors.New("user conflict")
)

// What can keep a write from being done. All but ErrOutcomeUnknown and
// ErrWriteTimeout mean that nothing was written.
var (
	// no leader is known, starting or stopping
	ErrNotReady = errors.New("server is not ready")
	// the queue of writes is full
	ErrBusy = errors.New("server is too busy")
	// that there is; a request that is sent again later may be served
	ErrNoRoom = errors.New("requests take all memory for them")
	// one event, or all of a batch together
	ErrTooLarge = errors.New("write is larger than allowed")
	// it may have been written; retry with the same ids
	ErrOutcomeUnknown = errors.New("outcome of the write is unknown")
	// as ErrOutcomeUnknown, after the time allowed
	ErrWriteTimeout = errors.New("write timed out")
	// said in addition to ErrOutcomeUnknown: the leader that got the write gave no answer
	ErrUnanswered = errors.New("the leader did not answer")
	// said in addition to ErrNotReady: none got the write
	ErrNoLeader = errors.New("no leader can be reached")
	// said in addition to ErrNotReady: the leader does not know writes of this kind
	ErrEarlierLeader = errors.New("the leader is of an earlier version, which does not know this write")
	// internal to the write path: decide again
	ErrEntryRefused = errors.New("entry was refused by the fence")
	// nothing was written: what must be looked at for its conditions takes too long
	ErrTooWide  = errors.New("condition is too wide to be judged in time")
	ErrDiskFull = errors.New("disk is nearly full: read-only") // below the reserve
	ErrClosed   = errors.New("closed")                         // the component was closed
	// credentials wrong, or a right is missing
	ErrNotAuthorized = errors.New("not authorized")
	// credentials cannot be checked yet
	ErrNotInitialized = errors.New("users cannot be read at the moment")
)

// What can keep a node's log from catching up with that of another node. None
// of them changes anything.
var (
	// ask a node that is ahead
	ErrBeyondEnd = errors.New("the position lies beyond the end of the log")
	// an OtherHistory tells where
	ErrOtherHistory = errors.New("the logs have different histories")
	// fetch it, then try again
	ErrDataMissing = errors.New("data is missing in the log")
	// damaged, or not in place: ask again
	ErrBadFrames = errors.New("frames are not what a log holds next")
)

// What can keep a job from rewriting chunk files.
var (
	// one at a time
	ErrChunksLocked = errors.New("another job is rewriting chunk files")
	// the job can begin again
	ErrChunkReplaced = errors.New("a chunk file was replaced while it was being rewritten")
	// begin again when the node has caught up
	ErrChunksFetched = errors.New("chunk files are being fetched from another node")
)

// OtherHistory says that a log does not have a frame that ends at a position
// with the chain that the log of another node has there.
type OtherHistory struct {
	Position int64
}

func (e *OtherHistory) Error() string {
	return fmt.Sprintf("the logs have different histories at position %d", e.Position)
}

// Is makes errors.Is(err, ErrOtherHistory) hold.
func (e *OtherHistory) Is(target error) bool { return target == ErrOtherHistory }

// WrongExpectedVersion says that a stream was not at the version a write expected.
type WrongExpectedVersion struct {
	Stream   string
	Expected int64
	Current  int64 // number of the last event, -1 when there is none
}

func (e *WrongExpectedVersion) Error() string {
	return fmt.Sprintf("wrong expected version of stream %q: expected %d, current %d", e.Stream, e.Expected, e.Current)
}

// Violations are all the reasons why an AppendMany was refused.
type Violations struct {
	Checks     []Violation
	Conditions []Conflict
	// what was decided on: everything that lies at it or before
	Position int64
}

// Conflict is a condition that does not hold: the event with the lowest position that it is about.
type Conflict struct {
	Index int // of the condition
	Event Hit
}

// Violation is a check that does not hold. Of a written stream that has no check, Expected is
// AnyVersion and Index len(Many.Checks) plus its place among those without one.
type Violation struct {
	Index    int
	Stream   string
	Expected int64
	Actual   int64 // number of the last event, NoStream, SoftDeleted or Tombstoned
	Last     int64 // number of the last event where Actual is SoftDeleted
}

func (v *Violations) Error() string {
	var b strings.Builder
	b.WriteString("Append failed due to consistency violations.")
	for _, c := range v.Checks {
		fmt.Fprintf(&b, "\nStream '%s': expected %s, actual %s.", c.Stream, VersionText(c.Expected), VersionText(c.Actual))
	}
	for _, c := range v.Conditions {
		fmt.Fprintf(&b, "\nCondition %d: the event at position %d matches.", c.Index, c.Event.Position)
	}
	return b.String()
}

// NotLeader says that another node must be asked.
type NotLeader struct {
	Address string // the leader's address for clients, scheme://host:port
	// this node never does writes, so that clients must not think of it as one that would
	ReadOnly bool
}

func (e *NotLeader) Error() string { return "not the leader, which is at " + e.Address }

// Corruption says that stored bytes are not what was written.
type Corruption struct {
	File   string
	Offset int64 // in the file, -1 when unknown
	Detail string
}

func (e *Corruption) Error() string {
	return fmt.Sprintf("corruption in %s at offset %d: %s", e.File, e.Offset, e.Detail)
}

// IsCorruption reports whether err is or wraps a Corruption.
func IsCorruption(err error) bool {
	var c *Corruption
	return errors.As(err, &c)
}

// CannotDecide says that a write depends on stored data that are damaged on this node. Nothing was
// written.
type CannotDecide struct{ Err error }

func (e *CannotDecide) Error() string { return "the write cannot be decided: " + e.Err.Error() }

func (e *CannotDecide) Unwrap() error { return e.Err }

// Renumbered says that the number of an event does not follow the events that a node has of its
// stream.
type Renumbered struct {
	Stream   string
	Number   int64
	Before   int64 // number of the event that the node has as the last one before, -1: none
	Position int64
}

func (e *Renumbered) Error() string {
	return fmt.Sprintf("event %d of stream %q at position %d does not follow event %d, which is the last before it on this node: nodes answer differently",
		e.Number, e.Stream, e.Position, e.Before)
}

// NamesNotListed says that the names of streams are still being collected from the log.
type NamesNotListed struct {
	Done, Total int64 // bytes of log
}

func (e *NamesNotListed) Error() string {
	return fmt.Sprintf("the names of streams are being collected: %d of %d bytes of log are done", e.Done, e.Total)
}

// ErrNoNames says that the list of categories and types could not be opened.
var ErrNoNames = errors.New("the names of categories and types cannot be listed until the next start")

// ErrIndexBuilding refuses to build the index again while it is being built.
var ErrIndexBuilding = errors.New("the index is being built already")

// IndexBuilding says that the index of categories, types and tags is still being built.
type IndexBuilding struct {
	Done, Total int64 // bytes of log
}

func (e *IndexBuilding) Error() string {
	return fmt.Sprintf("The index is being built: %d of %d bytes of log", e.Done, e.Total)
}
