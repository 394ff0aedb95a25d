package integration_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestStartRefused: a node that cannot start says why and what to do, in one line, with exit code
// 1. The tests of the command have further reasons.
func TestStartRefused(t *testing.T) {
	cases := []struct {
		name string
		// prepare may fill the data folder, and returns options.
		prepare func(t *testing.T, dir string) []string
		want    []string // all within the line
	}{
		{"cluster whose nodes cannot find each other", options("--cluster-size=3", "--discover-via-dns=false"), []string{"GossipSeed", "ClusterDns"}},
		{"cluster in the open", options("--cluster-size=3", "--gossip-seed=10.0.0.2:1114", "--discover-via-dns=false", "--replication-ip=10.0.0.1"),
			[]string{"10.0.0.1", "annals certs", "Insecure"}},
		{"every address without TLS", options("--node-ip=0.0.0.0"), []string{"0.0.0.0", "DisableHttps", "Insecure"}},
		{"newer format", func(t *testing.T, dir string) []string {
			filled(t, dir, nil)
			writeText(t, dir, "annals.format", `{"format":2,"directoryId":"7dc53df5-703e-49b3-8670-b1c468f47f1f"}`)
			return nil
		}, []string{"format version 2", "newer than 1"}},
		{"damaged chunk", func(t *testing.T, dir string) []string {
			filled(t, dir, nil)
			flipByte(t, filepath.Join(dir, "chunk-000000.000000"), 700)
			return nil
		}, []string{"chunk-000000.000000", "corruption", "durable"}},
		{"chunk cut off", func(t *testing.T, dir string) []string {
			filled(t, dir, nil)
			truncateFile(t, filepath.Join(dir, "chunk-000000.000000"), 1000)
			return nil
		}, []string{"durable"}},
		{"missing chunk", func(t *testing.T, dir string) []string {
			filled(t, dir, nil)
			remove(t, filepath.Join(dir, "chunk-000000.000000"))
			return nil
		}, []string{"durable"}},
		{"consensus state of another folder", func(t *testing.T, dir string) []string {
			filled(t, dir, nil)
			other := t.TempDir()
			filled(t, other, nil)
			remove(t, filepath.Join(dir, "raft"))
			copyTree(t, filepath.Join(other, "raft"), filepath.Join(dir, "raft"))
			return nil
		}, []string{"belongs to", "move ", "raft away"}},
		{"consensus state without its identity", func(t *testing.T, dir string) []string {
			filled(t, dir, nil)
			remove(t, filepath.Join(dir, "raft", "identity"))
			return nil
		}, []string{"identity is missing", "raft away"}},
		{"Raft log of a development version", func(t *testing.T, dir string) []string {
			filled(t, dir, nil)
			makeFolder(t, filepath.Join(dir, "raft", "wal"))
			return nil
		}, []string{"raft/wal", "development version", "RaftLogStore=BoltDB"}},
		{"Raft log of a development version, of a node of a cluster", func(t *testing.T, dir string) []string {
			filled(t, dir, nil)
			makeFolder(t, filepath.Join(dir, "raft", "wal"))
			return []string{"--cluster-size=3", "--gossip-seed=127.0.0.1:1,127.0.0.1:2", "--discover-via-dns=false"}
		}, []string{"raft/wal", "development version", "RaftLogStore=BoltDB"}},
		{"consensus state copied with its folder", func(t *testing.T, dir string) []string {
			other := t.TempDir()
			filled(t, other, nil)
			copyTree(t, other, dir)
			// A copy is another folder only when it is given its own id, as a restored one is.
			remove(t, filepath.Join(dir, "annals.format"))
			return nil
		}, []string{"belongs to data directory", "raft away"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			more := c.prepare(t, dir)
			args := append([]string{"node", "--db", dir, "--node-port", "0"}, more...)
			begun := time.Now()
			p, code := testkit.Run(t, testkit.Command{Args: args, Quiet: true})
			if code != 1 {
				t.Errorf("exit code %d after %s", code, time.Since(begun))
			}
			check.Equal(t, p.Stdout(), "", "standard output holds")
			lines := complaints(p)
			if len(lines) != 1 {
				t.Fatalf("%d lines tell why, want one:\n%s", len(lines), p.Stderr())
			}
			for _, want := range c.want {
				check.Contains(t, lines[0], want, "is missing in")
			}
			if strings.Contains(p.Stderr(), "goroutine ") {
				t.Errorf("a stack was printed:\n%s", p.Stderr())
			}
		})
	}
}

func options(args ...string) func(*testing.T, string) []string {
	return func(*testing.T, string) []string { return args }
}
