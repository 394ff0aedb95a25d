package owner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// TestExplainGivesAwayNothingElse: a command is given for a folder of the node alone, never for one
// of the system in which it would be.
func TestExplainGivesAwayNothingElse(t *testing.T) {
	dir := t.TempDir()
	check.Must(t, os.Mkdir(filepath.Join(dir, "it's"), 0o755))
	for _, test := range []struct {
		path string // of the error, in dir
		dirs []string
		want string // with DIR
	}{
		{"it's/raft", []string{"", filepath.Join(dir, "it's")}, `: as root, chown -R ann: 'DIR/it'\''s'`},
		{"", []string{filepath.Join(dir, "data/db")}, ": as root, install -d -o ann -g ann DIR/data/db"},
		{"it's/raft", nil, ""},
		{"it's", []string{filepath.Join(dir, "other/it's")}, ""},
	} {
		got := remedyFor(filepath.Join(dir, test.path), "ann", test.dirs)
		check.Equal(t, got, strings.ReplaceAll(test.want, "DIR", dir), test.path, "of", test.dirs)
	}
}
