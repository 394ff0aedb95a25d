package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/annalsdb/annals/admin/scavenge"
)

// scavengeProgress shows the progress of a run. An error of writing does not stop the
// following.
type scavengeProgress interface {
	show(run *scavengeRun)
	pause()             // something else is about to be printed
	end(completed bool) // the run has ended, or is not followed any more
}

// newProgress returns the chosen way of showing progress.
func (f *scavengeFlags) newProgress(c *scavengeClient, stderr io.Writer) scavengeProgress {
	columns := func() int { return terminalColumns(stderr) }
	kind := f.progress
	if kind == "auto" {
		kind = "lines"
		if columns() >= barColumns {
			kind = "bar"
		}
	}
	switch kind {
	case "bar":
		return &phaseBars{w: stderr, columns: columns, clock: time.Now}
	case "none":
		stderr = io.Discard
	}
	return &phaseLines{w: stderr, host: c.host, clock: time.Now}
}

// terminalColumns is how wide a terminal is, and 0 if a writer is none that can show
// one line in place of another.
func terminalColumns(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return 0
	}
	columns, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// progressPlainEvery is how often a line says how far a phase is.
const progressPlainEvery = 5 * time.Second

// phaseLines prints a line when a phase begins, and more lines during it.
type phaseLines struct {
	w     io.Writer
	host  string
	clock func() time.Time

	phase scavenge.Phase
	last  time.Time // of the line before
	done  int64     // as of the line before
}

func (l *phaseLines) show(run *scavengeRun) {
	now := l.clock()
	begins := run.Phase != l.phase || l.last.IsZero()
	if !begins && now.Sub(l.last) < progressPlainEvery {
		return
	}
	text := phaseName(run.Phase)
	if p := run.progress(); p != "" {
		text += ", " + p
	}
	if !begins {
		if rate := float64(run.Done-l.done) / now.Sub(l.last).Seconds(); rate > 0 {
			text += ", " + perSecond(rate, run.Unit)
		}
	}
	l.phase, l.last, l.done = run.Phase, now, run.Done
	_, _ = fmt.Fprintf(l.w, "annals: scavenging %s: %s; %s saved\n", l.host, visible(text), humanBytes(run.Saved))
}

func (*phaseLines) pause()   {}
func (*phaseLines) end(bool) {}

// perSecond is a rate in the unit of a phase.
func perSecond(rate float64, unit string) string {
	if unit == unitBytes {
		return humanBytes(int64(rate)) + "/s"
	}
	return fmt.Sprintf("%.1f %s/s", rate, unit)
}
