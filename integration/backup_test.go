package integration_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestBackups takes copies of a node by the documented steps and by sessions, while clients write
// and scavenges and merges of the index run. Each copy opens as a whole database with every event
// that was acknowledged before the copy began.
func TestBackups(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	node := testkit.StartNode(t, dir, smallTables...)
	load := startLoad(t, node, seed(t), 16, 6)
	load.more(t, 200)
	stop := keepTidying(t, node)

	type copied struct {
		name, dir string
		byHand    bool
		acked     []write
	}
	var copies []copied
	held := beginSession(t, node) // Open until the end.
	first := held.fetch(t, node, filepath.Join(t.TempDir(), "held"))
	for i := range 2 {
		one := copied{fmt.Sprint("by hand ", i), filepath.Join(t.TempDir(), "copy"), true, load.ledger.acknowledgedSoFar()}
		byHand(t, "backup", dir, one.dir)
		copies = append(copies, one)
		one = copied{fmt.Sprint("session ", i), filepath.Join(t.TempDir(), "copy"), false, load.ledger.acknowledgedSoFar()}
		s := beginSession(t, node)
		s.fetch(t, node, one.dir)
		s.end(t, node)
		copies = append(copies, one)
		load.more(t, 100)
	}
	runs := stop()
	if again := held.fetch(t, node, filepath.Join(t.TempDir(), "again")); again != first {
		t.Error("the files of the session that was held have changed")
	}
	held.end(t, node)
	load.finish(t)
	load.ledger.checkNode(t, node)
	node.Stop()
	verifyClean(t, dir)
	t.Logf("%d scavenges meanwhile", runs)

	for _, c := range copies {
		t.Run(c.name, func(t *testing.T) {
			to := c.dir
			if c.byHand {
				to = filepath.Join(t.TempDir(), "data")
				byHand(t, "restore", c.dir, to)
			} else {
				verifyClean(t, to)
			}
			node := testkit.StartNode(t, to, smallTables...)
			m := newMirror()
			if err := errors.Join(m.advance(t.Context(), node.Client), m.compareStreams(t.Context(), node.Client), m.holds(c.acked)); err != nil {
				t.Errorf("%d writes were acknowledged before the copy began; the copy has %d events: %v", len(c.acked), len(m.places), err)
			}
			mustAppend(t, node, "behind-the-copy", -1, 2)
			node.Stop()
			verifyClean(t, to)
		})
	}
}

// keepTidying scavenges and merges until stop is called, which returns how many scavenges were
// done.
func keepTidying(t *testing.T, node *testkit.Process) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ask := func(method, path string, to any) error {
		r, err := node.Do(ctx, testkit.Request{Method: method, Path: path, Admin: true, Header: map[string]string{"Accept": testkit.MediaJSON}})
		if err != nil || r.Status != http.StatusOK {
			return fmt.Errorf("%s %s: %s: %w", method, path, r, err)
		}
		return json.Unmarshal(r.Body, to)
	}
	runs := 0
	var owned sync.WaitGroup
	owned.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			var last scavengeRun
			// Each completes a chunk, and rewrites and merges all.
			err := ask(http.MethodPost, "/admin/scavenge?threshold=-1", &last)
			for err == nil && (last.Result == "" || last.Result == "InProgress") && ctx.Err() == nil {
				if err = pause(ctx, 5*time.Millisecond); err == nil {
					err = ask(http.MethodGet, "/admin/scavenge/last", &last)
				}
			}
			if err == nil {
				err = ask(http.MethodPost, "/admin/mergeindexes", &struct{}{})
			}
			if ctx.Err() == nil && (err != nil || last.Result != "Success") {
				t.Errorf("scavenge %d: %+v, %v", n, last, err)
				return
			}
			runs++
		}
	})
	return func() int {
		cancel()
		owned.Wait()
		return runs
	}
}

// byHand runs the script with the documented steps.
func byHand(t *testing.T, arguments ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join("..", "scripts", "backup-by-hand.sh"), arguments...)
	said, err := command.CombinedOutput()
	check.Must(t, err, arguments, said)
	t.Logf("%s: %s", arguments[0], said)
}

// copyByHand copies the files of a node that runs by the documented steps: chunks, checkpoints and
// index, without the consensus state. The copy holds all that the node holds now, and is prepared
// to be started.
func copyByHand(t *testing.T, db string) (to string) {
	t.Helper()
	to = t.TempDir()
	byHand(t, "backup", db, to)
	check.Must(t, copyFile(filepath.Join(to, "chaser.chk"), filepath.Join(to, "truncate.chk")))
	return to
}

// backupSession is a session as a client knows it.
type backupSession struct {
	BackupID string
	Position int64
	Files    []struct {
		Name     string
		Size     int64
		Checksum string
		Complete bool
	}
}

func beginSession(t *testing.T, node *testkit.Process) (s backupSession) {
	t.Helper()
	r := must(t, node, testkit.Request{Method: http.MethodPost, Path: "/admin/backup/sessions", Admin: true, Header: map[string]string{"Accept": testkit.MediaJSON}}, http.StatusOK)
	check.Must(t, json.Unmarshal(r.Body, &s))
	return s
}

// fetch gets all files, each in two parts, and returns a hash of them.
func (s *backupSession) fetch(t *testing.T, node *testkit.Process, to string) string {
	t.Helper()
	sum := sha256.New()
	for _, f := range s.Files {
		var content []byte
		for _, part := range []string{fmt.Sprintf("bytes=0-%d", f.Size/2), fmt.Sprintf("bytes=%d-", f.Size/2+1)} {
			r, err := node.Do(t.Context(), testkit.Request{
				Path: "/admin/backup/sessions/" + s.BackupID + "/files/" + url.PathEscape(f.Name), Admin: true, Header: map[string]string{"Range": part},
			})
			if err != nil || r.Status != http.StatusPartialContent {
				t.Fatalf("%s of %+v: %s, %v", part, f, r, err)
			}
			content = append(content, r.Body...)
		}
		check.MustEqual(t, int64(len(content)), f.Size, len(content), "bytes of", f)
		path := filepath.Join(to, filepath.FromSlash(f.Name))
		check.Must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o644)))
		fmt.Fprintf(sum, "%s %x\n", f.Name, sha256.Sum256(content))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func (s *backupSession) end(t *testing.T, node *testkit.Process) {
	t.Helper()
	must(t, node, testkit.Request{Method: http.MethodDelete, Path: "/admin/backup/sessions/" + s.BackupID, Admin: true}, http.StatusOK)
}
