package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

// listen is the socket of a supervisor. heard waits for the next message of it.
func listen(t *testing.T) (address string, heard func() string) {
	t.Helper()
	address = filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { check.NoError(t, socket.Close()) })
	return address, func() string {
		t.Helper()
		b := make([]byte, 4096)
		check.Must(t, socket.SetReadDeadline(time.Now().Add(time.Minute)))
		n := check.Value(socket.Read(b)).Must(t)
		return strings.ReplaceAll(string(b[:n]), "\n", " ")
	}
}

func TestSupervisorHears(t *testing.T) {
	address, heard := listen(t)
	n := newFakeNode()
	n.unready = "there is no leader"
	w := newWorld(n)
	w.environ = []string{"NOTIFY_SOCKET=" + address, "WATCHDOG_USEC=3000", fmt.Sprint("WATCHDOG_PID=", os.Getpid())}
	result := w.start("--mem-db")
	for _, want := range []string{
		"STATUS=starting",
		fmt.Sprint("READY=1 STATUS=serves on http://127.0.0.1:4711 MAINPID=", os.Getpid()),
		"WATCHDOG=1 STATUS=serves on http://127.0.0.1:4711, not ready: there is no leader",
		"WATCHDOG=1 STATUS=serves on http://127.0.0.1:4711, not ready: there is no leader",
	} {
		check.MustEqual(t, heard(), want)
	}
	w.signals <- syscall.SIGTERM
	check.Must(t, <-result)
	for got := "WATCHDOG=1"; got != "STOPPING=1 STATUS=stopping"; got = heard() {
		if !strings.HasPrefix(got, "WATCHDOG=1") {
			t.Fatalf("got %q", got)
		}
	}
}

func TestSupervisorThatDoesNotWatch(t *testing.T) {
	address, heard := listen(t)
	for _, c := range []struct {
		environ []string
		silent  time.Duration
		none    bool
	}{
		{nil, 0, true},
		{[]string{"NOTIFY_SOCKET="}, 0, true},
		{[]string{"NOTIFY_SOCKET=" + address}, 0, false},
		{[]string{"NOTIFY_SOCKET=" + address, "WATCHDOG_USEC=2000000"}, 2 * time.Second, false},
		{[]string{"NOTIFY_SOCKET=" + address, "WATCHDOG_USEC=2000000", "WATCHDOG_PID=1"}, 0, false},
		{[]string{"NOTIFY_SOCKET=" + address, "WATCHDOG_USEC=x"}, 0, false},
	} {
		s, err := findSupervisor(c.environ)
		if err != nil || (s == nil) != c.none || s != nil && s.silent != c.silent {
			t.Errorf("%v: %+v, %v", c.environ, s, err)
		}
		end := s.serving("u", func() string { t.Error("asked"); return "" })
		if !c.none {
			if got := heard(); !strings.HasPrefix(got, "READY=1 ") {
				t.Errorf("got %q", got)
			}
		}
		end()
		s.close()
	}
	if _, err := findSupervisor([]string{"NOTIFY_SOCKET=/not/there"}); err == nil {
		t.Error("a socket that is not there is no error")
	}
}

// TestMisconfigured: a node that another start would not help says so to systemd, and to others
// what EventStoreDB says.
func TestMisconfigured(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name string
		args []string
		code int // under systemd
	}{
		{"unknown option", []string{"--no-such-option"}, exitMisconfigured},
		{"wrong value", []string{"--node-port", "many"}, exitMisconfigured},
		{"configuration file", []string{"--config", filepath.Join(dir, "none.conf")}, 1},
		{"schedule", []string{"--scavenge-schedule", "never"}, exitMisconfigured},
		{"certificate", []string{"--certificate-file", filepath.Join(dir, "none.crt"), "--certificate-private-key-file", filepath.Join(dir, "none.key")}, 1},
		{"data folder", []string{"--db", "/proc/annals"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			address, _ := listen(t)
			for socket, want := range map[string]int{"": 1, address: c.code} {
				t.Setenv("NOTIFY_SOCKET", socket)
				var out, complaints lockedBuffer
				args := append([]string{"node", "--db", filepath.Join(dir, "db"), "--node-port", "0"}, c.args...)
				if code := run(args, &out, &complaints, runNode); code != want || complaints.String() == "" {
					t.Errorf("NOTIFY_SOCKET=%s: exit code %d, want %d\n%s", socket, code, want, complaints.String())
				}
			}
		})
	}
}
