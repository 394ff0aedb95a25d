package doctor

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// SystemLimits reads the limits of the process and of the kernel, nil when they cannot be read.
func SystemLimits() *Limits {
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) != nil {
		return nil
	}
	l := &Limits{MaxOpenFiles: files.Cur}
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		l.OpenFiles = uint64(len(open))
	}
	if text, err := os.ReadFile("/proc/sys/vm/max_map_count"); err == nil {
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
			l.MaxMaps = n
		}
	}
	return l
}
