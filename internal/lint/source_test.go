package lint

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

const modulePath = "github.com/annalsdb/annals"

// source is one Go file of the module.
type source struct {
	name  string // from the module's root, with slashes
	text  []byte
	set   *token.FileSet
	file  *ast.File
	lines int
}

func (s *source) folder() string { return path.Dir(s.name) }
func (s *source) isTest() bool   { return strings.HasSuffix(s.name, "_test.go") }

func (s *source) imports() []string {
	paths := make([]string, 0, len(s.file.Imports))
	for _, i := range s.file.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err == nil {
			paths = append(paths, p)
		}
	}
	return paths
}

// uses lists the places where something of a package is named, as far as the
// file imports it: selected names with their positions.
func (s *source) uses(importPath string) map[string][]token.Position {
	local := ""
	for _, i := range s.file.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err == nil && p == importPath {
			local = path.Base(importPath)
			if i.Name != nil {
				local = i.Name.Name
			}
		}
	}
	found := map[string][]token.Position{}
	if local == "" {
		return found
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == local {
				position := s.set.Position(sel.Pos())
				position.Filename = s.name
				found[sel.Sel.Name] = append(found[sel.Sel.Name], position)
			}
		}
		return true
	})
	return found
}

// root is the folder of go.mod.
func root(t *testing.T) string {
	t.Helper()
	dir := check.Value(os.Getwd()).Must(t)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("there is no go.mod above this package")
		}
		dir = parent
	}
}

// walk calls visit for each file that belongs to the repository.
func walk(t *testing.T, visit func(name string, read func() []byte)) {
	t.Helper()
	top := root(t)
	err := filepath.WalkDir(top, func(full string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(top, full)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		switch {
		case d.IsDir() && slices.Contains([]string{".git", "bin", "data"}, name):
			return filepath.SkipDir
		case d.IsDir() || !d.Type().IsRegular() || name == ".git":
			// which is a file in a linked work tree
			return nil
		}
		visit(name, func() []byte {
			text, err := os.ReadFile(full)
			check.NoError(t, err, name)
			return text
		})
		return nil
	})
	check.Must(t, err)
}

// parsed keeps the files between the tests of one run.
var parsed struct {
	once  sync.Once
	files []*source
}

// sources parses every Go file of the module, whatever its build constraints.
func sources(t *testing.T) []*source {
	t.Helper()
	parsed.once.Do(func() {
		walk(t, func(name string, read func() []byte) {
			if path.Ext(name) != ".go" || slices.Contains(strings.Split(name, "/"), "testdata") {
				return
			}
			s := &source{name: name, text: read(), set: token.NewFileSet()}
			var err error
			if s.file, err = parser.ParseFile(s.set, name, s.text, parser.ParseComments); err != nil {
				t.Errorf("parse: %v", err)
				return
			}
			s.lines = bytes.Count(s.text, []byte("\n"))
			parsed.files = append(parsed.files, s)
		})
	})
	if len(parsed.files) == 0 {
		t.Fatal("no Go files were found")
	}
	return parsed.files
}
