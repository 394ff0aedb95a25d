package owner_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/owner"
)

// service is the user of a node that root works for.
var service = owner.ID{User: 65534, Group: 65533}

// asRoot skips a test that gives files away where this is not permitted.
func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
}

func write(t *testing.T, file string) {
	t.Helper()
	check.Must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	check.Must(t, os.WriteFile(file, nil, 0o600))
}

func give(t *testing.T, file string, to owner.ID) {
	t.Helper()
	check.Must(t, os.Lchown(file, to.User, to.Group))
}

func owned(t *testing.T, file string) owner.ID {
	t.Helper()
	info := check.Value(os.Lstat(file)).Must(t)
	id, _ := owner.Of(info)
	return id
}

// TestKeep makes files of all kinds below folders of another user.
func TestKeep(t *testing.T) {
	asRoot(t)
	root := owner.ID{}
	for _, c := range []struct {
		name string
		dir  string // below the folder of the service
		is   map[string]owner.ID
	}{
		{"a folder that exists", ".", map[string]owner.ID{
			"old": root, "replaced": service, "raft": service, "raft/log": service, "link": service, "second": root,
		}},
		{"a folder that does not exist yet", "a/b", map[string]owner.ID{"a": service, "a/b": service, "a/b/new": service, "old": root}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
			give(t, dir, service)
			write(t, outside)
			write(t, filepath.Join(dir, "old"))
			write(t, filepath.Join(dir, "replaced"))
			give(t, filepath.Join(dir, "replaced"), service)
			k := check.Value(owner.Keep(filepath.Join(dir, c.dir), "")).Must(t)
			if c.dir == "." {
				write(t, filepath.Join(dir, "raft", "log"))
				write(t, filepath.Join(dir, "temp"))
				for _, err := range []error{
					os.Rename(filepath.Join(dir, "temp"), filepath.Join(dir, "replaced")),
					os.Symlink(outside, filepath.Join(dir, "link")),
					os.Link(outside, filepath.Join(dir, "second")),
				} {
					check.Must(t, err)
				}
			} else {
				write(t, filepath.Join(dir, c.dir, "new"))
			}
			check.Must(t, k.Give())
			for name, want := range c.is {
				check.Equal(t, owned(t, filepath.Join(dir, name)), want, name, "belongs to")
			}
			check.Equal(t, owned(t, outside), root, "the target of a link belongs to")
		})
	}
}

// TestKeepNothing has a folder that no one made.
func TestKeepNothing(t *testing.T) {
	k := check.Value(owner.Keep(filepath.Join(t.TempDir(), "absent"))).Must(t)
	check.Must(t, k.Give())
}

func TestLike(t *testing.T) {
	asRoot(t)
	file := filepath.Join(t.TempDir(), "file")
	write(t, file)
	give(t, file, service)
	info, err := os.Stat(file)
	check.Must(t, err)
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "other"), os.O_CREATE|os.O_WRONLY, fs.FileMode(0o600))
	check.Must(t, err)
	defer func() { _ = f.Close() }()
	check.Must(t, owner.Like(f, info))
	check.Equal(t, owned(t, f.Name()), service, "the file belongs to")
}
