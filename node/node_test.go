package node_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/node"
)

// A probe of memberlist ends with its timeout, not with its node.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

func options(dir string) node.Options {
	c := config.Default()
	c.Db, c.Index = dir, filepath.Join(dir, "index")
	c.NodePort = 0
	return node.Options{Config: c, PasswordIterations: 10}
}

func open(t *testing.T, o node.Options) *node.Node {
	t.Helper()
	n := check.Value(node.Open(t.Context(), o)).Must(t)
	t.Cleanup(func() { _ = n.Close() }) // Idempotent; the test looks at the error where it matters.
	return n
}

// openCluster starts nodes of one cluster, whose options may be changed before, and returns when
// all are ready.
func openCluster(t *testing.T, size int, set func(i int, o *node.Options)) (nodes []*node.Node) {
	t.Helper()
	var seeds []string
	for range size {
		seeds = append(seeds, freeAddress(t))
	}
	for i := range size {
		o := options(t.TempDir())
		o.Config.Insecure = true
		if size > 1 {
			o.Config.ClusterSize, o.Config.ReplicationPort, o.Config.GossipSeed = size, port(t, seeds[i]), seeds
			o.Config.GossipInterval = 200 * time.Millisecond
		}
		set(i, &o)
		nodes = append(nodes, open(t, o))
	}
	for _, n := range nodes {
		testkit.Eventually(t, 3*time.Minute, func() error {
			if status, body := call(t, n, "GET", "/health/ready", ""); status != 204 {
				return fmt.Errorf("%d %s", status, body)
			}
			return nil
		})
	}
	return nodes
}

// call does one request on a connection of its own and returns status and body.
func call(t *testing.T, n *node.Node, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+n.Addr()+path, strings.NewReader(body))
	check.Must(t, err)
	request.Close = true
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text := check.Value(io.ReadAll(answer.Body)).Must(t)
	return answer.StatusCode, string(text)
}

func write(t *testing.T, n *node.Node, stream string, number int) (int, string) {
	t.Helper()
	return call(t, n, "POST", "/streams/"+stream, fmt.Sprintf(`{"n":%d}`, number),
		"Content-Type", "application/json", "ES-EventType", "t", "ES-EventId", fmt.Sprintf("00000000-0000-4000-8000-%012d", number))
}

func TestReopen(t *testing.T) {
	o := options(t.TempDir())
	n := open(t, o)
	for i := range 3 {
		if status, body := write(t, n, "s", i); status != 201 {
			t.Fatalf("write %d: %d %s", i, status, body)
		}
	}
	check.Must(t, n.Close())
	n = open(t, o)
	if status, body := call(t, n, "GET", "/streams/s/2", "", "Accept", "application/json"); status != 200 || body != `{"n":2}` {
		t.Fatalf("%d %s", status, body)
	}
	// The memory of event ids came back with the log.
	if status, _ := write(t, n, "s", 1); status != 201 {
		t.Fatal(status)
	}
	if status, _ := call(t, n, "GET", "/streams/s/3", ""); status != 404 {
		t.Fatalf("a retried event was written again: %d", status)
	}
	check.Must(t, n.Close())
}

func TestInMemory(t *testing.T) {
	o := options(filepath.Join(t.TempDir(), "nothing"))
	o.Config.MemDb = true
	n := open(t, o)
	if status, body := write(t, n, "s", 0); status != 201 {
		t.Fatalf("%d %s", status, body)
	}
	status, body := call(t, n, "POST", "/admin/redact", `{"events":["0@s"]}`, "Authorization", asAdmin)
	check.Equal(t, fmt.Sprint(status, " ", body), "400 Redaction is not supported on in-memory databases")
	check.MustBe(t, check.Err(os.Stat(o.Config.Db)), os.ErrNotExist, "a folder was made")
}

// TestInMemoryAgain: a node of a cluster in memory that stopped has nothing when it is back, and
// gets everything from the others.
func TestInMemoryAgain(t *testing.T) {
	var all []node.Options
	nodes := openCluster(t, 3, func(_ int, o *node.Options) {
		o.Config.MemDb = true
		all = append(all, *o)
	})
	// A node may stop only when all have a vote and all data: what a majority lacks is gone.
	whole := func(events int) {
		for _, n := range nodes {
			testkit.Eventually(t, 3*time.Minute, func() error {
				if status, body := call(t, n, "GET", "/admin/cluster/members", "", "Accept", "application/json"); strings.Count(body, `"voter": true`) != 3 {
					return fmt.Errorf("not all have a vote: %d %s", status, body)
				}
				for i := range events {
					if status, body := call(t, n, "GET", fmt.Sprint("/streams/s/", i), "", "Accept", "application/json"); status != 200 || body != fmt.Sprintf(`{"n":%d}`, i) {
						return fmt.Errorf("event %d: %d %s", i, status, body)
					}
				}
				return nil
			})
		}
	}
	for at, n := range nodes {
		acknowledged(t, nodes, 2*at)
		whole(2*at + 1)
		check.Must(t, n.Close())
		acknowledged(t, slices.Delete(slices.Clone(nodes), at, at+1), 2*at+1)
		nodes[at] = open(t, all[at])
		whole(2*at + 2)
	}
}

// acknowledged writes an event to the node that leads, as soon as there is one.
func acknowledged(t *testing.T, nodes []*node.Node, number int) {
	t.Helper()
	testkit.Eventually(t, 3*time.Minute, func() error {
		for _, n := range nodes {
			if status, body := write(t, n, "s", number); status == 201 {
				return nil
			} else if node.Leads(n) {
				return fmt.Errorf("%d %s", status, body)
			}
		}
		return errors.New("no node leads")
	})
}

// TestFailStop: the first failed write or sync of the log ends the node with
// file and cause, and nothing is acknowledged after it.
func TestFailStop(t *testing.T) {
	for _, kind := range []vfs.Kind{vfs.OpWrite, vfs.OpSync} {
		t.Run(string(kind), func(t *testing.T) {
			var mu sync.Mutex
			broken := false
			var fatal []error
			o := options(t.TempDir())
			o.FS = vfs.NewFaulty(vfs.OS, func(op vfs.Op) error {
				mu.Lock()
				defer mu.Unlock()
				if broken && op.Kind == kind && strings.Contains(op.Name, "chunk-") {
					return syscall.EIO
				}
				return nil
			})
			o.OnFatal = func(err error) {
				mu.Lock()
				defer mu.Unlock()
				fatal = append(fatal, err)
			}
			n := open(t, o)
			if status, body := write(t, n, "s", 0); status != 201 {
				t.Fatalf("%d %s", status, body)
			}
			mu.Lock()
			broken = true
			mu.Unlock()
			last := 0
			if kind == vfs.OpWrite {
				for i := 1; i < 4; i++ {
					if status, _ := write(t, n, "s", i); status < 500 {
						t.Fatalf("write %d after the failure: %d", i, status)
					}
				}
			} else {
				// A write waits for the Raft log alone; closing syncs the chunk, unless the sync of
				// each second comes first.
				switch status, body := write(t, n, "s", 1); {
				case status == 201:
					last = 1
				case status < 500:
					t.Fatalf("%d %s", status, body)
				}
			}
			if err := n.Close(); err == nil && kind == vfs.OpSync {
				t.Error("closing did not report the failed sync")
			}
			mu.Lock()
			broken = false
			if len(fatal) != 1 || !errors.Is(fatal[0], syscall.EIO) || !strings.Contains(fatal[0].Error(), "chunk-000000.000000") {
				t.Errorf("told of %v", fatal)
			}
			mu.Unlock()

			n = open(t, o)
			for i := 0; i <= last; i++ {
				if status, body := call(t, n, "GET", fmt.Sprint("/streams/s/", i), "", "Accept", "application/json"); status != 200 || body != fmt.Sprintf(`{"n":%d}`, i) {
					t.Errorf("event %d after the restart: %d %s", i, status, body)
				}
			}
		})
	}
}

// TestDiskNearlyFull: below the reserve writes are refused with the reason, and reads continue.
func TestDiskNearlyFull(t *testing.T) {
	o := options(t.TempDir())
	o.DiskReserve = 1
	n := open(t, o)
	if status, body := write(t, n, "s", 0); status != 201 {
		t.Fatalf("%d %s", status, body)
	}
	check.Must(t, n.Close())
	o.DiskReserve = 1 << 60
	o.Config.Insecure = true // The built-in users are there; nothing has to be written to start.
	n = open(t, o)
	for limit := time.Now().Add(time.Minute); ; {
		status, body := write(t, n, "other", 1)
		if status == 503 && strings.Contains(body, "Disk Space") {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("still %d after a minute: %s", status, body)
		}
	}
	if status, _ := call(t, n, "GET", "/streams/s/0", ""); status != 200 {
		t.Fatalf("reads have to go on: %d", status)
	}
}

// TestUserChangesCount: a user that is disabled loses access although its login
// is cached, also after the stream of notifications was deleted once.
func TestUserChangesCount(t *testing.T) {
	n := open(t, options(t.TempDir()))
	admin := []string{"Authorization", "Basic YWRtaW46Y2hhbmdlaXQ=", "Content-Type", "application/json"}
	ops := []string{"Authorization", "Basic b3BzOmNoYW5nZWl0"}
	change := func(id, stream, eventType, body string) {
		t.Helper()
		status, text := call(t, n, "POST", "/streams/"+stream, body, append(admin, "ES-EventType", eventType, "ES-EventId", id)...)
		check.MustEqual(t, status, 201, stream, text)
	}
	login := func(want int) {
		t.Helper()
		for limit := time.Now().Add(time.Minute); ; {
			status, _ := call(t, n, "GET", "/info", "", ops...)
			if status == want {
				return
			}
			if time.Now().After(limit) {
				t.Fatalf("status %d after a minute, want %d", status, want)
			}
		}
	}
	_, stored := call(t, n, "GET", "/streams/$user-ops/0", "", append(admin, "Accept", "application/json")...)
	if !strings.HasPrefix(stored, "{") {
		t.Fatal(stored)
	}
	disabled := `{"disabled":true,` + stored[1:]
	const notifications = "$users-password-notifications"
	login(200)
	change("00000000-0000-4000-8000-000000000001", "$user-ops", "$UserUpdated", disabled)
	change("00000000-0000-4000-8000-000000000002", notifications, "$PasswordChanged", `{"loginName":"ops"}`)
	login(401)
	if status, text := call(t, n, "DELETE", "/streams/"+notifications, "", admin...); status != 204 {
		t.Fatalf("%d %s", status, text)
	}
	change("00000000-0000-4000-8000-000000000003", "$user-ops", "$UserUpdated", stored)
	change("00000000-0000-4000-8000-000000000004", notifications, "$PasswordChanged", `{"loginName":"ops"}`)
	login(200)
	change("00000000-0000-4000-8000-000000000005", "$user-ops", "$UserUpdated", disabled)
	change("00000000-0000-4000-8000-000000000006", notifications, "$PasswordChanged", `{"loginName":"ops"}`)
	login(401)
}
