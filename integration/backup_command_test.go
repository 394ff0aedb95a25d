package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// writeMiB has a node hold some MiB.
func writeMiB(t *testing.T, p *testkit.Process, mib int) {
	t.Helper()
	large := []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
	for i := range mib {
		testkit.Eventually(t, time.Minute, func() error { // The node may be about to lead.
			answer, err := p.Append(t.Context(), "large", -2, true, testkit.Event{ID: fmt.Sprintf("fbf4a1a1-b4a3-4dfe-a01f-00000000000%d", i), Type: "t", Data: large})
			if err == nil && answer.Status != 201 {
				err = fmt.Errorf("%s", answer)
			}
			return err
		})
	}
}

// backupCommand runs annals backup and returns its JSON.
func backupCommand(t *testing.T, env []string, args ...string) (answer struct {
	Kind        string
	BytesCopied int64
	Backups     any // list: all of them, verify: how many
	Removed     []string
}) {
	t.Helper()
	out, code := testkit.Run(t, testkit.Command{Args: append([]string{"backup"}, args...), Env: env})
	check.MustEqual(t, code, 0, args, "code")
	check.Must(t, json.Unmarshal([]byte(out.Stdout()), &answer))
	return answer
}

// TestBackupObjectStore: a node and the command keep backups in a store that answers some requests
// with errors.
func TestBackupObjectStore(t *testing.T) {
	t.Parallel()
	store := testkit.StartObjectStore(t)
	var requests atomic.Int64
	store.Refuse(func(*http.Request) int {
		switch n := requests.Add(1); {
		case n%7 == 0:
			return http.StatusServiceUnavailable
		case n%11 == 0:
			return http.StatusInternalServerError
		}
		return 0
	})
	store.Cut(func(key string) bool { return strings.Contains(key, "/objects/") && requests.Load()%5 == 0 })
	env := []string{"XDG_CACHE_HOME=" + t.TempDir(), "AWS_ACCESS_KEY_ID=k", "AWS_SECRET_ACCESS_KEY=s", "TMPDIR=" + t.TempDir()}
	p := testkit.Launch(t, testkit.Command{Env: env, Args: []string{
		"node", "--db", t.TempDir(), "--node-port", "0", "--insecure", "--backup-to", store.Bucket + "node", "--backup-s3-endpoint", store.URL,
	}})
	p.AwaitServing()
	writeMiB(t, p, 1)
	var last struct{ Result, Error string }
	ask := func(method, path string) error {
		answer, err := p.Do(t.Context(), testkit.Request{Method: method, Path: path, Header: map[string]string{"Accept": testkit.MediaJSON}})
		if err == nil && answer.Status != 200 {
			err = fmt.Errorf("%s", answer)
		}
		if err != nil {
			return err
		}
		return json.Unmarshal(answer.Body, &last)
	}
	check.Must(t, ask("POST", "/admin/backup"))
	testkit.Eventually(t, 3*time.Minute, func() error {
		if err := ask("GET", "/admin/backup/last"); err != nil || last.Result != "Success" {
			if last.Result == "Failed" {
				t.Fatalf("%+v", last)
			}
			return fmt.Errorf("%+v, %v", last, err)
		}
		return nil
	})

	place := func(command, flag string, more ...string) []string {
		return append([]string{command, flag, store.Bucket + "command", "--s3-endpoint", store.URL, "--json"}, more...)
	}
	create := place("create", "--to", "--node", p.URL())
	if m := backupCommand(t, env, create...); m.Kind != "full" {
		t.Errorf("%+v", m)
	}
	writeMiB(t, p, 2)
	if m := backupCommand(t, env, create...); m.Kind != "incremental" {
		t.Errorf("%+v", m)
	}
	if all := backupCommand(t, env, place("list", "--from")...); len(all.Backups.([]any)) != 2 {
		t.Errorf("listed: %v", all.Backups)
	}
	backupCommand(t, env, place("verify", "--from", "--all")...)
	if gone := backupCommand(t, env, place("prune", "--from", "--keep", "1")...); len(gone.Removed) != 1 {
		t.Errorf("removed %v", gone.Removed)
	}
	restored := filepath.Join(t.TempDir(), "restored")
	backupCommand(t, env, place("restore", "--from", "--db", restored)...)
	p.Stop()
	verifyClean(t, restored)
}
