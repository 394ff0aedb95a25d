package main

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/config"
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
	switch l {
	case config.LogLevelVerbose:
		return hclog.Trace
	case config.LogLevelDebug:
		return hclog.Debug
	case config.LogLevelWarning:
		return hclog.Warn
	case config.LogLevelError:
		return hclog.Error
	case config.LogLevelFatal:
		return hclog.Off
	default:
		return hclog.Info
	}
}
