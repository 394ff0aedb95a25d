package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/check"
)

// logDir returns the content of each file of a folder, by name.
func logDir(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries := check.Value(os.ReadDir(dir)).Must(t)
	files := map[string]string{}
	for _, e := range entries {
		content := check.Value(os.ReadFile(filepath.Join(dir, e.Name()))).Must(t)
		files[e.Name()] = string(content)
	}
	return files
}

func TestLogFileRotation(t *testing.T) {
	cases := []struct {
		name     string
		size     int64
		interval config.LogInterval
		keep     int
		step     time.Duration
		current  string
		finished int
	}{
		{"all in one", 100, config.LogIntervalInfinite, 9, time.Hour, "aaaa\nbbbb\ncccc\ndddd\n", 0},
		{"by size", 10, config.LogIntervalInfinite, 9, time.Second, "cccc\ndddd\n", 1},
		{"a line larger than the size", 3, config.LogIntervalInfinite, 9, time.Second, "dddd\n", 3},
		{"only so many kept", 3, config.LogIntervalInfinite, 2, time.Second, "dddd\n", 2},
		{"by minute", 100, config.LogIntervalMinute, 9, 30 * time.Second, "cccc\ndddd\n", 1},
		{"by hour", 100, config.LogIntervalHour, 9, 30 * time.Minute, "cccc\ndddd\n", 1},
		{"by day", 100, config.LogIntervalDay, 9, 12 * time.Hour, "cccc\ndddd\n", 1},
		{"by month", 100, config.LogIntervalMonth, 9, 16 * 24 * time.Hour, "cccc\ndddd\n", 1},
		{"by year", 100, config.LogIntervalYear, 9, 183 * 24 * time.Hour, "cccc\ndddd\n", 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "logs")
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			f, err := openLogFile(logFileOptions{Dir: dir, Size: c.size, Interval: c.interval, Keep: c.keep, Now: func() time.Time { return now }})
			check.Must(t, err)
			for _, line := range []string{"aaaa\n", "bbbb\n", "cccc\n", "dddd\n"} {
				check.Must(t, check.Err(f.Write([]byte(line))))
				now = now.Add(c.step)
			}
			check.Must(t, f.Close())
			files := logDir(t, dir)
			if files[currentLogFile] != c.current || len(files) != c.finished+1 {
				t.Errorf("files: %q", files)
			}
			check.Fails(t, check.Err(f.Write([]byte("late\n"))), "a line was taken after Close")
		})
	}
}

func TestLogFileGoesOn(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		f, err := openLogFile(logFileOptions{Dir: dir, Size: 100, Interval: config.LogIntervalInfinite, Keep: 1})
		check.Must(t, err)
		check.Must(t, check.Err(f.Write([]byte("line\n"))))
		check.Must(t, f.Close())
	}
	if files := logDir(t, dir); files[currentLogFile] != "line\nline\n" {
		t.Errorf("files: %q", files)
	}
}

// sickFile is a log file on a disk that is full for as long as left is not above 0.
type sickFile struct {
	appendFile
	disk *sickDisk
}

type sickDisk struct {
	left     int // bytes that there is space for
	denied   bool
	troubles []string
}

func (d *sickDisk) open(name string) (appendFile, error) {
	if d.denied {
		return nil, &fs.PathError{Op: "open", Path: filepath.Base(name), Err: syscall.EMFILE}
	}
	f, err := openAppend(name)
	return &sickFile{f, d}, err
}

func (d *sickDisk) options(dir string) logFileOptions {
	return logFileOptions{
		Dir: dir, Size: 10, Interval: config.LogIntervalInfinite, Keep: 5, Open: d.open,
		Trouble:   func(err error) { d.troubles = append(d.troubles, err.Error()) },
		Recovered: func(lost int) { d.troubles = append(d.troubles, fmt.Sprintf("%d lost", lost)) },
	}
}

func (f *sickFile) Write(line []byte) (int, error) {
	n := min(len(line), f.disk.left)
	f.disk.left -= n
	if n, err := f.appendFile.Write(line[:n]); err != nil || n == len(line) {
		return n, err
	}
	return n, syscall.ENOSPC
}

func (f *sickFile) Truncate(size int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	f.disk.left += int(info.Size() - size)
	return f.appendFile.Truncate(size)
}

// write gives lines to a log file; those that are lost are not told to the caller's end.
func write(f *logFile, lines ...string) {
	for _, line := range lines {
		_, _ = f.Write([]byte(line)) // What is lost is what the tests look at.
	}
}

func TestLogFileOnAFullDisk(t *testing.T) {
	dir, disk := t.TempDir(), &sickDisk{left: 8}
	f := check.Value(openLogFile(disk.options(dir))).Must(t)
	write(f, "aaaa\n", "bbbb\n", "cccc\n")
	disk.left = 100
	write(f, "dddd\n", "eeee\n", "ffff\n")
	check.Must(t, f.Close())
	check.Slice(t, disk.troubles, []string{"no space left on device", "2 lost"}, "told")
	files := logDir(t, dir)
	if files[currentLogFile] != "eeee\nffff\n" || len(files) != 2 {
		t.Errorf("files: %q", files)
	}
	for name, content := range files {
		if name != currentLogFile && content != "aaaa\ndddd\n" {
			t.Errorf("%s: %q", name, content)
		}
	}
}

// TestLogFileThatCannotBeRotated: lines still go to the present file.
func TestLogFileThatCannotBeRotated(t *testing.T) {
	dir, disk := t.TempDir(), &sickDisk{left: 1000}
	f := check.Value(openLogFile(disk.options(dir))).Must(t)
	disk.denied = true
	write(f, "aaaa\n", "bbbb\n", "cccc\n", "dddd\n")
	disk.denied = false
	write(f, "eeee\n")
	check.Must(t, f.Close())
	check.Slice(t, disk.troubles, []string{"begin a new log file: open annals.log: too many open files", "0 lost"}, "told")
	files := logDir(t, dir)
	if files[currentLogFile] != "eeee\n" || len(files) != 2 {
		t.Errorf("files: %q", files)
	}
}

// TestLogFileThatIsOpenedLater: a log file that could not even be made.
func TestLogFileThatIsOpenedLater(t *testing.T) {
	dir, disk := t.TempDir(), &sickDisk{left: 1000, denied: true}
	f, err := openLogFile(disk.options(dir))
	check.MustBe(t, err, syscall.EMFILE)
	write(f, "aaaa\n", "bbbb\n")
	disk.denied = false
	write(f, "cccc\n")
	check.Must(t, f.Close())
	check.Slice(t, disk.troubles, []string{"open annals.log: too many open files", "2 lost"}, "told")
	if files := logDir(t, dir); files[currentLogFile] != "cccc\n" || len(files) != 1 {
		t.Errorf("files: %q", files)
	}
}
