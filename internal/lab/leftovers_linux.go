package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// namePrefix begins the name of a lab's temporary folder, and that of its mounts as it stands in
// the list of mounts. The process id and a random number follow it.
const namePrefix = "annals-lab-"

// removeLeftovers removes mounts and temporary folders of labs whose processes
// are dead.
func removeLeftovers() error {
	mounts, err := mountsOfLabs()
	errs := []error{err}
	for _, m := range mounts {
		if !ownerDead(m.lab) {
			continue
		}
		// Who died while it hung could not thaw it. Another process may be at it as well.
		if m.device {
			if err := freeze(m.folder, thawRequest); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, err)
			}
		}
		if err := unmount(m.folder); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, err)
		}
	}
	folders, err := filepath.Glob(filepath.Join(os.TempDir(), namePrefix+"*"))
	errs = append(errs, err)
	for _, f := range folders {
		if ownerDead(filepath.Base(f)) {
			errs = append(errs, os.RemoveAll(f))
		}
	}
	return errors.Join(errs...)
}

// ownerDead says whether a name is that of a lab whose process is gone.
func ownerDead(name string) bool {
	rest, ok := strings.CutPrefix(name, namePrefix)
	if !ok {
		return false
	}
	id, _, ok := strings.Cut(rest, "-")
	if !ok {
		return false
	}
	pid, err := strconv.Atoi(id)
	return err == nil && pid > 0 && errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// mount is the disk of a host.
type mount struct {
	lab, folder string
	device      bool // it was made by MakeDisk
}

// mountsOfLabs lists the disks of the hosts of all labs.
func mountsOfLabs() ([]mount, error) {
	table, err := procfs.GetMounts()
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	var all []mount
	for _, one := range table {
		m := mount{lab: one.Source, folder: unescape(one.MountPoint)}
		switch {
		case one.FSType == "ext4" && strings.HasPrefix(one.Source, loopPrefix):
			m.lab, m.device = loopName(one.Source), true
		case one.FSType != "tmpfs":
			continue
		}
		if strings.HasPrefix(m.lab, namePrefix) {
			all = append(all, m)
		}
	}
	return all, nil
}

// loopName is the name that was given to a loop device, "" if it is gone.
func loopName(device string) string {
	file, err := os.Open(device)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }() // nothing was written
	info, err := unix.IoctlLoopGetStatus64(int(file.Fd()))
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(info.File_name[:])
}

// unescape undoes the octal escapes of spaces and the like, which Go writes as well.
func unescape(s string) string {
	text, err := strconv.Unquote(`"` + strings.ReplaceAll(s, `"`, `\"`) + `"`)
	if err != nil {
		return s
	}
	return text
}
