package integration_test

import (
	"bufio"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// fullPipe is a pipe that takes nothing more until it is read.
func fullPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	check.Must(t, err)
	t.Cleanup(func() { _ = errors.Join(r.Close(), w.Close()) })
	filler := []byte(strings.Repeat("-", 1023) + "\n")
	for {
		check.Must(t, w.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
		if _, err := w.Write(filler); errors.Is(err, os.ErrDeadlineExceeded) {
			return r, w
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestLogIntoAPipeThatNobodyReads: a node whose standard error takes nothing starts, serves and
// stops. It counts the dropped lines, and logs the count when the pipe is read again.
func TestLogIntoAPipeThatNobodyReads(t *testing.T) {
	t.Parallel()
	r, w := fullPipe(t)
	node := testkit.Launch(t, testkit.Command{
		Args:   []string{"node", "--db", t.TempDir(), "--node-port", "0", "--log-level=Verbose", "--log-http-requests"},
		Stderr: w,
	})
	node.AwaitServing()
	l := &ledger{}
	for i := range 20 {
		if answer, err := tryWrite(t.Context(), t, node, l, bigEvent(i)); err != nil || answer.Status != http.StatusCreated {
			t.Fatalf("write %d: %s, %v", i, answer, err)
		}
	}
	testkit.Eventually(t, settleLimit, func() error {
		for range 200 {
			check.Must(t, check.Err(node.Do(t.Context(), testkit.Request{Path: "/streams/" + strings.Repeat("x", 200)})))
		}
		answer, err := node.Do(t.Context(), testkit.Request{Path: "/metrics", Admin: true})
		if err == nil && strings.Contains(string(answer.Body), "annals_log_lines_dropped_total 0\n") {
			err = errors.New("all lines of the log find room")
		}
		return err
	})
	l.checkNode(t, node)

	told := make(chan error, 1)
	go func() {
		for lines := bufio.NewReaderSize(r, 64<<10); ; {
			line, err := lines.ReadString('\n')
			if err != nil || strings.Contains(line, "lines of the log were dropped") {
				told <- err
				return
			}
		}
	}()
	select {
	case err := <-told:
		check.NoError(t, err)
	case <-time.After(settleLimit):
		t.Error("it does not say that lines were dropped")
	}
	node.Stop()
}

// TestStopWithAPipeThatNobodyReads: a node ends in order, and one that cannot start ends with its
// code.
func TestStopWithAPipeThatNobodyReads(t *testing.T) {
	t.Parallel()
	_, w := fullPipe(t)
	db := t.TempDir()
	launch := func() *testkit.Process {
		return testkit.Launch(t, testkit.Command{Args: []string{"node", "--db", db, "--node-port", "0"}, Stderr: w})
	}
	node := launch()
	node.AwaitServing()
	second := launch() // The folder is in use.
	check.Equal(t, second.Wait(stopTime), 1, "exit code of a node that cannot start")
	node.Stop()
}

const stopTime = time.Minute
