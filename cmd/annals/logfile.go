package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/annalsdb/annals/config"
)

// currentLogFile is the file written to. A finished one is renamed so that the
// names sort by time.
const (
	currentLogFile  = "annals.log"
	finishedPattern = "annals-*.log"
	finishedLayout  = "20060102T150405.000000000"
)

// logFileOptions say where log files are and when the next one is begun.
type logFileOptions struct {
	Dir      string
	Size     int64
	Interval config.LogInterval
	Keep     int

	// Trouble gets the first error of several in a row, Recovered that lines are
	// written again, and how many were not. They must not write to the file.
	Trouble   func(error)
	Recovered func(lost int)

	// Now is the clock, time.Now if nil.
	Now func() time.Time
	// Open opens a file for appending, and makes it when missing; os.OpenFile if nil.
	Open func(name string) (appendFile, error)
}

// appendFile is what is needed of an open log file.
type appendFile interface {
	io.WriteCloser
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
}

func openAppend(name string) (appendFile, error) {
	return os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// logFile is a log that is cut into files by size and time. A file that cannot be
// written makes no caller wait: the log resumes when it can.
type logFile struct {
	options logFileOptions

	mu       sync.Mutex // guards all below
	file     appendFile // nil: not opened yet
	size     int64
	period   string // of the file's lines
	closed   bool
	troubled bool // Trouble was called, and nothing has gone well since
	lost     int  // lines since then
}

// openLogFile returns a log file also with an error of opening it: each line then
// tries again.
func openLogFile(o logFileOptions) (*logFile, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Open == nil {
		o.Open = openAppend
	}
	f := &logFile{options: o}
	return f, f.open()
}

// open opens the current file, or makes one.
func (f *logFile) open() error {
	if err := os.MkdirAll(f.options.Dir, 0o755); err != nil {
		return err
	}
	file, err := f.options.Open(filepath.Join(f.options.Dir, currentLogFile))
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	begun := f.options.Now()
	if info.Size() > 0 {
		begun = info.ModTime()
	}
	f.file, f.size, f.period = file, info.Size(), f.periodOf(begun)
	return nil
}

// Write appends one log line; the logger calls it once for each.
func (f *logFile) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return 0, fs.ErrClosed
	}
	rotated := f.rotateIfDue(f.options.Now(), len(line))
	n, err := f.append(line)
	if err != nil {
		f.lost++
	}
	switch trouble := errors.Join(rotated, err); {
	case trouble != nil && !f.troubled:
		f.troubled = true
		f.options.Trouble(trouble)
	case trouble == nil && f.troubled:
		f.options.Recovered(f.lost)
		f.troubled, f.lost = false, 0
	}
	return n, err
}

// append writes the line whole or not at all.
func (f *logFile) append(line []byte) (int, error) {
	if f.file == nil {
		if err := f.open(); err != nil {
			return 0, err
		}
	}
	n, err := f.file.Write(line)
	if err != nil && n > 0 && f.file.Truncate(f.size) == nil {
		n = 0
	}
	f.size += int64(n)
	return n, err
}

// Close closes the current file. Lines that come later are refused.
func (f *logFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.file == nil {
		f.closed = true
		return nil
	}
	f.closed = true
	return f.file.Close()
}

// rotateIfDue begins the next file before a line that does not belong into the
// current one. If that fails the line goes there all the same.
func (f *logFile) rotateIfDue(now time.Time, line int) error {
	if f.file == nil || f.size == 0 || f.size+int64(line) <= f.options.Size && f.period == f.periodOf(now) {
		return nil
	}
	if err := f.rotate(now); err != nil {
		return fmt.Errorf("begin a new log file: %w", err)
	}
	return nil
}

// rotate finishes the current file, begins the next and removes the oldest
// ones. The old file is closed only after the new one is there, so that a full
// disk costs no line that could still be written.
func (f *logFile) rotate(now time.Time) error {
	current := filepath.Join(f.options.Dir, currentLogFile)
	finished := filepath.Join(f.options.Dir, "annals-"+now.UTC().Format(finishedLayout)+".log")
	// It is missing when an earlier attempt came as far as this.
	if err := os.Rename(current, finished); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	old := f.file
	if err := f.open(); err != nil {
		return err
	}
	return errors.Join(old.Close(), f.prune())
}

func (f *logFile) prune() error {
	finished, err := filepath.Glob(filepath.Join(f.options.Dir, finishedPattern))
	if err != nil {
		return err
	}
	slices.Sort(finished)
	for _, name := range finished[:max(0, len(finished)-f.options.Keep)] {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// periods are what names the interval of a time. Of an interval that never ends it is nothing.
var periods = map[config.LogInterval]string{
	config.LogIntervalYear: "2006", config.LogIntervalMonth: "2006-01", config.LogIntervalDay: "2006-01-02",
	config.LogIntervalHour: "2006-01-02T15", config.LogIntervalMinute: "2006-01-02T15:04",
}

// periodOf names the interval that a time lies in.
func (f *logFile) periodOf(t time.Time) string { return t.UTC().Format(periods[f.options.Interval]) }
