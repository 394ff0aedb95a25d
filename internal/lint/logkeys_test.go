package lint

import (
	"go/ast"
	"strconv"
	"testing"
)

// logLevels are the methods of a logger that take keys and values after a text.
var logLevels = map[string]bool{"Trace": true, "Debug": true, "Info": true, "Warn": true, "Error": true}

// TestLogKeys: a key that internal/logkey has does not stand as a literal.
func TestLogKeys(t *testing.T) {
	keys := map[string]string{}
	for _, f := range sources(t) {
		if f.folder() != "internal/logkey" {
			continue
		}
		ast.Inspect(f.file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok {
				keys[literal(spec.Values[0])] = spec.Names[0].Name
			}
			return true
		})
	}
	if len(keys) == 0 {
		t.Fatal("internal/logkey has no keys")
	}
	for _, f := range sources(t) {
		if f.isTest() {
			continue
		}
		ast.Inspect(f.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if of, ok := call.Fun.(*ast.SelectorExpr); ok && logLevels[of.Sel.Name] {
				for i := 1; i < len(call.Args); i += 2 {
					if name := keys[literal(call.Args[i])]; name != "" {
						t.Errorf("%v: write logkey.%s", f.set.Position(call.Args[i].Pos()), name)
					}
				}
			}
			return true
		})
	}
}

// literal is the text of a string that stands in the code, empty for anything else.
func literal(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok {
		if text, err := strconv.Unquote(l.Value); err == nil {
			return text
		}
	}
	return ""
}
