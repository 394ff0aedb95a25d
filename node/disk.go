package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/throttle"
	"github.com/annalsdb/annals/internal/vfs"
)

// diskGuard refuses writes while a volume that the node writes to is nearly full, so that the node
// never finds out by a failed write, which would end it. Reads continue. Below half of the reserve
// a node takes no more entries from a leader either, and lags until there is space again.
type diskGuard struct {
	fs      vfs.FS
	dirs    []string // one on each volume, or several
	reserve int64
	logger  hclog.Logger
	refuse  func(reason error) // writes of clients; nil: accept again
	full    func(reason error) // what other nodes send; nil: accept again
	release func() bool        // lets go of files that are kept for others; false: there were none
}

func newDiskGuard(n *Node) *diskGuard {
	return &diskGuard{
		fs: n.fs, dirs: []string{n.config.Db, n.config.Index}, reserve: n.opts.DiskReserve, logger: n.logger.Named("disk"),
		refuse: n.cluster.SetReadOnly, release: n.endBackups,
		full: func(reason error) {
			n.diskFull.Store(&reason)
			n.cluster.SetFull(reason != nil)
		},
	}
}

// full says why this node takes no entries from a leader, nil while it takes them. A leader does
// not take entries from any other node.
func (p part) full() error {
	if reason := p.n.diskFull.Load(); reason != nil && !p.Leading() {
		return *reason
	}
	return nil
}

const (
	diskCheckNear = 100 * time.Millisecond // with less than diskNear free above the reserve
	diskCheckFar  = time.Second
	diskNear      = 2 << 30
	// diskFullEvery is how often a node says that it takes no entries.
	diskFullEvery = time.Minute
)

func (g *diskGuard) run(ctx context.Context) {
	refusing := false
	full := throttle.Lines[string]{Every: diskFullEvery} // by folder
	for next := time.Duration(0); clock.Sleep(ctx, next) == nil; {
		dir, free, err := g.least()
		if err == nil && !refusing && free < g.reserve && g.release() {
			dir, free, err = g.least()
		}
		switch {
		case err != nil:
			g.logger.Warn("free space cannot be read", logkey.Error, err)
		case !refusing && free < g.reserve:
			refusing = true
			g.logger.Error("the disk is nearly full: writes are refused", logkey.Folder, dir, "free", free, "reserve", g.reserve)
			g.refuse(fmt.Errorf("%w: %d bytes free for %s, %d are kept in reserve", event.ErrDiskFull, free, dir, g.reserve))
		case refusing && free > g.reserve+g.reserve/4:
			refusing = false
			g.logger.Info("the disk has space again: writes are accepted", "free", free)
			g.refuse(nil)
		}
		switch {
		case err != nil:
		case free >= g.reserve/2:
			g.full(nil)
		default:
			g.full(fmt.Errorf("the disk of this node is full and it takes no entries from the leader: %d bytes are free for %s, half of the reserve of %d is needed",
				free, dir, g.reserve))
			if _, due := full.Due(dir); due {
				g.logger.Error("the disk is full: this node takes no entries from the leader and lags behind until there is space again",
					logkey.Folder, dir, "free", free, "reserve", g.reserve)
			}
		}
		next = diskCheckFar
		if free-g.reserve < diskNear {
			next = diskCheckNear
		}
	}
}

// least returns the folder with the least free space. A folder that is not made yet does not count.
func (g *diskGuard) least() (dir string, free int64, err error) {
	free = math.MaxInt64
	for _, one := range g.dirs {
		bytes, err := g.fs.Free(one)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", 0, err
		}
		if bytes < free {
			dir, free = one, bytes
		}
	}
	return dir, free, nil
}
