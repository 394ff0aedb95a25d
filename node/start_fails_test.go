package node_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/node"
)

// TestOpenFails: a start that fails at any step cleans up after itself.
func TestOpenFails(t *testing.T) {
	taken := check.Value(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	defer func() { _ = taken.Close() }()
	cases := []struct {
		name string
		set  func(t *testing.T, c *config.Config)
		want string
	}{
		{"the list of redactions is damaged", func(t *testing.T, c *config.Config) {
			check.Must(t, os.WriteFile(filepath.Join(c.Db, "redactions"), []byte("{\n"), 0o600))
		}, "redactions is damaged"},
		{"the schedule of scavenges is none", func(_ *testing.T, c *config.Config) { c.ScavengeSchedule = "often" }, "ScavengeSchedule"},
		{"the advertised host is none", func(_ *testing.T, c *config.Config) { c.AdvertiseHostToClientAs = "a b" }, "advertised host"},
		{"the web interface is not there", func(t *testing.T, c *config.Config) { c.WebDir = filepath.Join(t.TempDir(), "none") }, "WebDir"},
		{"the web interface has no page", func(t *testing.T, c *config.Config) { c.WebDir = t.TempDir() }, "WebDir: index.html"},
		{"the port between nodes is taken", func(t *testing.T, c *config.Config) {
			c.ClusterSize, c.GossipSeed = 3, []string{"127.0.0.1:1"}
			c.ReplicationPort = port(t, taken.Addr().String())
		}, "address already in use"},
		{"the local socket cannot be made", func(t *testing.T, c *config.Config) {
			c.EnableUnixSocket = true
			check.Must(t, os.Mkdir(filepath.Join(c.Db, node.SocketFile), 0o700))
		}, "is no socket"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o, leaks := options(t.TempDir()), goleak.IgnoreCurrent()
			files := vfs.NewCounting(vfs.OS)
			address := freeAddress(t)
			o.FS, o.Config.Insecure, o.Config.NodePort, o.Config.BackupTo = files, true, port(t, address), t.TempDir()
			c.set(t, o.Config)
			n, err := node.Open(context.Background(), o)
			if err == nil {
				t.Fatal(n.Close())
			}
			check.Contains(t, err.Error(), c.want)
			check.NoError(t, goleak.Find(leaks))
			if open := files.OpenFiles(); len(open) > 0 {
				t.Errorf("open: %v", open)
			}
			again := options(o.Config.Db)
			again.Config.NodePort, again.Config.Insecure = o.Config.NodePort, true
			for _, f := range []string{"redactions", node.SocketFile} {
				check.Must(t, os.RemoveAll(filepath.Join(o.Config.Db, f)))
			}
			check.NoError(t, open(t, again).Close())
		})
	}
}

// TestRecoverListensNowhere: it works on the files of a node that is not running, on whatever
// machine they are.
func TestRecoverListensNowhere(t *testing.T) {
	taken := check.Value(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	defer func() { _ = taken.Close() }()
	o := options(t.TempDir())
	o.Config.ClusterSize, o.Config.Insecure, o.Config.NodePort = 3, true, port(t, taken.Addr().String())
	check.Says(t, node.Recover(o), "holds no event log")
}
