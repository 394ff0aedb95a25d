package main

import (
	"bytes"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTerminalColumns: a bar is drawn on a terminal that is wide enough, else lines.
func TestTerminalColumns(t *testing.T) {
	t.Setenv("TERM", "xterm")
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminals here:", err)
	}
	defer func() {
		if err := terminal.Close(); err != nil {
			t.Error(err)
		}
	}()
	kind := func(progress string) string {
		f := scavengeFlags{progress: progress}
		switch p := f.newProgress(&scavengeClient{nodeClient: new(nodeClient)}, terminal).(type) {
		case *phaseBars:
			return "bar"
		case *phaseLines:
			if p.w == io.Discard {
				return "none"
			}
		}
		return "lines"
	}
	for _, c := range []struct {
		columns        uint16
		progress, want string
	}{
		{120, "auto", "bar"},
		{barColumns, "auto", "bar"},
		{barColumns - 1, "auto", "lines"},
		{0, "auto", "lines"},
		{40, "bar", "bar"},
		{120, "lines", "lines"},
		{120, "none", "none"},
	} {
		if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: c.columns}); err != nil {
			t.Fatal(err)
		}
		if columns := terminalColumns(terminal); columns != int(c.columns) {
			t.Errorf("%d columns, want %d", columns, c.columns)
		}
		if got := kind(c.progress); got != c.want {
			t.Errorf("%s with %d columns: %s, want %s", c.progress, c.columns, got, c.want)
		}
	}
	t.Setenv("TERM", "dumb")
	if columns := terminalColumns(terminal); columns != 0 {
		t.Errorf("a dumb terminal: %d", columns)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if columns := terminalColumns(null); columns != 0 {
		t.Errorf("%s: %d", os.DevNull, columns)
	}
	if err := null.Close(); err != nil {
		t.Error(err)
	}
	if columns := terminalColumns(&bytes.Buffer{}); columns != 0 {
		t.Errorf("a buffer: %d", columns)
	}
}
