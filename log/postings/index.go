package postings

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/internal/bell"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/log/index"
)

// Options say where postings are kept, and how they are read from the log. All are required but
// those of Index that have defaults.
type Options struct {
	Index index.Options // OnDamage is filled in

	// Tail is what readers see of the log.
	Tail func() event.Tail
	// Read gives add what records of the log between two ends of frames say of themselves, in
	// batches that end at the end of a frame. An error of add ends it.
	Read func(from, to int64, add Add) error

	Logger hclog.Logger
}

// Add takes a batch of the log between two ends of frames, where its chain is the one given.
type Add func(batch *Batch, from, upTo int64, chain event.Chain) error

// errHeld ends a reading of the log while records come back into it.
var errHeld = errors.New("records come back into the log")

// errNamesLack ends a reading of the log of which the names cannot take what follows.
var errNamesLack = errors.New("names were cleared away meanwhile")

const (
	// Bytes of log that are posted before the node serves, or while a write waits: about a chunk.
	// More is posted next to a node that serves.
	soon = 320 << 20
	// bytes of log whose names a write reads again: the builder is that near
	near = 4 << 20
	// between two attempts, and between two lines of the log
	tryAgain, sayAgain = time.Minute, 10 * time.Second
)

// Index is the postings of one log.
type Index struct {
	o    Options
	wake chan struct{} // tells the builder that it is behind; capacity 1
	// of categories and types
	names *dictionary

	mu      sync.Mutex                 // orders additions; held while current is replaced
	end     atomic.Int64               // all of the log before it is posted; changed under mu
	current atomic.Pointer[generation] // never nil
	held    int                        // calls of Hold that are not released; guarded by mu
	holds   uint64                     // those that ever were; guarded by mu
}

// generation is an index from when it was opened until it is found to be damaged.
type generation struct {
	*index.Index
	void bool // closed, and no other one could be opened
}

func (g *generation) usable() bool { return !g.void && g.Damage() == nil }

// Open opens the postings of a log. What is missing is posted at once if it is little.
func Open(o Options) (*Index, error) {
	x := &Index{o: o, wake: make(chan struct{}, 1), names: openDictionary(&o.Index, o.Logger)}
	x.o.Index.OnDamage = x.behind
	x.o.Index.BeforeFlush = func() {
		o.Index.BeforeFlush()
		// Or a start reads the log again for the names alone.
		if err := x.names.unlessBusy(x.names.list.Flush); err != nil {
			x.o.Logger.Warn("the names of categories and types could not be saved yet", logkey.Error, err)
		}
	}
	opened, err := index.Open(x.o.Index)
	if err != nil {
		return nil, errors.Join(err, x.names.close())
	}
	x.current.Store(&generation{Index: opened})
	x.end.Store(opened.Checkpoint())
	if missing := o.Tail().End - x.least(); missing > soon || x.fill(nothing) != nil {
		// Where a chunk is damaged, the builder says so.
		x.behind()
	}
	return x, nil
}

func (x *Index) behind() { bell.Ring(x.wake) }

// least is where the index and the dictionary both have all of the log.
func (x *Index) least() int64 { return min(x.end.Load(), x.names.end()) }

// Post posts what was appended to the log between two ends, in the order of the log. An index that
// is far behind leaves it to the builder.
func (x *Index) Post(batch *Batch, from, end int64, chain event.Chain) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := x.end.Load()
	if current := x.current.Load(); !current.usable() || from > at && (from-at > soon || x.held > 0) {
		x.behind()
		return nil
	}
	if missing := from - x.names.end(); missing > 0 && missing <= near && x.held == 0 {
		at = min(at, x.names.end())
	}
	if from > at && x.o.Read(at, from, x.add) != nil {
		x.behind() // The builder meets the same damage, and says so.
		if from > x.end.Load() {
			return nil
		}
		// The names alone lack something.
	}
	return x.add(batch, from, end, chain)
}

// add takes what follows the end, and leaves out what does not. It is called with mu held.
func (x *Index) add(batch *Batch, from, upTo int64, chain event.Chain) error {
	if end := x.end.Load(); from <= end && upTo > end {
		entries := batch.Entries
		for len(entries) > 0 && entries[0].Position < end {
			entries = entries[1:]
		}
		if err := x.current.Load().Add(entries, upTo, chain); err != nil {
			return err
		}
		x.end.Store(upTo)
	}
	// Only now: a name without events may go at any time.
	if !x.names.add(batch, from, upTo, chain) || x.names.due() {
		x.behind()
	}
	return nil
}

// Hold keeps the log from being read for the index until release is called: records come back into
// it, and what was read before they were there must not be posted. Those in the part that is posted
// are given to Bring before release.
func (x *Index) Hold() (release func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.held++
	x.holds++
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.held--
		x.behind()
	}
}

func nothing(int64) error { return nil }

// fill posts what is missing, and calls after with each end it has come to. Others post meanwhile.
// It fails with errHeld while records come back.
func (x *Index) fill(after func(upTo int64) error) error {
	x.mu.Lock()
	holds, held := x.holds, x.held > 0
	x.mu.Unlock()
	from, to := x.least(), x.o.Tail().End
	if from >= to {
		return nil
	}
	if held {
		return errHeld
	}
	err := x.o.Read(from, to, func(batch *Batch, from, upTo int64, chain event.Chain) error {
		x.mu.Lock()
		err := errHeld
		if holds == x.holds {
			err = x.add(batch, from, upTo, chain)
		}
		x.mu.Unlock()
		if err != nil {
			return err
		}
		if isTaken := x.names.end() >= upTo; !isTaken || x.names.due() {
			if err := x.names.settle(); err != nil {
				return err
			}
			// Now there is room. What comes next would be of no use to the names without this.
			if !isTaken && !x.names.add(batch, from, upTo, chain) && x.end.Load() >= to {
				return errNamesLack
			}
		}
		return after(upTo)
	})
	if errors.Is(err, errNamesLack) {
		err = nil
	}
	return err
}

// Covers reports whether all of the log before a position is posted, and can be read.
func (x *Index) Covers(end int64) bool {
	return x.covering(end) != nil
}

// covering returns the index if it covers an end. It is taken before the end is looked at: one that
// takes its place meanwhile begins with the end at 0.
func (x *Index) covering(end int64) *index.Index {
	if current := x.current.Load(); x.end.Load() >= end && current.usable() {
		return current.Index
	}
	x.behind()
	return nil
}

// Missing says why Covers reports false: how much of the log is posted.
func (x *Index) Missing() error {
	done, total := x.Progress()
	return &event.IndexBuilding{Done: done, Total: total}
}

// Progress says how many bytes of the log are posted, and how many it has that readers see.
func (x *Index) Progress() (done, total int64) {
	total = x.o.Tail().End
	if x.current.Load().usable() {
		done = min(x.end.Load(), total)
	}
	return done, total
}

// Run posts what is missing whenever there is something, until ctx is over.
func (x *Index) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-x.wake:
		}
		for {
			err := x.build(ctx)
			if err == nil || ctx.Err() != nil || errors.Is(err, errHeld) {
				break
			}
			x.o.Logger.Error("the index of postings could not be built yet", logkey.Error, err)
			if clock.Sleep(ctx, tryAgain) != nil {
				return
			}
		}
	}
}

// build posts what is missing, from the start of the log where the index is damaged. It takes half
// of a processor at most.
func (x *Index) build(ctx context.Context) error {
	if current := x.settled(); !current.usable() {
		x.o.Logger.Error("the index of postings is damaged and is built again", logkey.Error, current.Damage())
		if err := x.Clear(); err != nil {
			return err
		}
	}
	if x.names.due() {
		if err := x.names.settle(); err != nil {
			return err
		}
	}
	first, said, began := x.least(), time.Now(), time.Now()
	for x.least() < x.o.Tail().End {
		err := x.fill(func(upTo int64) error {
			if err := clock.Sleep(ctx, min(time.Since(began), time.Second)); err != nil {
				return err
			}
			if began = time.Now(); began.Sub(said) >= sayAgain {
				said = began
				x.o.Logger.Info("building the index of postings", "done", upTo, "total", x.o.Tail().End)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if !x.settled().usable() {
			return errors.New("it was found to be damaged")
		}
	}
	if end := x.least(); end > first {
		x.o.Logger.Info("the index of postings is complete", logkey.From, first, logkey.To, end)
	}
	return nil
}

// settled is the index when none is taking its place.
func (x *Index) settled() *generation {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.current.Load()
}

// Rebuild has all be posted again. It fails with event.ErrIndexBuilding while that is being done.
func (x *Index) Rebuild() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.end.Load() < x.o.Tail().End || !x.current.Load().usable() {
		return event.ErrIndexBuilding
	}
	return x.clear()
}

// Clear has all be posted again.
func (x *Index) Clear() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.clear()
}

// clear is called with mu held.
func (x *Index) clear() error {
	old := x.current.Load()
	x.current.Store(&generation{Index: old.Index, void: true})
	x.end.Store(0)
	err := errors.Join(old.Close(), index.Void(x.o.Index.FS, x.o.Index.Dir))
	if err == nil {
		var opened *index.Index
		if opened, err = index.Open(x.o.Index); err == nil {
			x.current.Store(&generation{Index: opened})
		}
	}
	x.behind()
	if err != nil {
		return fmt.Errorf("clear the index of postings: %w", err)
	}
	return nil
}

// Lacking keeps, of the labels of the record at a position, those under which it is not posted.
func (x *Index) Lacking(labels []label.Label, position int64) ([]label.Label, error) {
	current := x.current.Load()
	if !current.usable() {
		return labels, nil // Bring leaves them to the builder.
	}
	rest := labels[:0]
	var room [4]index.Entry
	for _, l := range labels {
		found, err := current.Get(room[:0], l.Hash(), position)
		if err != nil {
			return rest, err
		}
		if len(found) == 0 {
			rest = append(rest, l)
		}
	}
	return rest, nil
}

// Bring posts records that come back into a part of the log that was posted before. Those after it
// are read from the log when Hold is released.
func (x *Index) Bring(batch *Batch) error {
	// Names are durable before postings are, and one without postings may go at any time.
	err := x.names.bring(batch.names)
	if err == nil {
		err = x.bring(batch)
	}
	if err == nil {
		err = x.names.bring(batch.names)
	}
	return err
}

func (x *Index) bring(batch *Batch) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	posted := x.end.Load()
	now := slices.DeleteFunc(batch.Entries, func(e index.Entry) bool { return e.Position >= posted })
	current := x.current.Load()
	if !current.usable() || len(now) == 0 {
		return nil // All will be read from the log.
	}
	end, chain := current.Reached()
	return current.Add(now, end, chain)
}

// Flush writes what is in memory if more of the log than so many bytes would have to be read for it
// at the next start.
func (x *Index) Flush(unless int64) error {
	if current := x.current.Load(); current.usable() && x.end.Load()-current.Checkpoint() > unless {
		if err := current.Flush(); err != nil {
			return err
		}
		return x.names.flush()
	}
	return nil
}

// Pin pins the files for a copy. It returns nil while the index is damaged: a copy without them has
// them made again.
func (x *Index) Pin() (*index.Pin, error) {
	x.mu.Lock() // It must not be closed meanwhile.
	defer x.mu.Unlock()
	if current := x.current.Load(); current.usable() {
		return current.Pin()
	}
	return nil, nil
}

// Check compares all files with their checksums. What is damaged is built again.
func (x *Index) Check(pause func(bytes int64) error) error {
	var err error
	if current := x.current.Load(); current.usable() {
		err = index.Check(current.Index, pause)
	}
	x.checkNames()
	return err
}

// Faulted is index.Faulted.
func (x *Index) Faulted(address uintptr, detail string) error {
	return index.Faulted(x.current.Load().Index, address, detail)
}

// Scavenge removes the postings of records that are not there any more, and then the names without
// any: no file has them when it returns.
func (x *Index) Scavenge(ctx context.Context, o index.ScavengeOptions) error {
	current := x.current.Load()
	if current.usable() {
		if err := current.Scavenge(ctx, o); err != nil {
			return err
		}
	}
	if x.covering(x.o.Tail().End) == current.Index {
		err := x.names.sweep(func(hash uint64) (int64, error) {
			n, err := current.Count(hash, 0, math.MaxInt64)
			return n, errors.Join(err, context.Cause(ctx))
		})
		if err == nil || ctx.Err() != nil || current.usable() && !errors.Is(err, event.ErrClosed) {
			return err
		}
	}
	// A name without postings may have events that the index lacks.
	err := x.names.clear()
	x.behind()
	return err
}

// Status describes the index.
func (x *Index) Status() event.IndexStatus {
	current := x.current.Load()
	s := event.IndexStatus{LogEnd: x.o.Tail().End, MemoryBytes: current.MemoryBytes()}
	s.Position = x.end.Load() // Later: it is never less than the end that readers see.
	s.IsBuilding = s.Position < s.LogEnd || !current.usable()
	kinds, malformed := x.Kinds()
	s.Kinds, s.MalformedTags = kinds[:], malformed
	for _, t := range current.Tables() {
		s.Tables++
		s.Bytes += t.Bytes
	}
	return s
}

// Tables are the files of the index, the newest first.
func (x *Index) Tables() []index.TableInfo { return x.current.Load().Tables() }

// Close closes the index. Run must have ended.
func (x *Index) Close() error { return errors.Join(x.current.Load().Close(), x.names.close()) }
