//go:build unix && !linux

package testkit

import "syscall"

// processAttributes puts a process into its own group.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
