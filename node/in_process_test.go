package node_test

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/network"
	"github.com/annalsdb/annals/internal/network/memory"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/node"
)

// sockets counts those of this process; 0 where the system does not tell.
func sockets(t *testing.T) (n int) {
	t.Helper()
	found, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	for _, f := range found {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// TestInProcess: whole nodes run in virtual time, on disks and a network that are not the system's
// and with clocks that differ. After a restart everything is still there.
func TestInProcess(t *testing.T) {
	for _, store := range []config.LogStore{config.LogStoreBoltDB, config.LogStoreWal} {
		for _, size := range []int{1, 3} {
			t.Run(fmt.Sprint(store, size), func(t *testing.T) {
				temp, before := t.TempDir(), sockets(t)
				t.Setenv("TMPDIR", temp)
				synctest.Test(t, func(t *testing.T) {
					inProcess(t, size, store, func() { check.Equal(t, sockets(t), before, "sockets") })
				})
				found, err := filepath.Glob(inProcessDir + "*")
				check.Must(t, err)
				check.Equal(t, len(found), 0, "real files", found)
				check.Equal(t, len(check.Value(os.ReadDir(temp)).Must(t)), 0, "temporary files")
			})
		}
	}
}

const inProcessDir = "/in-process" // which is not on the real disk

func inProcess(t *testing.T, size int, store config.LogStore, running func()) {
	w := memory.New(memory.Options{})
	w.AddHost("client")
	own := check.Value(w.Endpoint("client")).Must(t)
	client := &http.Client{Transport: &http.Transport{DialContext: network.DialContext(own), DisableKeepAlives: true}}
	do := func(n *node.Node, method, path, body string) (int, string) {
		r := check.Value(http.NewRequestWithContext(t.Context(), method, n.URL()+path, strings.NewReader(body))).Must(t)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json")
		r.Header.Set("ES-EventType", "t")
		r.Header.Set("ES-EventId", uuid.NewString())
		answer, err := client.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = answer.Body.Close() }()
		text := check.Value(io.ReadAll(answer.Body)).Must(t)
		return answer.StatusCode, string(text)
	}
	var hosts, seeds []string
	var disks []vfs.FS
	for i := range size {
		hosts = append(hosts, w.AddHost(fmt.Sprint(i)))
		seeds = append(seeds, hosts[i]+":1112")
		disks = append(disks, vfs.NewMem())
	}
	nodes := make([]*node.Node, size)
	start := func(i int) {
		o := options(filepath.Join(inProcessDir, fmt.Sprint(i)))
		o.Network, o.FS = check.Value(w.Endpoint(fmt.Sprint(i))).Must(t), disks[i]
		o.Config.Insecure, o.Config.RaftLogStore, o.Config.EnableUnixSocket = true, store, true
		o.Now = func() time.Time { return time.Now().Add(time.Duration(i) * 20 * time.Second) }
		o.Config.BackupTo = o.Config.Db + "-backup"
		o.Config.NodeIp = netip.MustParseAddr(hosts[i])
		if size > 1 {
			o.Config.ReplicationIp, o.Config.ClusterSize, o.Config.GossipSeed = o.Config.NodeIp, size, seeds
		}
		nodes[i] = open(t, o)
	}
	ready := func() {
		for began, i := time.Now(), 0; i < size; {
			status, body := do(nodes[i], "GET", "/health/ready", "")
			switch {
			case status == 204:
				i++
			case time.Since(began) > time.Minute:
				t.Fatal(status, body)
			default:
				time.Sleep(100 * time.Millisecond)
			}
		}
	}
	write := func(at int) {
		if status, body := do(nodes[at%size], "POST", "/streams/s", fmt.Sprint(at)); status != 201 {
			t.Fatal(status, body)
		}
	}
	for i := range size {
		start(i)
	}
	ready()
	const events = 20
	for i := range events {
		write(i)
	}
	for _, job := range []string{"scavenge", "backup"} {
		if status, body := do(nodes[0], "POST", "/admin/"+job, ""); status != 200 {
			t.Fatal(job, status, body)
		}
		for began := time.Now(); ; time.Sleep(time.Second) {
			status, body := do(nodes[0], "GET", "/admin/"+job+"/last", "")
			if status == 200 && strings.Contains(body, `"Success"`) {
				break
			}
			if time.Since(began) > time.Minute {
				t.Fatal(job, status, body)
			}
		}
	}
	running()
	for i := range size { // one after the other, then all at once
		check.NoError(t, nodes[i].Close())
		start(i)
		ready()
		write(events + i)
	}
	for _, n := range nodes {
		check.NoError(t, n.Close())
	}
	for i := range size {
		start(i)
	}
	ready()
	for _, n := range nodes {
		for i := range events + size {
			if status, body := do(n, "GET", fmt.Sprint("/streams/s/", i), ""); status != 200 || body != fmt.Sprint(i) {
				t.Errorf("event %d: %d %s", i, status, body)
			}
		}
		check.NoError(t, n.Close())
	}
	running()
	time.Sleep(time.Minute) // memberlist's last probe
}
