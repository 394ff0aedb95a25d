package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/node"
)

// TestStartUpFailures: what keeps a node from starting is a line on standard error
// for each thing that is wrong, and the exit code is 1. The log has nothing to add.
func TestStartUpFailures(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	check.Must(t, err)
	t.Cleanup(func() { check.NoError(t, busy.Close()) })
	_, busyPort, err := net.SplitHostPort(busy.Addr().String())
	check.Must(t, err)
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		check.Must(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	inUse := filepath.Join(dir, "in-use")
	openNode(t, inUse, false)

	cases := []struct {
		name string
		args []string
		want []string // all within the first line
		also string   // in the second line, if there is one
	}{
		{"port in use", []string{"--node-port", busyPort}, []string{"127.0.0.1:" + busyPort, "address already in use: is a node running there already? --node-port chooses another port"}, ""},
		{"data folder within a file", []string{"--db", filepath.Join(file("flat", ""), "db")}, []string{"flat", "not a directory"}, ""},
		{"data folder that cannot be made", []string{"--db", "/proc/annals"}, []string{"/proc/annals"}, ""},
		{"data folder of another node", []string{"--db", inUse}, []string{"in-use", "another process"}, ""},
		{"log folder within a file", []string{"--log", filepath.Join(file("flat2", ""), "log")}, []string{"log file", "flat2", "not a directory"}, ""},
		{"not YAML", []string{"--config", file("broken.yaml", "Db: [x\nNodePort: {")}, []string{"configuration file", "broken.yaml", "line "}, ""},
		{"unknown option in the file", []string{"--config", file("unknown.yaml", "NodePrt: 5")}, []string{"NodePrt", "NodePort"}, ""},
		{"unreadable file", []string{"--config", dir}, []string{"configuration file", "is a directory"}, ""},
		{"missing file", []string{"--config", filepath.Join(dir, "none.yaml")}, []string{"configuration file", "none.yaml", "no such file"}, ""},
		{"unknown option", []string{"--clutser-size", "3"}, []string{"clutser-size", "--cluster-size"}, ""},
		{"bad value", []string{"--node-port", "many"}, []string{"node-port", "many"}, ""},
		{"bad schedule", []string{"--scavenge-schedule", "61 * * * *"}, []string{"ScavengeSchedule", "61 * * * *"}, ""},
		{"bad schedule of backups", []string{"--backup-to", "/backups", "--backup-schedule", "61 * * * *"}, []string{"BackupSchedule", "61 * * * *"}, ""},
		{"missing certificate", []string{"--certificate-file", filepath.Join(dir, "none.crt"), "--certificate-private-key-file", filepath.Join(dir, "none.key")},
			[]string{"none.crt", "no such file"}, "none.key"},
		{"address of another machine", []string{"--node-ip", "192.0.2.1", "--disable-https"}, []string{"192.0.2.1"}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			stdout, stderr := &lockedBuffer{}, &lockedBuffer{}
			args := append([]string{"node", "--db", filepath.Join(t.TempDir(), "db"), "--node-port", "0"}, c.args...)
			code := run(args, stdout, stderr, runNode)
			line, rest, whole := strings.Cut(stderr.String(), "\n")
			further := 0
			if c.also != "" {
				further = 1
			}
			if code != 1 || stdout.String() != "" || !whole || !strings.HasPrefix(line, "annals: ") ||
				strings.Count(rest, "\n") != further || !strings.Contains(rest, c.also) {
				t.Fatalf("exit code %d\n--- standard output ---\n%s--- standard error ---\n%s", code, stdout, stderr)
			}
			for _, want := range c.want {
				check.Contains(t, line, want, "is missing in")
			}
		})
	}
}

// openNode runs a node of its own in a folder until the test ends, and returns its address.
func openNode(t *testing.T, dir string, insecure bool) string {
	t.Helper()
	c := config.Default()
	c.Db, c.Index, c.NodePort, c.Insecure = dir, filepath.Join(dir, "index"), 0, insecure
	n := check.Value(node.Open(t.Context(), node.Options{Config: c, PasswordIterations: 1})).Must(t)
	t.Cleanup(func() { check.NoError(t, n.Close()) })
	return n.URL()
}
