package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
)

// Host is one machine of a lab: an address, a folder and processes.
type Host struct {
	lab    *Lab
	number byte // last byte of the address, from 1
	folder string
	thread *thread // in the host's namespace; it starts all processes of the host

	// Of the thread alone.
	closed  bool
	started int // processes ever started

	mu        sync.Mutex // guards processes
	processes []*Process // all that run, and some that have ended

	disk disk
}

// Index counts the hosts of a lab from 0.
func (h *Host) Index() int { return int(h.number) - 1 }

// Addr is the host's IPv4 address.
func (h *Host) Addr() string { return address(h.lab.subnet, h.number).String() }

// String names the host in messages.
func (h *Host) String() string { return fmt.Sprintf("host %d (%s)", h.Index(), h.Addr()) }

// Dir is the host's folder, empty at first. It is the working directory of
// processes. With a limit of the disk everything below it counts.
func (h *Host) Dir() string { return filepath.Join(h.diskDir(), "data") }

// diskDir is where a limited disk is mounted. The file that fills it lies next to the host's
// folder, where programs do not see it.
func (h *Host) diskDir() string { return filepath.Join(h.folder, "disk") }

// Start starts a process on the host and waits for nothing that it does. The
// context bounds the start alone, not the life of the process.
func (h *Host) Start(ctx context.Context, c Command) (*Process, error) {
	var p *Process
	err := h.thread.do(ctx, func() (err error) {
		if h.closed {
			return ErrClosed
		}
		p, err = h.launch(c)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("start %s on %s: %w", c.Path, h, err)
	}
	return p, nil
}

// Processes returns those that run, in the order of their starts.
func (h *Host) Processes() []*Process {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.processes = slices.DeleteFunc(h.processes, (*Process).ended)
	return slices.Clone(h.processes)
}

// killAll ends all processes. None is started after that.
func (h *Host) killAll() error {
	// The thread does one thing after the other: all that came before are in the list.
	err := h.thread.do(context.Background(), func() error { h.closed = true; return nil })
	errs := []error{err, h.ThawDisk()}
	for _, p := range h.Processes() {
		errs = append(errs, p.Kill())
	}
	return errors.Join(errs...)
}
