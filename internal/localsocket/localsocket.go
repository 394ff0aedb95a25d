// Package localsocket listens on a socket in the file system that is open to this process's user
// and root alone.
package localsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/logkey"
)

// MaxPath is what an address of a local socket has room for on Linux.
const MaxPath = 107

// Listen listens at the path. A socket that is there is taken for that of a process
// that is gone, and removed. It fails when anything else is there.
func Listen(path string, logger hclog.Logger) (net.Listener, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("listen at %s: what is there is no socket, move it away", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return ownPeers{l, logger}, nil
}

// UID is the user id of the process at the other end of a connection, -1 when the system does not
// tell.
func UID(c net.Conn) int {
	if u, ok := c.(*net.UnixConn); ok {
		return peerUID(u)
	}
	return -1
}

// ownPeers refuses who is neither this process's user nor root: between the making of
// the socket and the change of its mode it is as open as the folder.
type ownPeers struct {
	net.Listener
	logger hclog.Logger
}

func (l ownPeers) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		uid := UID(c)
		if uid <= 0 || uid == os.Geteuid() {
			return c, nil
		}
		l.logger.Warn("a connection to the local socket is refused", "uid", uid)
		if err := c.Close(); err != nil {
			l.logger.Debug("close a refused connection", logkey.Error, err)
		}
	}
}
