package postings

import (
	"context"
	"errors"
	"hash/maphash"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
	"github.com/annalsdb/annals/log/names"
)

const (
	namesFolder = "names" // in the folder of the postings
	// what waits in memory for the list: names and their bytes
	maxPending, maxPendingBytes = 16 << 10, 2 << 20
	// bytes of log until the list learns of them although nothing waits for it
	settleEvery = 64 << 20
	// what the list keeps in memory before it goes to a file
	namesInMemory, nameBytesInMemory = 32 << 10, 4 << 20
	// namesSeen is of how many names it is remembered that they are there, by a hash of their own.
	namesSeen = 1 << 15
	// namesLook bounds the names that one page looks at, those without events included.
	namesLook = 20_000
	// sweepSlice names are counted in one go, which takes milliseconds.
	sweepSlice = 1 << 8
	// maxGone bounds what is remembered of names without events until they are dropped.
	maxGone = 1 << 18
	// maxFound bounds the names that are looked through at once.
	maxFound = namesInMemory
	// maxChecked bounds the bytes of files that are compared with their checksums for that.
	maxChecked = 32 << 20
)

// dictionary has the names of all categories and types up to its mark. It may have names of which
// no event is left, until they are cleared away: the index has the counts.
//
// Lock order: listMu, then mu.
type dictionary struct {
	opt        names.Options
	generation atomic.Uint64 // counts how often names were cleared away, or came back
	// Names with the same hash of labels differ here: each of them is needed.
	seeds [label.Type + 1]maphash.Seed
	seen  [namesSeen]atomic.Uint64

	listMu sync.RWMutex // held while the list changes, across input and output
	// nil: it could not be opened, and there are no names until the next start. Then the mark is
	// after every log, so that nothing waits for a list.
	list     *names.List
	gone     map[uint64]struct{} // hashes of names without events that sweep has come to
	isClosed bool

	mu      sync.Mutex // guards what follows; held for moments
	mark    names.Mark // the list and pending have all before it
	pending []string
	bytes   int
	settled int64 // the list has all before it
}

func openDictionary(o *index.Options, logger hclog.Logger) *dictionary {
	seeds := [...]maphash.Seed{label.Category: maphash.MakeSeed(), label.Type: maphash.MakeSeed()}
	d := &dictionary{seeds: seeds, opt: names.Options{
		FS: o.FS, Dir: filepath.Join(o.Dir, namesFolder), Logger: o.Logger, Belongs: o.Belongs,
		BeforeFlush: func() error { o.BeforeFlush(); return nil },
		MaxFresh:    namesInMemory, MaxFreshBytes: nameBytesInMemory,
	}}
	if list, err := names.Open(d.opt); err != nil {
		logger.Error("the names of categories and types cannot be listed until the next start", logkey.Error, err)
		d.mark.Position = math.MaxInt64
	} else {
		d.list = list
		// Only at its fence can the log be read again from there.
		d.mark = list.Mark()
		d.mark.Position = d.mark.Fence
	}
	d.settled = d.mark.Position
	return d
}

// has reports whether the name of a label is known to be there.
func (d *dictionary) has(l label.Label) bool {
	hash := d.hash(l)
	return d.seen[hash%namesSeen].Load() == hash
}

// hash is never 0, which is nothing.
func (d *dictionary) hash(l label.Label) uint64 {
	return maphash.String(d.seeds[l.Kind], l.Key) | 1<<63
}

// end is where the dictionary has all names of.
func (d *dictionary) end() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mark.Position
}

// add takes the names of a batch whose entries are in the index. A batch that does not follow the
// mark, that asked before names were cleared away, or that does not fit is left out: it reports
// false then, and the log must be read again from the mark. One fits always when nothing waits: it
// is no larger than a frame.
func (d *dictionary) add(b *Batch, from, upTo int64, chain event.Chain) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if upTo <= d.mark.Position {
		return true
	}
	bytes := d.bytes
	for _, name := range b.names {
		bytes += len(name)
	}
	isFull := len(d.pending) > 0 && (len(d.pending)+len(b.names) > maxPending || bytes > maxPendingBytes)
	if from > d.mark.Position || b.since != d.generation.Load() || isFull {
		return false
	}
	d.pending, d.bytes = append(d.pending, b.names...), bytes
	for _, name := range b.names {
		hash := d.hash(labelOf(name))
		d.seen[hash%namesSeen].Store(hash)
	}
	d.mark = names.Mark{Position: upTo, Fence: upTo, Chain: chain}
	return true
}

// due reports whether it is time for settle.
func (d *dictionary) due() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.pending) > maxPending/2 || d.bytes > maxPendingBytes/2 || d.mark.Position-d.settled > settleEvery
}

// settle puts into the list what waits for it.
func (d *dictionary) settle() error {
	d.listMu.Lock()
	defer d.listMu.Unlock()
	return d.settleLocked(nil)
}

// settleLocked adds more names than those that wait. It runs under listMu. After an error, as of a
// disk without room, all of them wait again: names are not worth the end of a node.
func (d *dictionary) settleLocked(more []string) error {
	if d.list == nil {
		return nil
	}
	d.mu.Lock()
	due, bytes, mark, settled := append(d.pending, more...), d.bytes, d.mark, d.settled
	d.pending, d.bytes, d.settled = nil, 0, mark.Position
	d.mu.Unlock()
	err := d.put(due, mark)
	if err != nil {
		d.mu.Lock()
		d.pending, d.bytes, d.settled = append(due, d.pending...), d.bytes+bytes, settled
		d.mu.Unlock()
	}
	return err
}

// put has the list know names, and that it has all before a mark. It runs under listMu.
func (d *dictionary) put(due []string, mark names.Mark) error {
	for _, name := range due {
		delete(d.gone, labelOf(name).Hash()) // It has an event again.
		if d.list.Has(name) {
			continue
		}
		// All up to the fence that the list knows is in it, whatever comes of this.
		if err := d.list.Add(name, d.list.Mark().Position); err != nil {
			return err
		}
	}
	if len(due) == 0 && mark == d.list.Mark() {
		return nil
	}
	return d.list.Advance(mark)
}

// bring adds names whose events come back. Who asked for names before does not know them.
func (d *dictionary) bring(more []string) error {
	d.listMu.Lock()
	defer d.listMu.Unlock()
	err := d.settleLocked(more)
	if len(more) > 0 {
		d.mu.Lock()
		d.generation.Add(1)
		d.mu.Unlock()
	}
	return err
}

// flush makes durable what is known.
func (d *dictionary) flush() error {
	d.listMu.Lock()
	defer d.listMu.Unlock()
	if err := d.settleLocked(nil); err != nil || d.list == nil {
		return err
	}
	return d.list.Flush()
}

// unlessBusy does something with the list if it is not changing at the moment, which may take long.
func (d *dictionary) unlessBusy(do func() error) error {
	if !d.listMu.TryLock() {
		return nil
	}
	defer d.listMu.Unlock()
	if err := d.settleLocked(nil); err != nil || d.list == nil {
		return err
	}
	return do()
}

// close lets go of the files.
func (d *dictionary) close() error {
	d.listMu.Lock()
	defer d.listMu.Unlock()
	d.isClosed = true
	if d.list == nil {
		return nil
	}
	return d.list.Close()
}

// clear drops all names, to be read from the log again.
func (d *dictionary) clear() error {
	d.listMu.Lock()
	defer d.listMu.Unlock()
	if d.list == nil {
		return d.opt.FS.RemoveAll(d.opt.Dir)
	}
	return d.clearLocked()
}

// clearLocked is called with listMu held.
func (d *dictionary) clearLocked() error {
	d.mu.Lock()
	d.forgetLocked()
	d.mark, d.pending, d.bytes, d.settled = names.Mark{}, nil, 0, 0
	d.mu.Unlock()
	return d.list.Clear()
}

// forget has no name be known to be there. What is being added meanwhile is not lost: add leaves
// out what was asked for before this.
func (d *dictionary) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forgetLocked()
}

// forgetLocked counts last: a batch that begins in between must not know a name that goes.
func (d *dictionary) forgetLocked() {
	for i := range d.seen {
		d.seen[i].Store(0)
	}
	d.generation.Add(1)
}

// sweep drops the names of which the index has no event any more. Others may use the list between
// its slices.
func (d *dictionary) sweep(count func(hash uint64) (int64, error)) error {
	d.listMu.Lock()
	defer d.listMu.Unlock()
	if d.list == nil {
		return d.opt.FS.RemoveAll(d.opt.Dir)
	}
	d.forget()
	d.gone = map[uint64]struct{}{}
	defer func() { d.gone = nil }()
	if err := d.settleLocked(nil); err != nil {
		return err
	}
	for last := ""; ; {
		slice := make([]string, 0, sweepSlice)
		d.list.ByName("", last, func(name []byte) bool {
			slice = append(slice, string(name))
			return len(slice) < sweepSlice
		})
		for _, last = range slice {
			hash := labelOf(last).Hash()
			n, err := count(hash)
			if err != nil {
				return err
			}
			if n == 0 {
				d.gone[hash] = struct{}{}
			}
		}
		isDone := len(slice) < sweepSlice
		if len(d.gone) >= maxGone || isDone && len(d.gone) > 0 {
			err := d.list.Keep(func(name []byte) bool {
				_, gone := d.gone[labelOf(string(name)).Hash()]
				return !gone
			})
			if err != nil {
				return err
			}
			clear(d.gone)
		}
		if isDone {
			return nil
		}
		d.listMu.Unlock()
		d.listMu.Lock()
		if d.isClosed {
			return event.ErrClosed
		}
	}
}

// count is how many names of a kind there are. Those that cannot be put into the list now, as on a
// full disk or while it is being rewritten, are not counted yet.
func (d *dictionary) count(kind label.Kind) int64 {
	_ = d.unlessBusy(func() error { return nil }) // The next flush says why.
	return d.list.Count(nameOf(kind, ""))
}

// page returns up to count names of a kind that begin with a prefix and come after one. It fails
// with *event.IndexBuilding, too, while the list cannot take what waits, as on a full disk.
func (d *dictionary) page(kind label.Kind, prefix, after string, count int) (found []string, err error) {
	if err := d.settle(); err != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		return nil, errors.Join(&event.IndexBuilding{Done: d.settled, Total: d.mark.Position}, err)
	}
	return d.listed(kind, prefix, after, count), nil
}

// listed is page without those that wait for the list.
func (d *dictionary) listed(kind label.Kind, prefix, after string, count int) (found []string) {
	if after != "" {
		after = nameOf(kind, after)
	}
	d.list.ByName(nameOf(kind, prefix), after, func(name []byte) bool {
		found = append(found, string(name[1:]))
		return len(found) < count
	})
	return found
}

// Now returns a number that changes when names are cleared away or come back, and the end up to
// which names that are looked up later include those of all events.
func (x *Index) Now() (generation uint64, end int64) {
	x.names.mu.Lock()
	defer x.names.mu.Unlock()
	return x.names.generation.Load(), x.names.mark.Position
}

// Find returns the names of a kind that begin with one of some prefixes. It is not ok if there are
// more than maxFound, or too many in all to make sure that they are undamaged, or while the list is
// being rewritten.
func (x *Index) Find(kind label.Kind, prefixes []string) (found []string, ok bool) {
	if !x.names.listMu.TryRLock() {
		return nil, false
	}
	found, ok, err := x.names.find(kind, prefixes)
	if err != nil {
		x.checkNames()
	}
	return found, ok && err == nil
}

// find finds names in the list and among those that wait for it, and ends the reading of listMu.
func (d *dictionary) find(kind label.Kind, prefixes []string) (found []string, ok bool, err error) {
	defer d.listMu.RUnlock()
	if d.list == nil {
		return nil, false, nil
	}
	if ok, err = d.list.Check(maxChecked); !ok {
		return nil, false, err
	}
	defer chunkfile.GuardFaults(&err)()
	for _, prefix := range prefixes {
		if found = append(found, d.listed(kind, prefix, "", maxFound+1)...); len(found) > maxFound {
			return nil, false, nil
		}
	}
	d.mu.Lock()
	pending := d.pending
	d.mu.Unlock()
	for _, name := range pending {
		of := labelOf(name)
		if of.Kind == kind && slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(of.Key, prefix) }) {
			found = append(found, of.Key)
		}
	}
	return found, true, nil
}

// checkNames compares the list with its checksums. If it is damaged all names are dropped, to be
// read from the log again.
func (x *Index) checkNames() {
	d := x.names
	err := d.unlessBusy(func() error {
		_, err := d.list.Check(math.MaxInt64)
		if event.IsCorruption(err) {
			x.o.Logger.Warn("the list of names of categories and types is damaged, it is made again", logkey.Error, err)
			return errors.Join(errNamesLack, d.clearLocked())
		}
		return err
	})
	if errors.Is(err, errNamesLack) {
		x.behind()
	}
}

// Count counts the postings of a hash from..to (both included).
func (x *Index) Count(hash uint64, from, to int64) (int64, error) {
	return x.current.Load().Count(hash, from, to)
}

// Events is how many events are posted: each has one type.
func (x *Index) Events() int64 { return x.current.Load().Shares()[label.Type].Entries }

// Names returns up to count names of a kind, label.Category or label.Type, in order: those that
// begin with a prefix and come after another one ("": from the first). next is where the next page
// begins, "" when there is none. Its error is *event.IndexBuilding while the index lacks events,
// and event.ErrNoNames when they cannot be listed until the next start.
func (x *Index) Names(ctx context.Context, kind label.Kind, prefix, after string, count int) (page []event.IndexName, next string, err error) {
	current, err := x.countable()
	if err != nil {
		return nil, "", err
	}
	for looked := 0; looked < namesLook; {
		found, err := x.names.page(kind, prefix, after, count+1)
		if err != nil {
			return nil, "", err
		}
		for _, name := range found {
			if len(page) == count {
				return page, after, nil
			}
			events, err := current.Count(label.Label{Kind: kind, Key: name}.Hash(), 0, math.MaxInt64)
			if err = errors.Join(err, context.Cause(ctx)); err != nil {
				return nil, "", err
			}
			if after = name; events > 0 {
				page = append(page, event.IndexName{Name: name, Events: events})
			}
		}
		if looked += len(found); len(found) <= count {
			return page, "", nil
		}
	}
	return page, after, nil
}

// countable returns the index if it, and the dictionary, have all of the log that readers see.
func (x *Index) countable() (*index.Index, error) {
	if x.names.list == nil {
		return nil, event.ErrNoNames
	}
	end := x.o.Tail().End
	current := x.covering(end)
	if current == nil {
		return nil, x.Missing()
	}
	if missing := end - x.names.end(); missing > 0 && missing <= near && x.fill(nothing) != nil {
		x.behind() // The builder meets the same, and says so.
	}
	if done := x.names.end(); done < end {
		x.behind()
		return nil, &event.IndexBuilding{Done: done, Total: end}
	}
	return current, nil
}

// Kinds counts what the index has, and the events with malformed tags.
func (x *Index) Kinds() (kinds [4]event.IndexKind, malformed int64) {
	shares := x.current.Load().Shares()
	for i := range kinds {
		kind := label.Category + label.Kind(i)
		kinds[i] = event.IndexKind{Name: kind.String(), Keys: shares[kind].Hashes, Postings: shares[kind].Entries}
		if i < 2 && x.names.list != nil {
			kinds[i].Keys = x.names.count(kind)
		}
	}
	return kinds, shares[label.Malformed].Entries
}
