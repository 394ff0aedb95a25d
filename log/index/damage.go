package index

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
)

// damage knows whether a table was found not to be what was written.
type damage struct {
	fsys   vfs.FS // nil: nothing is to be changed
	logger hclog.Logger
	told   func() // when damage becomes known
	first  atomic.Pointer[error]
}

// Damage returns what of the tables is not what was written, nil while all is well as far as is
// known. Reads that need it fail, and so do merges and scavenges, until Rebuild. An Open before
// that finds an empty index.
func (d *damage) Damage() error {
	if err := d.first.Load(); err != nil {
		return *err
	}
	return nil
}

// ofTable takes note of a damaged table.
func (d *damage) ofTable(err error) {
	if d.first.CompareAndSwap(nil, &err) {
		d.logger.Error("the index is damaged and will be built again from the log", logkey.Error, err)
		d.forget(err)
		d.told()
	}
}

// ofFilter takes note of a damaged filter, once for each.
func (d *damage) ofFilter(err error) {
	d.logger.Warn("bloom filter of an index table is damaged, the next start rebuilds it", logkey.Reason, err)
	d.forget(err)
}

// forget removes the damaged file, so that the next Open notices. Open readers keep it.
func (d *damage) forget(err error) {
	c, _ := errors.AsType[*event.Corruption](err)
	if d.fsys == nil {
		return
	}
	if err := vfs.RemoveIfThere(d.fsys, c.File); err != nil {
		d.logger.Warn("remove damaged index file", logkey.Error, err)
	}
}

// trustChecksFor is how long lookups trust a block that was compared with its checksum. Lookups
// that have to be certain compare again.
const trustChecksFor = 10 * time.Second

// expireChecks makes readers compare blocks with their checksums again now and then, until the
// index is closed.
func expireChecks(x *Index) {
	defer x.wg.Done()
	tick := time.NewTicker(trustChecksFor)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			forgetChecks(x)
		case <-x.ctx.Done():
			return
		}
	}
}

func forgetChecks(x *Index) {
	s := x.acquire()
	if s == nil {
		return
	}
	defer s.release()
	for _, t := range s.tables {
		t.blocks.forget()
		if t.filter != nil {
			t.filter.pages.forget()
		}
	}
}

// Check compares all tables with their checksums, blocks that nothing has read yet among them. It
// calls pause with the bytes read before it reads on, whose error ends it. A damaged table is known
// by Damage afterwards, and no error.
func Check(x *Index, pause func(bytes int64) error) error {
	s := x.acquire()
	if s == nil {
		return event.ErrClosed
	}
	for _, t := range s.tables { // Not the state: it has memory that will be flushed.
		t.retain()
		defer t.release()
	}
	tables := s.tables
	s.release()
	for _, t := range tables {
		in := newScanner(t)
		for in.next() {
			if len(in.rest) > 0 {
				continue
			}
			if err := pause(in.piece); err != nil {
				return err
			}
		}
		if event.IsCorruption(in.err) {
			x.ofTable(in.err)
		} else if in.err != nil {
			return in.err
		}
	}
	return nil
}

// Faulted names the file in whose mapping lies an address that the system could not deliver, and
// takes note of the damage. It is nil if it is not the index's.
func Faulted(x *Index, address uintptr, detail string) error {
	s := x.acquire()
	if s == nil {
		return nil
	}
	defer s.release()
	for _, t := range s.tables {
		if at, ok := t.source.place(address); ok {
			err := corrupt(t.path, at, "%s", detail)
			x.ofTable(err)
			return err
		}
		if t.filter == nil || t.filter.source == nil {
			continue
		}
		if at, ok := t.filter.source.place(address); ok {
			err := corrupt(t.filter.name, at, "%s", detail)
			x.ofFilter(err)
			return err
		}
	}
	return nil
}
