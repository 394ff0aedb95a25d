package testkit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// build is the one binary of a test run.
var build struct {
	once sync.Once
	dir  string
	path string
	err  error
}

// Main runs the tests of a package, calls what ends what they share, and removes the
// binary that they had built. It belongs into TestMain.
func Main(m *testing.M, after ...func() error) {
	code := m.Run()
	for _, f := range after {
		if err := f(); err != nil {
			fmt.Fprintln(os.Stderr, "after the tests:", err)
			code = max(code, 1)
		}
	}
	if build.dir != "" {
		if err := os.RemoveAll(build.dir); err != nil {
			fmt.Fprintln(os.Stderr, "remove the built binary:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// Binary returns the path of the product's binary, which is built once per test
// run: with the race detector and the checks of invariants when the tests have
// them. ANNALS_BINARY names another one to test.
func Binary(t testing.TB) string {
	t.Helper()
	build.once.Do(func() {
		if build.path = os.Getenv("ANNALS_BINARY"); build.path == "" {
			build.err = buildBinary()
		}
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
	return build.path
}

// BuildTags are the tags that the tests themselves were built with, as go build takes them.
func BuildTags() []string {
	if invariants {
		return []string{"-tags=invariants"}
	}
	return nil
}

func buildBinary() (err error) {
	if build.dir, err = os.MkdirTemp("", "annals-test-"); err != nil {
		return err
	}
	build.path = filepath.Join(build.dir, "annals")
	root, err := Root()
	if err != nil {
		return err
	}
	args := append([]string{"build", "-o", build.path}, BuildTags()...)
	if raceDetector {
		args = append(args, "-race")
	}
	command := exec.Command(Go(), append(args, "./cmd/annals")...)
	command.Dir = root
	command.Env = os.Environ()
	if raceDetector {
		command.Env = append(command.Env, "CGO_ENABLED=1")
	}
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build the binary: %w\n%s", err, out)
	}
	return nil
}

// Go returns the Go tool. go test puts its own first into the path.
func Go() string { return "go" }

// Root returns the folder of the module that has the binary, above the working directory. Tests of
// another module may lie in between.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "annals")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no cmd/annals above the working directory")
		}
		dir = parent
	}
}

// InCI says whether the tests run where every tool must be there.
func InCI() bool {
	ci := os.Getenv("CI")
	return ci != "" && !strings.EqualFold(ci, "false") && ci != "0"
}

// NeedTool skips a test whose tool is not installed, except in CI, where that fails.
func NeedTool(t testing.TB, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err == nil {
		return
	}
	if InCI() {
		t.Fatalf("%s is not installed, and CI must run this test", tool)
	}
	t.Skipf("%s is not installed", tool)
}
