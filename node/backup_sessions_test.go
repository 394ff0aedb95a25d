package node_test

import (
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/internal/check"
)

const sessionsPath = "/admin/backup/sessions"

func TestNoBackupOfMemory(t *testing.T) {
	o := options(t.TempDir())
	o.Config.MemDb = true
	n := open(t, o)
	if status, text := call(t, n, "POST", sessionsPath, "", "Authorization", asAdmin); status != 400 || text != "Backup is not supported on in-memory databases" {
		t.Errorf("a backup of a database in memory: %d %s", status, text)
	}
	if status, text := call(t, n, "GET", sessionsPath, "", "Authorization", asAdmin, "Accept", "application/json"); status != 200 || text != "{\n  \"sessions\": []\n}" {
		t.Errorf("sessions: %d %s", status, text)
	}
}

// TestBackupSession copies a node's files and opens the copy, which has what was written before and
// nothing of what came later. The node closes with the session open.
func TestBackupSession(t *testing.T) {
	n := open(t, options(t.TempDir()))
	for i := range 3 {
		if status, text := write(t, n, "before", i); status != 201 {
			t.Fatal(status, text)
		}
	}
	status, text := call(t, n, "POST", sessionsPath, "", "Authorization", asAdmin, "Accept", "application/json")
	var s backup.Session
	if err := json.Unmarshal([]byte(text), &s); err != nil || status != 200 || s.NodeID == "" || s.ClusterID == "" || s.Time.IsZero() {
		t.Fatal(status, text, err)
	}
	if status, text := write(t, n, "behind", 9); status != 201 {
		t.Fatal(status, text)
	}
	to := t.TempDir()
	for _, f := range s.Files {
		status, content := call(t, n, "GET", sessionsPath+"/"+s.ID+"/files/"+url.PathEscape(f.Name), "", "Authorization", asAdmin)
		sum := f.Sum()
		if _, err := sum.Write([]byte(content)); err != nil || status != 200 {
			t.Fatal(f, status, err)
		}
		if got, err := sum.Sum(); got != f.Checksum || err != nil {
			t.Errorf("%+v has the checksum %s, %v", f, got, err)
		}
		path := filepath.Join(to, filepath.FromSlash(f.Name))
		check.Must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)))
	}
	check.Must(t, n.Close())
	n = open(t, options(to))
	for path, want := range map[string]int{"/streams/before/2": 200, "/streams/before/3": 404, "/streams/behind": 404} {
		if status, text := call(t, n, "GET", path, "", "Accept", "application/json"); status != want {
			t.Errorf("%s of the copy: %d %s, want %d", path, status, text, want)
		}
	}
	if status, text := write(t, n, "before", 4); status != 201 {
		t.Errorf("writing to the copy: %d %s", status, text)
	}
}
