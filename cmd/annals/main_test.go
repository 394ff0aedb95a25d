package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"testing"
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
		{name: "unknown command", args: []string{"nodes"}, stderr: "annals: unknown command \"nodes\", see annals --help\n", code: 1},
		{name: "too much", args: []string{"version", "x"}, stderr: "annals: unknown command \"x\" for \"annals version\"\n", code: 1},
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

func TestVersionOf(t *testing.T) {
	setting := func(k, v string) debug.BuildSetting { return debug.BuildSetting{Key: k, Value: v} }
	cases := []struct {
		name string
		info debug.BuildInfo
		want string
	}{
		{"installed", debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "v1.2.3"},
		{"work tree", debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{setting("vcs.revision", "0123456789abcdef")}}, "devel-0123456789ab"},
		{"changed work tree", debug.BuildInfo{Settings: []debug.BuildSetting{setting("vcs.revision", "01"), setting("vcs.modified", "true")}}, "devel-01+changes"},
		{"nothing known", debug.BuildInfo{}, "devel"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := versionOf(&c.info); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestReadmeShowsTheFirstAppend keeps the line printed at start and the README together.
func TestReadmeShowsTheFirstAppend(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := firstAppend("127.0.0.1:2113"); !strings.Contains(string(readme), "\n"+want+"\n") {
		t.Errorf("the README lacks the line\n%s", want)
	}
}
