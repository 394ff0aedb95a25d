package system

import (
	"bufio"
	"cmp"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// machine reads what the kernel tells in /proc. Systems without it tell less: what is nil is not
// there.
type machine struct {
	own     *procfs.FS   // where this process is
	self    *procfs.Proc // this process
	overall *procfs.FS   // where the figures of the machine are
}

// newMachine finds /proc. In a container HOST_PROC may name that of the machine, where this process
// has another id.
func newMachine() (m machine) {
	if fs, err := procfs.NewDefaultFS(); err == nil {
		m.own = &fs
		if self, err := fs.Self(); err == nil {
			m.self = &self
		}
	}
	m.overall = overall()
	return m
}

func hostProc() string { return cmp.Or(os.Getenv("HOST_PROC"), procfs.DefaultMountPoint) }

func overall() *procfs.FS {
	fs, err := procfs.NewFS(hostProc())
	if err != nil {
		return nil
	}
	return &fs
}

// ticks is how many a second has in the files of /proc, whatever the clock of the kernel does.
const ticks = 100

// began returns when this process began, or the zero time.
func (m *machine) began() time.Time {
	if m.self == nil {
		return time.Time{}
	}
	process, err := m.self.Stat()
	if err != nil {
		return time.Time{}
	}
	all, err := m.own.Stat() // with the time at which the machine began
	if err != nil {
		return time.Time{}
	}
	return time.Unix(int64(all.BootTime), 0).Add(time.Duration(process.Starttime) * (time.Second / ticks))
}

// processorTime returns the seconds of processors that this process has used, user and system.
func processorTime() (float64, error) {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return 0, err
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds(), nil
}

// memory returns the bytes of this process that are in memory, and those of its address space.
func (m *machine) memory() (resident, virtual uint64, ok bool) {
	if m.self == nil {
		return 0, 0, false
	}
	pages, err := m.self.Statm()
	return pages.ResidentBytes(), pages.SizeBytes(), err == nil
}

func (m *machine) io() *procfs.ProcIO {
	if m.self == nil {
		return nil
	}
	if io, err := m.self.IO(); err == nil {
		return &io
	}
	return nil
}

func (m *machine) load() *procfs.LoadAvg {
	if m.overall == nil {
		return nil
	}
	if load, err := m.overall.LoadAvg(); err == nil {
		return load
	}
	return nil
}

// processors returns the seconds of all processors since the machine began. Only the first line of
// the file is about all; procfs would parse those of each processor and interrupt too.
func (m *machine) processors() (busy, total float64, ok bool) {
	if m.overall == nil {
		return 0, 0, false
	}
	file, err := os.Open(filepath.Join(hostProc(), "stat"))
	if err != nil {
		return 0, 0, false
	}
	defer func() { _ = file.Close() }() // It was only read.
	line, err := bufio.NewReader(file).ReadString('\n')
	if err != nil {
		return 0, 0, false
	}
	return parseProcessors(line)
}

// parseProcessors reads a line such as "cpu 10 20 30 40 50 60 70 80 90 100". Time of guests, which
// comes last, is within that of users.
func parseProcessors(line string) (busy, total float64, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0, 0, false
	}
	var spent [8]float64 // user, nice, system, idle, iowait, irq, softirq, steal
	for i, field := range fields[1:min(len(fields), 1+len(spent))] {
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return 0, 0, false
		}
		spent[i] = float64(n) / ticks
	}
	idle := spent[3] + spent[4]
	for _, n := range spent {
		total += n
	}
	return total - idle, total, true
}

// TotalMemory returns the bytes of memory that the machine has, whatever this process may use of
// it, and 0 if the system does not tell.
func TotalMemory() int64 {
	_, total := ram(overall())
	return int64(min(total, math.MaxInt64))
}

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
