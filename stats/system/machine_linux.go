package system

import (
	"os"
	"strings"

	"github.com/prometheus/procfs"
)

// ram returns the bytes of memory that the machine can give away without swapping, and all that it
// has; 0 is not known.
func ram(overall *procfs.FS) (free, total uint64) {
	if overall == nil {
		return 0, 0
	}
	m, err := overall.Meminfo()
	if err != nil || m.MemTotalBytes == nil {
		return 0, 0
	}
	if m.MemAvailableBytes != nil {
		return *m.MemAvailableBytes, *m.MemTotalBytes
	}
	// Kernels before 3.14 do not estimate it.
	for _, part := range []*uint64{m.MemFreeBytes, m.CachedBytes, m.SReclaimableBytes} {
		if part != nil {
			free += *part
		}
	}
	return free, *m.MemTotalBytes
}

// mountPoints returns those that this process sees, which may be fewer than the machine has.
func mountPoints() []string {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil
	}
	return parseMounts(string(text))
}

// unescape undoes what the kernel does to names in lists of mounts.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\043`, "#", `\134`, `\`)

// parseMounts reads the mount points of lines such as "/dev/sda1 /data ext4 rw 0 0".
func parseMounts(text string) (all []string) {
	for line := range strings.Lines(text) {
		if fields := strings.Split(line, " "); len(fields) > 1 {
			all = append(all, unescape.Replace(fields[1]))
		}
	}
	return all
}
