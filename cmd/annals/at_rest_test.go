package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/owner"
	"github.com/annalsdb/annals/node"
)

// TestAtRestOwner runs the commands that write into a data folder as root, with a folder of the
// service: afterwards no file there is root's.
func TestAtRestOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	service := owner.ID{User: 65534, Group: 65533}
	give := func(dir string) {
		t.Helper()
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(path, service.User, service.Group)
		})
		check.Must(t, err)
	}
	foreign := func(dir string) {
		t.Helper()
		seen := 0
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			seen++
			if id, _ := owner.Of(info); id != service {
				t.Errorf("%s belongs to %v", path, id)
			}
			return nil
		})
		if err != nil || seen < 3 {
			t.Fatalf("%d files, %v", seen, err)
		}
	}
	command := func(args ...string) {
		t.Helper()
		var out, complaints bytes.Buffer
		if code := run(args, &out, &complaints, runNode); code != 0 {
			t.Fatalf("annals %q: exit code %d\n%s%s", args, code, out.String(), complaints.String())
		}
	}
	dir, place := filepath.Join(t.TempDir(), "db"), filepath.Join(t.TempDir(), "backups")
	c := config.Default()
	c.Db, c.Index, c.NodePort, c.Insecure = dir, filepath.Join(dir, "index"), 0, true
	n := check.Value(node.Open(t.Context(), node.Options{Config: c, PasswordIterations: 1})).Must(t)
	command("backup", "create", "--node", n.URL(), "--to", place)
	check.Must(t, n.Close())

	t.Run("cluster recover", func(t *testing.T) {
		options := []string{"--yes", "--db", dir, "--cluster-size", "3", "--replication-ip", "127.0.0.1", "--replication-port", "1", "--insecure", "--discover-via-dns", "false", "--gossip-seed", "127.0.0.1:3"}
		check.Must(t, os.RemoveAll(filepath.Join(dir, "raft")))
		give(dir)
		command(append([]string{"cluster", "recover"}, options...)...)
		foreign(dir)
		command(append([]string{"cluster", "recover", "--majority-lost"}, options...)...)
		foreign(dir)
	})
	for _, exists := range []bool{true, false} {
		t.Run(fmt.Sprintf("backup restore, exists=%v", exists), func(t *testing.T) {
			above := t.TempDir()
			restored := filepath.Join(above, "db")
			if exists {
				check.Must(t, os.Mkdir(restored, 0o750))
			}
			give(above)
			if exists { // The folder above it is root's, as /var/lib is.
				check.Must(t, os.Chown(above, 0, 0))
			}
			command("backup", "restore", "--from", place, "--db", restored)
			foreign(restored)
		})
	}
}

// TestForeignFiles starts a node as another user than the one of its files: the error says what to
// do.
func TestForeignFiles(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root runs a node as another user")
	}
	const service = 65534
	above := t.TempDir()
	for dir := above; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // of the test, which other users may not enter
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ name, foreign, mine, chown string }{
		{"data folder", "db", "", "db"},
		{"in the data folder", "db/raft", "db", "db"},
		{"log folder", "log", "db", "log"},
	} {
		t.Run(c.name, func(t *testing.T) {
			home := filepath.Join(above, strings.ReplaceAll(c.name, " ", "-"))
			for dir, id := range map[string]int{"": service, c.mine: service, c.foreign: 0} {
				check.Must(t, errors.Join(os.MkdirAll(filepath.Join(home, dir), 0o700), os.Chown(filepath.Join(home, dir), id, id)))
			}
			binary := filepath.Join(above, "annals.test")
			text, err := os.ReadFile(os.Args[0])
			if err == nil {
				err = os.WriteFile(binary, text, 0o755)
			}
			check.Must(t, err)
			command := exec.Command(binary, "node", "--db", filepath.Join(home, "db"), "--log", filepath.Join(home, "log"), "--node-port=0")
			command.Dir, command.Env = home, append(os.Environ(), asProcess+"=1")
			command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: service, Gid: service}}
			out, err := command.CombinedOutput()
			want := fmt.Sprintf("%s belongs to root, and this process runs as %s: as root, chown -R %s: %s", filepath.Join(home, c.foreign), owner.UserName(service), owner.UserName(service), filepath.Join(home, c.chown))
			if err == nil || !strings.Contains(string(out), "permission denied") || !strings.Contains(string(out), want) {
				t.Errorf("%v: %q is missing in:\n%s", err, want, out)
			}
		})
	}
}
