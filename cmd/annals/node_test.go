package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/node"
)

// fakeNode is a node that does nothing until it is released.
type fakeNode struct {
	done   chan struct{}
	closed chan struct{}
	once   sync.Once
	// closing, if not nil, holds Close up.
	closing chan struct{}
	err     error
	unready string

	mu       sync.Mutex
	reloaded []string // certificate files that it was asked to take over
	refuses  bool     // to take them over
}

func newFakeNode() *fakeNode {
	return &fakeNode{done: make(chan struct{}), closed: make(chan struct{})}
}

func (n *fakeNode) URL() string           { return "http://127.0.0.1:4711" }
func (n *fakeNode) Done() <-chan struct{} { return n.done }
func (n *fakeNode) Unready() string       { return n.unready }

func (n *fakeNode) ReloadCertificates(c *config.Config) (taken, refused bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reloaded = append(n.reloaded, c.CertificateFile)
	return !n.refuses, n.refuses
}

func (n *fakeNode) Close() error {
	n.once.Do(func() { close(n.closed) })
	if n.closing != nil {
		<-n.closing
	}
	return n.err
}

// lockedBuffer is a buffer that two goroutines may use.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// world is a host with everything replaced.
type world struct {
	host
	out, err *lockedBuffer
	signals  chan os.Signal
	exits    chan int
	opened   chan node.Options
	files    map[string]string
}

func newWorld(n runningNode) *world {
	w := &world{out: &lockedBuffer{}, err: &lockedBuffer{}, signals: make(chan os.Signal), exits: make(chan int, 4),
		opened: make(chan node.Options, 1), files: map[string]string{}}
	w.host = host{
		stdout:  w.out,
		stderr:  w.err,
		signals: w.signals,
		exit:    func(code int) { w.exits <- code },
		readFile: func(name string) ([]byte, error) {
			if content, ok := w.files[name]; ok {
				return []byte(content), nil
			}
			return nil, fs.ErrNotExist
		},
		open: func(_ context.Context, o node.Options) (runningNode, error) {
			w.opened <- o
			return n, nil
		},
	}
	return w
}

// start runs the command in the background.
func (w *world) start(args ...string) <-chan error {
	result := make(chan error, 1)
	go func() { result <- w.run(args) }()
	return result
}

func TestSignalStopsTheNode(t *testing.T) {
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		n := newFakeNode()
		w := newWorld(n)
		result := w.start("--node-port=0")
		o := <-w.opened
		w.signals <- signal
		check.Must(t, <-result, signal)
		<-n.closed
		if o.Config.NodePort != 0 || o.Version == "" || o.Logger == nil {
			t.Errorf("options: %+v", o)
		}
		want := "annals listens on http://127.0.0.1:4711\nwrite a first event: " + firstAppend("127.0.0.1:4711") + "\n"
		check.Equal(t, w.out.String(), want)
	}
}

func TestFirstAppend(t *testing.T) {
	for addr, want := range map[string]string{"0.0.0.0:2113": "127.0.0.1:2113", "[::]:99": "127.0.0.1:99", "[::1]:2113": "[::1]:2113", "db:2113": "db:2113"} {
		if got := firstAppend(addr); !strings.HasPrefix(got, "curl -i http://"+want+"/streams/") {
			t.Errorf("%s: %s", addr, got)
		}
	}
}

func TestSecondSignalLeavesAtOnce(t *testing.T) {
	n := newFakeNode()
	n.closing = make(chan struct{})
	w := newWorld(n)
	result := w.start()
	<-w.opened
	w.signals <- syscall.SIGTERM
	<-n.closed
	w.signals <- syscall.SIGINT
	check.Equal(t, <-w.exits, 1, "exit code")
	close(n.closing)
	check.NoError(t, <-result)
	check.Contains(t, w.err.String(), "annals: "+errForced.Error()+"\n", "stderr")
}

func TestNodeStopsByItself(t *testing.T) {
	n := newFakeNode()
	w := newWorld(n)
	code := make(chan int, 1)
	go func() {
		code <- run([]string{"node"}, w.out, w.err, func(args []string, _, _ io.Writer) error { return w.run(args) })
	}()
	<-w.opened
	close(n.done)
	check.Equal(t, <-code, 0, "exit code", w.err)
	<-n.closed
}

func TestStopThatFails(t *testing.T) {
	n := newFakeNode()
	n.err = errors.New("sync chunk-000000.000000: input/output error")
	w := newWorld(n)
	result := w.start()
	<-w.opened
	w.signals <- syscall.SIGTERM
	if err := <-result; err == nil || err.Error() != "stop: "+n.err.Error() {
		t.Errorf("got %v", err)
	}
}

func TestFatalErrorEndsTheProcess(t *testing.T) {
	w := newWorld(newFakeNode())
	result := w.start()
	o := <-w.opened
	o.OnFatal(errors.New("sync data/chunk-000000.000000: input/output error"))
	check.Equal(t, <-w.exits, 1, "exit code")
	if !strings.Contains(w.err.String(), "annals: sync data/chunk-000000.000000: input/output error\n") {
		t.Errorf("stderr: %s", w.err)
	}
	w.signals <- syscall.SIGTERM
	check.NoError(t, <-result)
}

func TestStartThatFails(t *testing.T) {
	cases := []struct {
		name string
		args []string
		want string
	}{
		{"option", []string{"--clutser-size=1"}, `unknown option "clutser-size" (Command Line), did you mean --cluster-size?`},
		{"check", []string{"--cluster-size=0"}, "ClusterSize must be greater than zero"},
		{"node", nil, "listen on 127.0.0.1:2113: address already in use"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(nil)
			w.open = func(context.Context, node.Options) (runningNode, error) {
				return nil, errors.New("listen on 127.0.0.1:2113: address already in use")
			}
			if err := w.run(c.args); err == nil || err.Error() != c.want {
				t.Errorf("got %v", err)
			}
			check.Equal(t, w.out.String(), "", "stdout")
		})
	}
}

func TestSignalWhileStarting(t *testing.T) {
	w := newWorld(nil)
	opening := make(chan struct{})
	w.open = func(ctx context.Context, _ node.Options) (runningNode, error) {
		close(opening)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	result := w.start()
	<-opening
	w.signals <- syscall.SIGTERM
	check.NoError(t, <-result)
}

func TestTextsInsteadOfANode(t *testing.T) {
	for arg, want := range map[string]string{"--help": "--scavenge-history-max-age <int>", "--version": "annals ", "--what-if": "Modified options\n  WhatIf"} {
		w := newWorld(nil)
		if err := w.run([]string{arg}); err != nil || !strings.Contains(w.out.String(), want) || w.err.String() != "" {
			t.Errorf("%s: %v\n%s%s", arg, err, w.out, w.err)
		}
	}
}

// TestWhatIfRefusesWhatAStartWould: a start after it has no surprise.
func TestWhatIfRefusesWhatAStartWould(t *testing.T) {
	for arg, want := range map[string]string{
		"--cluster-size=0":             "ClusterSize must be greater than zero",
		"--scavenge-schedule=sometime": "option ScavengeSchedule: cron expression \"sometime\": it has 1 fields",
	} {
		for _, args := range [][]string{{arg}, {arg, "--mem-db"}, {arg, "--what-if"}} {
			n := newFakeNode()
			close(n.done)
			w := newWorld(n)
			err := w.run(args)
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || w.out.String() != "" {
				t.Errorf("%v: %v\n%s", args, err, w.out)
			}
		}
	}
}

func TestWarningsAreLogged(t *testing.T) {
	n := newFakeNode()
	w := newWorld(n)
	result := w.start("--insecure", "--http-port=0", "--log-console-format=json")
	<-w.opened
	close(n.done)
	check.NoError(t, <-result)
	for _, part := range []string{`"@message":"option http-port (Command Line) is deprecated, use NodePort"`, "this node is INSECURE"} {
		check.Contains(t, w.err.String(), part, "the log lacks")
	}
}

func TestLogLevels(t *testing.T) {
	for level, want := range map[config.LogLevel]hclog.Level{
		config.LogLevelDefault: hclog.Info, config.LogLevelVerbose: hclog.Trace, config.LogLevelDebug: hclog.Debug,
		config.LogLevelInformation: hclog.Info, config.LogLevelWarning: hclog.Warn, config.LogLevelError: hclog.Error, config.LogLevelFatal: hclog.Off,
	} {
		check.Equal(t, hclogLevel(level), want, level)
	}
}
