package script

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dop251/goja"

	"github.com/annalsdb/annals/projection/handler"
)

// maxCalls is how deeply calls of functions may nest.
const maxCalls = 2000

// run lets f run the script within its bounds. What f returns or panics with becomes
// a *handler.Fault of the function called name, or handler.ErrInterrupted.
func (e *engine) run(name string, f func() error) error {
	e.dog.start()
	err := catch(f)
	e.nested = 0
	cause := e.dog.stop()
	if err == nil && cause == "" {
		return nil
	}
	if cause == ended {
		return handler.ErrInterrupted
	}
	fault := e.describe(err)
	fault.Handler = name
	if cause != "" {
		fault.Message = cause
	}
	return fault
}

// catch turns a panic into an error. The engine's own mistakes must end the projection
// rather than the node.
func catch(f func() error) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case error:
			err = p
		default:
			err = fmt.Errorf("the script engine failed: %v", p)
		}
	}()
	return f()
}

// try runs f, which may panic with exceptions of the script.
func (e *engine) try(f func()) error {
	if ex := e.rt.Try(f); ex != nil {
		return ex
	}
	return nil
}

// describe says what went wrong. To read the message of an error may run the script
// again, which gets the same bounds.
func (e *engine) describe(err error) *handler.Fault {
	var (
		fault *handler.Fault
		ex    *goja.Exception
		over  *goja.StackOverflowError
		stop  *goja.InterruptedError
	)
	switch {
	case errors.As(err, &fault):
		return fault
	case errors.As(err, &over):
		fault = &handler.Fault{Message: fmt.Sprintf("Maximum call stack size exceeded: more than %d calls within each other", maxCalls)}
		place(fault, over.Stack())
	case errors.As(err, &stop):
		fault = &handler.Fault{Message: "interrupted"}
		place(fault, stop.Stack())
	case errors.As(err, &ex):
		fault = &handler.Fault{Message: "an exception without a text"}
		place(fault, ex.Stack())
		e.dog.start()
		told := catch(func() error { return e.try(func() { fault.Message = messageOf(ex.Value()) }) })
		if e.dog.stop() != "" || told != nil {
			fault.Message = "an exception whose text cannot be read"
		}
	case err != nil:
		fault = &handler.Fault{Message: err.Error()}
	default:
		fault = &handler.Fault{}
	}
	return fault
}

// messageOf is the text of a thrown value: of an error its message, anything else as a text.
func messageOf(v goja.Value) string {
	if o, ok := v.(*goja.Object); ok {
		if m := o.Get("message"); m != nil && !goja.IsUndefined(m) {
			return m.String()
		}
	}
	if v == nil {
		return "undefined"
	}
	return v.String()
}

// place says where a fault happened: the innermost function of the script, and the
// script's part of the stack.
func place(f *handler.Fault, stack []goja.StackFrame) {
	var b strings.Builder
	for i := range stack {
		if stack[i].SrcName() != sourceName {
			continue
		}
		at := stack[i].Position()
		if f.Line == 0 {
			f.Line, f.Column = at.Line, at.Column
		}
		if b.Len() > maxStackText {
			b.WriteString("\n    ...")
			break
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "    at %s (%d:%d)", stack[i].FuncName(), at.Line, at.Column)
	}
	f.Stack = b.String()
}

// maxStackText bounds the text of a stack.
const maxStackText = 2000

func tooLong(verb string, took, allowed time.Duration) string {
	return fmt.Sprintf("Projection script took too long to %s (took: %v, allowed: %v)", verb, took.Round(time.Millisecond), allowed)
}

// throw throws a TypeError with the text.
func (e *engine) throw(format string, args ...any) {
	panic(e.rt.NewTypeError(append([]any{format}, args...)...))
}

// throwError throws an error of another kind.
func (e *engine) throwError(kind, format string, args ...any) {
	o, err := e.rt.New(e.rt.Get(kind), e.rt.ToValue(fmt.Sprintf(format, args...)))
	if err != nil {
		e.throw(format, args...)
	}
	panic(o)
}

// alive gives up when the call was interrupted. Functions of ours ask it: the engine
// looks only between its own instructions.
func (e *engine) alive() {
	if e.dog.fired() {
		e.throw("interrupted")
	}
}
