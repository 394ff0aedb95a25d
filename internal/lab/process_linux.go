package lab

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// killLimit bounds the wait for a process that was killed. Only one that hangs
	// in the kernel needs longer.
	killLimit = 30 * time.Second
	// outputLimit bounds the wait for output of a process that is gone, while
	// another one that left its group holds the pipe.
	outputLimit = 2 * time.Second
)

// Process is a program that was started on a host. It leads a process group,
// which ends with it, and it is killed when this process dies.
type Process struct {
	cmd  *exec.Cmd
	log  *processLog
	done chan struct{} // closed when the process is gone and its output read
	err  error         // set before done is closed

	mu     sync.Mutex // guards reaped
	reaped bool       // the id may be another process's: send no signal
}

// launch starts a process, on the thread of the host: it inherits the namespace
// and dies with that thread.
func (h *Host) launch(c Command) (*Process, error) {
	log, err := openProcessLog(filepath.Join(h.folder, fmt.Sprintf("process-%d.log", h.started)), c.Log)
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(c.Path, c.Args...), log: log, done: make(chan struct{})}
	p.cmd.Dir = h.Dir()
	p.cmd.Env = append(os.Environ(), c.Env...)
	// One writer for both: their lines stay in order.
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.WaitDelay = outputLimit
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, log.close())
	}
	h.started++
	h.mu.Lock()
	h.processes = append(h.processes, p)
	h.mu.Unlock()
	go p.reap()
	return p, nil
}

// reap waits for the end of the process. It ends by itself once the process is
// killed, which Close of the lab sees to.
func (p *Process) reap() {
	defer close(p.done)
	// First without taking it away: while it is a zombie its group cannot be mistaken for another.
	_, waitErr := awaitState(p.Pid(), unix.WEXITED)
	p.mu.Lock()
	// The rest of the group goes too. Usually it is empty.
	killErr := unix.Kill(-p.Pid(), unix.SIGKILL)
	if errors.Is(killErr, unix.ESRCH) {
		killErr = nil
	}
	p.reaped = true
	p.mu.Unlock()
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil // the exit code tells
	}
	p.err = errors.Join(err, waitErr, killErr, p.log.close())
}

// awaitState waits until a child ends or stops, as the options say, and leaves it to be waited for
// again.
func awaitState(pid, options int) (unix.Siginfo, error) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, options|unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return info, err
		}
	}
}

// Pid is the process's id in the machine.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process is gone and all of its output is read.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode is the exit code of a process that is gone, and -1 while it runs and if a signal ended
// it.
func (p *Process) ExitCode() int {
	if !p.ended() {
		return -1
	}
	return p.cmd.ProcessState.ExitCode()
}

// Err says what went wrong around a process that is gone: above all, that its output could not be
// logged. An exit code does not count as an error.
func (p *Process) Err() error {
	if !p.ended() {
		return nil
	}
	return p.err
}

// Output is the end of what the process has printed, at most 256 KiB of it.
func (p *Process) Output() string { return p.log.tail.String() }

// LogFile is where all output of the process is written: a file next to the host's folder.
func (p *Process) LogFile() string { return p.log.file.Name() }

func (p *Process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Signal sends a signal to the process alone. One that is gone is os.ErrProcessDone.
func (p *Process) Signal(s syscall.Signal) error { return p.signal(p.Pid(), s) }

// signal sends a signal to the process or, for its negative id, its group.
func (p *Process) signal(to int, s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return fmt.Errorf("send %s to process %d: %w", s, p.Pid(), os.ErrProcessDone)
	}
	if err := unix.Kill(to, s); err != nil {
		return fmt.Errorf("send %s to process %d: %w", s, p.Pid(), err)
	}
	return nil
}

// await waits until the process is gone.
func (p *Process) await(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		return p.ended()
	}
}

// Kill ends the process and its group at once, and waits until they are gone. It is not an error if
// they are gone already. The host stays up: it closes the connections of the process, and clients
// notice. For the silence of a power cut isolate the host first.
func (p *Process) Kill() error {
	if err := p.signal(-p.Pid(), unix.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if !p.await(killLimit) {
		return fmt.Errorf("process %d is not gone %s after it was killed", p.Pid(), killLimit)
	}
	return nil
}

// Terminate asks the process to end and waits. If it has not ended after the
// time it is killed, and that is an error. A paused process is resumed.
func (p *Process) Terminate(limit time.Duration) error {
	err := p.Signal(unix.SIGTERM)
	if err == nil {
		err = p.Resume()
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return errors.Join(err, p.Kill())
	}
	if p.await(limit) {
		return nil
	}
	return errors.Join(fmt.Errorf("process %d had to be killed: it did not end within %s", p.Pid(), limit), p.Kill())
}

// Pause stops the process and its group, as if their machine hung, and returns when the process
// stands still. Its sockets stay: the kernel keeps acknowledging what they receive.
func (p *Process) Pause() error {
	if err := p.signal(-p.Pid(), unix.SIGSTOP); err != nil {
		return err
	}
	info, err := awaitState(p.Pid(), unix.WSTOPPED)
	if errors.Is(err, unix.ECHILD) || err == nil && info.Code != cldStopped {
		err = os.ErrProcessDone
	}
	if err != nil {
		return fmt.Errorf("pause process %d: %w", p.Pid(), err)
	}
	return nil
}

// cldStopped is CLD_STOPPED of siginfo_t: the child stands still.
const cldStopped = 5

// Resume ends a pause.
func (p *Process) Resume() error { return p.signal(-p.Pid(), unix.SIGCONT) }

// processLog gets all output of a process. It takes everything even if it
// cannot write it: a program must not fail because of its observer.
type processLog struct {
	tail *tail
	file *os.File
	more io.Writer // may be nil

	// Of the writer, and after it has ended of who closes the log.
	fileErr, moreErr error // the first ones
}

func openProcessLog(name string, more io.Writer) (*processLog, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("log file: %w", err)
	}
	return &processLog{tail: newTail(keepOutput), file: file, more: more}, nil
}

func (l *processLog) Write(b []byte) (int, error) {
	n, _ := l.tail.Write(b)
	if l.fileErr == nil {
		_, l.fileErr = l.file.Write(b)
	}
	if l.more != nil && l.moreErr == nil {
		_, l.moreErr = l.more.Write(b)
	}
	return n, nil
}

func (l *processLog) close() error {
	if err := errors.Join(l.fileErr, l.moreErr, l.file.Close()); err != nil {
		return fmt.Errorf("log the output: %w", err)
	}
	return nil
}
