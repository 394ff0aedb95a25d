package eventlog

import "golang.org/x/sys/unix"

// yieldProcessor lets the other threads that are ready run first. Without it the scheduler of Linux
// interrupts a busy thread only at its next tick, milliseconds later.
func yieldProcessor() {
	// It has no way to fail. As a system call that may block it lets go of what the
	// runtime needs to run other goroutines meanwhile.
	_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}
