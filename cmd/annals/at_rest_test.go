package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/annalsdb/annals/config"
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
		if err != nil {
			t.Fatal(err)
		}
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
	n, err := node.Open(t.Context(), node.Options{Config: c, PasswordIterations: 1})
	if err != nil {
		t.Fatal(err)
	}
	command("backup", "create", "--node", n.URL(), "--to", place)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}

	t.Run("cluster recover", func(t *testing.T) {
		options := []string{"--yes", "--db", dir, "--cluster-size", "3", "--replication-ip", "127.0.0.1", "--replication-port", "1", "--insecure", "--discover-via-dns", "false", "--gossip-seed", "127.0.0.1:3"}
		if err := os.RemoveAll(filepath.Join(dir, "raft")); err != nil {
			t.Fatal(err)
		}
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
				if err := os.Mkdir(restored, 0o750); err != nil {
					t.Fatal(err)
				}
			}
			give(above)
			if exists { // The folder above it is root's, as /var/lib is.
				if err := os.Chown(above, 0, 0); err != nil {
					t.Fatal(err)
				}
			}
			command("backup", "restore", "--from", place, "--db", restored)
			foreign(restored)
		})
	}
}
