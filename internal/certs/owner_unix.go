//go:build unix

package certs

import (
	"io/fs"
	"os"
	"syscall"
)

// give makes the owner of one file that of another: a key that the operator
// writes is read by the user of the node.
func give(f *os.File, like fs.FileInfo) error {
	s, ok := like.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return f.Chown(int(s.Uid), int(s.Gid))
}
