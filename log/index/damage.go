package index

import (
	"errors"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
)

// damage knows whether a table was found not to be what was written.
type damage struct {
	fsys   vfs.FS // nil: nothing is to be changed
	logger hclog.Logger
	first  atomic.Pointer[error]
}

// Damage returns what of the tables is not what was written, nil while all is well as far as is known. Reads
// that need it fail, and so do merges and scavenges. The next Open finds an empty index.
func (d *damage) Damage() error {
	if err := d.first.Load(); err != nil {
		return *err
	}
	return nil
}

// ofTable takes note of a damaged table.
func (d *damage) ofTable(err error) {
	if d.first.CompareAndSwap(nil, &err) {
		d.logger.Error("the index is damaged, the next start builds it again from the log", logkey.Error, err)
		d.forget(err)
	}
}

// ofFilter takes note of a damaged filter, once for each.
func (d *damage) ofFilter(err error) {
	d.logger.Warn("bloom filter of an index table is damaged, the next start makes it anew", logkey.Reason, err)
	d.forget(err)
}

// forget removes the damaged file, so that the next Open notices. Whoever has it open goes on reading it.
func (d *damage) forget(err error) {
	c, _ := errors.AsType[*event.Corruption](err)
	if d.fsys == nil {
		return
	}
	if err := vfs.RemoveIfThere(d.fsys, c.File); err != nil {
		d.logger.Warn("remove damaged index file", logkey.Error, err)
	}
}
