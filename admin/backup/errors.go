package backup

import "errors"

// What a source can answer instead of data.
var (
	// ErrSessionGone says that there is no such session: it was ended, no client read from it for
	// long, or it never existed. An Ended is one.
	ErrSessionGone     = errors.New("no such backup session")
	ErrNoSuchFile      = errors.New("no such file in the backup session")
	ErrTooManySessions = errors.New("too many backup sessions")
	ErrInMemory        = errors.New("a database in memory cannot be backed up")
	// try again soon
	ErrSuspended = errors.New("no backup can begin while events are redacted")
)

// Ended says that the node ended a session before its owner did. The backup has to begin again.
type Ended struct {
	Reason string
}

// Why a node ends sessions.
const (
	EndedByRedaction = "The backup was ended by a redaction, begin it again"
	EndedByFullDisk  = "The backup was ended because the disk is nearly full, begin it again when there is space"
)

func (e *Ended) Error() string { return e.Reason }

// Is makes errors.Is(err, ErrSessionGone) hold.
func (e *Ended) Is(target error) bool { return target == ErrSessionGone }
