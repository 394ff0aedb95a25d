package grpcapi

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
)

// following is a subscription: a read that waits at the end and then continues. The page after a
// wait is read as any other, so that there is no seam between old and new events. At rest it has a
// goroutine, a wait and nothing else.
type following struct {
	reading
	looked uint64 // records since the last checkpoint

	// Of an index: events sent since the last checkpoint, the position up to which the client
	// knows that there is nothing more, and since when.
	sent int64
	told int64
	at   time.Time
}

// When checkpoints of an index are sent. Without them a client that resumes would look at all of
// the log again.
const (
	indexEvents = 2048             // events between them
	indexGrowth = 32 << 20         // bytes of log while nothing else is sent
	indexRest   = 30 * time.Second // the same, if anything was written
	indexLook   = time.Second      // how often it is looked at how far the log is
)

// run sends until the client leaves, the node stops, the stream is hard-deleted, or the caller's
// right is withdrawn. A client that wants the leader is sent away when the term ends.
func (f *following) run(parent, term context.Context) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	defer context.AfterFunc(f.s.draining, cancel)()
	wantsLeader := callOf(parent).leader
	if wantsLeader {
		defer context.AfterFunc(term, cancel)()
	}
	err := f.follow(ctx)
	switch {
	case ctx.Err() == nil || parent.Err() != nil:
		return err
	case f.s.draining.Err() == nil && wantsLeader:
		if err := f.s.opts.Lead(); err != nil {
			return err
		}
	}
	return event.ErrNotReady
}

func (f *following) follow(ctx context.Context) error {
	if err := f.begin(ctx); err != nil {
		return err
	}
	f.told, f.at = f.Next, time.Now()
	if begun := f.words.begun(); begun != nil {
		if err := f.out.message(begun); err != nil {
			return err
		}
	}
	for isLive := false; ; {
		more, err := f.read(ctx)
		if err != nil {
			return err
		}
		if !more && !isLive {
			isLive = true
			if err := f.caughtUp(); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if more {
			continue
		}
		if err := f.wait(ctx); err != nil {
			return err
		}
	}
}

// begin finds where the subscription begins.
func (f *following) begin(ctx context.Context) error {
	if f.q.all {
		switch f.q.begin {
		case beginsAtEnd:
			f.Next = f.s.opts.Store.LogEnd()
		case beginsAt:
			if f.q.query != nil { // Any position is one.
				f.Next = min(f.q.from, math.MaxInt64-1) + 1
				break
			}
			f.Next, f.After = f.q.from, true
			return f.Check(ctx)
		}
		return nil
	}
	info, err := f.s.opts.Store.StreamInfo(ctx, f.q.stream)
	switch {
	case err != nil:
		return err
	case info.HardDeleted:
		return event.ErrStreamDeleted
	}
	switch f.q.begin {
	case beginsAtEnd:
		f.Next = info.Last + 1
	case beginsAt:
		f.Next = min(f.q.from, math.MaxInt64-1) + 1
	}
	return nil
}

// read sends a page. There may be more at once when it says so.
func (f *following) read(ctx context.Context) (more bool, err error) {
	look := uint64(0)
	if f.q.interval > 0 {
		look = min(f.q.interval-f.looked, math.MaxInt32)
	}
	page, err := f.page(ctx, f.size, int(look))
	if errors.Is(err, event.ErrStreamDeleted) {
		return false, f.bury(ctx)
	} else if err != nil {
		return false, err
	}
	sent, err := f.events(ctx, page.Events)
	if err != nil {
		return false, err
	}
	if f.q.query != nil {
		return page.More, f.toldOf(sent)
	}
	if f.looked += uint64(page.Looked); f.q.interval > 0 && f.looked == f.q.interval {
		return page.More, f.checkpoint()
	}
	return page.More, nil
}

// toldOf sends a checkpoint of an index if it is time for one, after so many events.
func (f *following) toldOf(events int64) error {
	if f.sent += events; events > 0 {
		f.told, f.at = f.Seen, time.Now()
	}
	if f.sent < indexEvents && !f.isSilent(f.Next) {
		return nil
	}
	return f.indexCheckpoint()
}

// isSilent reports whether the client should learn that the log has grown up to an end.
func (f *following) isSilent(end int64) bool {
	return end-f.told > indexGrowth || end > f.told+1 && time.Since(f.at) >= indexRest
}

// indexCheckpoint says that nothing more will come up to where was looked.
func (f *following) indexCheckpoint() error {
	if f.Next <= 0 {
		return nil
	}
	f.Seen = f.Next - 1
	f.sent, f.told, f.at = 0, f.Seen, time.Now()
	return f.checkpoint()
}

// bury sends the tombstone of the stream and returns event.ErrStreamDeleted. A metadata stream has
// none.
func (f *following) bury(ctx context.Context) error {
	tombstone, err := f.s.opts.Store.Tombstone(ctx, f.q.stream)
	if errors.Is(err, event.ErrEventNotFound) {
		return event.ErrStreamDeleted
	} else if err != nil {
		return err
	}
	if _, err := f.events(ctx, []event.Resolved{{Record: tombstone}}); err != nil {
		return err
	}
	return event.ErrStreamDeleted
}

// checkpoint tells up to where the log was looked at.
func (f *following) checkpoint() error {
	f.looked = 0
	return f.out.message(f.words.checkpoint(f.Seen))
}

// caughtUp tells that all there was has been sent.
func (f *following) caughtUp() error {
	var err error
	if f.q.query != nil {
		err = f.indexCheckpoint()
	} else if f.q.interval > 0 && f.looked > 0 {
		err = f.checkpoint()
	}
	if err != nil {
		return err
	}
	return f.out.message(f.words.caughtUp(f.Seen, f.q.all))
}

// wait returns when there may be more, and the caller may still see it.
func (f *following) wait(ctx context.Context) error {
	f.leaveRoom()
	f.rights.call.flush()
	f.size = minReadPage
	for ctx.Err() == nil {
		wait, cancel := ctx, context.CancelFunc(func() {})
		if f.q.query != nil {
			wait, cancel = context.WithTimeout(ctx, indexLook)
		}
		err := f.Wait(wait, f.s.opts.Store)
		cancel()
		if err == nil || f.q.query != nil && f.isSilent(f.s.opts.Store.LogEnd()) {
			break
		}
		if ctx.Err() != nil || wait.Err() == nil {
			return err
		}
	}
	// Only that a right was withdrawn ends a subscription, not that it cannot be known at the
	// moment.
	if err := f.s.authorize(ctx, f.q.stream, access.ReadRight); errors.Is(err, event.ErrNotAuthorized) {
		return err
	}
	return nil
}
