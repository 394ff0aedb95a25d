package main

import (
	"bytes"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/annalsdb/annals/internal/check"
)

// TestTerminalColumns: a bar is drawn on a terminal that is wide enough, else lines.
func TestTerminalColumns(t *testing.T) {
	t.Setenv("TERM", "xterm")
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminals here:", err)
	}
	defer func() { check.NoError(t, terminal.Close()) }()
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
		check.Must(t, unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: c.columns}))
		check.Equal(t, terminalColumns(terminal), int(c.columns), "columns, want", c.columns)
		check.Equal(t, kind(c.progress), c.want, c.progress, "with", c.columns, "columns")
	}
	t.Setenv("TERM", "dumb")
	check.Equal(t, terminalColumns(terminal), 0, "a dumb terminal")
	null := check.Value(os.Open(os.DevNull)).Must(t)
	check.Equal(t, terminalColumns(null), 0, os.DevNull)
	check.NoError(t, null.Close())
	check.Equal(t, terminalColumns(&bytes.Buffer{}), 0, "a buffer")
}
