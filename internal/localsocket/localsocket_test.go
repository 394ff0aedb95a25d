package localsocket_test

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/localsocket"
)

// TestListen: the socket takes the place of one that was left behind, and nobody else may open it.
func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := localsocket.Listen(path, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	dialled, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dialled.Close() }()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if uid := localsocket.UID(c); runtime.GOOS == "linux" && uid != os.Geteuid() {
		t.Errorf("the peer is user %d", uid)
	}
	if uid := localsocket.UID(nil); uid != -1 {
		t.Errorf("no peer is user %d", uid)
	}
}
