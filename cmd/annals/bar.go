package main

import (
	"fmt"
	"io"
	"strings"
)

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
