package lint

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
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

// maxMethods bounds a type: one with more hides several.
const maxMethods = 40

func TestMethods(t *testing.T) {
	methods := map[string]map[string]bool{}
	for _, f := range sources(t) {
		if f.isTest() {
			continue
		}
		for _, d := range f.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil {
				continue
			}
			of := fn.Recv.List[0].Type
			if star, ok := of.(*ast.StarExpr); ok {
				of = star.X
			}
			if generic, ok := of.(*ast.IndexExpr); ok {
				of = generic.X
			}
			if name, ok := of.(*ast.Ident); ok {
				key := f.folder() + "." + name.Name
				if methods[key] == nil {
					methods[key] = map[string]bool{}
				}
				methods[key][fn.Name.Name] = true
			}
		}
	}
	for name, all := range methods {
		if len(all) > maxMethods {
			t.Errorf("%s has %d methods, more than %d", name, len(all), maxMethods)
		}
	}
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
