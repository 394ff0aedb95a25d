package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/redact"
	"github.com/annalsdb/annals/http/admin"
	"github.com/annalsdb/annals/internal/localsocket"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/node/serve"
)

// SocketFile is the name of the local socket in the data folder.
const SocketFile = "eventstore.sock"

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
		Forget: n.groups.Forget, Erase: n.cluster.EraseLog, Records: n.store, Endpoint: n.endpoint,
		DiskReserve: n.opts.DiskReserve, Now: n.opts.Now, Logger: n.logger.Named("redact"),
	})
	return r, nil
}

// listen offers the local socket. Its callers are the system: only this user and root can open it.
func (r *redacting) listen(n *Node) error {
	path := filepath.Join(n.config.Db, SocketFile)
	if len(path) > localsocket.MaxPath {
		return fmt.Errorf("option EnableUnixSocket: the path %s is longer than %d bytes, which no socket can have: choose a shorter Db", path, localsocket.MaxPath)
	}
	// The lock of the folder is held: a socket that is there is of a process that is gone.
	l, err := localsocket.Listen(path, n.logger)
	if err != nil {
		return fmt.Errorf("option EnableUnixSocket: %w", err)
	}
	r.path = path
	r.socket = &http.Server{
		Handler:           admin.RedactionSocket(r.service, func(q *http.Request) string { return "uid " + strconv.Itoa(peerOf(q.Context())) }),
		ReadHeaderTimeout: serve.HeaderTimeout,
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, peerKey{}, c) },
	}
	r.owned.Go(func() {
		if err := r.socket.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			n.logger.Error("the local socket is no longer served", logkey.File, path, logkey.Error, err)
		}
	})
	return nil
}

// close ends sessions of tools, and the work in the background.
func (r *redacting) close() (err error) {
	if r.socket != nil {
		err = r.socket.Close()
		r.owned.Wait()
		// The listener removes it as well.
		err = errors.Join(err, vfs.RemoveIfThere(vfs.OS, r.path))
	}
	r.service.Close()
	return err
}

type peerKey struct{}

// peerOf is the user id of the process at the other end of a connection, -1 when the system does
// not tell.
func peerOf(ctx context.Context) int {
	c, _ := ctx.Value(peerKey{}).(net.Conn)
	return localsocket.UID(c)
}
