package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/bell"
	"github.com/annalsdb/annals/internal/logkey"
)

// processLog is the log of the process.
type processLog struct {
	// Logger writes to standard error and, if there is one, to the log file. A
	// change of its level reaches the loggers that were made of it before.
	hclog.Logger

	// fileOnly is for the cause of an end, which standard error has in another form. It
	// writes at every level.
	fileOnly hclog.Logger
	// console complains about the log file.
	console hclog.Logger
	file    *logFile // nil: none
	sinks   []*sink  // what is written to, each by itself
}

// newLogger makes the process's log. The node starts even if the disk is too full
// for a log file.
func newLogger(c *config.Config, stderr io.Writer) (*processLog, error) {
	format := func(w io.Writer, level hclog.Level) hclog.Logger {
		json := c.LogConsoleFormat == config.LogFormatJSON
		if !json {
			w = lineWriter{w}
		}
		return hclog.New(&hclog.LoggerOptions{
			Name: "annals", Level: level, Output: w, JSONFormat: json,
			TimeFn: func() time.Time { return time.Now().UTC() },
		})
	}
	l := &processLog{fileOnly: hclog.NewNullLogger()}
	behind := func(out io.Writer) *sink {
		own := format(out, hclog.Warn)
		s := newSink(out, func(dropped int) {
			own.Warn("lines of the log were dropped: their reader or disk was too slow", "lines", dropped)
		})
		l.sinks = append(l.sinks, s)
		return s
	}
	console := behind(stderr)
	l.console = format(console, hclog.Warn)
	var output io.Writer = console
	if c.Log != "" && !c.DisableLogFile {
		f, err := openLogFile(logFileOptions{
			Dir:      c.Log,
			Size:     c.LogFileSize,
			Interval: c.LogFileInterval,
			Keep:     c.LogFileRetentionCount,
			// Only standard error can have this line, and not by the logger that is writing.
			Trouble: func(err error) {
				l.console.Warn("the log file cannot be written; the node keeps serving without it", logkey.Error, err)
			},
			Recovered: func(lost int) { l.console.Warn("the log file can be written again", "linesLost", lost) },
		})
		if err != nil && !errors.Is(err, syscall.ENOSPC) {
			l.close()
			return nil, fmt.Errorf("log file: %w", err)
		}
		file := behind(f)
		l.file, l.fileOnly, output = f, format(file, hclog.Error), tee{console, file}
	}
	l.Logger = format(output, hclogLevel(c.LogLevel))
	return l, nil
}

// close writes what waits and finishes the log file. If that fails it says so, and nothing more:
// the node has ended in order. It returns in seconds whatever takes the lines.
func (l *processLog) close() {
	l.flush()
	if l.file != nil {
		if err := briefly(l.file.Close); err != nil {
			l.console.Warn("the log file was not closed", logkey.Error, err)
		}
	}
	for _, s := range l.sinks {
		s.close()
	}
}

// flush waits a moment for what was logged to be written.
func (l *processLog) flush() {
	for _, s := range l.sinks {
		s.flush()
	}
}

// dropped is how many lines were dropped because no reader took them.
func (l *processLog) dropped() (n uint64) {
	for _, s := range l.sinks {
		n += s.droppedLines()
	}
	return n
}

// tee writes every line to both, whatever becomes of it at the other: io.MultiWriter
// would leave out the second when the first fails.
type tee struct{ first, second io.Writer }

func (t tee) Write(line []byte) (int, error) {
	_, err := t.first.Write(line)
	_, other := t.second.Write(line)
	return len(line), errors.Join(err, other)
}

// hclogLevel translates the level. There is no fatal one: standard error has the cause
// of an end without the log, so that with Fatal the log is silent.
func hclogLevel(l config.LogLevel) hclog.Level {
	return cmp.Or(map[config.LogLevel]hclog.Level{
		config.LogLevelVerbose: hclog.Trace, config.LogLevelDebug: hclog.Debug, config.LogLevelWarning: hclog.Warn,
		config.LogLevelError: hclog.Error, config.LogLevelFatal: hclog.Off,
	}[l], hclog.Info)
}

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

const (
	// sinkBytes is how much of the log waits for one place that takes it slowly. It bounds
	// twice that: what is being written, and what came meanwhile.
	sinkBytes = 1 << 20
	// sinkPatience is how long the end of the process waits for such a place.
	sinkPatience = time.Second
)

// sink writes lines to one place, in a goroutine of its own. Goroutines that log hold locks,
// that of Raft too: a full pipe without a reader must not stop a node. A line for which there
// is no room is dropped, counted, and reported as soon as there is room.
type sink struct {
	out     io.Writer
	tell    func(dropped int) // writes to out that lines were dropped
	wake    chan struct{}     // capacity 1
	mu      sync.Mutex        // guards what follows
	lines   [][]byte
	flushed []chan struct{} // closed when all lines that are there now were written
	bytes   int
	dropped int
	total   uint64 // dropped ever
	closed  bool
}

// newSink starts a sink, which close ends.
func newSink(out io.Writer, tell func(dropped int)) *sink {
	s := &sink{out: out, tell: tell, wake: make(chan struct{}, 1)}
	go s.run()
	return s
}

// Write takes a line. It never waits for the place that the line is for.
func (s *sink) Write(line []byte) (int, error) {
	s.mu.Lock()
	if s.closed || s.bytes+len(line) > sinkBytes {
		s.dropped++
		s.total++
	} else {
		s.lines = append(s.lines, append([]byte(nil), line...))
		s.bytes += len(line)
	}
	s.mu.Unlock()
	s.signal()
	return len(line), nil
}

func (s *sink) signal() { bell.Ring(s.wake) }

// run writes until the sink is closed and all is written.
func (s *sink) run() {
	for range s.wake {
		s.mu.Lock()
		lines, flushed, dropped, closed := s.lines, s.flushed, s.dropped, s.closed
		s.lines, s.flushed, s.bytes, s.dropped = nil, nil, 0, 0
		s.mu.Unlock()
		for _, line := range lines {
			_, _ = s.out.Write(line) // There is no other place for the error.
		}
		if dropped > 0 {
			s.tell(dropped)
		}
		for _, done := range flushed {
			close(done)
		}
		if closed {
			return
		}
	}
}

// flush waits until all lines are written, but not for ever.
func (s *sink) flush() { s.finish(false) }

// close flushes, and takes no more lines.
func (s *sink) close() { s.finish(true) }

func (s *sink) finish(closing bool) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = closing
	done := make(chan struct{})
	s.flushed = append(s.flushed, done)
	s.mu.Unlock()
	s.signal()
	timer := time.NewTimer(sinkPatience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// droppedLines is how many lines were dropped ever.
func (s *sink) droppedLines() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// errUnread says that a pipe is full and has no reader.
var errUnread = errors.New("the pipe is full and has no reader")

// briefly calls a function that may block for ever, such as a write to a pipe without a reader, and
// leaves it alone after a moment.
func briefly(write func() error) error {
	done := make(chan error, 1)
	go func() { done <- write() }()
	timer := time.NewTimer(sinkPatience)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return errUnread
	}
}
