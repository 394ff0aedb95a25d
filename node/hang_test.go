package node_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/node"
)

// hangingDisk is a disk whose chunk files can hang.
type hangingDisk struct {
	vfs.FS
	kind vfs.Kind
	held atomic.Pointer[chan struct{}] // closed to continue; nil: nothing hangs
	full atomic.Bool
}

func (d *hangingDisk) Free(dir string) (int64, error) {
	if d.full.Load() {
		return 0, nil
	}
	return d.FS.Free(dir)
}

func newHangingDisk(kind vfs.Kind) *hangingDisk {
	d := &hangingDisk{kind: kind}
	d.FS = vfs.NewFaulty(vfs.OS, func(op vfs.Op) error {
		if held := d.held.Load(); held != nil && op.Kind == d.kind && strings.Contains(op.Name, "chunk-") {
			<-*held
		}
		return nil
	})
	return d
}

func (d *hangingDisk) hang() (goOn func()) {
	held := make(chan struct{})
	d.held.Store(&held)
	return func() {
		d.held.Store(nil)
		close(held)
	}
}

// TestLeaderWhoseLogHangs: entries are stored and committed, but the event log of the leader takes
// none: another node takes over, and a node whose disk works follows it.
func TestLeaderWhoseLogHangs(t *testing.T) {
	var disks []*hangingDisk
	nodes := openCluster(t, 3, func(_ int, o *node.Options) {
		disks = append(disks, newHangingDisk(vfs.OpWrite))
		o.FS = disks[len(disks)-1]
	})
	leader := func(but int) (found int) {
		testkit.Eventually(t, 3*time.Minute, func() error {
			for i, n := range nodes {
				if i != but && n.State() == "Leader" {
					found = i
					return nil
				}
			}
			return fmt.Errorf("no leader but %d", but)
		})
		return found
	}
	acknowledged := func(at *node.Node, number int) {
		t.Helper()
		testkit.Eventually(t, 3*time.Minute, func() error {
			if status, body := write(t, at, "s", number); status != 201 {
				return fmt.Errorf("write %d: %d %s", number, status, body)
			}
			return nil
		})
	}
	old := 0
	testkit.Eventually(t, 3*time.Minute, func() error {
		for i, n := range nodes {
			// A node that does not know of its vote takes part in no election.
			if status, body := call(t, n, "GET", "/admin/cluster/members", "", "Accept", "application/json"); strings.Count(body, `"voter": true`) != 3 {
				return fmt.Errorf("to node %d not all have a vote: %d %s", i, status, body)
			}
		}
		old = leader(-1)
		if status, body := write(t, nodes[old], "s", 0); status != 201 {
			return fmt.Errorf("write 0: %d %s", status, body)
		}
		return nil
	})
	goOn := disks[old].hang()
	if status, body := write(t, nodes[old], "s", 1); status == 201 {
		t.Errorf("acknowledged by a node whose log hangs: %s", body)
	}
	next := leader(old)
	acknowledged(nodes[next], 1)
	acknowledged(nodes[next], 2)
	testkit.Eventually(t, 3*time.Minute, func() error {
		if status, body := call(t, nodes[old], "GET", "/health/ready", ""); status != 503 || !strings.Contains(body, "the disk of this node hangs: write") {
			return fmt.Errorf("the node whose log hangs is ready: %d %s", status, body)
		}
		return nil
	})
	if status, _ := call(t, nodes[old], "GET", "/streams/s/0", "", "ES-RequireLeader", "True"); status == 200 {
		t.Error("a read that only the leader may answer was answered")
	}
	goOn()
	testkit.Eventually(t, 3*time.Minute, func() error {
		if status, body := call(t, nodes[old], "GET", "/streams/s/2", "", "Accept", "application/json"); status != 200 || body != `{"n":2}` {
			return fmt.Errorf("the node whose log goes on lacks an event: %d %s", status, body)
		}
		if status, body := call(t, nodes[old], "GET", "/health/ready", ""); status != 204 {
			return fmt.Errorf("it is not ready: %d %s", status, body)
		}
		return nil
	})
	if status, body := call(t, nodes[old], "GET", "/streams/s/3", ""); status != 404 {
		t.Errorf("an event was written twice: %d %s", status, body)
	}

	// A follower whose disk is full says so before it lags, and until there is space.
	disks[old].full.Store(true)
	ready := func(want int, why string) {
		t.Helper()
		testkit.Eventually(t, 3*time.Minute, func() error {
			if status, body := call(t, nodes[old], "GET", "/health/ready", ""); status != want || !strings.Contains(body, why) {
				return fmt.Errorf("%d %s", status, body)
			}
			return nil
		})
	}
	ready(503, "the disk of this node is full and it takes no entries from the leader: 0 bytes are free for ")
	disks[old].full.Store(false)
	ready(204, "")
}

// TestCloseWhileTheDiskHangs: Close returns, and says what hangs.
func TestCloseWhileTheDiskHangs(t *testing.T) {
	disk := newHangingDisk(vfs.OpWrite)
	o := options(t.TempDir())
	o.FS, o.ClosePatience = disk, time.Second
	n := open(t, o)
	goOn := disk.hang()
	write(t, n, "s", 0)
	check.Says(t, n.Close(), filepath.Join(o.Config.Db, "chunk-000000.000000"), "Close")
	goOn()
	testkit.Eventually(t, 3*time.Minute, n.Close) // It ends after all, in order or not.
}
