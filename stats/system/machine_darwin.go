package system

import (
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// ram returns what memory the machine has. How much of it is free takes more than a sysctl.
func ram(*procfs.FS) (free, total uint64) {
	total, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0, 0
	}
	return 0, total
}

func mountPoints() (all []string) {
	n, err := unix.Getfsstat(nil, unix.MNT_NOWAIT)
	if err != nil {
		return nil
	}
	mounts := make([]unix.Statfs_t, n)
	if n, err = unix.Getfsstat(mounts, unix.MNT_NOWAIT); err != nil {
		return nil
	}
	for i := range mounts[:min(n, len(mounts))] {
		all = append(all, unix.ByteSliceToString(mounts[i].Mntonname[:]))
	}
	return all
}
