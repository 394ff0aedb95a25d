//go:build !linux

package lab

import (
	"context"
	"time"
)

// Lab needs Linux.
type Lab struct{}

// Host needs Linux.
type Host struct{}

// Link needs Linux.
type Link struct{}

// Process needs Linux.
type Process struct{}

// Alone does nothing.
func Alone() (code int, done bool, err error) { return 0, false, nil }

// New returns ErrNeedsLinux. So there is no lab, and nothing below is ever called.
func New(Options) (*Lab, error) { return nil, ErrNeedsLinux }

func (l *Lab) Host(int) *Host           { return nil }
func (l *Lab) Hosts() []*Host           { return nil }
func (l *Lab) Dir() string              { return "" }
func (l *Lab) Close() error             { return ErrNeedsLinux }
func (l *Lab) NoLinks() error           { return ErrNeedsLinux }
func (l *Lab) Link(from, to *Host) Link { return Link{} }
func (l *Lab) HealAll() error           { return ErrNeedsLinux }

func (l Link) Set(Rule) error            { return ErrNeedsLinux }
func (l Link) Cut() error                { return ErrNeedsLinux }
func (l Link) Traffic() (Traffic, error) { return Traffic{}, ErrNeedsLinux }

func (h *Host) Addr() string                                     { return "" }
func (h *Host) String() string                                   { return "" }
func (h *Host) Dir() string                                      { return "" }
func (h *Host) Start(context.Context, Command) (*Process, error) { return nil, ErrNeedsLinux }
func (h *Host) LimitDisk(int64) error                            { return ErrNeedsLinux }
func (h *Host) MakeDisk(int64) error                             { return ErrNeedsLinux }
func (h *Host) FreezeDisk() error                                { return ErrNeedsLinux }
func (h *Host) ThawDisk() error                                  { return ErrNeedsLinux }
func (h *Host) FillDisk(int64) error                             { return ErrNeedsLinux }
func (h *Host) FreeDisk() error                                  { return ErrNeedsLinux }

func (p *Process) Pid() int                      { return 0 }
func (p *Process) Done() <-chan struct{}         { return nil }
func (p *Process) ExitCode() int                 { return -1 }
func (p *Process) Output() string                { return "" }
func (p *Process) LogFile() string               { return "" }
func (p *Process) Kill() error                   { return ErrNeedsLinux }
func (p *Process) Terminate(time.Duration) error { return ErrNeedsLinux }
func (p *Process) Pause() error                  { return ErrNeedsLinux }
func (p *Process) Resume() error                 { return ErrNeedsLinux }
