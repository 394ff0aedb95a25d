package projection

import (
	"strings"

	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/run"
	"github.com/annalsdb/annals/projection/script"
	"github.com/annalsdb/annals/projection/standard"
)

// Source is the text of a projection with all that its handler depends on.
type Source struct {
	Type, Query string
	script.Options
}

// Compile makes the handler of a projection: of a script, or a built-in one.
func Compile(s Source) (handler.Handler, error) {
	if !isScript(s.Type) {
		return standard.New(s.Type, s.Query, s.MayEmit)
	}
	h, err := script.Compile(s.Query, s.Options)
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
	s := Source{d.HandlerType, d.Query, script.Options{
		Name: name, MayEmit: d.EmitEnabled && d.Mode != Transient, MaxState: int(t.opts.MaxStateSize),
		CompileTimeout: t.opts.CompileTimeout, ExecutionTimeout: t.opts.ExecutionTimeout,
		Log: func(text string) { t.opts.Logger.Debug("a projection says", "projection", name, "text", text) },
	}}
	if ms := d.ProjectionExecutionTimeout; ms != nil {
		s.ExecutionTimeout = run.Milliseconds(*ms)
	}
	return t.opts.Compile(s)
}

// define compiles a definition to learn its sources.
func (t *term) define(name string, d *definition) (*handler.Definition, error) {
	h, err := t.compile(name, d)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	reads := *h.Definition() // A copy does not keep the handler in memory.
	return &reads, nil
}

// examine notes its sources in a definition, and returns them.
func (t *term) examine(name string, d *definition) *handler.Definition {
	reads, err := t.define(name, d)
	if err != nil { // It is found again when the projection is prepared.
		reads = nil
	}
	d.Source = reads
	return reads
}
