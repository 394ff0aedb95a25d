package node

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/throttle"
	"github.com/annalsdb/annals/internal/vfs"
)

// Descriptors are shared by files and connections. Those of clients are bounded, so that files
// and other nodes find some; where they run out all the same a file that must be
// opened waits, and connections of clients make room for it.
const (
	filesReserve = 512
	// connections, where the operator says nothing; each takes about 12 KiB
	mostOfItself       = 16384
	logStarvationEvery = time.Minute
)

// maxConnections is the bound on connections of clients: the operator's value, or the rest of the
// process's limit.
func maxConnections(option int) int {
	var limit unix.Rlimit
	if option > 0 {
		return option
	}
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return mostOfItself
	}
	return ofLimit(limit.Cur)
}

func ofLimit(limit uint64) int {
	return int(min(mostOfItself, max(1, limit-min(filesReserve, limit/2))))
}

// starved counts how often files could not be opened because too many are open.
type starved struct {
	times atomic.Uint64
	lines throttle.Lines[struct{}]
}

// openFilesPatiently makes the node's file system wait for descriptors, and watches it for the log
// and the index. What waits for a descriptor is watched as what waits for a
// disk: a leader that cannot work hands over. Replication watches its own operations.
func (n *Node) openFilesPatiently() {
	n.starved.lines.Every = logStarvationEvery
	p := vfs.Patience{Context: n.running, Waiting: n.starve}
	n.files = vfs.NewPatient(n.opts.FS, p)
	n.opts.FS = vfs.NewWatched(n.files, n.disk)
	n.opts.Stats.CounterFunc("annals_open_files_exhausted_total", "Times a file could not be opened because too many were open. It was tried again.",
		func() float64 { return float64(n.starved.times.Load()) })
}

// starve is called for each try to open a file that found no free descriptor.
func (n *Node) starve(err error) {
	n.starved.times.Add(1)
	n.traffic.GiveWay()
	if skipped, due := n.starved.lines.Due(struct{}{}); due {
		n.logger.Warn("too many open files: waiting for a free descriptor, raise the limit (LimitNOFILE, ulimit -n)", logkey.Error, err, "times", skipped+1)
	}
}
