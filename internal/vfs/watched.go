package vfs

import (
	"strings"

	"github.com/annalsdb/annals/internal/hang"
)

// slow is how many times as long as a write a sync may take, and everything done to a temporary
// file. The files of the log and the index are synced and made in large parts, and clients do not
// wait for them: the kernel slows down a process that writes much.
const slow = 10

// NewWatched returns a file system that notes with watch which of its operations are running, if
// they change something or make a change durable. It does not watch reads: most are of mapped
// memory, which cannot be watched.
func NewWatched(inner FS, watch *hang.Watch) FS {
	return &hooked{inner: inner, readsPass: true, hook: func(c *call, do func() error) error {
		doing := string(c.Kind)
		switch c.Kind {
		case OpCreate, OpCreatePrivate, OpRemove, OpRename:
		case OpOpenReadWrite:
			doing = "open"
		case OpWrite, OpTruncate:
			doing = "write"
		case OpSync, OpSyncDir:
			doing = "sync"
		default:
			return do()
		}
		times := 0
		if doing == "sync" || strings.HasSuffix(c.Name, TempSuffix) {
			times = slow
		}
		defer watch.End(watch.Begin(&hang.Op{Doing: doing, File: c.Name, Slow: times}))
		return do()
	}}
}
