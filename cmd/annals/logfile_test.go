package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/config"
)

// logDir returns the content of each file of a folder, by name.
func logDir(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
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
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.Local)
			f, err := openLogFile(logFileOptions{Dir: dir, Size: c.size, Interval: c.interval, Keep: c.keep, Now: func() time.Time { return now }})
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range []string{"aaaa\n", "bbbb\n", "cccc\n", "dddd\n"} {
				if _, err := f.Write([]byte(line)); err != nil {
					t.Fatal(err)
				}
				now = now.Add(c.step)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			files := logDir(t, dir)
			if files[currentLogFile] != c.current || len(files) != c.finished+1 {
				t.Errorf("files: %q", files)
			}
			if _, err := f.Write([]byte("late\n")); err == nil {
				t.Error("a line was taken after Close")
			}
		})
	}
}

func TestLogFileGoesOn(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		f, err := openLogFile(logFileOptions{Dir: dir, Size: 100, Interval: config.LogIntervalInfinite, Keep: 1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("line\n")); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if files := logDir(t, dir); files[currentLogFile] != "line\nline\n" {
		t.Errorf("files: %q", files)
	}
}

func TestLoggerWritesToBoth(t *testing.T) {
	for _, disabled := range []bool{false, true} {
		c := config.Default()
		c.Log, c.DisableLogFile = filepath.Join(t.TempDir(), "logs"), disabled
		stderr := &lockedBuffer{}
		logger, closeLog, err := newLogger(c, stderr)
		if err != nil {
			t.Fatal(err)
		}
		logger.Debug("not this")
		logger.Info("but this", "key", 1)
		if err := closeLog(); err != nil {
			t.Fatal(err)
		}
		if got := stderr.String(); !strings.Contains(got, "annals: but this: key=1\n") || strings.Count(got, "\n") != 1 {
			t.Errorf("stderr: %q", got)
		}
		content, err := os.ReadFile(filepath.Join(c.Log, currentLogFile))
		if disabled != os.IsNotExist(err) || !disabled && string(content) != stderr.String() {
			t.Errorf("disabled %t: file %q, %v", disabled, content, err)
		}
	}
}
