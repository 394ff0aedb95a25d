package integration_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// filled makes a folder that holds a database: the writes are acknowledged and
// the node has ended in order.
func filled(t *testing.T, dir string, options []string) *ledger {
	t.Helper()
	node := testkit.StartNode(t, dir, options...)
	l := fill(t, node, 40, 10)
	node.Stop()
	return l
}

// fill writes batches of events to a few streams and notes them.
func fill(t *testing.T, node *testkit.Process, batches, size int) *ledger {
	t.Helper()
	l := &ledger{}
	last := map[string]int64{}
	for i := range batches {
		stream := []string{"filled-0", "filled-1", "filled-2"}[i%3]
		if _, ok := last[stream]; !ok {
			last[stream] = -1
		}
		w := &write{stream: stream, expected: last[stream]}
		l.begin(w)
		w.events = mustAppend(t, node, stream, w.expected, size)
		last[stream] += int64(size)
		l.ack(w, w.expected+1)
	}
	return l
}

func writeText(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	check.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func makeFolder(t *testing.T, path string) {
	t.Helper()
	check.Must(t, os.Mkdir(path, 0o700))
}

// flipByte damages one byte.
func flipByte(t *testing.T, path string, at int64) {
	t.Helper()
	data := check.Value(os.ReadFile(path)).Must(t)
	if at >= int64(len(data)) {
		t.Fatalf("%s has only %d bytes", path, len(data))
	}
	data[at] ^= 0x40
	check.Must(t, os.WriteFile(path, data, 0o600))
}

func truncateFile(t *testing.T, path string, size int64) {
	t.Helper()
	check.Must(t, os.Truncate(path, size))
}

// remove takes a file or folder away, which must be there.
func remove(t *testing.T, path string) {
	t.Helper()
	check.Must(t, check.Err(os.Stat(path)))
	check.Must(t, os.RemoveAll(path))
}

// copyTree copies a folder as an operator's tool would while its files change:
// one that vanishes meanwhile is left out.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		return copyFile(path, filepath.Join(to, rel))
	})
	check.Must(t, err)
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}

// matches lists the files of a pattern below a folder; there must be one.
func matches(t *testing.T, dir, pattern string) []string {
	t.Helper()
	found := check.Value(filepath.Glob(filepath.Join(dir, pattern))).Must(t)
	if len(found) == 0 {
		t.Fatalf("no %s in %s", pattern, dir)
	}
	return found
}
