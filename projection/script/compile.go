package script

import (
	"errors"
	"fmt"
	"time"

	"github.com/dop251/goja"
	"github.com/dop251/goja/parser"

	"github.com/annalsdb/annals/projection/handler"
)

// sourceName is what stacks call the script.
const sourceName = "projection"

// Compile runs the text of a script and returns its handlers. Every error is a *handler.Fault with
// Definition set.
func Compile(source string, o Options) (*Handler, error) {
	e := &engine{o: o}
	c := &codec{e: e}
	h := &Handler{e: e, codec: c, emitter: &emitter{e: e, codec: c}, named: map[string]goja.Callable{}}
	if err := h.compile(source); err != nil {
		if h.e.dog != nil {
			h.e.dog.close()
		}
		f := err.(*handler.Fault)
		f.Definition, f.Known = true, isKnown(f.Message)
		return nil, f
	}
	return h, nil
}

func (h *Handler) compile(source string) error {
	began := time.Now()
	program, it, err := parse(source)
	if err != nil {
		return err
	}
	if took := time.Since(began); h.e.o.CompileTimeout > 0 && took > h.e.o.CompileTimeout {
		return &handler.Fault{Message: tooLong("compile", took, h.e.o.CompileTimeout)}
	}
	h.e.rt = goja.New()
	h.e.rt.SetMaxCallStackSize(maxCalls)
	h.e.dog = newWatchdog(h.e.rt)
	if err := restrict(h.codec, source, it); err != nil {
		return &handler.Fault{Message: err.Error()}
	}
	b := &builder{h: h}
	b.begin()
	h.e.dog.bound(h.e.o.CompileTimeout, "compile")
	err = h.e.run("", func() error {
		_, err := h.e.rt.RunProgram(program)
		return err
	})
	if err != nil {
		return err
	}
	h.e.dog.bound(h.e.o.ExecutionTimeout, "execute")
	return b.end()
}

// parse never touches a file: the engine would otherwise load the source map that a
// comment of the script names.
func parse(source string) (program *goja.Program, it *iterables, err error) {
	defer func() {
		if p := recover(); p != nil {
			program, it, err = nil, nil, &handler.Fault{Message: fmt.Sprintf("the script cannot be compiled: %v", p)}
		}
	}()
	if err := checkNesting(source); err != nil {
		return nil, nil, err
	}
	ast, err := parser.ParseFile(nil, sourceName, source, 0, parser.WithDisableSourceMaps)
	if err != nil {
		var list parser.ErrorList
		if errors.As(err, &list) && len(list) > 0 {
			at := list[0].Position
			return nil, nil, &handler.Fault{Message: "SyntaxError: " + list[0].Message, Line: at.Line, Column: at.Column}
		}
		return nil, nil, &handler.Fault{Message: err.Error()}
	}
	if it = rewrite(ast, mayBeBig(source), mayGrow(source)); it.refused != nil {
		at := ast.File.Position(int(it.refused.Idx0()) - ast.File.Base())
		return nil, nil, &handler.Fault{Message: "SyntaxError: " + it.why, Line: at.Line, Column: at.Column}
	}
	if program, err = goja.CompileAST(ast, false); err != nil {
		var e *goja.CompilerSyntaxError
		if errors.As(err, &e) {
			f := &handler.Fault{Message: "SyntaxError: " + e.Message}
			if e.File != nil {
				at := e.File.Position(e.Offset)
				f.Line, f.Column = at.Line, at.Column
			}
			return nil, nil, f
		}
		return nil, nil, &handler.Fault{Message: err.Error()}
	}
	return program, it, nil
}
