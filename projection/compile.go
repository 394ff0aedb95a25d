package projection

import (
	"strings"
	"sync"
	"time"

	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/script"
	"github.com/annalsdb/annals/projection/standard"
)

// Source is the text of a projection with all that its handler depends on.
type Source struct {
	Name, Type, Query string
	MayEmit           bool
	CompileTimeout    time.Duration
	ExecutionTimeout  time.Duration
	MaxStateSize      int64
	Log               func(text string)
}

// Compile makes the handler of a projection: of a script, or a built-in one.
func Compile(s Source) (handler.Handler, error) {
	if !isScript(s.Type) {
		return standard.New(s.Type, s.Query, s.MayEmit)
	}
	h, err := script.Compile(s.Query, script.Options{
		CompileTimeout: s.CompileTimeout, ExecutionTimeout: s.ExecutionTimeout, MaxState: int(s.MaxStateSize),
		MayEmit: s.MayEmit, Name: s.Name, Log: s.Log,
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// isScript reports whether a handler type is that of scripts.
func isScript(handlerType string) bool { return strings.EqualFold(handlerType, typeScript) }

// compile makes the handler of a definition.
func (t *term) compile(name string, d *definition) (handler.Handler, error) {
	t.compiling <- struct{}{}
	defer func() { <-t.compiling }()
	s := Source{
		Name: name, Type: d.HandlerType, Query: d.Query, MayEmit: d.EmitEnabled && d.Mode != Transient,
		CompileTimeout: t.opts.CompileTimeout, ExecutionTimeout: t.opts.ExecutionTimeout, MaxStateSize: t.opts.MaxStateSize,
		Log: func(text string) { t.opts.Logger.Debug("a projection says", "projection", name, "text", text) },
	}
	if ms := d.ProjectionExecutionTimeout; ms != nil {
		s.ExecutionTimeout = milliseconds(*ms)
	}
	return t.opts.Compile(s)
}

// ready is a handler that was compiled to learn its definition, for the
// preparation that follows.
type ready struct {
	mu      sync.Mutex
	handler handler.Handler
}

// take returns the handler, unless somebody took it or it is closed.
func (r *ready) take() handler.Handler {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.handler
	r.handler = nil
	return h
}

func (r *ready) close() {
	if h := r.take(); h != nil {
		h.Close()
	}
}

// examine compiles a definition and notes in it what it reads.
func (t *term) examine(name string, d *definition) *ready {
	d.Source = nil
	h, err := t.compile(name, d)
	if err != nil { // It is found again when the projection is prepared.
		return nil
	}
	d.Source = sourceOf(h.Definition())
	return &ready{handler: h}
}

func milliseconds(n int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(n, most)) * time.Millisecond
}
