package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/backup/manager"
	"github.com/annalsdb/annals/admin/redact"
	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/http1"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/projection"
	"github.com/annalsdb/annals/subscription"
)

// problem is an answer that is not a success: a status and its text, which
// stands in the body as text/plain and, on HTTP/1.1, in the status line. HTTP/2 has no
// such line, so that every failure has the body.
type problem struct {
	status int
	text   string
	silent bool   // the text stands in the status line only: it is not a failure
	phrase string // stands in the status line, where that is not the text
}

func (p *problem) Error() string { return p.text }

func refusal(status int, text string) *problem { return &problem{status: status, text: text} }

func silence(status int, text string) *problem {
	return &problem{status: status, text: text, silent: true}
}

func badRequest(text string) error { return refusal(http.StatusBadRequest, text) }

const (
	textNotFound = "Not Found"
	textGone     = "Stream deleted" // also the phrase of a deletion that was done
)

var (
	problemNoRoute        = refusal(http.StatusNotFound, textNotFound)
	problemMethod         = refusal(http.StatusMethodNotAllowed, "Method Not Allowed")
	problemContentType    = refusal(http.StatusUnsupportedMediaType, "Invalid or missing Content-Type")
	problemNotAcceptable  = refusal(http.StatusNotAcceptable, "Requested URI is not available in requested format")
	problemUnauthorized   = refusal(http.StatusUnauthorized, "Unauthorized")
	problemNotFound       = refusal(http.StatusNotFound, textNotFound)
	problemConflict       = refusal(http.StatusConflict, "Conflict")
	problemNoGroup        = refusal(http.StatusNotFound, "Not found.")
	problemDeleted        = refusal(http.StatusGone, "Deleted")
	problemGone           = refusal(http.StatusGone, textGone)
	problemVersion        = refusal(http.StatusBadRequest, "Wrong expected EventNumber")
	problemTooLarge       = refusal(http.StatusRequestEntityTooLarge, "Too large events received. Limit is 4mb")
	problemLargeWrite     = refusal(http.StatusRequestEntityTooLarge, "Too large events received. All events of one write together are limited to 16mb")
	problemInvalidBody    = refusal(http.StatusBadRequest, "Write request body invalid.")
	problemEmptyType      = refusal(http.StatusBadRequest, "Empty eventType provided.")
	problemLongName       = refusal(http.StatusBadRequest, "Stream name or event type is too long.")
	problemWriteTimeout   = refusal(http.StatusInternalServerError, "Write timeout")
	problemDeleteTimeout  = refusal(http.StatusInternalServerError, "Delete timeout")
	problemRequestTimeout = refusal(http.StatusRequestTimeout, "Server was unable to handle request in time")
	problemReadOnly       = refusal(http.StatusInternalServerError, "Operation Not Supported on Read Only Replica")
	problemNotReady       = refusal(http.StatusServiceUnavailable, "Server Is Not Ready")
	problemBusy           = refusal(http.StatusServiceUnavailable, "Server Is Too Busy")
	problemNoRoom         = refusal(http.StatusServiceUnavailable, "Requests take all memory that there is for them")
	problemNoScavenge     = refusal(http.StatusNotFound, "Scavenge Id does not exist")
	problemBackupLater    = refusal(http.StatusServiceUnavailable, "A redaction is running, begin the backup when it is done")
	problemInternal       = refusal(http.StatusInternalServerError, "Internal Server Error")
	problemMisdirected    = refusal(http.StatusMisdirectedRequest, "This node does not have that name, and accepts no other names without authentication: see the option HostNames")
	problemLeaderAt       = silence(http.StatusTemporaryRedirect, "Temporary Redirect")
)

// action is the kind of an operation, as far as texts of errors depend on it.
type action uint8

const (
	reading action = iota
	writing
	deleting
)

// table is the one place where an error becomes an answer.
var table = []struct {
	err           error
	problem       *problem
	write, delete *problem // the answer to a write and to a deletion, where it is another
}{
	{err: event.ErrNotAuthorized, problem: problemUnauthorized},
	{err: event.ErrNotInitialized, problem: problemNotReady},
	{err: event.ErrUserNotFound, problem: problemNotFound},
	{err: event.ErrUserConflict, problem: problemConflict},
	{err: projection.ErrNotFound, problem: problemNotFound},
	{err: subscription.ErrNotFound, problem: problemNoGroup},
	{err: subscription.ErrExists, problem: problemConflict},
	{err: subscription.ErrDeskFull, problem: refusal(http.StatusBadRequest, "The desk is full: replay or drop the oldest messages, or take notes away")},
	{err: event.ErrStreamNotFound, problem: problemNotFound},
	{err: event.ErrEventNotFound, problem: problemNotFound},
	{event.ErrStreamDeleted, problemDeleted, problemGone, problemGone},
	{err: scavenge.ErrRunning, problem: refusal(http.StatusBadRequest, "Scavenge is already running")},
	{err: scavenge.ErrInMemory, problem: refusal(http.StatusBadRequest, "Scavenge is not supported on in-memory databases")},
	{err: scavenge.ErrNoSuchRun, problem: problemNoScavenge},
	{err: backup.ErrSessionGone, problem: refusal(http.StatusNotFound, "Backup session does not exist")},
	{err: backup.ErrNoSuchFile, problem: refusal(http.StatusNotFound, "Backup session has no such file")},
	{err: backup.ErrTooManySessions, problem: refusal(http.StatusServiceUnavailable, "Too many backup sessions")},
	{err: backup.ErrInMemory, problem: refusal(http.StatusBadRequest, "Backup is not supported on in-memory databases")},
	{err: manager.ErrNotConfigured, problem: refusal(http.StatusBadRequest, "Backup is not configured: BackupTo")},
	{err: manager.ErrRunning, problem: refusal(http.StatusBadRequest, "Backup is already running")},
	{err: manager.ErrNoSuchRun, problem: refusal(http.StatusNotFound, "Backup Id does not exist")},
	{err: backup.ErrSuspended, problem: problemBackupLater},
	{err: redact.ErrLocked, problem: refusal(http.StatusBadRequest, redact.ErrLocked.Error())},
	{err: redact.ErrInMemory, problem: refusal(http.StatusBadRequest, redact.ErrInMemory.Error())},
	{err: redact.ErrTooMany, problem: refusal(http.StatusBadRequest, redact.ErrTooMany.Error())},
	{err: redact.ErrNoEvents, problem: refusal(http.StatusBadRequest, redact.ErrNoEvents.Error())},
	{err: event.ErrChunksLocked, problem: refusal(http.StatusBadRequest, "Failed to acquire the chunk switch lock")},
	{err: event.ErrBadPosition, problem: refusal(http.StatusBadRequest, "Invalid position argument")},
	{err: event.ErrTooLarge, problem: problemTooLarge},
	{event.ErrWriteTimeout, problemRequestTimeout, problemWriteTimeout, problemDeleteTimeout},
	{event.ErrOutcomeUnknown, problemRequestTimeout, problemWriteTimeout, problemDeleteTimeout},
	{context.DeadlineExceeded, problemRequestTimeout, problemWriteTimeout, problemDeleteTimeout},
	{context.Canceled, problemNotReady, problemWriteTimeout, problemDeleteTimeout},
	{err: event.ErrDiskFull, problem: refusal(http.StatusServiceUnavailable, "Server Is Out Of Disk Space")},
	{err: event.ErrBusy, problem: problemBusy},
	{err: event.ErrNoRoom, problem: problemNoRoom},
	{err: event.ErrNotReady, problem: problemNotReady},
	{err: event.ErrEntryRefused, problem: problemNotReady},
	{err: event.ErrClosed, problem: problemNotReady},
}

// spoken are the errors that carry the text of the answer themselves.
var spoken = []func(error) *problem{
	spokenBy(http.StatusServiceUnavailable, notListed),
	spokenBy(http.StatusServiceUnavailable, (*api.NoShare).Error),
	spokenBy(http.StatusBadRequest, (*event.MemberError).Error),
	spokenBy(http.StatusNotFound, func(e *subscription.NotParked) string { return fmt.Sprintf("Message %d is not parked.", e.Number) }),
	spokenBy(http.StatusBadRequest, func(e *subscription.SettingsError) string { return e.Text }),
	spokenBy(http.StatusBadRequest, (*redact.Refused).Error),
	spokenBy(http.StatusInternalServerError, (*redact.Unfinished).Error),
	spokenBy(http.StatusBadRequest, (*projection.BadInput).Error),
	spokenBy(http.StatusGone, (*backup.Ended).Error),
}

// spokenBy answers errors of a type with a status and the text that they have.
func spokenBy[E error](status int, text func(E) string) func(error) *problem {
	return func(err error) *problem {
		if e, ok := errors.AsType[E](err); ok {
			return refusal(status, text(e))
		}
		return nil
	}
}

// problemOf finds the answer to an error. It is known when the error is one that
// requests are expected to meet; any other is the node's own trouble.
func problemOf(err error, a action) (p *problem, known bool) {
	if errors.As(err, &p) {
		return p, true
	}
	if _, ok := errors.AsType[*event.WrongExpectedVersion](err); ok {
		return problemVersion, true
	}
	if leader, ok := errors.AsType[*event.NotLeader](err); ok {
		switch {
		case leader.Address == "":
			return problemNotReady, true
		case leader.ReadOnly:
			return problemReadOnly, true
		}
		return problemLeaderAt, true
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
		case a == writing && row.write != nil:
			return row.write, true
		case a == deleting && row.delete != nil:
			return row.delete, true
		default:
			return row.problem, true
		}
	}
	if text, file := api.Damage(err); file != "" {
		if _, ok := errors.AsType[*event.CannotDecide](err); ok {
			return refusal(http.StatusServiceUnavailable, text), false
		}
		// The log says so of a chunk, once.
		return refusal(http.StatusInternalServerError, text), strings.HasPrefix(file, "chunk-")
	}
	return problemInternal, false
}

var (
	retryAfter = []string{"5"}
	retrySoon  = []string{"2"}
	challenge  = []string{`X-Basic realm="ESDB"`}
)

// fail answers with what err means.
func (x *exchange) fail(err error) {
	p, known := problemOf(err, x.action())
	if !known {
		x.node.log.Error("request could not be answered", "method", x.r.Method, "path", x.r.URL.Path, logkey.Error, err)
	}
	h := x.w.Header()
	if h[keyCacheControl] == nil && p.status >= http.StatusBadRequest {
		h[keyCacheControl] = cacheNothing // Headers that caches do not look at may have led to it.
	}
	var version *event.WrongExpectedVersion
	var leader *event.NotLeader
	var names *event.NamesNotListed
	_, isUser := errors.AsType[userError](err)
	_, noShare := errors.AsType[*api.NoShare](err)
	switch {
	case errors.As(err, &names):
		h[keyRetryAfter] = retrySoon
	case p.status == http.StatusUnauthorized:
		h[keyWWWAuthenticate] = challenge
	case p == problemVersion && errors.As(err, &version):
		h[keyCurrentVersion] = []string{strconv.FormatInt(version.Current, 10)}
		h[kurrentCurrentVersion] = h[keyCurrentVersion]
	case (p == problemLeaderAt || p == problemReadOnly) && errors.As(err, &leader):
		h[keyLocation] = []string{strings.TrimSuffix(leader.Address, "/") + x.r.URL.RequestURI()}
	case p == problemNotReady && errors.Is(err, event.ErrNotInitialized), p == problemBackupLater, noShare, p == problemBusy && (isUser || x.op == nil):
		// The other kind of busy is that too many passwords are to be hashed.
		h[keyRetryAfter] = retryAfter
	case p == problemNoRoom:
		h[keyRetryAfter] = retrySoon
		if x.r.ProtoMajor == 1 { // A client that is refused need not keep a connection, too.
			h["Connection"] = []string{"close"}
		}
	case p == problemNodeAway:
		h[keyRetryAfter] = retrySoon
	case p == problemNotFound && x.op != nil && x.op.single:
		x.missing(p)
		return
	}
	if isUser && userFailures[p.status] != "" {
		userFailed(x, p)
		return
	}
	x.refuse(p)
}

// missing answers for a single event that is not there: JSON clients parse the
// body at any status, so they get an empty object.
func (x *exchange) missing(p *problem) {
	if x.media == nil || !x.media.form.isJSON() {
		x.refuse(p)
		return
	}
	x.w.Header()[keyContentType] = x.media.contentType
	x.send(p.status, emptyObject)
}

// refuse writes a problem.
func (x *exchange) refuse(p *problem) {
	x.phrase(p.status, cmp.Or(p.phrase, p.text))
	x.w.Header()[keyContentType] = typeText.contentType
	if p.silent {
		x.send(p.status, nil)
		return
	}
	x.out = append(x.out[:0], p.text...)
	x.send(p.status, x.out)
}

func (x *exchange) action() action {
	if x.op == nil {
		return reading
	}
	return x.op.action
}

// phrase puts a text into the status line, where the connection has one.
func (x *exchange) phrase(status int, text string) {
	if text == http.StatusText(status) || x.r.ProtoMajor != 1 {
		return
	}
	http1.SetReason(x.r.Context(), status, text)
}
