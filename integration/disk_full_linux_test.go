package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

const (
	diskSize    = 300 << 20
	diskReserve = 128 << 20 // what a node keeps free
)

// smallDisk mounts a file system of its own, which takes rights that a test may not have.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", diskSize)); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { check.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH), "unmount") })
	return dir
}

func free(t *testing.T, dir string) int64 {
	t.Helper()
	var s syscall.Statfs_t
	check.Must(t, syscall.Statfs(dir, &s))
	return int64(s.Bavail) * s.Bsize
}

// occupy takes space in an instant, so that no more than so many bytes are left free.
func occupy(t *testing.T, dir string, leave int64) (path string) {
	t.Helper()
	path = filepath.Join(dir, "filler")
	f, err := os.Create(path)
	check.Must(t, err)
	var size int64
	for {
		// The node takes space too: space that was free a moment ago may not be free now.
		// A signal undoes what a call has done so far, and Go sends itself many: small pieces last.
		more := min(free(t, dir)-leave, 4<<20)
		if more <= 0 {
			break
		}
		err = syscall.Fallocate(int(f.Fd()), 0, size, more)
		switch {
		case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINTR):
		case err != nil:
			t.Fatal(err)
		default:
			size += more
		}
	}
	check.Must(t, f.Close())
	return path
}

// tryWrite sends one event and returns the answer; with 201 it is noted.
func tryWrite(ctx context.Context, t *testing.T, node *testkit.Process, l *ledger, event testkit.Event) (testkit.Response, error) {
	t.Helper()
	w := &write{stream: "on-disk", expected: -2, events: []testkit.Event{event}}
	l.begin(w)
	answer, err := node.Append(ctx, w.stream, -2, false, event)
	if err == nil && answer.Status == http.StatusCreated {
		number := check.Value(answer.FirstNumber(w.stream)).Must(t)
		l.ack(w, number)
	}
	return answer, err
}

func bigEvent(n int) testkit.Event {
	id := fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
	return testkit.Event{ID: id, Type: "Big", Data: []byte(dataStart(id) + `,"fill":"` + strings.Repeat("y", 32<<10) + `"}`)}
}

// TestDiskNearlyFull: below the reserve writes are refused with the reason, reads still work, and
// writes work again as soon as there is space.
func TestDiskNearlyFull(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	db := filepath.Join(dir, "db")
	node := testkit.StartNode(t, db)
	l := &ledger{}
	n := 0
	for range 20 {
		if answer, err := tryWrite(t.Context(), t, node, l, bigEvent(n)); err != nil || answer.Status != http.StatusCreated {
			t.Fatalf("write %d: %s, %v", n, answer, err)
		}
		n++
	}
	filler := occupy(t, dir, diskReserve+4<<20)
	// The node itself uses up the last megabytes.
	var answer testkit.Response
	testkit.Eventually(t, settleLimit, func() error {
		for range 8 {
			var err error
			if answer, err = tryWrite(t.Context(), t, node, l, bigEvent(n)); err != nil {
				t.Fatalf("write %d: %v\n%s", n, err, node.Output())
			}
			n++
			if answer.Status != http.StatusCreated {
				return nil
			}
		}
		return fmt.Errorf("all %d writes are still taken with %d bytes free", n, free(t, dir))
	})
	if answer.Status != http.StatusServiceUnavailable || !strings.Contains(strings.ToLower(answer.Reason+string(answer.Body)), "disk") {
		t.Errorf("the refusal is %s, want 503 that names the disk", answer)
	}
	l.checkNode(t, node)
	for range 3 {
		if answer, err := tryWrite(t.Context(), t, node, l, bigEvent(n)); err != nil || answer.Status != http.StatusServiceUnavailable {
			t.Errorf("another write: %s, %v", answer, err)
		}
		n++
	}

	// A restart without space serves what is there.
	node.Stop()
	node = testkit.StartNode(t, db)
	l.checkNode(t, node)
	node.Kill()
	node = testkit.StartNode(t, db)
	l.checkNode(t, node)

	remove(t, filler)
	testkit.Eventually(t, settleLimit, func() error {
		answer, err := tryWrite(t.Context(), t, node, l, bigEvent(n))
		n++
		if err == nil && answer.Status != http.StatusCreated {
			err = fmt.Errorf("with %d bytes free a write gets %s", free(t, dir), answer)
		}
		return err
	})
	l.checkNode(t, node)
	node.Stop()
	verifyClean(t, db)
}

// TestDiskFilledUp: when another program takes the last byte within an instant, the node may end,
// but it keeps what it acknowledged and starts once there is space.
func TestDiskFilledUp(t *testing.T) {
	for _, store := range []string{"BoltDB", "Wal"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			dir := smallDisk(t)
			db := filepath.Join(dir, "db")
			option := "--raft-log-store=" + store
			node := testkit.StartNode(t, db, option)
			load := startLoad(t, node, seed(t), 8, 4)
			load.more(t, 100)
			filler := occupy(t, dir, 0)
			filledUp := time.Now()
			// Either the guard was quick enough or the node had to end.
			probes := 0
			testkit.Eventually(t, settleLimit, func() error {
				select {
				case <-node.Exited():
					return nil
				default:
				}
				answer, err := tryWrite(t.Context(), t, node, load.ledger, bigEvent(probes))
				probes++
				if err != nil {
					return err // The node ends.
				}
				if answer.Status == http.StatusServiceUnavailable {
					return nil
				}
				return fmt.Errorf("a write still gets %s", answer)
			})
			select {
			case <-node.Exited():
				if code := node.Wait(time.Second); code != 1 || len(complaints(node)) != 1 {
					t.Errorf("exit code %d, told by %q\n%s", code, complaints(node), node.Output())
				}
				t.Logf("the node ended after %s: %q", time.Since(filledUp), complaints(node))
			default:
				t.Logf("the node refuses writes after %s", time.Since(filledUp))
				node.Kill()
			}
			remove(t, filler)
			node = testkit.StartNode(t, db, option)
			t.Logf("restarted after %s", time.Since(filledUp))
			load.serve(node)
			load.more(t, 50)
			load.finish(t)
			load.ledger.checkNode(t, node)
			node.Stop()
			verifyClean(t, db)
		})
	}
}

// TestIndexDiskNearlyFull: with the index on a volume of its own, writes are refused when that
// volume is nearly full, and the reason names it. A node whose volume was full starts and serves
// again.
func TestIndexDiskNearlyFull(t *testing.T) {
	t.Parallel()
	dir, db := smallDisk(t), t.TempDir()
	index := filepath.Join(dir, "index")
	options := []string{"--index", index, "--max-mem-table-size", "100"}
	node := testkit.StartNode(t, db, options...)
	l := &ledger{}
	n := 0
	write := func() (testkit.Response, error) {
		n++
		return tryWrite(t.Context(), t, node, l, bigEvent(n))
	}
	for range 150 {
		if answer, err := write(); err != nil || answer.Status != http.StatusCreated {
			t.Fatalf("write %d: %s, %v", n, answer, err)
		}
	}
	filler := occupy(t, dir, diskReserve/2)
	refused := func() {
		t.Helper()
		testkit.Eventually(t, settleLimit, func() error {
			if answer, err := write(); err != nil || answer.Status != http.StatusServiceUnavailable {
				return fmt.Errorf("a write gets %s, %v", answer, err)
			}
			return nil
		})
		// The line may come a moment after the refusal.
		testkit.Eventually(t, settleLimit, func() error {
			if !strings.Contains(node.Output(), "the disk is nearly full: writes are refused: folder="+index) {
				return errors.New("the volume is not named")
			}
			return nil
		})
		l.checkNode(t, node)
	}
	refused()
	node.Kill()
	remove(t, filler)
	filler = occupy(t, dir, 0) // to the last byte
	node = testkit.StartNode(t, db, options...)
	refused()
	remove(t, filler)
	testkit.Eventually(t, settleLimit, func() error {
		if answer, err := write(); err != nil || answer.Status != http.StatusCreated {
			return fmt.Errorf("with %d bytes free a write gets %s, %v", free(t, dir), answer, err)
		}
		return nil
	})
	l.checkNode(t, node)
	node.Stop()
}
