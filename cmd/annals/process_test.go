package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// asProcess makes the test binary be the product's, for tests of a whole process.
const asProcess = "ANNALS_TEST_AS_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(asProcess) != "" {
		main()
	}
	os.Exit(m.Run())
}

// startNode runs a node as a process of its own and returns it when it is ready, with its standard
// error.
func startNode(t *testing.T) (command *exec.Cmd, stderr io.ReadCloser) {
	t.Helper()
	command = exec.Command(os.Args[0], "node", "--mem-db", "--node-port=0")
	command.Dir = t.TempDir()
	command.Env = append(os.Environ(), asProcess+"=1")
	stdout, err := command.StdoutPipe()
	check.Must(t, err)
	if stderr, err = command.StderrPipe(); err != nil {
		t.Fatal(err)
	}
	check.Must(t, command.Start())
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "write a first event") {
	}
	return command, stderr
}

// end has a node end in order.
func end(t *testing.T, command *exec.Cmd) {
	t.Helper()
	check.NoError(t, command.Process.Signal(syscall.SIGTERM))
	check.NoError(t, command.Wait(), "the process ended with")
}

// TestNobodyReadsTheLog: a process whose standard error is a pipe that was closed
// at the other end keeps serving, and ends in order.
func TestNobodyReadsTheLog(t *testing.T) {
	command, stderr := startNode(t)
	check.NoError(t, stderr.Close())
	end(t, command)
}
