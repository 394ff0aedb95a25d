// Package redact blanks the data of single events in the files of one node while it serves.
// DESIGN.md has the order of the steps, and says why a crash between any two of them does no harm.
package redact

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/annalsdb/annals/event"
	eventlog "github.com/annalsdb/annals/log"
)

// MaxEvents is how many events one request may name.
const MaxEvents = 10_000

// Reasons to refuse a redaction. The texts are part of the interface.
var (
	ErrLocked   = errors.New("Failed to acquire lock for redaction.")             //lint:ignore ST1005 the text is that of the wire
	ErrInMemory = errors.New("Redaction is not supported on in-memory databases") //lint:ignore ST1005 the text is that of the wire
	// ask again for the rest
	ErrTooMany  = fmt.Errorf("at most %d events are redacted in one call", MaxEvents)
	ErrNoEvents = errors.New("no events are named")
)

// Event names an event.
type Event struct {
	Stream string
	Number int64
}

func (e Event) String() string { return strconv.FormatInt(e.Number, 10) + "@" + e.Stream }

// ParseEvent understands number@stream. The stream begins after the first "@".
func ParseEvent(text string) (Event, error) {
	number, stream, found := strings.Cut(text, "@")
	n, err := strconv.ParseInt(number, 10, 64)
	if !found || err != nil || n < 0 || stream == "" {
		return Event{}, fmt.Errorf("%q is not of the form number@stream", clip(text))
	}
	return Event{Stream: stream, Number: n}, nil
}

// clip cuts a caller's text to the length of a line.
func clip(text string) string {
	if len(text) > 200 {
		return text[:200] + "…"
	}
	return text
}

// Request asks for the redaction of some events of this node. Either all of them are redacted or
// none.
type Request struct {
	Events []Event
	Reason string
	User   string // the caller's login, for the record
	DryRun bool   // judge only

	// Metadata has the metadata blanked as well, and with them go the tags and the correlation id.
	Metadata bool
}

// What became of an event.
const (
	StatusRedacted = "redacted"
	StatusAlready  = "already"
	StatusWould    = "would" // a dry run
)

// Outcome says what became of one event.
type Outcome struct {
	Event    string `json:"event"` // number@stream
	Position int64  `json:"position"`
	Chunk    string `json:"chunk"` // file in the data folder, before
	Status   string `json:"status"`
}

// Refused says why nothing was redacted: a line for each event that cannot be.
type Refused struct{ Events []string }

func (e *Refused) Error() string {
	const most = 100
	if n := len(e.Events); n > most {
		return fmt.Sprintf("%s\nand %d more", strings.Join(e.Events[:most], "\n"), n-most)
	}
	return strings.Join(e.Events, "\n")
}

// Unfinished says that the events are redacted, or will be by the next start at the latest, and
// that their bytes may still be somewhere on this node. It is tried again in the background.
type Unfinished struct{ Err error }

func (e *Unfinished) Error() string {
	return "the redaction is not finished and continues in the background: " + e.Err.Error()
}
func (e *Unfinished) Unwrap() error { return e.Err }

// interpreted says why the server would not do without an event, or "".
func interpreted(stream, typ string) string {
	const reads = "the server itself reads such events"
	switch typ {
	case event.TypeLink:
		return "a link holds no data of its own, redact the event that it points to"
	case event.TypeStreamDeleted, event.TypeScavengePoint:
		return reads
	}
	switch {
	case event.IsMetaStream(stream), stream == event.SettingsStream, stream == Stream, stream == event.ScavengePointsStream, stream == "$persistentSubscriptionConfig",
		stream == "$users", stream == "$users-password-notifications", strings.HasPrefix(stream, "$user-"),
		strings.HasPrefix(stream, "$persistentsubscription-"):
		return reads
	case strings.HasPrefix(stream, "$projections-") && !strings.HasSuffix(stream, "-result"):
		return reads
	}
	return ""
}

// Position is where an event lies in the files of this node.
type Position = eventlog.EventPosition

// SwitchReason is the name of the reason for which Session.Switch refused a file, as tools know
// it; ok is false when the error is something else.
func SwitchReason(err error) (reason string, ok bool) {
	var refused *eventlog.SwitchRefused
	if !errors.As(err, &refused) {
		return "", false
	}
	return refused.Reason, true
}
