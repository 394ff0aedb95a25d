package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

func TestCommands(t *testing.T) {
	cases := []struct {
		name   string
		args   []string
		node   []string // the arguments that node gets, nil if it is not started
		stdout string   // a part of the output
		stderr string   // all of it
		code   int
	}{
		{name: "nothing", stdout: "Usage:"},
		{name: "help", args: []string{"--help"}, stdout: "bench"},
		{name: "short help", args: []string{"-h"}, stdout: "node"},
		{name: "help among options", args: []string{"--help", "--db", "x"}, node: []string{"--help", "--db", "x"}},
		{name: "short help among options", args: []string{"-h", "--db=x"}, node: []string{"-h", "--db=x"}},
		{name: "help on node", args: []string{"help", "node"}, stdout: "annals node --help"},
		{name: "version", args: []string{"version"}, stdout: "annals "},
		{name: "node", args: []string{"node"}, node: []string{}},
		{name: "node with options", args: []string{"node", "--db", "x", "-mem-db+"}, node: []string{"--db", "x", "-mem-db+"}},
		{name: "node asks for help itself", args: []string{"node", "--help"}, node: []string{"--help"}},
		{name: "options alone", args: []string{"--db", "x"}, node: []string{"--db", "x"}},
		{name: "one dash", args: []string{"-Db=x"}, node: []string{"-Db=x"}},
		{name: "version as option", args: []string{"--version"}, node: []string{"--version"}},
		{name: "version as a letter", args: []string{"-v"}, stdout: "annals "},
		{name: "unknown command", args: []string{"nodes"}, stderr: "annals: unknown command \"nodes\", did you mean annals node?\n", code: 2},
		{name: "too much", args: []string{"version", "x"}, stderr: "annals: unexpected argument \"x\", see annals version --help\n", code: 2},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			var got []string
			code := run(c.args, &stdout, &stderr, func(args []string, _, _ io.Writer) error {
				got = append([]string{}, args...)
				return nil
			})
			if code != c.code || !reflect.DeepEqual(got, c.node) || stderr.String() != c.stderr || !strings.Contains(stdout.String(), c.stdout) {
				t.Errorf("code %d, node %q\nstdout: %s\nstderr: %s", code, got, &stdout, &stderr)
			}
		})
	}
}

func TestErrorsAreLines(t *testing.T) {
	var stderr bytes.Buffer
	code := run([]string{"node"}, io.Discard, &stderr, func([]string, io.Writer, io.Writer) error {
		return errors.Join(errors.New("one"), errors.New("two"))
	})
	if want := "annals: one\nannals: two\n"; code != 1 || stderr.String() != want {
		t.Errorf("code %d, %q", code, &stderr)
	}
}

func TestVersion(t *testing.T) {
	stamped := func(version, revision, modified string) debug.BuildInfo {
		return debug.BuildInfo{Main: debug.Module{Version: version}, Settings: []debug.BuildSetting{
			{Key: "-buildmode", Value: "exe"}, {Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: revision}, {Key: "vcs.modified", Value: modified},
		}}
	}
	const revision, pseudo = "0123456789abcdef0123456789abcdef01234567", "v0.0.0-20261122191910-0123456789ab"
	cases := []struct {
		name    string
		info    debug.BuildInfo
		version string
		details string // of the line, before what it was built with
	}{
		{"release", debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "v1.2.3", ""},
		{"installed commit", debug.BuildInfo{Main: debug.Module{Version: pseudo}}, pseudo, ""},
		{"work tree", stamped(pseudo, revision, "false"), pseudo, "commit 0123456789ab, "},
		{"changed work tree", stamped(pseudo+"+dirty", revision, "true"), pseudo + "+dirty", "commit 0123456789ab+changes, "},
		{"revision alone", stamped("(devel)", revision, "false"), "devel-0123456789ab", "commit 0123456789ab, "},
		{"short revision, no module", stamped("", "01", "true"), "devel-01+changes", "commit 01+changes, "},
		{"plain go run", debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "devel",
			"built without version control information; go build or go run -buildvcs=true has it, "},
		{"nothing known", debug.BuildInfo{}, "devel",
			"built without version control information; go build or go run -buildvcs=true has it, "},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			version := versionOf(&c.info)
			want := "annals " + c.version + " (" + c.details + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH + ")"
			if got := describe(version, &c.info); version != c.version || got != want {
				t.Errorf("%s\n got %s\nwant %s", version, got, want)
			}
		})
	}
}

// TestReadmeShowsTheFirstAppend keeps the line printed at start and the README together.
func TestReadmeShowsTheFirstAppend(t *testing.T) {
	readme := check.Value(os.ReadFile("../../README.md")).Must(t)
	if want := firstAppend("127.0.0.1:2113"); !strings.Contains(string(readme), "\n"+want+"\n") {
		t.Errorf("the README lacks the line\n%s", want)
	}
}
