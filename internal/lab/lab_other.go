//go:build !linux

package lab

import (
	"context"
	"syscall"
	"time"
)

// Lab needs Linux.
type Lab struct{}

// Host needs Linux.
type Host struct{}

// Process needs Linux.
type Process struct{}

// New returns ErrNeedsLinux. So there is no lab, and nothing below is ever called.
func New(Options) (*Lab, error) { return nil, ErrNeedsLinux }

func (l *Lab) Add() (*Host, error)                                     { return nil, ErrNeedsLinux }
func (l *Lab) Host(int) *Host                                          { return nil }
func (l *Lab) Hosts() []*Host                                          { return nil }
func (l *Lab) ClientAddr() string                                      { return "" }
func (l *Lab) Dir() string                                             { return "" }
func (l *Lab) Close() error                                            { return ErrNeedsLinux }
func (l *Lab) CanCut() bool                                            { return false }
func (l *Lab) NoLinks() error                                          { return ErrNeedsLinux }
func (l *Lab) SetRule(from, to *Host, r Rule) error                    { return ErrNeedsLinux }
func (l *Lab) Rule(from, to *Host) (Rule, error)                       { return Rule{}, ErrNeedsLinux }
func (l *Lab) Cut(from, to *Host) error                                { return ErrNeedsLinux }
func (l *Lab) Heal(from, to *Host) error                               { return ErrNeedsLinux }
func (l *Lab) Delay(from, to *Host, delay, jitter time.Duration) error { return ErrNeedsLinux }
func (l *Lab) Drop(from, to *Host, probability float64) error          { return ErrNeedsLinux }
func (l *Lab) Bandwidth(from, to *Host, bytesPerSecond int64) error    { return ErrNeedsLinux }
func (l *Lab) HealAll() error                                          { return ErrNeedsLinux }
func (l *Lab) Isolate(*Host) error                                     { return ErrNeedsLinux }
func (l *Lab) Partition(...[]*Host) error                              { return ErrNeedsLinux }
func (l *Lab) Traffic(from, to *Host) (Traffic, error)                 { return Traffic{}, ErrNeedsLinux }

func (h *Host) Index() int                                       { return 0 }
func (h *Host) Addr() string                                     { return "" }
func (h *Host) String() string                                   { return "" }
func (h *Host) Dir() string                                      { return "" }
func (h *Host) Start(context.Context, Command) (*Process, error) { return nil, ErrNeedsLinux }
func (h *Host) Processes() []*Process                            { return nil }
func (h *Host) LimitDisk(int64) error                            { return ErrNeedsLinux }
func (h *Host) MakeDisk(int64) error                             { return ErrNeedsLinux }
func (h *Host) FreezeDisk() error                                { return ErrNeedsLinux }
func (h *Host) ThawDisk() error                                  { return ErrNeedsLinux }
func (h *Host) FillDisk(int64) error                             { return ErrNeedsLinux }
func (h *Host) FreeDisk() error                                  { return ErrNeedsLinux }

func (p *Process) Host() *Host                   { return nil }
func (p *Process) Pid() int                      { return 0 }
func (p *Process) Done() <-chan struct{}         { return nil }
func (p *Process) ExitCode() int                 { return -1 }
func (p *Process) Err() error                    { return ErrNeedsLinux }
func (p *Process) Output() string                { return "" }
func (p *Process) LogFile() string               { return "" }
func (p *Process) Signal(syscall.Signal) error   { return ErrNeedsLinux }
func (p *Process) Kill() error                   { return ErrNeedsLinux }
func (p *Process) Terminate(time.Duration) error { return ErrNeedsLinux }
func (p *Process) Pause() error                  { return ErrNeedsLinux }
func (p *Process) Resume() error                 { return ErrNeedsLinux }
