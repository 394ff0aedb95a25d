// Package handler is the interface between the runner of a projection and the projection's own
// code: the definition of its sources, events, states and emissions. Scripts and the system
// projections implement Handler.
package handler

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/annalsdb/annals/event"
)

// Definition says which events a projection reads and how it groups them. Its JSON is served and
// stored: do not change.
type Definition struct {
	AllEvents          bool   `json:"allEvents"`              // no named types
	AllStreams         bool   `json:"allStreams"`             // fromAll
	ByStreams          bool   `json:"byStream"`               // foreachStream
	ByCustomPartitions bool   `json:"byCustomPartitions"`     // partitionBy
	Categories         Names  `json:"categories"`             // fromCategory, fromCategories
	Events             Names  `json:"events"`                 // the named types
	Streams            Names  `json:"streams"`                // fromStream, fromStreams
	Limit              *int64 `json:"limitingCommitPosition"` // other versions have it: nil
	Options            `json:"options"`

	// Mark returns what marks a place in the log; nil: how far the projection came is not marked.
	// It is emitted at start and with each checkpoint, before that is written, caused by no event.
	Mark func(commit, prepare int64) Emission `json:"-"`
}

// Options of a definition.
type Options struct {
	ResultStream Name `json:"resultStreamName"`
	// with {0} for the partition
	PartitionResultPattern Name `json:"partitionResultStreamNamePattern"`
	ReorderEvents          bool `json:"reorderEvents"`
	ProcessingLagMs        int  `json:"processingLag"`
	IsBiState              bool `json:"isBiState"`
	DefinesStateTransform  bool `json:"definesStateTransform"`
	ProducesResults        bool `json:"producesResults"`
	DefinesFold            bool `json:"definesFold"`
	HandlesDeleted         bool `json:"handlesDeletedNotifications"` // $deleted
	IncludeLinks           bool `json:"includeLinks"`
}

// Names are never null in JSON.
type Names []string

// MarshalJSON writes an array.
func (n Names) MarshalJSON() ([]byte, error) { return json.Marshal(append([]string{}, n...)) }

// Name is null in JSON where nothing is named.
type Name string

// MarshalJSON writes a string or null.
func (n Name) MarshalJSON() ([]byte, error) {
	if n == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(n))
}

// Event is an event as a handler sees it.
type Event struct {
	// the event itself; of a link that was resolved its target. Its data may be those of a page:
	// not to be changed
	*event.Record
	Link      *event.Record // the link it was reached through; nil: none
	Category  string        // with fromCategory
	Partition string        // set before Process; empty: the root
	// Gone is the stream whose deletion the event tells; empty: none. It is set only
	// when the definition asks for that.
	Gone string
	// GoneOnly says that the event is for nothing but telling that Gone is gone: it is
	// not one that Process would get. Else Process gets it first, and then Deleted.
	GoneOnly bool
}

// Field is one member of a JSON object, its value as JSON text.
type Field struct {
	Name  string
	Value []byte
}

// Emission is one event to be written.
type Emission struct {
	Stream, Type string
	JSON         bool
	Data         []byte
	Metadata     []Field // besides those that every emitted event has, in order
	// To is the stream and number that a link names; nil: it is none. A link whose
	// target is gone is passed over in recovery.
	To *Target
	// Mark says that it only tells how far the projection came. Where marks fall differs from run
	// to run: they are not compared in recovery, and one that is not newer than the last event of
	// its stream is skipped.
	Mark bool
}

// Target is the event that a link names.
type Target struct {
	Stream string
	Number int64
}

// Outcome is what became of one event.
type Outcome struct {
	// Skipped says that the event was not for the handler: nothing else is set.
	Skipped bool
	// State is the text of the partition's state; nil: it has none. Shared is that of
	// the shared state of a bi-state projection. They are the same slice as
	// before when nothing changed, and are never written to again.
	State, Shared []byte
	Emitted       []Emission
}

// Handler is the code of a projection. It belongs to one goroutine at a time. Errors are *Fault:
// the projection cannot continue.
type Handler interface {
	Definition() *Definition
	// PartitionOf names an event's partition, with ByCustomPartitions; not ok: the event is passed
	// over.
	PartitionOf(e *Event) (partition string, ok bool, err error)
	// Load makes a partition the one that Process works on. With a nil state it is new, and
	// its state begins at the first event.
	Load(partition string, state []byte) error
	// LoadShared sets the shared state, nil to begin it. It is called for bi-state projections,
	// before Load.
	LoadShared(state []byte) error
	// Process hands an event to the handler for its type.
	Process(e *Event) (Outcome, error)
	// Deleted says that the stream of the partition is gone, which the event e tells.
	Deleted(e *Event) (Outcome, error)
	// Result transforms the state that is loaded; nil: there is no result.
	Result() ([]byte, error)
	Close()
}

// ErrInterrupted is what calls return in place of a Fault that Interrupt cut short.
var ErrInterrupted = errors.New("the handler was interrupted")

// Interrupter is a Handler whose calls may take long. Interrupt makes the running call and all that
// follow end soon. It may be called from any goroutine.
type Interrupter interface {
	Interrupt()
}

// Fault is an error of a projection's code.
type Fault struct {
	// the name that the function was given under, "$any", "partitionBy"; empty: the message tells
	// all
	Handler string
	Message string
	// Line and Column of the source, from 1; 0: not known. Stack is that of the script.
	Line, Column int
	Stack        string
	// Definition says that the definition is wrong, rather than the handling of an event.
	Definition bool
	// Known says that clients know the message: it is shown as it is, without the place.
	Known bool
}

func (f *Fault) Error() string {
	if f.Line > 0 && !f.Known {
		return fmt.Sprintf("%s (line %d, column %d)", f.Message, f.Line, f.Column)
	}
	return f.Message
}
