package main

import (
	"errors"
	"fmt"
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
	// Now is the clock, time.Now if nil.
	Now func() time.Time
}

// logFile is a log that is cut into files by size and time.
type logFile struct {
	options logFileOptions

	mu     sync.Mutex // guards all below
	file   *os.File
	size   int64
	period string // of the file's lines
}

func openLogFile(o logFileOptions) (*logFile, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	f := &logFile{options: o}
	if err := f.open(); err != nil {
		return nil, err
	}
	return f, nil
}

// open goes on with the current file or makes one.
func (f *logFile) open() error {
	file, err := os.OpenFile(filepath.Join(f.options.Dir, currentLogFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
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
	if f.file == nil {
		return 0, fs.ErrClosed
	}
	now := f.options.Now()
	if f.size > 0 && (f.size+int64(len(line)) > f.options.Size || f.period != f.periodOf(now)) {
		if err := f.rotate(now); err != nil {
			return 0, fmt.Errorf("begin a new log file: %w", err)
		}
	}
	n, err := f.file.Write(line)
	f.size += int64(n)
	return n, err
}

// Close closes the current file. Lines that come later are refused.
func (f *logFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}

// rotate finishes the current file, begins the next and removes the oldest
// ones. The old file is closed only after the new one is there, so that a full
// disk costs no line that could still be written.
func (f *logFile) rotate(now time.Time) error {
	current := filepath.Join(f.options.Dir, currentLogFile)
	finished := filepath.Join(f.options.Dir, "annals-"+now.UTC().Format(finishedLayout)+".log")
	if err := os.Rename(current, finished); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	old := f.file
	if err := f.open(); err != nil {
		return err
	}
	if err := old.Close(); err != nil {
		return err
	}
	return f.prune()
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

// periodOf names the interval that a time lies in.
func (f *logFile) periodOf(t time.Time) string {
	switch f.options.Interval {
	case config.LogIntervalYear:
		return t.Format("2006")
	case config.LogIntervalMonth:
		return t.Format("2006-01")
	case config.LogIntervalDay:
		return t.Format("2006-01-02")
	case config.LogIntervalHour:
		return t.Format("2006-01-02T15")
	case config.LogIntervalMinute:
		return t.Format("2006-01-02T15:04")
	default:
		return ""
	}
}
