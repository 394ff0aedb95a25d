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

// Compile runs the text of a script and returns what it defines. Every error is a
// *handler.Fault with Definition set.
func Compile(source string, o Options) (*Handler, error) {
	h := &Handler{o: o, named: map[string]goja.Callable{}}
	if err := h.compile(source); err != nil {
		if h.dog != nil {
			h.dog.close()
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
	if took := time.Since(began); h.o.CompileTimeout > 0 && took > h.o.CompileTimeout {
		return &handler.Fault{Message: tooLong("compile", took, h.o.CompileTimeout)}
	}
	h.rt, h.iterables = goja.New(), it
	h.rt.SetMaxCallStackSize(maxCalls)
	h.dog = newWatchdog(h.rt)
	if err := h.restrict(source); err != nil {
		return &handler.Fault{Message: err.Error()}
	}
	b := &builder{h: h}
	b.begin()
	h.dog.bound(h.o.CompileTimeout, "compile")
	err = h.run("", func() error {
		_, err := h.rt.RunProgram(program)
		return err
	})
	if err != nil {
		return err
	}
	h.dog.bound(h.o.ExecutionTimeout, "execute")
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
		return nil, nil, &handler.Fault{Message: "SyntaxError: " + refusedPattern, Line: at.Line, Column: at.Column}
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
