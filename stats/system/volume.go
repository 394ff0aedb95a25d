package system

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// drivePatience is how long a sample waits for the drive. A volume on a network
// that has gone away can take minutes to say so.
const drivePatience = 50 * time.Millisecond

// volume is where the data lies. It is read by one goroutine at a time.
type volume struct {
	mount   string // the mount point; empty if it was not found
	last    drive
	pending chan drive // holds the answer of a question that was not waited for; else nil
}

// drive is the space of a volume in bytes.
type drive struct {
	total, available, used uint64
	percent                float64 // of the space that is not reserved for the system
}

// read returns the space of the volume, or what it was when it answered last. The
// goroutine that asks ends with the system's answer, which nothing can hasten;
// there is never more than one.
func (v *volume) read() drive {
	if v.mount == "" {
		return drive{}
	}
	if v.pending == nil {
		answer := make(chan drive, 1)
		v.pending = answer
		go func() { answer <- space(v.mount) }()
	}
	timeout := time.NewTimer(drivePatience)
	defer timeout.Stop()
	select {
	case v.last = <-v.pending:
		v.pending = nil
	case <-timeout.C:
	}
	return v.last
}

func space(mount string) drive {
	var v unix.Statfs_t
	if err := unix.Statfs(mount, &v); err != nil {
		return drive{}
	}
	block := uint64(v.Bsize)
	d := drive{total: v.Blocks * block, available: v.Bavail * block, used: (v.Blocks - v.Bfree) * block}
	if all := d.used + d.available; all > 0 {
		d.percent = 100 * float64(d.used) / float64(all)
	}
	return d
}

// mountPoint returns where the volume that holds dir is mounted: of all mount
// points the longest that dir lies below. It is empty when there is no telling.
func mountPoint(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	found := ""
	for _, mount := range mountPoints() {
		if len(mount) > len(found) && liesIn(dir, mount) {
			found = mount
		}
	}
	return cmp.Or(found, filepath.VolumeName(dir)+string(os.PathSeparator))
}

func liesIn(dir, mount string) bool {
	rest, ok := strings.CutPrefix(dir, strings.TrimSuffix(mount, string(os.PathSeparator)))
	return ok && (rest == "" || os.IsPathSeparator(rest[0]))
}
