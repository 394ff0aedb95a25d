package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/backup/manager"
	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

const someBackupID = "20260301T020000.000Z-00c0ffee"

// memBackupRuns answers what a test sets.
type memBackupRuns struct {
	fail          error
	current, last manager.Status
	list          []backup.Manifest
}

func (m *memBackupRuns) Start() (string, error) { return someBackupID, m.fail }

func (m *memBackupRuns) Stop(context.Context) (string, error) { return someBackupID, m.fail }

func (m *memBackupRuns) Current() (manager.Status, error) { return m.current, m.fail }

func (m *memBackupRuns) Last() (manager.Status, error) { return m.last, m.fail }

func (m *memBackupRuns) List(context.Context) ([]backup.Manifest, error) { return m.list, m.fail }

func TestBackups(t *testing.T) {
	runs := &memBackupRuns{}
	n := newOperator(t, func(o *httpapi.Options) { o.BackupRuns = runs })
	began := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	ended := manager.Status{
		ID: someBackupID, Result: manager.Success, Started: began, Ended: began.Add(90 * time.Second), Kind: backup.KindIncremental,
		Position: 4711, Time: began.Add(-time.Second), Bytes: 1 << 30, BytesCopied: 1 << 20, Verified: true,
	}
	failed := manager.Status{ID: someBackupID, Result: manager.Failed, Started: began, Ended: began.Add(time.Second), Error: `write <"backups">: no space left`}
	some := []backup.Manifest{
		{ID: "20260228T020000.000Z-0000beef", Kind: backup.KindFull, BytesCopied: 100, Seconds: 2.5, Session: backup.Session{Files: []backup.File{{Size: 60}, {Size: 40}}}},
		{ID: someBackupID, Kind: backup.KindIncremental, BytesCopied: 1, Seconds: 0.25, Verified: true, Session: backup.Session{Position: 4711, Time: began, Files: []backup.File{{Size: 200}}}},
	}
	for _, c := range []struct{ format, accept string }{{"json", appJSON}, {"xml", textXML}, {"txt", "text/plain"}} {
		runs.current, runs.last, runs.list = manager.Status{Result: manager.Unknown}, manager.Status{Result: manager.Unknown}, nil
		n.golden("backup-current-none."+c.format, "/admin/backup/current", c.accept)
		n.golden("backup-last-never."+c.format, "/admin/backup/last", c.accept)
		n.golden("backup-list-empty."+c.format, "/admin/backup/list", c.accept)
		runs.last, runs.list = ended, some
		n.golden("backup-last-success."+c.format, "/admin/backup/last", c.accept)
		n.golden("backup-list."+c.format, "/admin/backup/list", c.accept)
		runs.last = failed
		n.golden("backup-last-failed."+c.format, "/admin/backup/last", c.accept)
		n.goldenPost(t, "backup-start."+c.format, "/admin/backup", c.accept)
	}
	// How long a run has taken so far depends on the time of the request.
	runs.current = manager.Status{ID: someBackupID, Result: manager.InProgress, Started: time.Now(), Progress: backup.Progress{Phase: backup.PhaseCopy, Done: 3, Total: 9}}
	got := decode[map[string]any](t, n.get("/admin/backup/current", appJSON).is(t, 200))
	check.Equal(t, fmt.Sprint(got["backupId"], got["phase"], got["done"], got["total"]), fmt.Sprint(someBackupID, "Copying", 3, 9), "current")

	check.Equal(t, n.do("DELETE", "/admin/backup/current", "", admin("Accept", appJSON)).is(t, 200).body, `"`+someBackupID+`"`, "stopped")
	check.Equal(t, n.do("DELETE", "/admin/backup/current", "", admin()).is(t, 200).body, someBackupID, "stopped, text")

	// A damaged manifest of a backup does not hide other backups.
	runs.list, runs.fail = some, &backup.Damaged{Err: errors.New("manifest of backup b: it ends early")}
	got = decode[map[string]any](t, n.get("/admin/backup/list", appJSON).is(t, 200))
	check.Equal(t, fmt.Sprintln(len(got["backups"].([]any)), got["damaged"]), "2 manifest of backup b: it ends early\n", "listed beside a damaged one")
	for accept, end := range map[string]string{textXML: "</Backup><Damaged>manifest of backup b: it ends early</Damaged></Backups>", "text/plain": "\nDamaged: manifest of backup b: it ends early\n"} {
		if doc := n.get("/admin/backup/list", accept).is(t, 200).body; !strings.HasSuffix(doc, end) {
			t.Errorf("%s: %s", accept, doc)
		}
	}
}

func TestBackupRefusals(t *testing.T) {
	runs := &memBackupRuns{}
	n := newOperator(t, func(o *httpapi.Options) { o.BackupRuns = runs })
	for _, c := range []struct {
		name         string
		fail         error
		method, path string
		status       int
		text         string
	}{
		{"start, not configured", manager.ErrNotConfigured, "POST", "", 400, "Backup is not configured: BackupTo"},
		{"current, not configured", manager.ErrNotConfigured, "GET", "/current", 400, "Backup is not configured: BackupTo"},
		{"stop, not configured", manager.ErrNotConfigured, "DELETE", "/current", 400, "Backup is not configured: BackupTo"},
		{"last, not configured", manager.ErrNotConfigured, "GET", "/last", 400, "Backup is not configured: BackupTo"},
		{"list, not configured", manager.ErrNotConfigured, "GET", "/list", 400, "Backup is not configured: BackupTo"},
		{"in memory", backup.ErrInMemory, "POST", "", 400, "Backup is not supported on in-memory databases"},
		{"second", manager.ErrRunning, "POST", "", 400, "Backup is already running"},
		{"none to stop", manager.ErrNoSuchRun, "DELETE", "/current", 404, "Backup Id does not exist"},
		{"node ends", event.ErrClosed, "POST", "", 503, "Server Is Not Ready"},
		{"target gone", errors.New("read /backups: input/output error"), "GET", "/list", 500, "The backups at BackupTo cannot be read: read /backups: input/output error"},
		{"no such method", nil, "GET", "", 405, "Method Not Allowed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			runs.fail = c.fail
			check.Equal(t, n.do(c.method, "/admin/backup"+c.path, "", admin()).is(t, c.status).body, c.text, "text")
		})
	}
}
