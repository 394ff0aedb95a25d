// Package script runs the handlers of projections that are written in JavaScript.
//
// A Handler owns one engine. The text of the script runs once, when it is compiled, and defines
// what the projection reads; then its functions are called, one for each event. A script sees
// nothing but the events that it is handed: it has no files, no network, no modules and no timers.
// The time, stack and memory of one call are bounded; a call that takes more ends in a fault.
//
// States live as objects of the engine as long as events of one partition follow
// each other, and as JSON text between them. JSON is read and written by this package
// rather than by the engine: quicker, bounded in depth and size, and body and metadata
// of an event only when the script touches them.
//
// Jobs of promises run at the end of the call that made them, within its time limit. A
// handler cannot wait for them: one that returns a promise ends in a fault.
package script

import (
	"time"

	"github.com/dop251/goja"

	"github.com/annalsdb/annals/projection/handler"
)

// Options of a script.
type Options struct {
	CompileTimeout   time.Duration // of the definition; 0: no limit
	ExecutionTimeout time.Duration // of each call; 0: no limit
	MaxState         int           // bytes of a state and its result together; 0: no limit
	MayEmit          bool          // without it emit, linkTo and linkStreamTo fault
	Name             string        // of the projection, for the texts of faults
	Log              func(text string)
}

// Handler is a compiled script. It belongs to one goroutine at a time.
type Handler struct {
	d       handler.Definition
	e       *engine
	codec   *codec
	emitter *emitter

	init, initShared, created, any, deleted, partitionBy goja.Callable
	named                                                map[string]goja.Callable
	transforms                                           []transform

	partition string // the one that is loaded
	own       state
	shared    state        // of a bi-state projection
	given     []goja.Value // the functions of the definition
	pair      *goja.Object // what handlers of a bi-state projection see: own and shared
}

// A transform is a function that was given to transformBy or filterBy.
type transform struct {
	fn     goja.Callable
	filter bool
}

var (
	_ handler.Handler     = (*Handler)(nil)
	_ handler.Interrupter = (*Handler)(nil)
)

// Definition says which events the script reads and how it groups them.
func (h *Handler) Definition() *handler.Definition { return &h.d }

// Interrupt has calls end soon. It must have returned before Close is called.
func (h *Handler) Interrupt() { h.e.dog.end() }

// Close lets the engine go.
func (h *Handler) Close() {
	h.e.dog.close()
	*h = Handler{d: h.d, e: &engine{o: h.e.o, dog: h.e.dog}}
}
