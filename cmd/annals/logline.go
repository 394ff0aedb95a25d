package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// Marks of the plain form of hclog: a value of several lines begins on a line of
// its own, after its key, with a bar before each of them.
var (
	keyBefore   = []byte("=")
	lineOfValue = []byte("  | ")
)

// lineWriter makes one line of every event. hclog spreads values that hold line
// breaks over several lines and writes messages as they are, so that a client that
// chooses a stream's name could forge a line of the log. The logger calls Write
// once for each event.
type lineWriter struct{ w io.Writer }

func (l lineWriter) Write(event []byte) (int, error) {
	text := bytes.TrimSuffix(event, []byte("\n"))
	if len(text) == 0 {
		return len(event), nil
	}
	if bytes.ContainsFunc(text, isControl) {
		event = append(joinLines(text), '\n')
	}
	_, err := l.w.Write(event)
	return len(event), err
}

// joinLines puts values of several lines after their keys again, in quotes as other
// values are, and escapes all other control characters.
func joinLines(text []byte) []byte {
	const (
		outside = iota
		opened  // after the key of a value
		inside  // after a line of it
	)
	state := outside
	lines := bytes.Split(text, []byte("\n"))
	joined := escaped(nil, lines[0], "")
	for i, line := range lines[1:] {
		value, isValue := bytes.CutPrefix(line, lineOfValue)
		rest := bytes.TrimLeft(line, " ")
		if state == inside && !isValue {
			joined = append(joined, '"')
		}
		switch {
		case isValue && state != outside:
			if state == inside {
				joined = append(joined, `\n`...)
			}
			joined, state = escaped(joined, value, `"`), inside
		case bytes.HasSuffix(rest, keyBefore) && i+2 < len(lines) && bytes.HasPrefix(lines[i+2], lineOfValue):
			joined = append(escaped(append(joined, ' '), rest, ""), '"')
			state = opened
		case state == inside:
			if len(rest) > 0 {
				joined = escaped(append(joined, ' '), rest, "")
			}
			state = outside
		default:
			joined = escaped(append(joined, `\n`...), line, "")
		}
	}
	if state == inside {
		joined = append(joined, '"')
	}
	return joined
}

// escaped appends text to b, its control characters and the given ones escaped.
func escaped(b, text []byte, also string) []byte {
	for _, c := range string(text) {
		switch {
		case c == '\t':
			b = append(b, `\t`...)
		case c == '\r':
			b = append(b, `\r`...)
		case isControl(c):
			b = fmt.Appendf(b, `\u%04x`, c)
		case strings.ContainsRune(also, c):
			b = append(append(b, '\\'), string(c)...)
		default:
			b = append(b, string(c)...)
		}
	}
	return b
}

// isControl tells what moves the cursor or ends a line on some terminal or in some reader of logs.
func isControl(c rune) bool {
	return c < ' ' || c >= 0x7f && c < 0xa0 || c == '\u2028' || c == '\u2029'
}
