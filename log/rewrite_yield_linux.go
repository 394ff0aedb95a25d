package eventlog

import "golang.org/x/sys/unix"

// yieldProcessor puts this thread behind the others that are ready to run: the
// scheduler of Linux interrupts a busy one at its next tick only, milliseconds later.
func yieldProcessor() {
	// It has no way to fail. As a system call that may block it lets go of what the
	// runtime needs to run other goroutines meanwhile.
	_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}
