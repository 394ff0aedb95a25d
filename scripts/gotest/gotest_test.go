//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

func TestReport(t *testing.T) {
	in := strings.Join([]string{
		`{"Action":"output","Package":"a","Test":"TestGood","Output":"good\n"}`,
		`{"Action":"pass","Package":"a","Test":"TestGood"}`,
		`{"Action":"output","Package":"b","Test":"TestBad","Output":"bad\n"}`,
		`{"Action":"fail","Package":"b","Test":"TestBad"}`,
		`{"Action":"output","Package":"b","Test":"TestAlsoGood","Output":"also good\n"}`,
		`{"Action":"pass","Package":"b","Test":"TestAlsoGood"}`,
		`{"Action":"output","Package":"b","Output":"FAIL\tb\t1s\n"}`,
		`{"Action":"fail","Package":"b"}`,
		`{"ImportPath":"c","Action":"build-output","Output":"c.go:1: wrong\n"}`,
		`{"Action":"output","Package":"a","Output":"PASS\n"}`,
		`{"Action":"output","Package":"a","Output":"ok  \ta\t2s\n"}`,
		`{"Action":"pass","Package":"a"}`,
		`go: no JSON`,
	}, "\n") + "\n"
	var out strings.Builder
	check.Must(t, report(&out, strings.NewReader(in)))
	want := "bad\nFAIL\tb\t1s\nc.go:1: wrong\nok  \ta\t2s\ngo: no JSON\n"
	check.Equal(t, out.String(), want, "got ... want")
}

// TestTake: a program is copied under a name that changes with its bytes alone, and can be run.
func TestTake(t *testing.T) {
	f, program := folder{path: t.TempDir()}, filepath.Join(t.TempDir(), "annals")
	var names []string
	for _, text := range []string{"#!/bin/sh\nexit 1\n", "#!/bin/sh\nexit 0\n", "#!/bin/sh\nexit 0\n"} {
		check.Must(t, os.WriteFile(program, []byte(text), 0o600))
		names = append(names, check.Value(f.take(program)).Must(t))
	}
	if names[0] == names[1] || names[1] != names[2] {
		t.Errorf("the names are %q", names)
	}
	check.Fails(t, exec.Command(names[0]).Run(), "the first program ends with 0")
	check.NoError(t, exec.Command(names[1]).Run())
	check.Fails(t, check.Err(f.take(program+"s")), "a program that is not there")
}

// endless is a test that makes a folder, starts a process in a group of its own, and
// runs until it is ended.
const endless = `package endless

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

func TestEndless(t *testing.T) {
	c := exec.Command("sleep", "600")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line := fmt.Sprintf("%d %s\n", c.Process.Pid, t.TempDir())
	if err := os.WriteFile(os.Getenv("ENDLESS"), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	select {}
}
`

func TestSignalLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "gotest")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	module := filepath.Join(dir, "module")
	pipe := filepath.Join(dir, "pipe")
	err := errors.Join(os.Mkdir(module, 0o700), syscall.Mkfifo(pipe, 0o600),
		os.WriteFile(filepath.Join(module, "go.mod"), []byte("module endless\n"), 0o600),
		os.WriteFile(filepath.Join(module, "endless_test.go"), []byte(endless), 0o600))
	check.Must(t, err)
	command := exec.Command(program, ".")
	command.Dir = module
	command.Env = append(os.Environ(), "ENDLESS="+pipe, "TMPDIR="+dir, "GOFLAGS=")
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	check.Must(t, command.Start())
	from, err := os.Open(pipe) // Opened when the test within opens it.
	check.Must(t, err)
	line, err := bufio.NewReader(from).ReadString('\n')
	check.Must(t, errors.Join(err, from.Close(), command.Process.Signal(syscall.SIGTERM)))
	check.Fails(t, command.Wait(), "the exit code is 0")
	number, folder, _ := strings.Cut(strings.TrimSpace(line), " ")
	pid := check.Value(strconv.Atoi(number)).Must(t)
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the process that the test started is still there: %v", err)
	}
	left := check.Value(filepath.Glob(filepath.Join(dir, "annals-test-*"))).Must(t)
	if len(left) > 0 || !strings.HasPrefix(folder, fmt.Sprint(dir, "/annals-test-")) {
		t.Errorf("left behind: %q; the test's folder was %s", left, folder)
	}
}
