package testkit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Bounds of what a process may take. They are generous: a test that reaches one
// has found something, not a slow machine.
const (
	startLimit = 3 * time.Minute
	stopLimit  = 2 * time.Minute
)

// listening begins the line by which a node says where it is.
const listening = "annals listens on "

// Process is one process of the product. It is killed at the end of its test at the latest.
type Process struct {
	t      testing.TB
	cmd    *exec.Cmd
	stdout lines
	stderr lines
	exited chan struct{} // closed when the process is gone and its output read
	ended  bool          // by the test, as it wanted: its output explains nothing

	// Client is of the node, once that serves.
	*Client
}

// Command describes a process to start.
type Command struct {
	Path  string   // default: the built binary
	Args  []string // after the path
	Env   []string // added to that of the test, less what configures a node
	Dir   string   // working directory, default: a new empty one
	Quiet bool     // do not show the output when the test fails

	Stderr *os.File // where standard error goes; default: Process.Stderr has it
}

// Launch starts a process and does not wait for anything.
func Launch(t testing.TB, c Command) *Process {
	t.Helper()
	if c.Path == "" {
		c.Path = Binary(t)
	}
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	p := &Process{t: t, cmd: exec.Command(c.Path, c.Args...), exited: make(chan struct{})}
	p.stdout.init()
	p.stderr.init()
	p.cmd.Dir = c.Dir
	p.cmd.Env = append(environment(), c.Env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if c.Stderr != nil {
		p.cmd.Stderr = c.Stderr
	}
	p.cmd.SysProcAttr = processAttributes()
	// Processes that inherited the output do not delay the wait for long.
	p.cmd.WaitDelay = 5 * time.Second
	started := make(chan error)
	go func() {
		// The process dies with the thread that starts it, and threads of a test end
		// at any time: those on which a lab entered a namespace do. This one is kept.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		defer close(p.exited)
		// The code is in ProcessState; another error means lost output, seen as missing lines.
		_ = p.cmd.Wait()
		p.stdout.end()
		p.stderr.end()
	}()
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", c.Path, err)
	}
	t.Cleanup(func() {
		asWanted := p.ended
		p.Kill()
		if t.Failed() && !c.Quiet && !asWanted {
			t.Logf("process %d: %s\n%s", p.PID(), strings.Join(p.cmd.Args, " "), p.Output())
		}
	})
	return p
}

// environment is that of the test without variables that set options of a node.
func environment() []string {
	var env []string
	for _, v := range os.Environ() {
		upper := strings.ToUpper(v)
		if !strings.HasPrefix(upper, "STORE_") && !strings.HasPrefix(upper, "EVENTSTORE_") && !strings.HasPrefix(upper, "KURRENTDB_") {
			env = append(env, v)
		}
	}
	return env
}

// StartNode starts a node on a data folder and a free port, and returns when it serves.
func StartNode(t testing.TB, dir string, options ...string) *Process {
	t.Helper()
	p := LaunchNode(t, dir, options...)
	p.AwaitServing()
	return p
}

// LaunchNode starts a node without waiting for it.
func LaunchNode(t testing.TB, dir string, options ...string) *Process {
	t.Helper()
	args := append([]string{"node", "--db", dir, "--node-port", "0"}, options...)
	return Launch(t, Command{Args: args})
}

// AwaitServing waits until the node says where it listens.
func (p *Process) AwaitServing() {
	p.t.Helper()
	if err := p.TryServing(); err != nil {
		p.t.Fatal(err)
	}
}

// TryServing is AwaitServing for callers that are not the test's goroutine.
func (p *Process) TryServing() error { return p.ServingWithin(startLimit) }

// ServingWithin is TryServing for nodes that have much to do first.
func (p *Process) ServingWithin(limit time.Duration) error {
	line, err := p.stdout.await(listening, limit)
	if err != nil {
		return fmt.Errorf("the node did not start to listen: %w; code %d\n%s", err, p.codeIfGone(), p.Output())
	}
	_, base, _ := strings.Cut(line, listening)
	p.Client = NewClient(strings.TrimSpace(base), nil)
	return nil
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process alone. It is not an error if the process is gone.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("send %s to process %d: %v", s, p.PID(), err)
	}
}

// SignalGroup sends a signal to the process and those that it started.
func (p *Process) SignalGroup(s syscall.Signal) {
	p.t.Helper()
	if err := syscall.Kill(-p.PID(), s); err != nil && !errors.Is(err, syscall.ESRCH) {
		p.t.Errorf("send %s to process group %d: %v", s, p.PID(), err)
	}
}

// Kill ends the process and its group as a power cut would end it, and waits until it is gone.
func (p *Process) Kill() {
	p.t.Helper()
	select {
	case <-p.exited:
		return
	default:
	}
	p.SignalGroup(syscall.SIGKILL)
	p.Wait(stopLimit)
	if p.Client != nil {
		p.CloseIdle()
	}
}

// Stop ends the process in order and demands exit code 0.
func (p *Process) Stop() {
	p.t.Helper()
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(stopLimit); code != 0 {
		p.t.Fatalf("exit code %d after SIGTERM\n%s", code, p.Output())
	}
}

// Exited is closed when the process is gone.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Wait returns the exit code of the process, -1 when a signal ended it. It must end within the
// limit.
func (p *Process) Wait(limit time.Duration) int {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	select {
	case <-p.exited:
		p.ended = true
		return p.codeIfGone()
	case <-ctx.Done():
		p.t.Fatalf("process %d has not ended within %s\n%s", p.PID(), limit, p.Output())
		return -1
	}
}

// codeIfGone returns the exit code, -2 of a process that still runs.
func (p *Process) codeIfGone() int {
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	default:
		return -2
	}
}

// AwaitOutput waits for a line on standard output that contains the text.
func (p *Process) AwaitOutput(text string) {
	p.t.Helper()
	if _, err := p.stdout.await(text, startLimit); err != nil {
		p.t.Fatalf("%v\n%s", err, p.Output())
	}
}

// AwaitLog waits for a line on standard error that contains the text, and returns it.
func (p *Process) AwaitLog(text string) string {
	p.t.Helper()
	line, err := p.stderr.await(text, startLimit)
	if err != nil {
		p.t.Fatalf("%v\n%s", err, p.Output())
	}
	return line
}

// Stdout and Stderr are what the process has printed so far.
func (p *Process) Stdout() string { return p.stdout.String() }
func (p *Process) Stderr() string { return p.stderr.String() }

// Output is both, for failures.
func (p *Process) Output() string {
	return "--- standard output ---\n" + p.Stdout() + "--- standard error ---\n" + p.Stderr()
}

// Run runs a command to its end and returns it with its exit code.
func Run(t testing.TB, c Command) (*Process, int) {
	t.Helper()
	p := Launch(t, c)
	return p, p.Wait(startLimit)
}

// lines collects output and lets others wait for a line of it.
type lines struct {
	mu      sync.Mutex
	text    bytes.Buffer
	dropped int
	ended   bool
	changed *sync.Cond
}

// keepOutput bounds what is kept of the output of a process.
const keepOutput = 1 << 20

func (l *lines) init() { l.changed = sync.NewCond(&l.mu) }

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text.Len() > keepOutput {
		l.dropped += l.text.Len() / 2
		l.text.Next(l.text.Len() / 2)
	}
	l.text.Write(b)
	l.changed.Broadcast()
	return len(b), nil
}

func (l *lines) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.changed.Broadcast()
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropped > 0 {
		return fmt.Sprintf("(%d bytes before this are not kept)\n%s", l.dropped, l.text.String())
	}
	return l.text.String()
}

// await returns the first whole line that contains the text.
func (l *lines) await(text string, limit time.Duration) (string, error) {
	late := false
	timer := time.AfterFunc(limit, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		late = true
		l.changed.Broadcast()
	})
	defer timer.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		rest := l.text.String()
		for {
			line, after, whole := strings.Cut(rest, "\n")
			if !whole {
				break
			}
			if strings.Contains(line, text) {
				return line, nil
			}
			rest = after
		}
		switch {
		case l.ended:
			return "", fmt.Errorf("the process ended without printing %q", text)
		case late:
			return "", fmt.Errorf("the process has not printed %q within %s", text, limit)
		}
		l.changed.Wait()
	}
}
