package node

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/node/serve"
	"github.com/annalsdb/annals/replication/peersecret"
)

// TestSecretOfANode: there is one exactly where any process of the machine could say that it is a
// node, in the data folder if there is one, and it stays over a restart.
func TestSecretOfANode(t *testing.T) {
	set, err := certs.Temporary()
	check.Must(t, err)
	cases := []struct {
		name         string
		change       func(o *Options)
		secret, kept bool
	}{
		{"member on loopback", func(*Options) {}, true, true},
		{"member behind a proxy that does TLS", func(o *Options) { o.Config.DisableHttps = true }, true, true},
		{"member in memory", func(o *Options) { o.Config.MemDb = true }, true, false},
		{"on its own", func(o *Options) { o.Config.ClusterSize = 1 }, false, false},
		{"with certificates", func(o *Options) { o.Certificates = set }, false, false},
		{"insecure", func(o *Options) { o.Config.Insecure = true }, false, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			dir := filepath.Join(t.TempDir(), "data")
			open := func() *Node {
				o := Options{Config: config.Default()}
				o.Config.ClusterSize, o.Config.Db = 3, dir
				c.change(&o)
				n := newNode(o)
				if n.http, err = serve.Listen(t.Context(), n.network, "127.0.0.1:0", &n.traffic, n.logger); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { check.NoError(t, n.http.Close()) })
				n.security = check.Value(certificatesOf(n).open()).Must(t)
				check.Must(t, n.openSecret())
				return n
			}
			first, second := open(), open()
			if got := first.secret.Secret != nil; got != c.secret || got != (first.clusterOptions().Secret != nil) {
				t.Fatalf("it has a secret: %t", got)
			}
			_, err := os.Stat(filepath.Join(dir, peersecret.FileName))
			if kept := err == nil; kept != c.kept || kept && first.secret.ID() != second.secret.ID() {
				t.Errorf("it is in the data folder: %t, and another one after a restart", kept)
			}
			for _, n := range []*Node{first, second} {
				check.NoError(t, n.secret.close())
			}
			if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
				t.Errorf("left is %v, %v", left, err)
			}
		})
	}
}

// TestSecretThatWasRead: one that others could read is replaced, and that is said.
func TestSecretThatWasRead(t *testing.T) {
	var lines bytes.Buffer
	o := Options{Config: config.Default(), Logger: hclog.New(&hclog.LoggerOptions{Output: &lines})}
	o.Config.ClusterSize, o.Config.Db = 3, t.TempDir()
	before, _, err := peersecret.Settle(vfs.OS, o.Config.Db)
	check.Must(t, err)
	check.Must(t, os.Chmod(before.File(), 0o644))
	n := newNode(o)
	n.http = new(serve.Server)
	if err := n.openSecret(); err != nil || n.secret.ID() == before.ID() {
		t.Fatalf("it stayed, %v", err)
	}
	if got := lines.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "[WARN]") || !strings.Contains(got, "can be read by others") {
		t.Errorf("said %s", got)
	}
}
