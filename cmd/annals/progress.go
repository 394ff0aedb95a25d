package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/annalsdb/annals/admin/scavenge"
)

const (
	// barColumns is how wide a terminal must be for bars: a line that is broken
	// leaves a copy of itself whenever it is drawn again.
	barColumns = 60

	barWidth    = 24
	leastBar    = 6
	aroundBar   = len(" 100% []  ") + 2 // and the cursor after a space
	rateOver    = 10 * time.Second
	usualScreen = 80
)

// phaseBars draws a bar for each phase of a run, one line below the other.
type phaseBars struct {
	w       io.Writer
	columns func() int // of the terminal, which may change; 0: not known
	clock   func() time.Time

	bar  *bar        // nil: none is drawn
	run  scavengeRun // as drawn last
	rate rateMeter
	open bool // the cursor stands after a bar
}

func (b *phaseBars) show(run *scavengeRun) {
	if run.Phase == scavenge.PhaseIdle || run.Phase == "" {
		return
	}
	r := *run
	r.Done, r.Total = max(0, r.Done), max(0, r.Total)
	if r.Total > 0 {
		r.Done = min(r.Done, r.Total)
	}
	switch {
	case b.bar == nil:
		b.begin(&r)
	case r.Phase != b.run.Phase:
		b.finish(true)
		b.begin(&r)
	case r.Total != b.run.Total || r.Done < b.run.Done:
		// A phase may find more to do, or begin again. The bar cannot, once it is full.
		b.begin(&r)
	}
	b.run = r
	b.draw(true)
}

// draw draws the bar as the run is.
func (b *phaseBars) draw(running bool) {
	if b.bar.full {
		return
	}
	b.bar.columns = b.room()
	b.bar.draw(b.run.Done, b.description(b.rate.perSecond(b.clock(), b.run.Done), running))
	b.open = !b.bar.full
}

// room returns how many columns there are.
func (b *phaseBars) room() int {
	if columns := b.columns(); columns > 0 {
		return columns
	}
	return usualScreen
}

// begin makes a bar. It is drawn over one that is not full, and below one that is.
func (b *phaseBars) begin(run *scavengeRun) {
	b.bar = &bar{w: b.w, size: run.Total}
	b.rate.begin(b.clock(), run.Done)
}

// description is the text after the bar: as much as there is room for.
func (b *phaseBars) description(rate float64, underWay bool) string {
	r := &b.run
	text := visible(phaseName(r.Phase))
	parts := []string{"", humanBytes(r.Saved) + " saved"}
	switch {
	case r.Total > 0:
		parts[0] = visible(amount(r.Done, r.Unit) + " of " + amount(r.Total, r.Unit) + unitWord(r.Unit))
	case r.Done > 0:
		parts[0] = visible(amount(r.Done, r.Unit) + unitWord(r.Unit))
	}
	if underWay && rate > 0 {
		parts = append(parts, visible(perSecond(rate, r.Unit)))
		if left := float64(r.Total-r.Done) / rate; r.Total > 0 && left < (1000*time.Hour).Seconds() {
			parts = append(parts, (time.Duration(left)*time.Second).String()+" left")
		}
	}
	columns := b.room()
	separator := ": "
	for _, part := range parts {
		if part == "" {
			continue
		}
		if longer := text + separator + part; len(longer) <= columns-aroundBar-leastBar {
			text, separator = longer, ", "
		}
	}
	return text
}

// finish ends the line of the bar, which is full if its phase has been completed.
func (b *phaseBars) finish(completed bool) {
	if b.bar != nil && b.open {
		switch {
		case completed && b.run.Total > 0:
			b.run.Done = b.run.Total
			b.draw(false)
		default:
			b.bar.end()
		}
	}
	b.bar, b.open = nil, false
}

// pause leaves what is drawn where it is and goes to the next line; the bar is
// drawn again below what is printed there.
func (b *phaseBars) pause() {
	if b.open {
		_, _ = fmt.Fprintln(b.w)
		b.open = false
	}
}

func (b *phaseBars) end(completed bool) { b.finish(completed) }

// rateMeter measures a rate, over the last ten to twenty seconds.
type rateMeter struct {
	from, next rateSample
}

type rateSample struct {
	at   time.Time
	done int64
}

// begin forgets what was before.
func (m *rateMeter) begin(now time.Time, done int64) {
	m.from = rateSample{now, done}
	m.next = m.from
}

// perSecond takes a sample and returns the rate, 0 if it is not known yet.
func (m *rateMeter) perSecond(now time.Time, done int64) float64 {
	if now.Sub(m.next.at) >= rateOver {
		m.from, m.next = m.next, rateSample{now, done}
	}
	took := now.Sub(m.from.at).Seconds()
	if took < 1 {
		return 0
	}
	return float64(done-m.from.done) / took
}

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

// bar is one line of a terminal that is drawn again and again: a bar of a known size with a
// percentage, or a wheel that turns with each drawing.
type bar struct {
	w       io.Writer
	size    int64 // 0 or less: a wheel
	columns int   // of the terminal
	turns   int
	full    bool // it has been drawn full, and its line has ended
}

// draw draws how much is done, and a text. A full bar ends its line. When the terminal is gone, the
// drawing is lost.
func (b *bar) draw(done int64, text string) {
	if b.full {
		return
	}
	line := b.wheel(text)
	if b.size > 0 {
		line = b.filled(done, text)
	}
	_, _ = io.WriteString(b.w, "\r"+line+" \x1b[0K")
	if b.size > 0 && done >= b.size {
		b.end()
	}
}

func (b *bar) wheel(text string) string {
	b.turns++
	return string(`|/-\`[b.turns%4]) + "  " + text
}

func (b *bar) filled(done int64, text string) string {
	part := min(1, max(0, float64(done)/float64(b.size)))
	width := min(barWidth, max(leastBar, b.columns-len(text)-aroundBar))
	inside := strings.Repeat("=", int(part*float64(width)))
	if n := len(inside); 0 < n && n < width {
		inside = inside[:n-1] + ">"
	}
	return fmt.Sprintf(" %3d%% [%-*s]  %s", int(part*100), width, inside, text)
}

// end ends the line. Nothing is drawn after it.
func (b *bar) end() {
	if !b.full {
		b.full = true
		_, _ = fmt.Fprintln(b.w)
	}
}

// clear takes the line from the terminal.
func (b *bar) clear() { _, _ = io.WriteString(b.w, "\r\x1b[2K") }
