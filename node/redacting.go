package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/redact"
	httpapi "github.com/annalsdb/annals/http"
)

// SocketFile is the name of the local socket in the data folder.
const SocketFile = "eventstore.sock"

// maxSocketPath is what an address of a local socket has room for on Linux.
const maxSocketPath = 107

// redacting is what blanks data on this node.
type redacting struct {
	ledger  *redact.Ledger
	service *redact.Service
	socket  *http.Server // nil: not offered
	path    string
	owned   sync.WaitGroup
}

func newRedacting(n *Node) (*redacting, error) {
	c := n.config
	ledger, err := redact.OpenLedger(n.opts.FS, c.Db)
	if err != nil {
		return nil, fmt.Errorf("open node: %w", err)
	}
	r := &redacting{ledger: ledger}
	r.service = redact.New(redact.Options{
		Log: n.store.Log, FS: n.opts.FS, Dir: c.Db, InMemory: c.MemDb, Ledger: ledger, Lock: &n.chunks,
		EndBackups: func() func() {
			_, resume := n.backups.Suspend(backup.EndedByRedaction)
			return resume
		},
		Forget: n.groups.Forget, Erase: n.cluster.EraseLog, Write: n.store.WriteOwn, Endpoint: n.endpoint,
		DiskReserve: n.opts.DiskReserve, Now: n.opts.Now, Logger: n.logger.Named("redact"),
	})
	return r, nil
}

// listen offers the local socket. Whoever may open it is the system: its owner and root.
func (r *redacting) listen(n *Node) error {
	path := filepath.Join(n.config.Db, SocketFile)
	if len(path) > maxSocketPath {
		return fmt.Errorf("option EnableUnixSocket: the path %s is longer than %d bytes, which no socket can have: choose a shorter Db", path, maxSocketPath)
	}
	// The lock of the folder is held: one that is there is of a process that is gone.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("option EnableUnixSocket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("option EnableUnixSocket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(fmt.Errorf("option EnableUnixSocket: %w", err), l.Close())
	}
	r.path = path
	r.socket = &http.Server{
		Handler:           httpapi.RedactionSocket(r.service, func(q *http.Request) string { return "uid " + strconv.Itoa(peerOf(q.Context())) }),
		ReadHeaderTimeout: headerTimeout,
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, peerKey{}, c) },
	}
	r.owned.Go(func() {
		if err := r.socket.Serve(ownPeers{l, n}); !errors.Is(err, http.ErrServerClosed) {
			n.logger.Error("the local socket is no longer served", "file", path, "error", err)
		}
	})
	return nil
}

// close ends sessions of tools, and what goes on in the background.
func (r *redacting) close() (err error) {
	if r.socket != nil {
		err = r.socket.Close()
		r.owned.Wait()
		if e := os.Remove(r.path); !errors.Is(e, fs.ErrNotExist) { // The listener removes it as well.
			err = errors.Join(err, e)
		}
	}
	r.service.Close()
	return err
}

type peerKey struct{}

// peerOf is the user id of the process at the other end of a connection, -1 when the system does not tell.
func peerOf(ctx context.Context) int {
	if c, ok := ctx.Value(peerKey{}).(*net.UnixConn); ok {
		return peerUID(c)
	}
	return -1
}

// ownPeers refuses who is neither this process's user nor root: between the making of
// the socket and the change of its mode it is as open as the folder.
type ownPeers struct {
	net.Listener
	n *Node
}

func (l ownPeers) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		u, ok := c.(*net.UnixConn)
		if !ok {
			return c, nil
		}
		if uid := peerUID(u); uid > 0 && uid != os.Geteuid() {
			l.n.logger.Warn("a connection to the local socket is refused", "uid", uid)
			if err := c.Close(); err != nil {
				l.n.logger.Debug("close a refused connection", "error", err)
			}
			continue
		}
		return c, nil
	}
}
