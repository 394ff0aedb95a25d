package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/backup/manager"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/node"
)

// lastBackup is what a node says of its last run.
type lastBackup struct {
	BackupID, Result, Kind, Error string
	Position, Bytes, BytesCopied  int64
	Checked                       bool
}

func get[T any](t *testing.T, n *node.Node, path string) (value T) {
	t.Helper()
	status, body := call(t, n, "GET", path, "", admin("Accept", "application/json")...)
	if err := json.Unmarshal([]byte(body), &value); status != 200 || err != nil {
		t.Fatalf("%s: %d %s", path, status, body)
	}
	return value
}

// backUp has a node back itself up and waits until that has ended.
func backUp(t *testing.T, n *node.Node) lastBackup {
	t.Helper()
	status, body := call(t, n, "POST", "/admin/backup", "", admin("Accept", "application/json")...)
	var begun struct{ BackupID string }
	if err := json.Unmarshal([]byte(body), &begun); status != 200 || err != nil {
		t.Fatalf("%d %s", status, body)
	}
	last := awaitBackup(t, n)
	check.Equal(t, last.BackupID, begun.BackupID, "began, and ... ended")
	return last
}

func awaitBackup(t *testing.T, n *node.Node) (last lastBackup) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() error {
		if last = get[lastBackup](t, n, "/admin/backup/last"); last.Result == string(manager.InProgress) || last.Result == string(manager.Unknown) {
			return errors.New("it has not ended")
		}
		return nil
	})
	return last
}

// TestNodeBacksItselfUp: full, incremental, kept, recorded; and what was made is a database.
func TestNodeBacksItselfUp(t *testing.T) {
	o := options(t.TempDir())
	to := filepath.Join(t.TempDir(), "backups")
	o.Config.BackupTo, o.Config.BackupKeep = to, 2
	n := open(t, o)
	for i := range 3 {
		if status, body := write(t, n, "orders", i); status != 201 {
			t.Fatalf("%d %s", status, body)
		}
		last := backUp(t, n)
		if last.Result != "Success" || !last.Checked || last.Position == 0 || last.Bytes == 0 || last.BytesCopied == 0 {
			t.Fatalf("%+v", last)
		}
	}
	list := get[struct {
		Backups []struct {
			ID      string
			Checked bool
		}
	}](t, n, "/admin/backup/list").Backups
	if len(list) != 2 || !list[0].Checked || list[0].ID >= list[1].ID {
		t.Errorf("%+v", list)
	}
	testkit.Eventually(t, time.Minute, func() error {
		status, body := call(t, n, "GET", "/streams/$backups/5", "", admin("Accept", "application/vnd.eventstore.event+json")...)
		var e struct {
			EventType string
			Data      struct{ Result string }
		}
		if err := json.Unmarshal([]byte(body), &e); status != 200 || err != nil || e.EventType != manager.TypeCompleted || e.Data.Result != "Success" {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	if status, _ := call(t, n, "GET", "/streams/$backups", ""); status != 401 {
		t.Errorf("anybody reads the history: %d", status)
	}
	check.Must(t, n.Close())

	dir := filepath.Join(t.TempDir(), "restored")
	check.Must(t, check.Err(backup.Restore(t.Context(), backup.NewFolder(vfs.OS, to), backup.RestoreOptions{FS: vfs.OS, Dir: dir})))
	restored := open(t, options(dir))
	if status, body := call(t, restored, "GET", "/streams/orders/2", "", admin("Accept", "application/json")...); status != 200 {
		t.Errorf("the last event is not there: %d %s", status, body)
	}
}

// fill writes as much as takes several seconds to copy at 1 MiB/s.
func fill(t *testing.T, n *node.Node) {
	t.Helper()
	for i := range 8 {
		status, body := call(t, n, "POST", "/streams/large", `"`+strings.Repeat("x", 1<<20)+`"`,
			admin("Content-Type", "application/json", "ES-EventType", "t", "ES-EventId", fmt.Sprintf("fbf4a1a1-b4a3-4dfe-a01f-00000000000%d", i))...)
		check.MustEqual(t, status, 201, body)
	}
}

// TestBackupIsBegunAgain: a run that the end of the node has interrupted.
func TestBackupIsBegunAgain(t *testing.T) {
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "backups")
	configured := func() node.Options {
		o := options(dir)
		o.Config.BackupTo = to
		return o
	}
	o := configured()
	o.Config.BackupThrottleMiB = 1
	n := open(t, o)
	fill(t, n)
	if status, body := call(t, n, "POST", "/admin/backup", "", admin()...); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	testkit.Eventually(t, time.Minute, func() error {
		if c := get[struct{ Done int64 }](t, n, "/admin/backup/current"); c.Done == 0 {
			return errors.New("nothing is copied yet")
		}
		return nil
	})
	check.Must(t, n.Close())
	if list, err := backup.NewFolder(vfs.OS, to).List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("%d listed, %v", len(list), err)
	}
	n = open(t, configured())
	testkit.Eventually(t, time.Minute, func() error {
		if last := get[lastBackup](t, n, "/admin/backup/last"); last.Result != "Success" {
			return fmt.Errorf("%+v", last)
		}
		return nil
	})
}

// TestBackupIsStopped by a client: nothing is listed.
func TestBackupIsStopped(t *testing.T) {
	o := options(t.TempDir())
	o.Config.BackupTo, o.Config.BackupThrottleMiB = filepath.Join(t.TempDir(), "backups"), 1
	n := open(t, o)
	fill(t, n)
	if status, body := call(t, n, "POST", "/admin/backup", "", admin()...); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if status, body := call(t, n, "POST", "/admin/backup", "", admin()...); status != 400 || body != "Backup is already running" {
		t.Errorf("a second one: %d %s", status, body)
	}
	if status, body := call(t, n, "DELETE", "/admin/backup/current", "", admin()...); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if last := awaitBackup(t, n); last.Result != "Stopped" {
		t.Errorf("%+v", last)
	}
	if list := get[struct{ Backups []struct{} }](t, n, "/admin/backup/list").Backups; len(list) != 0 {
		t.Errorf("%d listed", len(list))
	}
}

// TestBackupFails where nothing can be written, and a node does not start without the keys of an
// object store.
func TestBackupFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	check.Must(t, os.WriteFile(file, nil, 0o600))
	o := options(t.TempDir())
	o.Config.BackupTo = filepath.Join(file, "backups")
	n := open(t, o)
	if last := backUp(t, n); last.Result != "Failed" || !strings.Contains(last.Error, "not a directory") {
		t.Errorf("%+v", last)
	}
	if _, body := call(t, n, "GET", "/admin/doctor", "", admin()...); !strings.Contains(body, "WRONG backup: the last one failed: ") {
		t.Errorf("the doctor says\n%s", body)
	}

	t.Setenv("AWS_ACCESS_KEY_ID", "")
	o = options(t.TempDir())
	o.Config.BackupTo = "s3://bucket/node"
	if n, err := node.Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "option BackupTo: the keys of the object store are missing") {
		t.Errorf("%v", err)
		if err == nil {
			_ = n.Close()
		}
	}
}
