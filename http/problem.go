package httpapi

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/backup/manager"
	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/projection"
	"github.com/annalsdb/annals/subscription"
)

// problem is an answer that is not a success: a status and its text, which
// stands in the body as text/plain and, on HTTP/1.1, in the status line.
type problem struct {
	status int
	text   string
	silent bool // the text stands in the status line only
}

func (p *problem) Error() string { return p.text }

func badRequest(text string) error { return &problem{status: http.StatusBadRequest, text: text} }

const (
	textNotFound     = "Not Found"
	textDeleted      = "Deleted"
	textGone         = "Stream deleted" // also the phrase of a deletion that was done
	textVersion      = "Wrong expected EventNumber"
	textTooLarge     = "Too large events received. Limit is 4mb"
	textInvalidBody  = "Write request body invalid."
	textWriteTimeout = "Write timeout"
	textNotReady     = "Server Is Not Ready"
)

var (
	problemNoRoute        = &problem{http.StatusNotFound, textNotFound, true}
	problemMethod         = &problem{http.StatusMethodNotAllowed, "Method Not Allowed", true}
	problemContentType    = &problem{http.StatusUnsupportedMediaType, "Invalid or missing Content-Type", true}
	problemNotAcceptable  = &problem{http.StatusNotAcceptable, "Requested URI is not available in requested format", true}
	problemUnauthorized   = &problem{http.StatusUnauthorized, "Unauthorized", true}
	problemNotFound       = &problem{http.StatusNotFound, textNotFound, false}
	problemConflict       = &problem{http.StatusConflict, "Conflict", false}
	problemNoGroup        = &problem{http.StatusNotFound, "Not found.", false}
	problemAllGroup       = &problem{http.StatusBadRequest, "Persistent subscriptions to $all are only supported over gRPC through gRPC clients", false}
	problemDeskFull       = &problem{http.StatusBadRequest, "The desk is full: replay or drop the oldest messages, or take notes away", false}
	problemDeleted        = &problem{http.StatusGone, textDeleted, false}
	problemGone           = &problem{http.StatusGone, textGone, false}
	problemVersion        = &problem{http.StatusBadRequest, textVersion, false}
	problemTooLarge       = &problem{http.StatusRequestEntityTooLarge, textTooLarge, false}
	problemLargeWrite     = &problem{http.StatusRequestEntityTooLarge, "Too large events received. All events of one write together are limited to 16mb", false}
	problemInvalidBody    = &problem{http.StatusBadRequest, textInvalidBody, false}
	problemEmptyType      = &problem{http.StatusBadRequest, "Empty eventType provided.", false}
	problemLongName       = &problem{http.StatusBadRequest, "Stream name or event type is too long.", false}
	problemWriteTimeout   = &problem{http.StatusInternalServerError, textWriteTimeout, false}
	problemDeleteTimeout  = &problem{http.StatusInternalServerError, "Delete timeout", false}
	problemRequestTimeout = &problem{http.StatusRequestTimeout, "Server was unable to handle request in time", false}
	problemReadOnly       = &problem{http.StatusInternalServerError, "Operation Not Supported on Read Only Replica", false}
	problemNotReady       = &problem{http.StatusServiceUnavailable, textNotReady, false}
	problemBusy           = &problem{http.StatusServiceUnavailable, "Server Is Too Busy", false}
	problemLiveFull       = &problem{http.StatusServiceUnavailable, "Too many live connections", false}
	problemLiveBusy       = &problem{http.StatusServiceUnavailable, "Too many filters look through old events", false}
	problemDiskFull       = &problem{http.StatusServiceUnavailable, "Server Is Out Of Disk Space", false}
	problemScavengeRuns   = &problem{http.StatusBadRequest, "Scavenge is already running", false}
	problemChunksLocked   = &problem{http.StatusBadRequest, "Failed to acquire the chunk switch lock", false}
	problemInMemory       = &problem{http.StatusBadRequest, "Scavenge is not supported on in-memory databases", false}
	problemNoScavenge     = &problem{http.StatusNotFound, "Scavenge Id does not exist", false}
	problemNoBackup       = &problem{http.StatusNotFound, "Backup session does not exist", false}
	problemNoBackupFile   = &problem{http.StatusNotFound, "Backup session has no such file", false}
	problemManyBackups    = &problem{http.StatusServiceUnavailable, "Too many backup sessions", false}
	problemMemoryBackup   = &problem{http.StatusBadRequest, "Backup is not supported on in-memory databases", false}
	problemNoBackupTo     = &problem{http.StatusBadRequest, "Backup is not configured: BackupTo", false}
	problemBackupRuns     = &problem{http.StatusBadRequest, "Backup is already running", false}
	problemNoBackupRun    = &problem{http.StatusNotFound, "Backup Id does not exist", false}
	problemBackupLater    = &problem{http.StatusServiceUnavailable, "A redaction is under way, begin the backup when it is done", false}
	problemPosition       = &problem{http.StatusBadRequest, "Invalid position argument", false}
	problemInternal       = &problem{http.StatusInternalServerError, "Internal Server Error", false}
	problemLeaderAt       = &problem{http.StatusTemporaryRedirect, "Temporary Redirect", true}
)

// action is what an operation does, as far as texts of errors depend on it.
type action uint8

const (
	reading action = iota
	writing
	deleting
)

// table is the one place where an error becomes an answer. The second column
// is the answer to a read, the third to a write, the fourth to a deletion.
var table = []struct {
	err                 error
	read, write, delete *problem
}{
	{event.ErrNotAuthorized, problemUnauthorized, problemUnauthorized, problemUnauthorized},
	{event.ErrNotInitialized, problemNotReady, problemNotReady, problemNotReady},
	{event.ErrUserNotFound, problemNotFound, problemNotFound, problemNotFound},
	{event.ErrUserConflict, problemConflict, problemConflict, problemConflict},
	{projection.ErrNotFound, problemNotFound, problemNotFound, problemNotFound},
	{subscription.ErrNotFound, problemNoGroup, problemNoGroup, problemNoGroup},
	{subscription.ErrExists, problemConflict, problemConflict, problemConflict},
	{subscription.ErrDeskFull, problemDeskFull, problemDeskFull, problemDeskFull},
	{subscription.ErrAll, problemAllGroup, problemAllGroup, problemAllGroup},
	{event.ErrStreamNotFound, problemNotFound, problemNotFound, problemNotFound},
	{event.ErrEventNotFound, problemNotFound, problemNotFound, problemNotFound},
	{event.ErrStreamDeleted, problemDeleted, problemGone, problemGone},
	{scavenge.ErrRunning, problemScavengeRuns, problemScavengeRuns, problemScavengeRuns},
	{scavenge.ErrInMemory, problemInMemory, problemInMemory, problemInMemory},
	{scavenge.ErrNoSuchRun, problemNoScavenge, problemNoScavenge, problemNoScavenge},
	{backup.ErrSessionGone, problemNoBackup, problemNoBackup, problemNoBackup},
	{backup.ErrNoSuchFile, problemNoBackupFile, problemNoBackupFile, problemNoBackupFile},
	{backup.ErrTooManySessions, problemManyBackups, problemManyBackups, problemManyBackups},
	{backup.ErrInMemory, problemMemoryBackup, problemMemoryBackup, problemMemoryBackup},
	{manager.ErrNotConfigured, problemNoBackupTo, problemNoBackupTo, problemNoBackupTo},
	{manager.ErrRunning, problemBackupRuns, problemBackupRuns, problemBackupRuns},
	{manager.ErrNoSuchRun, problemNoBackupRun, problemNoBackupRun, problemNoBackupRun},
	{backup.ErrSuspended, problemBackupLater, problemBackupLater, problemBackupLater},
	{event.ErrChunksLocked, problemChunksLocked, problemChunksLocked, problemChunksLocked},
	{event.ErrBadPosition, problemPosition, problemPosition, problemPosition},
	{event.ErrTooLarge, problemTooLarge, problemTooLarge, problemTooLarge},
	{event.ErrWriteTimeout, problemRequestTimeout, problemWriteTimeout, problemDeleteTimeout},
	{event.ErrOutcomeUnknown, problemRequestTimeout, problemWriteTimeout, problemDeleteTimeout},
	{context.DeadlineExceeded, problemRequestTimeout, problemWriteTimeout, problemDeleteTimeout},
	{context.Canceled, problemNotReady, problemWriteTimeout, problemDeleteTimeout},
	{event.ErrDiskFull, problemDiskFull, problemDiskFull, problemDiskFull},
	{event.ErrBusy, problemBusy, problemBusy, problemBusy},
	{event.ErrNotReady, problemNotReady, problemNotReady, problemNotReady},
	{event.ErrEntryRefused, problemNotReady, problemNotReady, problemNotReady},
	{event.ErrClosed, problemNotReady, problemNotReady, problemNotReady},
}

// problemOf finds the answer to an error. It is known when the error is one that
// requests are expected to meet; any other is the node's own trouble.
func problemOf(err error, a action) (p *problem, known bool) {
	if errors.As(err, &p) {
		return p, true
	}
	var version *event.WrongExpectedVersion
	if errors.As(err, &version) {
		return problemVersion, true
	}
	var leader *event.NotLeader
	if errors.As(err, &leader) {
		if leader.Address == "" {
			return problemNotReady, true
		}
		if leader.ReadOnly {
			return problemReadOnly, true
		}
		return problemLeaderAt, true
	}
	var names *event.NamesNotListed
	if errors.As(err, &names) {
		return &problem{status: http.StatusServiceUnavailable, text: notListed(names)}, true
	}
	var member *event.MemberError
	if errors.As(err, &member) {
		return &problem{status: http.StatusBadRequest, text: member.Text}, true
	}
	var parked *subscription.NotParked
	if errors.As(err, &parked) {
		return &problem{status: http.StatusNotFound, text: notParked(parked)}, true
	}
	var settings *subscription.SettingsError
	if errors.As(err, &settings) {
		return &problem{status: http.StatusBadRequest, text: settings.Text}, true
	}
	var said *phrased
	if errors.As(err, &said) {
		if said.status == http.StatusUnauthorized {
			return problemUnauthorized, true
		}
		return &problem{status: said.status, text: said.text}, true
	}
	if p := redactionProblem(err); p != nil {
		return p, true
	}
	var input *projection.BadInput
	if errors.As(err, &input) {
		return &problem{status: http.StatusBadRequest, text: input.Text}, true
	}
	var ended *backup.Ended
	if errors.As(err, &ended) {
		return &problem{status: http.StatusGone, text: ended.Reason}, true
	}
	for i := range table {
		row := &table[i]
		if !errors.Is(err, row.err) {
			continue
		}
		switch a {
		case writing:
			return row.write, true
		case deleting:
			return row.delete, true
		}
		return row.read, true
	}
	var damage *event.Corruption
	if errors.As(err, &damage) {
		file := filepath.Base(damage.File)
		text := "Stored data is damaged: " + file
		if damage.Offset >= 0 {
			text += " at offset " + strconv.FormatInt(damage.Offset, 10)
		}
		// The log says so of a chunk, once.
		return &problem{status: http.StatusInternalServerError, text: text}, strings.HasPrefix(file, "chunk-")
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
		x.s.log.Error("request could not be answered", "method", x.r.Method, "path", x.r.URL.Path, logkey.Error, err)
	}
	h := x.w.Header()
	var version *event.WrongExpectedVersion
	var leader *event.NotLeader
	var user *userError
	var names *event.NamesNotListed
	isUser := errors.As(err, &user)
	switch {
	case errors.As(err, &names):
		h[keyRetryAfter] = retrySoon
	case p == problemUnauthorized:
		h[keyWWWAuthenticate] = challenge
	case p == problemVersion && errors.As(err, &version):
		h[keyCurrentVersion] = []string{strconv.FormatInt(version.Current, 10)}
	case (p == problemLeaderAt || p == problemReadOnly) && errors.As(err, &leader):
		h[keyLocation] = []string{strings.TrimSuffix(leader.Address, "/") + x.r.URL.RequestURI()}
	case p == problemNotReady && errors.Is(err, event.ErrNotInitialized), p == problemBackupLater, p == problemLiveFull, p == problemLiveBusy, p == problemBusy && (isUser || x.op == nil):
		// The other kind of busy is that too many passwords are to be hashed.
		h[keyRetryAfter] = retryAfter
	case p == problemNodeAway:
		h[keyRetryAfter] = retrySoon
	case p == problemNotFound && x.op != nil && x.op.single:
		x.missing(p)
		return
	}
	if isUser && userFailures[p.status] != "" {
		userFailed(x, user, p)
		return
	}
	var group *groupError
	if errors.As(err, &group) && groupFailed(x, group, p) {
		return
	}
	var said *phrased
	if errors.As(err, &said) {
		x.phrase(said.status, said.phrase)
		x.text(said.status, said.text)
		return
	}
	x.refuse(p)
}

// missing answers for a single event that is not there: JSON clients parse the
// body at any status, so they get an empty object.
func (x *exchange) missing(p *problem) {
	if x.media == nil || !x.media.form.isJSON() {
		x.refuse(&problem{status: p.status, text: p.text, silent: true})
		return
	}
	x.w.Header()[keyContentType] = x.media.contentType
	x.send(p.status, emptyObject)
}

// refuse writes a problem.
func (x *exchange) refuse(p *problem) {
	x.phrase(p.status, p.text)
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
	SetReason(x.r.Context(), status, text)
}
