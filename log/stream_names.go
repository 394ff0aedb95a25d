package eventlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/bell"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/names"
)

const (
	// namesEvery is how many bytes of log are left to the next look at it.
	namesEvery = 64 << 20
	// namesLook bounds the names that one page looks at, those of streams that are gone included.
	namesLook = 20_000
	// namesPatience is how long a page waits for the list to be complete.
	namesPatience = time.Second
	// namesSeen is of how many streams it is remembered that they had an event, by hash.
	namesSeen = 1 << 14
)

// Names lists the streams of the log. It keeps nothing until the first request: package names says
// how.
type Names struct {
	*state
	reads  *Reader
	chunks *Chunks
	syncer *syncer

	wanted chan struct{}   // there is a request, or the log has grown
	renew  chan chan error // of Renew
	done   chan struct{}   // closed when the goroutine has ended
	seen   atomic.Int64    // the list has what lies below; MaxInt64 while there is none
	// counts how often the list was made, cleared and closed: what was read of it meanwhile is not
	// whole
	lists atomic.Int64

	mu    sync.Mutex
	list  *names.List
	err   error         // why there will be none until the next start
	moved chan struct{} // closed when seen, list or err change
}

func newNames(s *state, reads *Reader, chunks *Chunks, syncer *syncer) *Names {
	n := &Names{state: s, reads: reads, chunks: chunks, syncer: syncer, wanted: make(chan struct{}, 1), renew: make(chan chan error), done: make(chan struct{}), moved: make(chan struct{})}
	n.seen.Store(math.MaxInt64)
	return n
}

func (n *Names) dir() string { return filepath.Join(n.opts.IndexDir, "names") }

// grown is called with each commit.
func (n *Names) grown(end int64) {
	if end-n.seen.Load() > namesEvery {
		n.wake()
	}
}

func (n *Names) wake() { bell.Ring(n.wanted) }

// change lets those who wait look again.
func (n *Names) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	close(n.moved)
	n.moved = make(chan struct{})
}

// run keeps the list up to date, from when it is wanted for the first time.
func (n *Names) run(ctx context.Context) {
	defer close(n.done)
	list, err := n.await(ctx)
	if err == nil && list != nil {
		n.seen.Store(list.Mark().Position)
		n.change(func() { n.list = list })
		for err == nil {
			if err = n.follow(ctx, list); err == nil {
				err = n.rest(ctx, list)
			}
		}
		n.seen.Store(math.MaxInt64)
		n.change(func() { n.list = nil })
		n.lists.Add(1)
		err = errors.Join(err, list.Close())
	}
	if ctx.Err() != nil {
		err = event.ErrClosed
	}
	n.change(func() { n.err = err })
	if ctx.Err() == nil {
		n.logger.Error("the names of streams cannot be listed until the next start", logkey.Error, err)
		for { // A scavenge must not wait for ever.
			if err := n.rest(ctx, nil); err != nil {
				return
			}
		}
	}
}

// await opens the list once one is there or wanted.
func (n *Names) await(ctx context.Context) (*names.List, error) {
	there, err := names.Exists(n.opts.FS, n.dir())
	if err != nil {
		return nil, err
	}
	for !there {
		select {
		case <-n.wanted:
			there = true
		case answer := <-n.renew:
			answer <- nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return names.Open(names.Options{FS: n.opts.FS, Dir: n.dir(), Logger: n.logger, Belongs: n.endsAt, BeforeFlush: n.syncer.Sync})
}

// rest waits until something is to be done.
func (n *Names) rest(ctx context.Context, list *names.List) error {
	select {
	case <-n.wanted:
		return nil
	case answer := <-n.renew:
		return n.answerRenew(list, answer)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *Names) answerRenew(list *names.List, answer chan error) error {
	var err error
	if list != nil {
		n.seen.Store(0)
		n.lists.Add(1)
		err = list.Clear()
	}
	answer <- err
	return err
}

// Renew rebuilds the list if there is one: after a scavenge nothing on disk may name a stream that
// is gone. The old list is removed when it returns.
func (n *Names) Renew(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case n.renew <- answer:
	case <-n.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := <-answer; err != nil {
		return fmt.Errorf("rebuild the list of names: %w", err)
	}
	n.wake()
	return nil
}

// follow looks at the log up to its end, chunk by chunk.
func (n *Names) follow(ctx context.Context, list *names.List) error {
	var recent [namesSeen]uint64
	for {
		select {
		case answer := <-n.renew:
			if err := n.answerRenew(list, answer); err != nil {
				return err
			}
			clear(recent[:])
		default:
		}
		tail, m := n.Tail(), list.Mark()
		n.seen.Store(m.Position)
		n.change(func() {})
		if m.Position >= tail.End {
			return nil
		}
		from := m.Position
		m.Position, m.Fence, m.Chain = tail.End, tail.End, tail.Chain
		if next := chunkfile.ChunkStart(chunkfile.ChunkNumber(from) + 1); next < tail.End {
			chain, ok, err := n.ChainAt(next)
			if err != nil {
				return err
			}
			if m.Position = next; ok {
				m.Fence, m.Chain = next, chain
			} else {
				m.Fence, m.Chain = list.Mark().Fence, list.Mark().Chain
			}
		}
		if err := n.look(ctx, list, from, m.Position, &recent); err != nil {
			return fmt.Errorf("collect the names of streams: %w", err)
		}
		if err := list.Advance(m); err != nil {
			return err
		}
	}
}

// look adds the streams whose first event lies between two positions.
func (n *Names) look(ctx context.Context, list *names.List, from, to int64, recent *[namesSeen]uint64) error {
	return n.chunks.Scan(ctx, from, to, func(s *Stored) error {
		if s.Number > 0 {
			// Not the first, unless a scavenge removed what was before.
			hash := chunkfile.HashStream(chunkfile.String(s.Stream))
			if place := &recent[hash%namesSeen]; *place == hash {
				return nil
			} else {
				*place = hash
			}
			if before, err := n.reads.LastBelow(string(s.Stream), s.Position); err != nil || before >= 0 {
				return err
			}
			if list.Has(string(s.Stream)) {
				return nil
			}
		}
		return list.Add(string(s.Stream), s.Position)
	})
}

// Page returns names of streams as they are now. It returns *event.NamesNotListed while they are
// being collected.
func (n *Names) Page(ctx context.Context, r event.NamesRead) (page event.NamesPage, err error) {
	end := n.Settled()
	for looked := 0; looked < namesLook; {
		if err := ctx.Err(); err != nil {
			return page, err
		}
		found, whole, err := n.some(ctx, end, r)
		if err != nil {
			return page, err
		}
		for i, name := range found {
			info, err := n.reads.StreamInfo(name)
			if err != nil {
				return page, err
			}
			if info.Last >= 0 || info.HardDeleted {
				page.Streams = append(page.Streams, event.NamedStream{Name: name, Last: info.Last, HardDeleted: info.HardDeleted, SoftDeleted: !info.HardDeleted && info.Metadata.SoftDeleted()})
			}
			if len(page.Streams) == r.Count && (i+1 < len(found) || !whole) {
				page.Next = name
				return page, nil
			}
		}
		if page.Next = ""; whole {
			return page, nil
		}
		r.After = found[len(found)-1]
		page.Next = r.After
		looked += len(found)
	}
	return page, nil
}

// some returns names from the list, as many as are asked for unless these are the last ones.
func (n *Names) some(ctx context.Context, end int64, r event.NamesRead) (found []string, whole bool, err error) {
	for {
		list, err := n.upTo(ctx, end)
		if err != nil {
			return nil, false, err
		}
		lists := n.lists.Load()
		if n.seen.Load() < end {
			continue
		}
		each := list.ByName
		if r.Created {
			each = list.ByCreation
		}
		found, whole = nil, true
		err = n.guarded(func() {
			each(r.Prefix, r.After, func(name []byte) bool {
				// A metadata stream is a part of its stream: it is named when it is asked for.
				if event.IsMetaStream(chunkfile.String(name)) && !event.IsMetaStream(r.Prefix) {
					return true
				}
				whole = len(found) < r.Count
				if whole {
					found = append(found, string(name))
				}
				return whole
			})
		})
		if err != nil || n.lists.Load() == lists {
			return found, whole, err
		}
	}
}

// guarded runs what reads mapped files.
func (n *Names) guarded(f func()) (err error) {
	defer chunkfile.GuardFaults(&err)()
	f()
	return nil
}

// upTo returns the list once it has what lies below a position.
func (n *Names) upTo(ctx context.Context, end int64) (*names.List, error) {
	late := time.NewTimer(namesPatience)
	defer late.Stop()
	n.wake()
	for {
		n.mu.Lock()
		list, err, moved := n.list, n.err, n.moved
		n.mu.Unlock()
		if err != nil {
			return nil, err
		}
		seen := n.seen.Load()
		if list == nil {
			seen = 0
		}
		if list != nil && seen >= end {
			return list, nil
		}
		select {
		case <-moved:
		case <-late.C:
			return nil, &event.NamesNotListed{Done: seen, Total: end}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
