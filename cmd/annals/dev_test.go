package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestDevRefuses: options that annals dev cannot take give one line with the reason, and exit code
// 2.
func TestDevRefuses(t *testing.T) {
	type attempt struct {
		name, args, env string
		want            string // within the line
	}
	cases := []attempt{
		{"environment", "--nodes=2", "STORE_CLUSTER_SIZE=3", "option CLUSTER_SIZE (STORE_CLUSTER_SIZE) cannot be set here: see --nodes"},
		{"former name", "--nodes=2 --http-port 5", "", "--port and the ports after it"},
		{"beside options of its own", "--port 0 -nodes=2 --tls --read-only-replica", "", "option read-only-replica (Command Line) cannot be set here"},
		{"unknown option", "--mem-dp", "", `unknown option "mem-dp" (Command Line), did you mean --mem-db?`},
		{"bad value", "--max-append-size many", "", "option max-append-size (Command Line)"},
		{"checks of a node", "--nodes=2 --max-append-size 16767217", "", "MaxAppendSize must not exceed"},
		{"even number of nodes", "--nodes 2", "", "--nodes must be 1, 3 or 5, not 2"},
		{"too few ports", "--port=65535", "", "the command needs 3 ports from there on"},
		{"TLS without users", "--tls", "STORE_INSECURE=true", "--tls and --insecure exclude each other"},
		{"no number", "--nodes three", "", "--nodes"},
	}
	// An option that is taken by mistake fails by the number of nodes.
	for name, why := range devRefused() {
		cases = append(cases, attempt{name, "--nodes=2 --" + name + "=1", "", "option " + name + " (Command Line) cannot be set here: " + why})
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if name, value, ok := strings.Cut(c.env, "="); ok {
				t.Setenv(name, value)
			}
			stdout, stderr := &lockedBuffer{}, &lockedBuffer{}
			code := run(append([]string{"dev"}, strings.Fields(c.args)...), stdout, stderr, nil)
			line, rest, _ := strings.Cut(stderr.String(), "\n")
			if code != 2 || stdout.String() != "" || rest != "" || !strings.HasPrefix(line, "annals: ") || !strings.Contains(line, c.want) {
				t.Errorf("exit code %d, want 2 and: %s\n%s%s", code, c.want, stdout, stderr)
			}
		})
	}
}

// TestDevHelp: the options that are taken are listed, those that are refused are not.
func TestDevHelp(t *testing.T) {
	stdout := &lockedBuffer{}
	check.MustEqual(t, run([]string{"dev", "--help"}, stdout, io.Discard, nil), 0, "exit code")
	for text, want := range map[string]bool{
		"--nodes int": true, "--port int": true, "--tls ": true, "--db <": true, "--insecure\n": true, "--max-append-size <": true, "--follower-writes <": true,
		"--cluster-size": false, "--node-port": false, "--certificate-file": false, "--what-if": false,
	} {
		if strings.Contains(stdout.String(), text) != want {
			t.Errorf("%q is listed: %t", text, !want)
		}
	}
}

// devFake is a node whose readiness a test decides.
type devFake struct {
	devNode
	state event.NodeState
	why   atomic.Pointer[string]
}

func (f *devFake) State() event.NodeState { return f.state }

func (f *devFake) Unready() string { return *f.why.Load() }

func (f *devFake) say(why string) { f.why.Store(&why) }

// TestDevAwaitsReadiness: a cluster runs when every node is ready, not when it serves; until then
// the log says what is missing, however long it takes.
func TestDevAwaitsReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader, follower := &devFake{state: event.StateLeader}, &devFake{state: event.StateFollower}
		leader.say("")
		follower.say("catching up with the leader")
		var lines lockedBuffer
		c := &devCluster{logger: &processLog{Logger: hclog.New(&hclog.LoggerOptions{Output: &lines})}, nodes: []devNode{leader, follower, follower}}
		ready := make(chan bool, 1)
		go func() { ready <- c.awaitReady(t.Context()) }()
		time.Sleep(10*time.Minute + time.Second)
		select {
		case <-ready:
			t.Fatal("a cluster is ready whose followers are not")
		default:
		}
		if n := strings.Count(lines.String(), `waiting="node2: catching up with the leader"`); n < 59 || n > 60 {
			t.Errorf("in ten minutes %d lines:\n%s", n, &lines)
		}
		follower.say("")
		if !<-ready {
			t.Error("all nodes are ready, the cluster is not")
		}
		ctx, cancel := context.WithCancel(t.Context())
		leader.say("no leader is known")
		go func() { ready <- c.awaitReady(ctx) }()
		time.Sleep(time.Second)
		cancel()
		if <-ready {
			t.Error("the end of the process makes a cluster ready")
		}
	})
}

// closing is a node that notes which others a node would look for while it stops.
type closing struct {
	devFake
	close func()
}

func (c *closing) Close() error { c.close(); return nil }

// TestDevStopsInOrder: while the nodes stop, none of them looks for one that has.
func TestDevStopsInOrder(t *testing.T) {
	c := &devCluster{seeds: []string{"127.0.0.1:1", "127.0.0.1:2"}}
	closed := 0
	for _, state := range []event.NodeState{event.StateLeader, event.StateFollower} {
		c.nodes = append(c.nodes, &closing{devFake{state: state}, func() {
			closed++
			if seeds, err := c.known(t.Context()); len(seeds) != 0 || err != nil {
				t.Errorf("%q, %v", seeds, err)
			}
		}})
	}
	if err := c.close(); err != nil || closed != 2 {
		t.Errorf("%d closed, %v", closed, err)
	}
}

// devRun is a running cluster that obeys lines.
type devRun struct {
	t              *testing.T
	typed          *io.PipeWriter
	stdout, stderr lockedBuffer
}

func runsDev(t *testing.T, nodes int) *devRun {
	ctx, cancel := context.WithCancel(t.Context())
	stdin, typed := io.Pipe()
	d := &devRun{t: t, typed: typed}
	g := config.Default()
	g.Db, g.Insecure = t.TempDir(), true
	done := make(chan error, 1)
	go func() {
		done <- runDev(ctx, devOptions{nodes: nodes, node: g, stdin: stdin}, &d.stdout, &d.stderr, nil)
	}()
	t.Cleanup(func() {
		cancel()
		_ = typed.Close()
		check.NoError(t, <-done)
	})
	d.await("data are in ")
	return d
}

func (d *devRun) await(text string) {
	d.t.Helper()
	testkit.Eventually(d.t, time.Minute, func() error {
		if all := d.stdout.String() + d.stderr.String(); !strings.Contains(all, text) {
			return fmt.Errorf("no %q in\n%s", text, all)
		}
		return nil
	})
}

func (d *devRun) obeys(line, says string) {
	d.t.Helper()
	check.Must(d.t, check.Err(io.WriteString(d.typed, line+"\n")))
	d.await(says)
}

// TestDevObeys: a node that is stopped by a line starts again by another at the same place, and the
// others keep serving.
func TestDevObeys(t *testing.T) {
	d := runsDev(t, 3)
	served := regexp.MustCompile(`(?m)^node2 serves (\S+)`).FindStringSubmatch(d.stdout.String())[1]
	for _, step := range []struct{ line, says string }{
		{"stop 4", `annals: "stop 4" is not a command: write list, stop N or start N, N from 1 to 3`},
		{"start 2", "annals: node2 runs already"},
		{"stop 2", "node2 is stopped\n"},
		{"stop node2", "annals: node2 is stopped already"},
		{"start 2", "node2 starts\n"},
		{"list", "node2 starts\nnode1 serves "},
	} {
		d.obeys(step.line, step.says)
	}
	testkit.Eventually(t, time.Minute, func() error {
		_, after, _ := strings.Cut(d.stdout.String(), "node2 starts")
		if !strings.Contains(after, "node2 serves "+served) || !strings.Contains(after, "node3 serves ") {
			return fmt.Errorf("the list:\n%s", after)
		}
		return nil
	})
}

// TestDevAlone: a single node has no port for other nodes.
func TestDevAlone(t *testing.T) {
	d := runsDev(t, 1)
	d.obeys("stop 1", "node1 is stopped\n")
	d.obeys("start 1", "node1 starts\n")
}
