package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// aloneEnv is set in a process that Alone started.
const aloneEnv = "ANNALS_ALONE"

// Alone runs this program again, with its arguments, in a network namespace that has only a
// loopback device, and returns its exit code. In that process, and where it is not allowed to make
// a namespace, it returns at once with done false.
//
// It is for programs that watch the network devices of the machine and must not see devices come
// and go: a browser then gives up its open requests (ERR_NETWORK_CHANGED).
func Alone() (code int, done bool, err error) {
	if os.Getenv(aloneEnv) != "" {
		if err := raiseLoopback(); err != nil {
			return 0, false, fmt.Errorf("set up the loopback device: %w", err)
		}
		return 0, false, nil
	}
	// The process is to end with this one, which the kernel takes for the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.Env = append(os.Environ(), aloneEnv+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err = c.Run()
	var exit *exec.ExitError
	switch {
	case errors.Is(err, unix.EPERM):
		return 0, false, nil
	case errors.As(err, &exit):
		return max(1, exit.ExitCode()), true, nil
	case err != nil:
		return 0, false, fmt.Errorf("run in a network namespace: %w", err)
	}
	return 0, true, nil
}
