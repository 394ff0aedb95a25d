package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/node"
)

func openLog(t *testing.T, c *config.Config) (*processLog, *lockedBuffer) {
	t.Helper()
	stderr := &lockedBuffer{}
	l := check.Value(newLogger(c, stderr)).Must(t)
	t.Cleanup(l.close)
	return l, stderr
}

func TestLoggerWritesToBoth(t *testing.T) {
	for _, format := range []config.LogFormat{config.LogFormatPlain, config.LogFormatJSON} {
		for _, disabled := range []bool{false, true} {
			c := config.Default()
			c.Log, c.DisableLogFile, c.LogConsoleFormat = filepath.Join(t.TempDir(), "logs"), disabled, format
			l, stderr := openLog(t, c)
			l.Debug("not this")
			l.Info("but this", "key", 1)
			l.close()
			got := stderr.String()
			if strings.Count(got, "\n") != 1 || !strings.Contains(got, "but this") {
				t.Errorf("stderr: %q", got)
			}
			content, err := os.ReadFile(filepath.Join(c.Log, currentLogFile))
			if disabled != os.IsNotExist(err) || !disabled && string(content) != got {
				t.Errorf("disabled %t: file %q, %v", disabled, content, err)
			}
		}
	}
}

// TestLineOfTheLog: times are UTC with milliseconds, in either form.
func TestLineOfTheLog(t *testing.T) {
	zone := time.Local
	time.Local = time.FixedZone("far away", 5*3600)
	defer func() { time.Local = zone }()
	for format, want := range map[config.LogFormat]string{
		config.LogFormatPlain: `^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ \[WARN\]  annals\.raft: heard: node=n1 term=2\n$`,
		config.LogFormatJSON: `^\{"@level":"warn","@message":"heard","@module":"annals\.raft",` +
			`"@timestamp":"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z","node":"n1","term":2\}\n$`,
	} {
		c := config.Default()
		c.LogConsoleFormat = format
		l, stderr := openLog(t, c)
		l.Named("raft").With("node", "n1").Warn("heard", "term", 2)
		l.flush()
		if !regexp.MustCompile(want).MatchString(stderr.String()) {
			t.Errorf("%s: %q", format, stderr)
		}
	}
}

// TestOneLinePerEvent: nothing that a client chooses, such as a stream's name, can
// make a line of its own.
func TestOneLinePerEvent(t *testing.T) {
	forged := "2026-01-01T00:00:00.000Z [INFO]  annals: forged"
	cases := []struct {
		name  string
		log   func(hclog.Logger)
		plain string // after the time
	}{
		{"line break in a value", func(l hclog.Logger) { l.Info("append", "stream", "a\n"+forged, "events", 1) },
			`[INFO]  annals: append: stream="a\n` + forged + `" events=1`},
		{"two such values", func(l hclog.Logger) { l.Info("append", "stream", "a\nb", "other", "c\nd\n\ne") },
			`[INFO]  annals: append: stream="a\nb" other="c\nd\n\ne"`},
		{"such a value first of all and last", func(l hclog.Logger) { l.Info("append", "stream", "\nb", "events", 1, "other", "c\n") },
			`[INFO]  annals: append: stream="\nb" events=1 other="c"`},
		{"quotes in it", func(l hclog.Logger) { l.Info("append", "stream", "a\" events=5\n\"", "events", 1) },
			`[INFO]  annals: append: stream="a\" events=5\n\"" events=1`},
		{"the form of a value of several lines", func(l hclog.Logger) { l.Info("append", "stream", "a\n  key=\n  | b", "events", 1) },
			`[INFO]  annals: append: stream="a\n  key=\n  | b" events=1`},
		{"an error of several lines", func(l hclog.Logger) { l.Info("start", "error", errors.Join(errors.New("a"), errors.New("b"))) },
			`[INFO]  annals: start: error="a\nb"`},
		{"line break in a message", func(l hclog.Logger) { l.Info("panic\n" + forged + "\tx") }, `[INFO]  annals: panic\n` + forged + `\tx`},
		{"from the standard library", func(l hclog.Logger) { l.StandardLogger(nil).Print("panic serving\ngoroutine 5:\n\tmain()\n") },
			`[INFO]  annals: panic serving\ngoroutine 5:\n\tmain()`},
		{"other breaks", func(l hclog.Logger) { l.Info("append", "stream", "a\rb\u2028c\x1b[2Jd\u0085") }, `[INFO]  annals: append: stream="a\rb\u2028c\x1b[2Jd\u0085"`},
		{"other breaks in a message", func(l hclog.Logger) { l.Info("a\rb\u2028c\x1b[2Jd\u0085") }, `[INFO]  annals: a\rb\u2028c\u001b[2Jd\u0085`},
		{"list", func(l hclog.Logger) { l.Info("seeds", "all", []string{"a\nb", "c"}) }, `[INFO]  annals: seeds: all=["a\nb", "c"]`},
		{"of a sub-logger", func(l hclog.Logger) { l.With("stream", "a\nb").Info("append") }, `[INFO]  annals: append: stream="a\nb"`},
		{"in a key", func(l hclog.Logger) { l.Info("append", "a\nb", 1) }, `[INFO]  annals: append: a\nb=1`},
		{"ordinary", func(l hclog.Logger) { l.Info("append", "stream", `über "x"`) }, `[INFO]  annals: append: stream="über \"x\""`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			plain, stderr := openLog(t, config.Default())
			c.log(plain)
			plain.flush()
			_, line, _ := strings.Cut(stderr.String(), "Z ")
			check.Equal(t, line, c.plain+"\n", "want", c.plain)

			g := config.Default()
			g.LogConsoleFormat = config.LogFormatJSON
			machine, stderr := openLog(t, g)
			c.log(machine)
			machine.flush()
			text, ok := strings.CutSuffix(stderr.String(), "\n")
			if !ok || strings.Contains(text, "\n") || !json.Valid([]byte(text)) {
				t.Errorf("JSON: %q", stderr)
			}
		})
	}
}

// TestLevelReachesSubLoggers: loggers that were handed out follow a change.
func TestLevelReachesSubLoggers(t *testing.T) {
	l, stderr := openLog(t, config.Default())
	subs := []hclog.Logger{l, l.Named("raft"), l.Named("http").With("node", 1), l.ResetNamed("serf"), l.Named("a").Named("b")}
	count := func() int {
		before := strings.Count(stderr.String(), "\n")
		for _, sub := range subs {
			sub.Debug("x")
		}
		l.flush()
		return strings.Count(stderr.String(), "\n") - before
	}
	for _, level := range []struct {
		level config.LogLevel
		want  int
	}{{config.LogLevelDefault, 0}, {config.LogLevelDebug, len(subs)}, {config.LogLevelWarning, 0}, {config.LogLevelVerbose, len(subs)}, {config.LogLevelFatal, 0}} {
		l.SetLevel(hclogLevel(level.level))
		check.Equal(t, count(), level.want, level.level, "lines")
	}
}

func TestFatalIsSilent(t *testing.T) {
	c := config.Default()
	c.Log, c.LogLevel = t.TempDir(), config.LogLevelFatal
	l, stderr := openLog(t, c)
	l.Error("not this")
	l.fileOnly.Error("the node ends at once", "error", errors.New("a\nb"))
	l.close()
	content, err := os.ReadFile(filepath.Join(c.Log, currentLogFile))
	if err != nil || !strings.HasSuffix(string(content), `[ERROR] annals: the node ends at once: error="a\nb"`+"\n") || strings.Count(string(content), "\n") != 1 {
		t.Errorf("file: %q, %v", content, err)
	}
	check.Equal(t, stderr.String(), "", "stderr")
}

// brokenPipe is a standard error without a reader.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestFileIsWrittenWithoutStandardError(t *testing.T) {
	c := config.Default()
	c.Log = t.TempDir()
	l := check.Value(newLogger(c, brokenPipe{})).Must(t)
	l.Info("this")
	l.close()
	content := check.Value(os.ReadFile(filepath.Join(c.Log, currentLogFile))).Must(t, "file")
	check.Contains(t, string(content), "annals: this\n", "file")
}

// TestFullLogDisk: the node keeps serving, and standard error says so once.
func TestFullLogDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full here")
	}
	c := config.Default()
	c.Log = t.TempDir()
	check.Must(t, os.Symlink("/dev/full", filepath.Join(c.Log, currentLogFile)))
	l, stderr := openLog(t, c)
	for range 5 {
		l.Info("line")
	}
	l.close()
	if got := stderr.String(); strings.Count(got, "\n") != 6 || strings.Count(got, "the log file cannot be written") != 1 || !strings.Contains(got, "no space left on device") {
		t.Errorf("stderr: %s", got)
	}
}

func TestLogFolderThatCannotBeMade(t *testing.T) {
	c := config.Default()
	c.Log = filepath.Join(t.TempDir(), "file")
	check.Must(t, os.WriteFile(c.Log, nil, 0o600))
	if _, err := newLogger(c, brokenPipe{}); err == nil || !strings.HasPrefix(err.Error(), "log file: ") {
		t.Errorf("%v", err)
	}
}

// TestFileTellsWhyTheNodeEnds: what standard error gets without the log is in the file.
func TestFileTellsWhyTheNodeEnds(t *testing.T) {
	dir := t.TempDir()
	w := newWorld(nil)
	w.open = func(_ context.Context, o node.Options) (runningNode, error) {
		o.OnFatal(errors.New("sync chunk-000000.000000: input/output error"))
		return nil, errors.New("serve HTTP: address already in use")
	}
	check.Fails(t, w.run([]string{"--log", dir, "--log-level=fatal"}), "started")
	content, err := os.ReadFile(filepath.Join(dir, currentLogFile))
	got := regexp.MustCompile(`(?m)^\S+ `).ReplaceAllString(string(content), "")
	want := `[ERROR] annals: the node ends at once: error="sync chunk-000000.000000: input/output error"` + "\n" +
		`[ERROR] annals: the node ends: error="serve HTTP: address already in use"` + "\n"
	check.Must(t, err)
	check.Equal(t, got, want)
	if want := "annals: sync chunk-000000.000000: input/output error\n"; w.err.String() != want {
		t.Errorf("stderr: %s", w.err)
	}
}
