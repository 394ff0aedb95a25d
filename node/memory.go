package node

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/stats/system"
)

// What requests may take of the memory there is, unless the operator says.
const (
	requestShare     = 8         // a part of so many
	minRequestMemory = 128 << 20 // the largest append fits, with what is made of it
	maxRequestMemory = 1 << 30
)

// collected is how many bytes the process takes for one that is in use: the collector lets
// as much garbage gather as there is memory in use.
const collected = 2

// requestMemory returns what requests share, given the option.
func requestMemory(mib int) *api.Memory {
	bytes := int64(mib) << 20
	if bytes == 0 {
		bytes = min(max(memoryThereIs(cgroupFiles)/requestShare, minRequestMemory), maxRequestMemory)
	}
	return api.NewMemory(bytes / collected)
}

// cgroupFiles are the files with the memory limit of a process on Linux: version 2 and version 1.
var cgroupFiles = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// memoryThereIs returns the least of the machine's memory, the container's limit and GOMEMLIMIT.
func memoryThereIs(cgroup []string) int64 {
	least := debug.SetMemoryLimit(-1)
	if total := system.TotalMemory(); total > 0 {
		least = min(least, total)
	}
	for _, file := range cgroup {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // There is no such bound.
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
			least = min(least, n)
		}
	}
	return least
}
