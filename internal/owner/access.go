package owner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// Rights that Refused asks for, as in the mode of a file. To enter or list a folder takes Enter.
const (
	Enter fs.FileMode = 1 << iota
	Write
	Read
)

// Refused says why a user lacks rights to a file that root has, by owners and modes alone: which
// file or folder above it refuses. It is empty if nothing refuses, or if the file does
// not exist.
func Refused(path string, as ID, rights fs.FileMode) string {
	path, err := filepath.Abs(path)
	if err != nil || as.User == 0 {
		return ""
	}
	// A link leads to folders with modes of their own.
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return ""
	}
	groups := groupsOf(as)
	if above := filepath.Dir(path); above != path {
		if why := Refused(above, as, Enter); why != "" {
			return why
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	id, known := Of(info)
	if !known {
		return ""
	}
	mode := info.Mode().Perm()
	switch {
	case id.User == as.User:
		mode >>= 6
	case groups[id.Group]:
		mode >>= 3
	}
	if mode&rights == rights {
		return ""
	}
	return fmt.Sprintf("%s belongs to %s, mode %04o", path, UserName(id.User), info.Mode().Perm())
}

func groupsOf(as ID) map[int]bool {
	groups := map[int]bool{as.Group: true}
	u, err := user.LookupId(strconv.Itoa(as.User))
	if err != nil {
		return groups
	}
	ids, err := u.GroupIds()
	if err != nil {
		return groups
	}
	for _, text := range ids {
		if id, err := strconv.Atoi(text); err == nil {
			groups[id] = true
		}
	}
	return groups
}

// Above is a folder, or the lowest one above it that exists.
func Above(dir string) (string, fs.FileInfo, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", nil, err
	}
	for {
		info, err := os.Stat(dir)
		if !errors.Is(err, fs.ErrNotExist) || filepath.Dir(dir) == dir {
			return dir, info, err
		}
		dir = filepath.Dir(dir)
	}
}
