package projection

import (
	"sync"

	"github.com/annalsdb/annals/projection/handler"
)

// lazy is the handler of a script that is compiled when the first event comes.
// Most projections have none to handle for a while, and a compiled script takes
// several times the memory of all else of a projection.
type lazy struct {
	definition *handler.Definition
	compile    func() (handler.Handler, error)
	handler    handler.Handler // nil: it is not compiled

	mu          sync.Mutex // guards what follows, which Interrupt looks at
	compiled    handler.Handler
	interrupted bool
}

// newLazy closes a handler and returns one that is compiled when it is needed.
func newLazy(h handler.Handler, compile func() (handler.Handler, error)) *lazy {
	h.Close()
	return &lazy{definition: definitionOf(h), compile: compile}
}

// definitionOf returns the definition of a handler, without what keeps the handler in memory.
func definitionOf(h handler.Handler) *handler.Definition {
	d := *h.Definition()
	return &d
}

func (l *lazy) get() (_ handler.Handler, err error) {
	if l.handler == nil {
		if l.handler, err = l.compile(); err == nil {
			l.mu.Lock()
			l.compiled = l.handler
			l.cut()
			l.mu.Unlock()
		}
	}
	return l.handler, err
}

// Interrupt has calls end soon, but for the compilation.
func (l *lazy) Interrupt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.interrupted = true
	l.cut()
}

// cut interrupts what was compiled. The caller holds mu.
func (l *lazy) cut() {
	if i, ok := l.compiled.(handler.Interrupter); ok && l.interrupted {
		i.Interrupt()
	}
}

// Definition is what the script reads.
func (l *lazy) Definition() *handler.Definition { return l.definition }

// PartitionOf names an event's partition.
func (l *lazy) PartitionOf(e *handler.Event) (string, bool, error) {
	h, err := l.get()
	if err != nil {
		return "", false, err
	}
	return h.PartitionOf(e)
}

// Load makes a partition the one that is worked on.
func (l *lazy) Load(partition string, state []byte) error {
	h, err := l.get()
	if err != nil {
		return err
	}
	return h.Load(partition, state)
}

// LoadShared sets the shared state.
func (l *lazy) LoadShared(state []byte) error {
	h, err := l.get()
	if err != nil {
		return err
	}
	return h.LoadShared(state)
}

// Process hands an event to the script.
func (l *lazy) Process(e *handler.Event) (handler.Outcome, error) {
	h, err := l.get()
	if err != nil {
		return handler.Outcome{}, err
	}
	return h.Process(e)
}

// Deleted says that a stream is gone.
func (l *lazy) Deleted(e *handler.Event) (handler.Outcome, error) {
	h, err := l.get()
	if err != nil {
		return handler.Outcome{}, err
	}
	return h.Deleted(e)
}

// Result transforms the state that is loaded.
func (l *lazy) Result() ([]byte, error) {
	h, err := l.get()
	if err != nil {
		return nil, err
	}
	return h.Result()
}

// Close lets the script go, if it was compiled.
func (l *lazy) Close() {
	l.mu.Lock()
	l.compiled = nil
	l.mu.Unlock()
	if l.handler != nil {
		l.handler.Close()
		l.handler = nil
	}
}
