package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// TestTimersAreRelaxed: every thread of a node has the slack, those of the runtime too. The process
// is the one that was started, with its name: by that pgrep, the journal and the system's own
// messages know it.
func TestTimersAreRelaxed(t *testing.T) {
	command, stderr := startNode(t)
	defer end(t, command)
	defer func() { _ = stderr.Close() }()
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", command.Process.Pid))
	check.Must(t, err)
	want := filepath.Base(os.Args[0])
	if got := strings.TrimSpace(string(comm)); got != want[:min(len(want), 15)] {
		t.Errorf("the process is named %q, and was started as %q", got, want)
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", command.Process.Pid))
	if err != nil || len(threads) < 2 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	for _, thread := range threads {
		slack, err := os.ReadFile("/proc/" + filepath.Base(thread) + "/timerslack_ns")
		if errors.Is(err, fs.ErrPermission) {
			t.Skip("only a privileged user may look")
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // It ended.
		}
		if got := strings.TrimSpace(string(slack)); err != nil || got != fmt.Sprint(int64(timerSlack)) {
			t.Errorf("slack of %s: %q ns, %v", thread, got, err)
		}
	}
}
