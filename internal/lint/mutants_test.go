package lint

import (
	"go/ast"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMutantsApply: the changes that scripts/mutants.sh builds in still fit the source.
func TestMutantsApply(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed")
	}
	top := root(t)
	patches, err := filepath.Glob(filepath.Join(top, "scripts", "mutants", "*.patch"))
	if err != nil || len(patches) == 0 {
		t.Fatalf("%d patches, %v", len(patches), err)
	}
	for _, patch := range patches {
		check := exec.CommandContext(t.Context(), git, "apply", "--check", patch)
		check.Dir = top
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", filepath.Base(patch), err, out)
		}
	}
}

// testName is the name of a test, a fuzz target or a benchmark in a text.
var testName = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9_]*`)

// TestNamedTestsExist: a document that says which test guards a promise, and a mutant that says
// which test notices it, name tests that are there. A pattern of go test's -run names those that
// begin with it, as a test that was renamed would run as nothing and pass.
// formerName is the name that a test had at a commit, before the one that it has now.
var formerName = regexp.MustCompile("`[0-9a-f]{8} \\S+ Test\\w+`, now ")

// longTests are the packages whose tests named TestLong are left out of make test: those that make
// test-long runs.
var longTests = []string{"integration", "integration/ui", "torture"}

func TestNamedTestsExist(t *testing.T) {
	inFolder := map[string][]string{}
	var all []string
	for _, f := range sources(t) {
		if !f.isTest() {
			continue
		}
		for _, d := range f.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && testName.MatchString(fn.Name.Name) {
				inFolder[f.folder()] = append(inFolder[f.folder()], fn.Name.Name)
				all = append(all, fn.Name.Name)
				if strings.HasPrefix(fn.Name.Name, "TestLong") && !slices.Contains(longTests, f.folder()) {
					t.Errorf("%s of %s is run by no target: only in %s are tests called so", fn.Name.Name, f.folder(), longTests)
				}
			}
		}
	}
	begins := func(among []string, name string) bool {
		for _, n := range among {
			if strings.HasPrefix(n, name) {
				return true
			}
		}
		return false
	}
	walk(t, func(name string, read func() []byte) {
		switch path.Ext(name) {
		case ".md":
			for _, n := range testName.FindAllString(formerName.ReplaceAllString(string(read()), ""), -1) {
				if !begins(all, n) {
					t.Errorf("%s names %s, which is no test", name, n)
				}
			}
		case ".patch":
			for line := range strings.Lines(string(read())) {
				what, ok := strings.CutPrefix(line, "# test: ./")
				if !ok {
					continue
				}
				folder, flags, _ := strings.Cut(what, " ")
				for _, n := range testName.FindAllString(flags, -1) {
					if !begins(inFolder[folder], n) {
						t.Errorf("%s is noticed by %s, which is no test of %s", name, n, folder)
					}
				}
			}
		}
	})
}
