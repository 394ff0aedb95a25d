// Package problem has the one table from errors to the status and the text of an answer.
package problem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/backup/manager"
	"github.com/annalsdb/annals/admin/redact"
	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection"
	"github.com/annalsdb/annals/subscription"
)

// Problem is an answer that is not a success: a status and its text, which
// stands in the body as text/plain and, on HTTP/1.1, in the status line. HTTP/2 has no
// such line, so that every failure has the body.
type Problem struct {
	Status int
	Text   string
	Silent bool   // the text stands in the status line only: it is not a failure
	Phrase string // stands in the status line, where that is not the text
}

func (p *Problem) Error() string { return p.Text }

// New returns a failure.
func New(status int, text string) *Problem { return &Problem{Status: status, Text: text} }

func silence(status int, text string) *Problem {
	return &Problem{Status: status, Text: text, Silent: true}
}

// Bad returns what is wrong with a request.
func Bad(text string) error { return New(http.StatusBadRequest, text) }

const (
	textNotFound = "Not Found"
	TextGone     = "Stream deleted" // also the phrase of a deletion that was done
)

var (
	NoRoute        = New(http.StatusNotFound, textNotFound)
	Method         = New(http.StatusMethodNotAllowed, "Method Not Allowed")
	ContentType    = New(http.StatusUnsupportedMediaType, "Invalid or missing Content-Type")
	NotAcceptable  = New(http.StatusNotAcceptable, "Requested URI is not available in requested format")
	Unauthorized   = New(http.StatusUnauthorized, "Unauthorized")
	NotFound       = New(http.StatusNotFound, textNotFound)
	Conflict       = New(http.StatusConflict, "Conflict")
	NoIndex        = New(http.StatusNotFound, "Index not found")
	NoGroup        = New(http.StatusNotFound, "Not found.")
	Deleted        = New(http.StatusGone, "Deleted")
	Gone           = New(http.StatusGone, TextGone)
	Version        = New(http.StatusBadRequest, "Wrong expected EventNumber")
	TooLarge       = New(http.StatusRequestEntityTooLarge, "Too large events received. Limit is 4mb")
	LargeWrite     = New(http.StatusRequestEntityTooLarge, "Too large events received. All events of one write together are limited to 16mb")
	InvalidBody    = New(http.StatusBadRequest, "Write request body invalid.")
	EmptyType      = New(http.StatusBadRequest, "Empty eventType provided.")
	LongName       = New(http.StatusBadRequest, "Stream name or event type is too long.")
	WriteTimeout   = New(http.StatusInternalServerError, "Write timeout")
	DeleteTimeout  = New(http.StatusInternalServerError, "Delete timeout")
	RequestTimeout = New(http.StatusRequestTimeout, "Server was unable to handle request in time")
	ReadOnly       = New(http.StatusInternalServerError, "Operation Not Supported on Read Only Replica")
	NotReady       = New(http.StatusServiceUnavailable, "Server Is Not Ready")
	Busy           = New(http.StatusServiceUnavailable, "Server Is Too Busy")
	// The leader, to which a request was passed on, may have got it.
	Unanswered = New(http.StatusInternalServerError, "Error while forwarding request")
	// A request did not reach the leader, and nothing was done.
	NoLeader    = New(http.StatusServiceUnavailable, "No Leader Can Be Reached")
	NoRoom      = New(http.StatusServiceUnavailable, "Requests take all memory that there is for them")
	NoScavenge  = New(http.StatusNotFound, "Scavenge Id does not exist")
	BackupLater = New(http.StatusServiceUnavailable, "A redaction is running, begin the backup when it is done")
	Internal    = New(http.StatusInternalServerError, "Internal Server Error")
	Misdirected = New(http.StatusMisdirectedRequest, "This node does not have that name, and accepts no other names without authentication: see the option HostNames")
	LeaderAt    = silence(http.StatusTemporaryRedirect, "Temporary Redirect")
)

// Action is the kind of an operation, as far as texts of errors depend on it.
type Action uint8

const (
	Reading Action = iota
	Writing
	Deleting
)

// table is the one place where an error becomes an answer.
var table = []struct {
	err           error
	problem       *Problem
	write, delete *Problem // the answer to a write and to a deletion, where it is another
}{
	{err: event.ErrNotAuthorized, problem: Unauthorized},
	{err: event.ErrNotInitialized, problem: NotReady},
	{err: event.ErrUserNotFound, problem: NotFound},
	{err: event.ErrUserConflict, problem: Conflict},
	{err: projection.ErrNotFound, problem: NotFound},
	{err: projection.ErrNoRebuild, problem: New(http.StatusNotFound, projection.ErrNoRebuild.Error())},
	{err: subscription.ErrNotFound, problem: NoGroup},
	{err: subscription.ErrExists, problem: Conflict},
	{err: subscription.ErrDeskFull, problem: New(http.StatusBadRequest, "The desk is full: replay or drop the oldest messages, or take notes away")},
	{err: event.ErrStreamNotFound, problem: NotFound},
	{err: event.ErrEventNotFound, problem: NotFound},
	{event.ErrStreamDeleted, Deleted, Gone, Gone},
	{err: scavenge.ErrRunning, problem: New(http.StatusBadRequest, "Scavenge is already running")},
	{err: scavenge.ErrInMemory, problem: New(http.StatusBadRequest, "Scavenge is not supported on in-memory databases")},
	{err: scavenge.ErrNoSuchRun, problem: NoScavenge},
	{err: backup.ErrSessionGone, problem: New(http.StatusNotFound, "Backup session does not exist")},
	{err: backup.ErrNoSuchFile, problem: New(http.StatusNotFound, "Backup session has no such file")},
	{err: backup.ErrTooManySessions, problem: New(http.StatusServiceUnavailable, "Too many backup sessions")},
	{err: backup.ErrInMemory, problem: New(http.StatusBadRequest, "Backup is not supported on in-memory databases")},
	{err: manager.ErrNotConfigured, problem: New(http.StatusBadRequest, "Backup is not configured: BackupTo")},
	{err: manager.ErrRunning, problem: New(http.StatusBadRequest, "Backup is already running")},
	{err: manager.ErrNoSuchRun, problem: New(http.StatusNotFound, "Backup Id does not exist")},
	{err: backup.ErrSuspended, problem: BackupLater},
	{err: redact.ErrLocked, problem: New(http.StatusBadRequest, redact.ErrLocked.Error())},
	{err: redact.ErrInMemory, problem: New(http.StatusBadRequest, redact.ErrInMemory.Error())},
	{err: redact.ErrTooMany, problem: New(http.StatusBadRequest, redact.ErrTooMany.Error())},
	{err: redact.ErrNoEvents, problem: New(http.StatusBadRequest, redact.ErrNoEvents.Error())},
	{err: event.ErrIndexBuilding, problem: New(http.StatusConflict, "The index is being built already")},
	{err: event.ErrNoNames, problem: New(http.StatusServiceUnavailable, "The names cannot be listed until the next start of the node")},
	{err: event.ErrChunksLocked, problem: New(http.StatusBadRequest, "Failed to acquire the chunk switch lock")},
	{err: event.ErrBadPosition, problem: New(http.StatusBadRequest, "Invalid position argument")},
	{err: event.ErrTooLarge, problem: TooLarge},
	{err: event.ErrTooWide, problem: New(http.StatusServiceUnavailable, api.TextTooWide)},
	{err: event.ErrUnanswered, problem: Unanswered},
	{err: event.ErrNoLeader, problem: NoLeader},
	{err: event.ErrEarlierLeader, problem: New(http.StatusServiceUnavailable, api.TextEarlierLeader)},
	{err: api.ErrLargeAppend, problem: LargeWrite},
	{err: api.ErrLongName, problem: LongName},
	{event.ErrWriteTimeout, RequestTimeout, WriteTimeout, DeleteTimeout},
	{event.ErrOutcomeUnknown, RequestTimeout, WriteTimeout, DeleteTimeout},
	{context.DeadlineExceeded, RequestTimeout, WriteTimeout, DeleteTimeout},
	{context.Canceled, NotReady, WriteTimeout, DeleteTimeout},
	{err: event.ErrDiskFull, problem: New(http.StatusServiceUnavailable, "Server Is Out Of Disk Space")},
	{err: event.ErrBusy, problem: Busy},
	{err: event.ErrNoRoom, problem: NoRoom},
	{err: event.ErrNotReady, problem: NotReady},
	{err: event.ErrEntryRefused, problem: NotReady},
	{err: event.ErrClosed, problem: NotReady},
}

// spoken are the errors that carry the text of the answer themselves.
var spoken = []func(error) *Problem{
	spokenBy(http.StatusServiceUnavailable, notListed),
	spokenBy(http.StatusServiceUnavailable, (*event.IndexBuilding).Error),
	spokenBy(http.StatusServiceUnavailable, (*api.NoShare).Error),
	spokenBy(http.StatusServiceUnavailable, (*api.NotReached).Error),
	spokenBy(http.StatusGatewayTimeout, (*api.WaitedInVain).Error),
	spokenBy(http.StatusBadRequest, (*event.BadRequest).Error),
	spokenBy(http.StatusBadRequest, (*event.MemberError).Error),
	spokenBy(http.StatusConflict, func(*event.Violations) string { return "Append failed due to consistency violations." }),
	spokenBy(http.StatusNotFound, func(e *subscription.NotParked) string { return fmt.Sprintf("Message %d is not parked.", e.Number) }),
	spokenBy(http.StatusBadRequest, func(e *subscription.SettingsError) string { return e.Text }),
	spokenBy(http.StatusBadRequest, (*redact.Refused).Error),
	spokenBy(http.StatusInternalServerError, (*redact.Unfinished).Error),
	spokenBy(http.StatusBadRequest, (*projection.BadInput).Error),
	spokenBy(http.StatusConflict, (*projection.Conflict).Error),
	spokenBy(http.StatusGone, (*backup.Ended).Error),
}

// spokenBy answers errors of a type with a status and the text that they have.
func spokenBy[E error](status int, text func(E) string) func(error) *Problem {
	return func(err error) *Problem {
		if e, ok := errors.AsType[E](err); ok {
			return New(status, text(e))
		}
		return nil
	}
}

// Of finds the answer to an error. It is known when the error is one that
// requests are expected to meet; any other is the node's own trouble.
func Of(err error, a Action) (p *Problem, known bool) {
	if errors.As(err, &p) {
		return p, true
	}
	if _, ok := errors.AsType[*event.WrongExpectedVersion](err); ok {
		return Version, true
	}
	if leader, ok := errors.AsType[*event.NotLeader](err); ok {
		switch {
		case leader.Address == "":
			return NotReady, true
		case leader.ReadOnly:
			return ReadOnly, true
		}
		return LeaderAt, true
	}
	for _, by := range spoken {
		if p := by(err); p != nil {
			return p, true
		}
	}
	for i := range table {
		row := &table[i]
		switch {
		case !errors.Is(err, row.err):
		case a == Writing && row.write != nil:
			return row.write, true
		case a == Deleting && row.delete != nil:
			return row.delete, true
		default:
			return row.problem, true
		}
	}
	if text, file := api.Damage(err); file != "" {
		if _, ok := errors.AsType[*event.CannotDecide](err); ok {
			return New(http.StatusServiceUnavailable, text), false
		}
		// The log says so of a chunk, once.
		return New(http.StatusInternalServerError, text), strings.HasPrefix(file, "chunk-")
	}
	return Internal, false
}

func notListed(e *event.NamesNotListed) string {
	return fmt.Sprintf("The names of streams are being collected: %d %% done", e.Done*100/max(1, e.Total))
}

var (
	WrongNode = New(http.StatusBadRequest, "Annals-Node must be leader or the id of a node.")
	NodeAway  = New(http.StatusServiceUnavailable, "Node Cannot Be Reached")
)
