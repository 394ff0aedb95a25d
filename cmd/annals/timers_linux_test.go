package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTimersAreRelaxed: every thread of a node has the slack, those of the runtime too.
func TestTimersAreRelaxed(t *testing.T) {
	command, stderr := startNode(t)
	defer end(t, command)
	defer func() { _ = stderr.Close() }()
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
