// Package owner keeps files of a node with the user of that node: an operator works as root, and
// the service must read and write what the operator's commands made.
package owner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
)

// Keeper gives the owner of a folder what a command makes in it.
type Keeper struct{ folders []kept }

// kept is one folder, with the owner that it had, and whose the files in it were.
type kept struct {
	base   string // exists
	from   string // what is visited in base: ".", or the first folder that did not exist
	owner  ID
	before map[fileKey]ID
}

// ID is a user and a group.
type ID struct{ User, Group int }

// Keep looks at folders before a command writes into them. A folder that does not exist yet gets
// the owner of the nearest one above it. An empty name is none. Only root can give files away: for
// another user, who may not even be able to look at all of them, the Keeper is empty.
func Keep(dirs ...string) (*Keeper, error) {
	k := &Keeper{}
	if os.Geteuid() != 0 {
		return k, nil
	}
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		f := kept{from: ".", before: map[fileKey]ID{}}
		dir, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		var like fs.FileInfo
		if f.base, like, err = Above(dir); err != nil {
			return nil, err
		}
		for ; dir != f.base; dir = filepath.Dir(dir) {
			f.from = filepath.Base(dir)
		}
		var known bool
		if f.owner, known = Of(like); !known {
			continue
		}
		err = f.walk(func(_ *os.Root, _ string, info fs.FileInfo) error {
			f.before[keyOf(info)], _ = Of(info)
			return nil
		})
		if err != nil {
			return nil, err
		}
		k.folders = append(k.folders, f)
	}
	return k, nil
}

// Give gives the files and folders that were made since Keep their owner. It follows no link out of
// the folder, and leaves alone a file with a second name, which may be anywhere.
func (k *Keeper) Give() error {
	var all error
	for _, f := range k.folders {
		err := f.walk(func(root *os.Root, name string, info fs.FileInfo) error {
			id, _ := Of(info)
			// The number of a removed file may be that of a new one.
			if was, there := f.before[keyOf(info)]; id == f.owner || there && was == id || shared(info) {
				return nil
			}
			if err := root.Lchown(name, f.owner.User, f.owner.Group); !errors.Is(err, fs.ErrNotExist) {
				all = errors.Join(all, err) // The others are given all the same.
			}
			return nil
		})
		all = errors.Join(all, err)
	}
	if all != nil {
		return fmt.Errorf("give what was made the owner of its folder: %w", all)
	}
	return nil
}

// walk visits a folder and everything below it. A folder that does not exist has nothing.
func (f *kept) walk(visit func(root *os.Root, name string, info fs.FileInfo) error) (err error) {
	root, err := os.OpenRoot(f.base)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if _, err := root.Lstat(f.from); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fs.WalkDir(root.FS(), f.from, func(name string, _ fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = root.Lstat(name)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // It was removed just now.
		}
		if err != nil {
			return err
		}
		return visit(root, name, info)
	})
}

// Like gives an open file the owner of another one.
func Like(f *os.File, like fs.FileInfo) error {
	id, known := Of(like)
	if !known {
		return nil
	}
	return f.Chown(id.User, id.Group)
}

// Explain adds to an error about a missing permission whose the file is, and as whom this process
// runs. If the file is in one of the folders, it adds the command that gives that folder away; if
// such a folder is missing, the command that makes it. For no other folder there is a command.
func Explain(err error, dirs ...string) error {
	path, known := denied(err)
	if !known {
		return err
	}
	info, statErr := os.Lstat(path)
	for statErr != nil && filepath.Dir(path) != path {
		path = filepath.Dir(path)
		info, statErr = os.Lstat(path)
	}
	if statErr != nil {
		return err
	}
	id, known := Of(info)
	me := ID{os.Geteuid(), os.Getegid()}
	if !known {
		return err
	}
	if id.User == me.User {
		return fmt.Errorf("%w (%s belongs to %s, as whom this process runs, and has mode %04o)", err, path, UserName(id.User), info.Mode().Perm())
	}
	remedy := ""
	if me.User != 0 { // Root is kept from files by other means.
		remedy = remedyFor(path, UserName(me.User), dirs)
	}
	return fmt.Errorf("%w (%s belongs to %s, and this process runs as %s%s)", err, path, UserName(id.User), UserName(me.User), remedy)
}

// remedyFor is what root can do about a file that a user may not use, empty if that is not clear: a
// folder of the system is not to be given away.
func remedyFor(path, name string, dirs []string) string {
	for _, dir := range dirs {
		abs, err := filepath.Abs(dir)
		switch {
		case err != nil || dir == "":
		case within(abs, path):
			return fmt.Sprintf(": as root, chown -R %s: %s", name, quoted(abs))
		case within(path, abs):
			return fmt.Sprintf(": as root, install -d -o %s -g %s %s", name, name, quoted(abs))
		}
	}
	return ""
}

// within reports whether a path is a folder or in it.
func within(dir, path string) bool {
	rest, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rest)
}

// quoted is a path for a shell.
func quoted(path string) string {
	if strings.ContainsFunc(path, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-+:@%", r)
	}) {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}

// denied returns the file of an error about a missing permission.
func denied(err error) (path string, ok bool) {
	if !errors.Is(err, fs.ErrPermission) {
		return "", false
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		path = e.Path
	} else if e, ok := errors.AsType[*os.LinkError](err); ok {
		path = e.New
	}
	abs, err := filepath.Abs(path)
	return abs, path != "" && err == nil
}

// UserName is the name of a user, or the number of one that has none.
func UserName(id int) string {
	number := strconv.Itoa(id)
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return number
}

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
