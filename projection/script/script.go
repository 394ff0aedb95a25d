// Package script runs the handlers of projections that are written in JavaScript.
//
// A Handler owns one engine. The text of the script runs once, when it is compiled,
// and says what the projection reads; then its functions are called, one for each
// event. A script sees nothing but the events that it is handed: it has no files,
// no network, no modules and no timers, and what one call may take of time, stack
// and memory is bounded.
package script

import (
	"errors"
	"time"

	"github.com/annalsdb/annals/projection/handler"
)

// Options of a script.
type Options struct {
	CompileTimeout   time.Duration // of the definition; 0: no limit
	ExecutionTimeout time.Duration // of each call; 0: no limit
	MaxState         int           // bytes of a state and its result together; 0: no limit
	MayEmit          bool          // without it emit, linkTo, linkStreamTo and copyTo fault
	Name             string        // of the projection, for the texts of faults
	Log              func(text string)
}

// Handler is a compiled script. It belongs to one goroutine at a time.
type Handler struct {
	o Options
	d handler.Definition
}

var _ handler.Handler = (*Handler)(nil)

var errNotYet = errors.New("scripts do not run yet")

// Compile runs the text of a script and returns what it defines. Every error is a
// *handler.Fault with Definition set.
func Compile(source string, o Options) (*Handler, error) {
	return nil, &handler.Fault{Message: errNotYet.Error(), Definition: true}
}

// Definition is what the script reads and how it groups it.
func (h *Handler) Definition() *handler.Definition { return &h.d }

// PartitionOf calls the function given to partitionBy.
func (h *Handler) PartitionOf(e *handler.Event) (string, bool, error) { return "", false, errNotYet }

// Load makes a partition the one that Process works on.
func (h *Handler) Load(partition string, state []byte) error { return errNotYet }

// LoadShared sets the shared state of a bi-state projection.
func (h *Handler) LoadShared(state []byte) error { return errNotYet }

// Process calls the handler of the event's type.
func (h *Handler) Process(e *handler.Event) (handler.Outcome, error) {
	return handler.Outcome{}, errNotYet
}

// Deleted calls $deleted for the partition that is loaded.
func (h *Handler) Deleted(e *handler.Event) (handler.Outcome, error) {
	return handler.Outcome{}, errNotYet
}

// Result is the state that is loaded after transformBy and filterBy; nil: there is none.
func (h *Handler) Result() ([]byte, error) { return nil, errNotYet }

// Close lets the engine go.
func (h *Handler) Close() {}
