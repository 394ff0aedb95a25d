package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestNodeBackupKilled: a node that is killed while it backs itself up begins again, and nothing
// half is ever listed.
func TestNodeBackupKilled(t *testing.T) {
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "backups")
	start := func(throttle string) *testkit.Process {
		return testkit.StartNode(t, dir, "--insecure", "--backup-to", to, "--backup-throttle-mib", throttle)
	}
	ask := func(p *testkit.Process, method, path string, value any) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		answer, err := p.Do(ctx, testkit.Request{Method: method, Path: path, Header: map[string]string{"Accept": testkit.MediaJSON}})
		if err != nil {
			return err
		}
		if answer.Status != 200 {
			return fmt.Errorf("%s", answer)
		}
		return json.Unmarshal(answer.Body, value)
	}
	listed := func() (n int) {
		names := check.Value(filepath.Glob(filepath.Join(to, "*", "manifest.json"))).Must(t)
		return len(names)
	}
	p := start("1")
	writeMiB(t, p, 8)
	createKilled(t, p)
	var begun struct{ BackupID string }
	check.Must(t, ask(p, "POST", "/admin/backup", &begun))
	testkit.Eventually(t, time.Minute, func() error {
		var current struct{ Done int64 }
		if err := ask(p, "GET", "/admin/backup/current", &current); err != nil || current.Done == 0 {
			var last any
			return fmt.Errorf("nothing is copied yet: %v %v %v", err, ask(p, "GET", "/admin/backup/last", &last), last)
		}
		return nil
	})
	p.Kill()
	check.Equal(t, listed(), 0, "backups are listed")
	if names, err := os.ReadDir(to); err != nil || len(names) == 0 {
		t.Errorf("it was not killed while it copied: %v", err)
	}

	p = start("0")
	testkit.Eventually(t, time.Minute, func() error {
		var last struct{ BackupID, Result string }
		if err := ask(p, "GET", "/admin/backup/last", &last); err != nil || last.Result != "Success" || last.BackupID == begun.BackupID {
			return fmt.Errorf("%+v, %v", last, err)
		}
		return nil
	})
	check.Equal(t, listed(), 1, "backups are listed")
	testkit.Eventually(t, time.Minute, func() error {
		out, code := testkit.Run(t, testkit.Command{Quiet: true, Args: []string{"backup", "status", "--node", p.URL()}})
		if code != 0 || !strings.Contains(out.Stdout(), "Success") {
			return fmt.Errorf("status: code %d\n%s", code, out.Output())
		}
		return nil
	})
	// An insecure node is wrong, and says what to do.
	out, code := testkit.Run(t, testkit.Command{Quiet: true, Args: []string{"doctor", "--node", p.URL()}})
	if code != 1 || !strings.Contains(out.Stdout(), "ok    backup: the last successful one is of ") || !strings.Contains(out.Stdout(), "WRONG certificates: the node is insecure") {
		t.Errorf("doctor: code %d\n%s", code, out.Output())
	}
	p.Stop()
}

// createKilled kills the command more often than a node has room for sessions. The next one ends
// what they left.
func createKilled(t *testing.T, p *testkit.Process) {
	t.Helper()
	cache, to := t.TempDir(), filepath.Join(t.TempDir(), "backups")
	create := testkit.Command{Env: []string{"XDG_CACHE_HOME=" + cache}, Args: []string{"backup", "create", "--node", p.URL(), "--to", to, "--throttle-mib", "1"}}
	notes := filepath.Join(cache, "annals", "backups", "*.json")
	before := ""
	for range 6 {
		c := testkit.Launch(t, create)
		testkit.Eventually(t, time.Minute, func() error {
			found, err := filepath.Glob(notes)
			if err != nil || len(found) != 1 || found[0] == before {
				return fmt.Errorf("noted: %v %v", found, err)
			}
			before = found[0]
			return nil
		})
		c.Kill()
	}
	create.Args[len(create.Args)-1] = "0"
	if out, code := testkit.Run(t, create); code != 0 {
		t.Fatalf("after killed ones: code %d\n%s", code, out.Output())
	}
	all, err := filepath.Glob(filepath.Join(to, "*"))
	left, err2 := filepath.Glob(filepath.Join(to, ".*"))
	noted, err3 := filepath.Glob(notes)
	if len(all) != 1 || len(left) != 0 || len(noted) != 0 {
		t.Errorf("there are %v, left are %v, noted %v, %v", all, left, noted, errors.Join(err, err2, err3))
	}
}
