//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// adopt makes this process the parent of all orphans among its descendants, so that
// endChildren finds them, and has it ended when its own parent is killed.
func adopt() {
	// Older kernels lack both; then a killed run may leave processes.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0, 0, 0)
}

// endChildren kills what still runs of the tests, the children of those killed too.
func endChildren() error {
	for {
		children, err := childrenOf(os.Getpid())
		if err != nil || len(children) == 0 {
			return err
		}
		for _, pid := range children {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
			if err := wait(pid); err != nil {
				return fmt.Errorf("wait for process %d: %w", pid, err)
			}
		}
	}
}

// wait waits for the end of a child, unless another has done so.
func wait(pid int) error {
	for {
		switch _, err := syscall.Wait4(pid, nil, 0, nil); {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.ECHILD):
			return nil
		default:
			return err
		}
	}
}

// childrenOf lists the children of a process.
func childrenOf(parent int) (children []int, err error) {
	all, err := procfs.AllProcs()
	for _, p := range all {
		// One that has ended has no parent.
		if stat, err := p.Stat(); err == nil && stat.PPID == parent {
			children = append(children, p.PID)
		}
	}
	return children, err
}
