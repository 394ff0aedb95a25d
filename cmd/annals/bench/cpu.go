package bench

import (
	"fmt"
	"time"

	"github.com/shirou/gopsutil/v4/process"
	"golang.org/x/sys/unix"
)

// ownCPU returns the processor time this process has used, user and system.
func ownCPU() (time.Duration, error) {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return 0, fmt.Errorf("own processor time: %w", err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()), nil
}

// processCPU returns the processor time another process has used, user and system.
func processCPU(pid int) (time.Duration, error) {
	used, err := (&process.Process{Pid: int32(pid)}).Times()
	if err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration((used.User + used.System) * float64(time.Second)), nil
}
