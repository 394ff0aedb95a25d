//go:build unix

package peersecret_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/replication/peersecret"
)

func settle(t *testing.T, dir string) *peersecret.Secret {
	t.Helper()
	s, why, err := peersecret.Settle(vfs.OS, dir)
	check.Must(t, err)
	check.Must(t, why)
	return s
}

// TestSettle: a secret is made once, for its user alone, and nothing else is left in the folder.
func TestSettle(t *testing.T) {
	dir := t.TempDir()
	first := settle(t, dir)
	if again := settle(t, dir); again.ID() != first.ID() || again.File() != filepath.Join(dir, "peer-secret") {
		t.Errorf("the second time it is %x in %s, the first time %x", again.ID(), again.File(), first.ID())
	}
	if other := settle(t, t.TempDir()); other.ID() == first.ID() {
		t.Error("two folders have one secret")
	}
	info := check.Value(os.Stat(first.File())).Must(t)
	check.Equal(t, info.Mode().Perm(), 0o600, info)
	names := check.Value(os.ReadDir(dir)).Must(t)
	check.Equal(t, len(names), 1, "the folder holds", names)
	if other, err := first.Other(first.File()); err != nil || other.ID() != first.ID() {
		t.Errorf("another node of the user reads %v, %v", other, err)
	}
	message := []byte("message")
	if code := first.Code(message); !first.Proves(code, message) || first.Proves(code, []byte("massage")) {
		t.Error("a code is not that of its message")
	}
}

// TestSettleTogether: processes that begin at once on one folder have one secret.
func TestSettleTogether(t *testing.T) {
	dir := t.TempDir()
	var ids [8]peersecret.ID
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			s, _, err := peersecret.Settle(vfs.OS, dir)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = s.ID()
		})
	}
	all.Wait()
	for _, id := range ids {
		if id != settle(t, dir).ID() {
			t.Fatalf("secrets %x", ids)
		}
	}
}

// TestNotASecret: a file that proves nothing is refused where another node names it, and replaced,
// with the reason, where it is this node's.
func TestNotASecret(t *testing.T) {
	reader := settle(t, t.TempDir())
	good := check.Value(os.ReadFile(reader.File())).Must(t)
	write := func(data string, permission os.FileMode) func(*testing.T, string) {
		return func(t *testing.T, file string) {
			check.Must(t, errors.Join(os.WriteFile(file, []byte(data), 0o600), os.Chmod(file, permission)))
		}
	}
	cases := []struct {
		name string
		make func(t *testing.T, file string)
		text string
	}{
		{"empty", write("", 0o600), "does not hold a secret"},
		{"cut", write(string(good[:len(good)-1]), 0o600), "does not hold a secret"},
		{"longer", write(string(good)+"\n", 0o600), "does not hold a secret"},
		{"no digits", write(strings.Repeat("x", len(good)), 0o600), "does not hold a secret"},
		{"one wrong digit", write(string(good[:30])+"g"+string(good[31:]), 0o600), "does not hold a secret"},
		{"of a later version", write(strings.Replace(string(good), " 1 ", " 2 ", 1), 0o600), "does not hold a secret"},
		{"readable by the group", write(string(good), 0o640), "can be read by others"},
		{"writable by all", write(string(good), 0o602), "can be read by others"},
		{"link", func(t *testing.T, file string) {
			other := filepath.Join(t.TempDir(), peersecret.FileName)
			write(string(good), 0o600)(t, other)
			check.Must(t, os.Symlink(other, file))
		}, "is not a file"},
		{"pipe", func(t *testing.T, file string) {
			check.Must(t, syscall.Mkfifo(file, 0o600))
		}, "is not a file"},
		{"of another user", func(t *testing.T, file string) {
			write(string(good), 0o600)(t, file)
			if os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}
			check.Must(t, os.Chown(file, 65534, 65534))
		}, "belongs to user 65534"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, peersecret.FileName)
			c.make(t, file)
			check.Says(t, check.Err(reader.Other(file)), c.text, "read with")
			s, why, err := peersecret.Settle(vfs.OS, dir)
			if err != nil || why == nil || !strings.Contains(why.Error(), c.text) {
				t.Fatalf("settled with %v, %v", why, err)
			}
			check.Equal(t, settle(t, dir).ID(), s.ID(), "what replaced it did not stay")
		})
	}
	for _, file := range []string{"peer-secret", "/etc/hostname", filepath.Join(t.TempDir(), peersecret.FileName)} {
		check.Fails(t, check.Err(reader.Other(file)), file, "was taken")
	}
}

// TestTemporary: it is like any other until it is removed.
func TestTemporary(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s, remove, err := peersecret.Temporary()
	check.Must(t, err)
	if other, err := s.Other(s.File()); err != nil || other.ID() != s.ID() {
		t.Errorf("read %v, %v", other, err)
	}
	check.Must(t, remove())
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left is %v, %v", left, err)
	}
}
