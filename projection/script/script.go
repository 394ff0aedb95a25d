// Package script runs the handlers of projections that are written in JavaScript.
//
// A Handler owns one engine. The text of the script runs once, when it is compiled,
// and says what the projection reads; then its functions are called, one for each
// event. A script sees nothing but the events that it is handed: it has no files,
// no network, no modules and no timers. What one call may take of time, stack and
// memory is bounded; a call that takes more ends in a fault.
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
	o   Options
	d   handler.Definition
	rt  *goja.Runtime
	dog *watchdog

	init, initShared, created, any, deleted, partitionBy goja.Callable
	named                                                map[string]goja.Callable
	transforms                                           []transform

	partition  string // the one that is loaded
	own        state
	shared     state          // of a bi-state projection
	pair       *goja.Object   // what handlers of a bi-state projection see: own and shared
	objects    *goja.Object   // Object.prototype
	arrays     *goja.Object   // Array.prototype
	enumerable goja.Callable  // Object.prototype.propertyIsEnumerable
	has        goja.Callable  // Reflect.has
	iterables  *iterables     // how the script goes through them
	bytes      bool           // typed arrays are bounded
	locked     bool           // nothing changes how arrays are walked
	isArray    goja.Callable  // Array.isArray
	textOf     goja.Callable  // Function.prototype.toString
	joined     []*goja.Object // whose elements are being made a text
	put, odd   goja.Callable  // set and get properties whose names no Go string can hold
	buf        []byte         // of the JSON text that is written
	nested     int            // how many functions of ours that bound others are under way within each other

	emitted     []handler.Emission // by the call under way
	emittedText int                // about how many bytes these are
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

// Definition is what the script reads and how it groups it.
func (h *Handler) Definition() *handler.Definition { return &h.d }

// Interrupt has calls end soon. It must have returned before Close is called.
func (h *Handler) Interrupt() { h.dog.end() }

// Close lets the engine go.
func (h *Handler) Close() {
	h.dog.close()
	*h = Handler{o: h.o, d: h.d, dog: h.dog}
}
