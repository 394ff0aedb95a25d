//go:build linux

package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/prometheus/procfs"
)

// folder is where everything lies that the tests of a run make.
type folder struct {
	path string
	lock *os.File // nil if another run in this checkout has the usual folder
}

// newFolder makes the folder. What a run left there that was killed is removed.
func newFolder() (folder, error) {
	root, err := os.Getwd()
	if err != nil {
		return folder{}, err
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(root)) // It never fails.
	path := filepath.Join(os.TempDir(), fmt.Sprintf("annals-test-%08x", h.Sum32()))
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return folder{}, err
	}
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		path, err := os.MkdirTemp("", "annals-test-")
		if err == nil {
			err = os.Chmod(path, enter)
		}
		return folder{path: path}, errors.Join(err, lock.Close())
	}
	f := folder{path: path, lock: lock}
	if err := errors.Join(f.empty(), os.Mkdir(path, 0o700), os.Chmod(path, enter)); err != nil {
		return folder{}, errors.Join(err, lock.Close())
	}
	return f, nil
}

// enter lets other users, as whom some tests run commands, into the folder. They cannot list it.
const enter = 0o711

// take copies a program into the folder, where other users reach it, and returns the name of the
// copy, which says what is in it.
func (f folder) take(program string) (string, error) {
	b, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	path := filepath.Join(f.path, fmt.Sprintf("%s-%x", filepath.Base(program), sha256.Sum256(b)))
	return path, errors.Join(os.WriteFile(path, b, 0o700), os.Chmod(path, 0o755))
}

// empty removes the folder with what is mounted in it.
func (f folder) empty() error {
	mounts, err := mountsBelow(f.path)
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if err := syscall.Unmount(m, syscall.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", m, err)
		}
	}
	return os.RemoveAll(f.path)
}

func (f folder) remove() error {
	err := f.empty()
	if f.lock != nil {
		err = errors.Join(err, os.Remove(f.lock.Name()), f.lock.Close())
	}
	return err
}

// mountsBelow returns what is mounted below a folder, the innermost first.
func mountsBelow(path string) (mounts []string, err error) {
	all, err := procfs.GetMounts()
	for _, m := range slices.Backward(all) {
		if strings.HasPrefix(m.MountPoint, path+"/") {
			mounts = append(mounts, m.MountPoint)
		}
	}
	return mounts, err
}
