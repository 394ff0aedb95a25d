package torture

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// folderCluster is one whose nodes have files.
type folderCluster struct {
	*fakeCluster
	dir string
}

func (f *folderCluster) Disk(int) (vfs.FS, string) { return vfs.OS, f.dir }

// TestSearchForRedacted: data that are left in any file are found, unless the disk was destroyed
// since.
func TestSearchForRedacted(t *testing.T) {
	for name, c := range map[string]struct {
		left  bool
		wiped map[int]int64
		want  int
	}{
		"gone":            {false, nil, 0},
		"left":            {true, nil, 1},
		"wiped before":    {true, map[int]int64{1: 5}, 1},
		"wiped since":     {true, map[int]int64{1: 50}, 0},
		"another's wiped": {true, map[int]int64{0: 50}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := &redactor{worker: worker{load: &load{ids: identity{tag: 7}, find: newFindings(time.Now())}}}
			of := refOf(3, 4, 1)
			r.done = []redaction{{node: 1, of: of, name: "0@s", at: 10}}
			data := r.ids.data(refOf(3, 4, 2))
			if c.left {
				data += "\x00" + r.ids.data(of)
			}
			check.Must(t, os.MkdirAll(filepath.Join(dir, "raft"), 0o755))
			check.Must(t, os.WriteFile(filepath.Join(dir, "raft", "log"), []byte(data), 0o644))
			check.Must(t, r.search(&folderCluster{dir: dir}, c.wiped))
			check.Equal(t, r.find.total(), c.want, "findings")
		})
	}
}
