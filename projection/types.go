package projection

import (
	"encoding/json"
	"errors"

	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
	"github.com/annalsdb/annals/projection/run"
	"github.com/annalsdb/annals/projection/source"
)

// Mode is the kind of a projection. Names are stored and shown: do not change.
type Mode string

// The kinds.
const (
	Continuous Mode = "Continuous" // never ends
	OneTime    Mode = "OneTime"    // ends with its input
	Transient  Mode = "Transient"  // ends with its input, is not stored and never emits
)

// Kinds chooses projections for a list. The zero value chooses all of them.
type Kinds string

// What lists may be asked for, besides one mode alone.
const (
	AllKinds     Kinds = ""
	NonTransient Kinds = "NonTransient"
)

// Only returns the choice of one mode.
func (m Mode) Only() Kinds { return Kinds(m) }

func (k Kinds) has(m Mode) bool {
	return k == AllKinds || k == NonTransient && m != Transient || k == Kinds(m)
}

// Identity is a user who asks for something, and the one that a projection runs as.
type Identity struct {
	Name  string   `json:"name"`
	Roles []string `json:"roles"` // the user's groups
	// Operator says that the user may operate the node ($ops, $admins). All projections that are
	// not transient require it. It is not stored.
	Operator bool `json:"-"`
}

// Creation has the properties of a new projection.
type Creation struct {
	Name                string // blank: a GUID is made up, but not for continuous ones
	Mode                Mode
	Type                string // "JS", "native:..."; empty: "JS"
	Query               string // the text of the script, or the configuration of a built-in one
	Enabled             bool
	Checkpoints         bool // one-time only: continuous ones always have them
	Emit                bool
	TrackEmittedStreams bool // counts only with Emit
	// EngineVersion is the engine that it is written for: "0" or "1", or empty. There is no other.
	EngineVersion string
	Properties    json.RawMessage // an object that is kept with it and means nothing; nil: none
	By            Identity

	// Gone, if it is not nil, is called when the projection is no longer there, also if it never
	// came to be. It may be called more than once.
	Gone func()
}

// Update replaces the text of a projection.
type Update struct {
	Query      string
	Emit       *bool           // whether it may emit; nil: as before
	Properties json.RawMessage // nil: as before
}

// Command is an action on a projection.
type Command uint8

// The commands.
const (
	Enable Command = iota
	Disable
	Reset
	Abort
)

// String returns the command in a word.
func (c Command) String() string {
	return [...]string{"enable", "disable", "reset", "abort"}[c]
}

// DeleteOptions say which streams go with a projection.
type DeleteOptions struct {
	StateStream, CheckpointStream, EmittedStreams bool
}

// Config are the settings of a projection that can be changed while it is stopped.
type Config = run.Config

// Settings are the Config of a projection, and what is kept with it.
type Settings struct {
	Config
	Properties json.RawMessage `json:"properties"` // an object
}

// DefaultConfig returns the settings that a new projection has.
func DefaultConfig() Config {
	return Config{CheckpointHandledThreshold: 4000, CheckpointUnhandledBytesThreshold: 10_000_000, PendingEventsThreshold: 5000, MaxWriteBatchLength: 500}
}

// Statistics describe a projection at one moment. The addresses that are shown with them are not
// here: they depend on how the server was reached. Names are part of the wire: do not change.
type Statistics struct {
	Name          string `json:"name"`
	EffectiveName string `json:"effectiveName"` // the same
	Mode          Mode   `json:"mode"`
	Status        string `json:"status"`
	// why it is faulted, or what it waits for; empty: neither
	StateReason      string `json:"stateReason"`
	Version          int64  `json:"version"`        // -1: it could not be prepared
	Epoch            int64  `json:"epoch"`          // likewise
	Position         string `json:"position"`       // as text; empty: nothing was processed
	LastCheckpoint   string `json:"lastCheckpoint"` // as text; empty: there is none
	CheckpointStatus string `json:"checkpointStatus"`
	// -1: nothing was read; else percent
	Progress         float64 `json:"progress"`
	Processed        int64   `json:"eventsProcessedAfterRestart"` // events since the last start
	ProcessingMs     int64   `json:"coreProcessingTime"`          // in handlers
	PartitionsCached int     `json:"partitionsCached"`
	Buffered         int     `json:"bufferedEvents"`
	ReadsInProgress  int     `json:"readsInProgress"`
	WritesInProgress int     `json:"writesInProgress"`
	// emitted events that wait, before the checkpoint
	PendingBefore int `json:"writePendingEventsBeforeCheckpoint"`
	PendingAfter  int `json:"writePendingEventsAfterCheckpoint"` // and after it
	// Rebuild is the status of its second version; empty: there is none.
	Rebuild string `json:"rebuild,omitempty"`
	// CheckpointsOf is the name that the streams of its checkpoints are of since a rebuild took
	// over; empty: its own.
	CheckpointsOf string `json:"checkpointsOf,omitempty"`
	// that the script named; empty: none
	ResultStream string `json:"-"`
}

// Content is a state or a result.
type Content struct {
	Text     []byte             // JSON; empty: there is none
	Position *position.Position // nil: it is not reported
}

// Query is the text of a projection and its definition.
type Query struct {
	Name, Text          string
	Mode                Mode
	EmitEnabled         bool
	TrackEmittedStreams bool
	CheckpointsEnabled  bool
	Definition          *handler.Definition // nil: it could not be prepared
	ResultStream        string              // that results go to
}

// SourceEvent is one event that a definition selects.
type SourceEvent = source.PageEvent

// SourcePage is a page of the events that a definition selects.
type SourcePage struct {
	Events   []SourceEvent
	Position position.Position // at which the next page begins
}

// Errors of requests. event.ErrNotReady is returned while this node does not lead or loads its
// projections, event.ErrNotAuthorized when the projection is one that only operators may handle.
var (
	ErrNotFound = errors.New("no such projection")
	// ErrAborted is the answer to a command that another one came after, before it was done.
	ErrAborted = errors.New("Aborted by subsequent operation") //lint:ignore ST1005 the text is that of the wire
)

// Resting says that a projection does not run, and so gets no further.
type Resting struct {
	Status string // "stopped", "completed", "aborted" or "faulted"
	At     string // what its state is of, as text; empty: the start of its sources, or not known
}

func (e *Resting) Error() string {
	if e.At == "" {
		return "is " + e.Status
	}
	return "is " + e.Status + " at " + e.At
}

// Exists says that the name of a new projection is taken.
type Exists struct{ Name string }

func (e *Exists) Error() string { return "Duplicate projection names : " + e.Name }

// Refused says why a projection refuses a command in its current state. Its text is that of the
// wire.
type Refused struct{ Text string }

func (e *Refused) Error() string { return e.Text }

// BadInput describes a request that is not valid. Its text is that of the wire.
type BadInput struct{ Text string }

func (e *BadInput) Error() string { return e.Text }
