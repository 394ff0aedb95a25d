package testkit

import "syscall"

// processAttributes puts a process into its own group. It dies with the test,
// even if that is ended by its time limit and runs no cleanup.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
