package bench

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs"
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

// processCPU returns the processor time another process has used, user and system. It needs /proc,
// of the machine if this process runs in a container that has it.
func processCPU(pid int) (time.Duration, error) {
	used, err := secondsUsed(pid)
	if err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(used * float64(time.Second)), nil
}

func secondsUsed(pid int) (float64, error) {
	proc, err := procfs.NewFS(cmp.Or(os.Getenv("HOST_PROC"), procfs.DefaultMountPoint))
	if err != nil {
		return 0, err
	}
	process, err := proc.Proc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := process.Stat()
	if err != nil {
		return 0, err
	}
	return stat.CPUTime(), nil
}
