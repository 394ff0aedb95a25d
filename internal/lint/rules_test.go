package lint

import (
	"go/ast"
	"go/types"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// maxLines is the size past which a file holds more than one idea.
const maxLines = 800

// forbiddenImports are packages of the standard library that no package imports.
var forbiddenImports = map[string]string{
	"log":      "logging is hashicorp/go-hclog",
	"log/slog": "logging is hashicorp/go-hclog",
}

// Applying an entry must give the same result on every node and at every time.
// The clock of the leader's decider is handed to it. It may ask crypto/rand for
// the ids of events that the leader adds itself.
var (
	forbiddenInFSM      = []string{"math/rand", "math/rand/v2"}
	forbiddenTimesInFSM = []string{"Now", "Since", "Until"}
)

// typedAtomics are what sync/atomic is for here. Its functions take the address
// of an ordinary variable, and one forgotten use of that is a race.
var typedAtomics = []string{"Bool", "Int32", "Int64", "Uint32", "Uint64", "Uintptr", "Pointer", "Value"}

// packageNames are the folders whose package is named otherwise.
var packageNames = map[string]string{"log": "eventlog", "http": "httpapi", "grpc": "grpcapi"}

func TestForbiddenImports(t *testing.T) {
	for _, f := range sources(t) {
		for _, p := range f.imports() {
			if why, ok := forbiddenImports[p]; ok {
				t.Errorf("%s imports %s: %s", f.name, p, why)
			}
			if within(f.folder(), "fsm") && !f.isTest() && slices.Contains(forbiddenInFSM, p) {
				t.Errorf("%s imports %s: what is applied must not depend on chance", f.name, p)
			}
			if p == "C" {
				t.Errorf("%s uses cgo: the product is one static binary", f.name)
			}
		}
	}
}

func TestForbiddenCalls(t *testing.T) {
	for _, f := range sources(t) {
		for name, places := range f.uses("sync/atomic") {
			if !slices.Contains(typedAtomics, name) {
				t.Errorf("%v: atomic.%s: use the typed atomics", places[0], name)
			}
		}
		if f.isTest() {
			continue
		}
		times := f.uses("time")
		if places := times["Sleep"]; places != nil && !within(f.folder(), "bench") {
			t.Errorf("%v: time.Sleep: wait for what is to happen, or for a timer together with the context", places[0])
		}
		if within(f.folder(), "fsm") {
			for _, name := range forbiddenTimesInFSM {
				if places := times[name]; places != nil {
					t.Errorf("%v: time.%s: the clock is handed in", places[0], name)
				}
			}
		}
	}
}

func TestFileSize(t *testing.T) {
	for _, f := range sources(t) {
		if f.lines > maxLines && !ast.IsGenerated(f.file) {
			t.Errorf("%s has %d lines, more than %d", f.name, f.lines, maxLines)
		}
	}
}

// maxFunctions bounds how many functions of a package have a type of ours as their receiver or as
// a parameter: a type that more functions work on hides several, be they methods of it or not.
const maxFunctions = 60

func TestFunctionsOfTypes(t *testing.T) {
	functions := map[string]int{} // by package and type
	for _, f := range sources(t) {
		if f.isTest() || ast.IsGenerated(f.file) {
			continue
		}
		for _, d := range f.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				for _, name := range typesOf(f, fn) {
					functions[f.folder()+": "+name]++
				}
			}
		}
	}
	for name, n := range functions {
		if n > maxFunctions {
			t.Errorf("%s is receiver or parameter of %d functions, more than %d", name, n, maxFunctions)
		}
	}
}

// typesOf returns the names of the types of this module that are receiver or parameter of a
// function, also by pointers and in slices. A name of one letter stands for any type.
func typesOf(f *source, fn *ast.FuncDecl) []string {
	var names []string
	fields := fn.Type.Params.List
	if fn.Recv != nil {
		fields = slices.Concat(fn.Recv.List, fields)
	}
	for _, field := range fields {
		name := ""
		ast.Inspect(field.Type, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncType, *ast.MapType:
				return false
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && name == "" && f.importsOurs(x.Name) {
					name = x.Name + "." + n.Sel.Name
				}
				return false
			case *ast.Ident:
				if name == "" && types.Universe.Lookup(n.Name) == nil && len(n.Name) > 1 {
					name = n.Name
				}
			}
			return true
		})
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// importsOurs reports whether a name is that of a package of this module.
func (s *source) importsOurs(name string) bool {
	for _, i := range s.file.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err == nil && within(p, modulePath) && (i.Name == nil && path.Base(p) == name || i.Name != nil && i.Name.Name == name) {
			return true
		}
	}
	return false
}

func TestPackageCommentsAndNames(t *testing.T) {
	comments := map[string]bool{}
	for _, f := range sources(t) {
		folder := f.folder()
		external := f.isTest() && strings.HasSuffix(f.file.Name.Name, "_test")
		if !external {
			comments[folder] = comments[folder] || ast.IsGenerated(f.file) || f.file.Doc != nil && strings.HasPrefix(f.file.Doc.Text(), "Package "+f.file.Name.Name+" ")
		} else if _, ok := comments[folder]; !ok {
			comments[folder] = false
		}
		want, ok := packageNames[folder]
		if !ok {
			want = path.Base(folder)
		}
		if name := strings.TrimSuffix(f.file.Name.Name, "_test"); name != want && name != "main" {
			t.Errorf("%s: package %s in folder %s, want package %s", f.name, name, folder, want)
		}
	}
	for folder, ok := range comments {
		if !ok {
			t.Errorf("%s has no package comment that begins with its name", folder)
		}
	}
}

// forbiddenWords name places that exist only where the project is made, and
// servers that a build must take from its surroundings. They are put together
// here so that this file does not hold them.
var forbiddenWords = []string{
	`\.\./` + `shared\b`,
	`(^|[^\w.])/` + `work/`,
	`proxy\.` + `golang\.org`,
	`sum\.` + `golang\.org`,
	`deb\.` + `debian\.org`,
	`registry\.` + `npmjs\.org`,
	`goproxy\.` + `(io|cn)`,
}

func TestForbiddenWords(t *testing.T) {
	words := regexp.MustCompile(`(?mi)` + strings.Join(forbiddenWords, "|"))
	walk(t, func(name string, read func() []byte) {
		if strings.Contains(name, "testdata/fuzz/") {
			return
		}
		if at := words.FindIndex(read()); at != nil {
			t.Errorf("%s: %q does not belong into the repository", name, read()[at[0]:at[1]])
		}
	})
}
