package postings

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
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
	// Read gives add the postings of the log between two ends of frames, in batches, each with the
	// end of a frame and the chain there. An error of add ends it.
	Read func(from, to int64, add Add) error

	Logger hclog.Logger
}

// Add takes postings of the log up to a position, where its chain is the one given.
type Add func(batch []index.Entry, upTo int64, chain event.Chain) error

const (
	// Bytes of log that are posted before the node serves, or while a write waits: about a chunk.
	// More is posted next to a node that serves.
	soon = 320 << 20
	// between two attempts, and between two lines of the log
	tryAgain, sayAgain = time.Minute, 10 * time.Second
)

// Index is the postings of one log.
type Index struct {
	o    Options
	wake chan struct{} // tells the builder that it is behind; capacity 1

	mu      sync.Mutex                 // orders additions; held while current is replaced
	end     atomic.Int64               // all of the log before it is posted; changed under mu
	current atomic.Pointer[generation] // never nil
	// what came back into a part of the log that is not posted yet, and may have been read already
	late []index.Entry
}

// generation is an index from when it was opened until it is found to be damaged.
type generation struct {
	*index.Index
	void bool // closed, and no other one could be opened
}

func (g *generation) usable() bool { return !g.void && g.Damage() == nil }

// Open opens the postings of a log. What is missing is posted at once if it is little.
func Open(o Options) (*Index, error) {
	x := &Index{o: o, wake: make(chan struct{}, 1)}
	x.o.Index.OnDamage = x.behind
	opened, err := index.Open(x.o.Index)
	if err != nil {
		return nil, err
	}
	x.current.Store(&generation{Index: opened})
	x.end.Store(opened.Checkpoint())
	if missing := o.Tail().End - x.end.Load(); missing > soon || x.fill(nothing) != nil {
		// Where a chunk is damaged, the builder says so.
		x.behind()
	}
	return x, nil
}

func (x *Index) behind() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// Post posts what was appended to the log between two ends, in the order of the log. An index that
// is far behind leaves it to the builder.
func (x *Index) Post(batch []index.Entry, from, end int64, chain event.Chain) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := x.end.Load()
	if current := x.current.Load(); from-at > soon || !current.usable() {
		x.behind()
		return nil
	}
	if from > at && x.o.Read(at, from, x.add) != nil {
		x.behind() // The builder meets the same damage, and says so.
		return nil
	}
	return x.add(batch, end, chain)
}

// add is called with mu held.
func (x *Index) add(batch []index.Entry, upTo int64, chain event.Chain) error {
	if upTo <= x.end.Load() {
		return nil
	}
	if x.late != nil {
		var due []index.Entry
		x.late = slices.DeleteFunc(x.late, func(e index.Entry) bool {
			if e.Position < upTo {
				due = append(due, e)
			}
			return e.Position < upTo
		})
		batch = append(due, batch...)
	}
	if err := x.current.Load().Add(batch, upTo, chain); err != nil {
		return err
	}
	x.end.Store(upTo)
	return nil
}

func nothing(int64) error { return nil }

// fill posts what is missing, and calls after with each end it has come to. Others post meanwhile.
func (x *Index) fill(after func(upTo int64) error) error {
	from, to := x.end.Load(), x.o.Tail().End
	if from >= to {
		return nil
	}
	return x.o.Read(from, to, func(batch []index.Entry, upTo int64, chain event.Chain) error {
		x.mu.Lock()
		err := x.add(batch, upTo, chain)
		x.mu.Unlock()
		if err != nil {
			return err
		}
		return after(upTo)
	})
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
			if err == nil || ctx.Err() != nil {
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
	if current := x.current.Load(); !current.usable() {
		x.o.Logger.Error("the index of postings is damaged and is built again", logkey.Error, current.Damage())
		if err := x.Clear(); err != nil {
			return err
		}
	}
	first, said, began := x.end.Load(), time.Now(), time.Now()
	for !x.Covers(x.o.Tail().End) {
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
		if !x.current.Load().usable() {
			return errors.New("it was found to be damaged")
		}
	}
	if end := x.end.Load(); end > first {
		x.o.Logger.Info("the index of postings is complete", logkey.From, first, logkey.To, end)
	}
	return nil
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

// Lacking keeps, of postings, those that are not there.
func (x *Index) Lacking(batch []index.Entry) ([]index.Entry, error) {
	current := x.current.Load()
	if !current.usable() {
		return batch, nil // Bring leaves them to the builder.
	}
	rest := batch[:0]
	var room [4]index.Entry
	for _, e := range batch {
		found, err := current.Get(room[:0], e.Hash, e.Number)
		if err != nil {
			return rest, err
		}
		if len(found) == 0 {
			rest = append(rest, e)
		}
	}
	return rest, nil
}

// Bring posts records that come back into a part of the log that was posted before.
func (x *Index) Bring(batch []index.Entry) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var now []index.Entry
	posted := x.end.Load()
	for _, e := range batch {
		if e.Position < posted {
			now = append(now, e)
		} else {
			x.late = append(x.late, e)
		}
	}
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
		return current.Flush()
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
	if current := x.current.Load(); current.usable() {
		return index.Check(current.Index, pause)
	}
	return nil
}

// Faulted is index.Faulted.
func (x *Index) Faulted(address uintptr, detail string) error {
	return index.Faulted(x.current.Load().Index, address, detail)
}

// Scavenge removes the postings of records that are not there any more.
func (x *Index) Scavenge(ctx context.Context, o index.ScavengeOptions) error {
	if current := x.current.Load(); current.usable() {
		return current.Scavenge(ctx, o)
	}
	return nil
}

// Status is how far an index is, and how large.
type Status struct {
	IsBuilding  bool
	Position    int64 // all of the log before it is posted
	LogEnd      int64
	Tables      int
	Bytes       int64 // of the tables, without their filters
	MemoryBytes int64 // of what is in no table yet
}

// Status describes the index.
func (x *Index) Status() Status {
	current := x.current.Load()
	s := Status{LogEnd: x.o.Tail().End, MemoryBytes: current.MemoryBytes()}
	s.Position = x.end.Load() // Later: it is never less than the end that readers see.
	s.IsBuilding = s.Position < s.LogEnd || !current.usable()
	for _, t := range current.Tables() {
		s.Tables++
		s.Bytes += t.Bytes
	}
	return s
}

// Tables are the files of the index, the newest first.
func (x *Index) Tables() []index.TableInfo { return x.current.Load().Tables() }

// Close closes the index. Run must have ended.
func (x *Index) Close() error { return x.current.Load().Close() }
