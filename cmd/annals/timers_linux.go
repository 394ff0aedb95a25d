package main

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// timerSlack is by how much the system may be late when it wakes a thread.
//
// Go's runtime has a thread that looks every 20 us whether a call of the system keeps a
// processor from goroutines that wait for one, for as long as that happens now and then: with
// each sync, that is. At the system's own 50 us of slack it wakes 14,000 times a second, a tenth
// of all processor time of a cluster under load. No timer of a node is that exact.
const timerSlack = 200 * time.Microsecond

// relaxed is set for the program that was started again: it does not start once more, even if the
// system did not take the slack.
const relaxed = "ANNALS_TIMERS_RELAXED"

// relaxTimers starts the program again, as the same process, with that slack. A thread has the
// slack of the one that made it, and the runtime makes its own before main. Where the system
// refuses nothing is lost but time.
func relaxTimers() {
	if os.Getenv(relaxed) != "" {
		_ = os.Unsetenv(relaxed)
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	path, err := os.Executable() // By its path: the system names the process after it.
	if err != nil || isRelaxed() || unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0) != nil || !isRelaxed() {
		return
	}
	// It returns only if it fails.
	_ = syscall.Exec(path, os.Args, append(os.Environ(), relaxed+"=1"))
}

func isRelaxed() bool {
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	return err != nil || slack >= int(timerSlack)
}
