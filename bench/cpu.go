package bench

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// usage is the processor time, user and system, that processes have used.
type usage struct {
	driver  time.Duration
	servers map[int]float64 // seconds
	err     error
}

// usageOf measures this process and others. Those need /proc, of the machine if this process runs
// in a container that has it.
func usageOf(pids []int) usage {
	var r unix.Rusage
	u := usage{servers: map[int]float64{}, err: unix.Getrusage(unix.RUSAGE_SELF, &r)}
	u.driver = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	for _, pid := range pids {
		used, err := secondsUsed(pid)
		if u.servers[pid] = used; err != nil {
			u.err = errors.Join(u.err, fmt.Errorf("processor time of process %d: %w", pid, err))
		}
	}
	return u
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

// cpuStatistics is processor time, user and system, of the measured run.
type cpuStatistics struct {
	DriverSeconds       float64         `json:"driverSeconds"`
	DriverUsPerOp       float64         `json:"driverUsPerOperation"`
	ServerSeconds       float64         `json:"serverSeconds,omitempty"` // all servers together
	ServerSecondsByPid  map[int]float64 `json:"serverSecondsByPid,omitempty"`
	ServerUsPerOp       float64         `json:"serverUsPerOperation,omitempty"`
	ServerUsPerEvent    float64         `json:"serverUsPerEvent,omitempty"`
	ServersNotMeasured  string          `json:"serversNotMeasured,omitempty"` // why
	ProcessorsAvailable int             `json:"processorsAvailable"`
}

// since is what was used since before, for so many operations and events.
func (u usage) since(before usage, operations, events int64) cpuStatistics {
	per := func(seconds float64, n int64) float64 {
		if n == 0 {
			return 0
		}
		return seconds * 1e6 / float64(n)
	}
	f := cpuStatistics{ProcessorsAvailable: runtime.GOMAXPROCS(0), DriverSeconds: (u.driver - before.driver).Seconds()}
	f.DriverUsPerOp = per(f.DriverSeconds, operations)
	if err := errors.Join(before.err, u.err); err != nil {
		f.ServersNotMeasured = strings.ReplaceAll(err.Error(), "\n", "; ")
		return f
	}
	for pid, used := range u.servers {
		u.servers[pid] = used - before.servers[pid]
		f.ServerSeconds += u.servers[pid]
	}
	f.ServerSecondsByPid = u.servers
	f.ServerUsPerOp, f.ServerUsPerEvent = per(f.ServerSeconds, operations), per(f.ServerSeconds, events)
	return f
}
