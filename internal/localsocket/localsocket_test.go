package localsocket_test

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/localsocket"
)

// TestListen: the socket replaces a leftover one, and other users may not open it.
func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	left := check.Value(net.Listen("unix", path)).Must(t)
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	check.Must(t, left.Close())
	l := check.Value(localsocket.Listen(path, hclog.NewNullLogger())).Must(t)
	defer func() { _ = l.Close() }()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	dialled := check.Value(net.Dial("unix", path)).Must(t)
	defer func() { _ = dialled.Close() }()
	c := check.Value(l.Accept()).Must(t)
	defer func() { _ = c.Close() }()
	if uid := localsocket.UID(c); runtime.GOOS == "linux" && uid != os.Geteuid() {
		t.Errorf("the peer is user %d", uid)
	}
	check.Equal(t, localsocket.UID(nil), -1, "no peer is user")
}

// TestListenRefuses: a file that is not a socket stays.
func TestListenRefuses(t *testing.T) {
	cases := []struct {
		name string
		make func(path string) error
	}{
		{"a file", func(path string) error { return os.WriteFile(path, []byte("data"), 0o600) }},
		{"a folder", func(path string) error { return os.Mkdir(path, 0o700) }},
		{"a link", func(path string) error { return os.Symlink("elsewhere", path) }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "socket")
			check.Must(t, c.make(path))
			before, err := os.Lstat(path)
			check.Must(t, err)
			l, err := localsocket.Listen(path, hclog.NewNullLogger())
			if err == nil {
				t.Fatal(l.Close())
			}
			check.Equal(t, err.Error(), "listen at "+path+": what is there is no socket, move it away")
			if after, err := os.Lstat(path); err != nil || after.Mode() != before.Mode() || after.Size() != before.Size() {
				t.Errorf("%v, %v", after, err)
			}
		})
	}
}
