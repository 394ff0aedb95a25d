package eventlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// loadRecentIDs fills the memory of event ids with the newest of the log.
func (rd *Reader) loadRecentIDs(ctx context.Context) {
	ids, unread, err := rd.newestIDs(ctx)
	switch {
	case errors.Is(err, context.Canceled):
		err = event.ErrClosed
	case err != nil:
		// Reads keep working, but a retried write might be taken for a new one: FindID returns this
		// error.
		err = fmt.Errorf("load recent event ids: %w", err)
		rd.logger.Error("retried writes cannot be recognised", logkey.Error, err)
		rd.opts.OnDamage(err)
	case len(unread) > 0:
		rd.logger.Error("retried writes to some streams cannot be recognised, their events are damaged", "streams", len(unread))
	}
	rd.ids.load(ids, unread, err)
}

// unreadIDs tells, by the hash of their names, the streams of which ids cannot be read, and why.
type unreadIDs map[uint64]error

// newestIDs returns the newest ids, newest first. Of what is damaged it finds by the index which
// streams are concerned.
func (rd *Reader) newestIDs(ctx context.Context) (ids []recentID, unread unreadIDs, err error) {
	v, err := rd.view()
	if err != nil {
		return nil, nil, err
	}
	defer v.release()
	defer rd.met(&err)
	defer chunkfile.GuardFaults(&err)()
	// As many as there can be: growing the list would leave several large ones to the collector.
	ids = make([]recentID, 0, v.eventsAtMost(rd.opts.RecentIDs))
	upper := v.tail.End // What lies before it was not looked at.
	cu := cursor{v: v}
	err = cu.seekBackward(upper)
	for n := 0; len(ids) < rd.opts.RecentIDs; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		var it chunkfile.Item
		var position int64
		if err == nil {
			it, position, err = cu.prev()
		}
		switch {
		case event.IsCorruption(err) && upper > 0:
			c := v.set.at(upper - 1)
			if ids, unread, err = rd.idsAround(ctx, v, c, upper, ids, unread); err != nil {
				return nil, nil, err
			}
			upper = c.Start()
			err = cu.seekBackward(upper)
			continue
		case err != nil:
			return nil, nil, err
		}
		if it == nil {
			break
		}
		upper = position
		if !it.IsTrailer() { // A stub is as good as the event.
			ids = append(ids, recentID{id: it.Id(), stream: it.StreamHash(), number: it.Number()})
		}
	}
	if len(ids) < cap(ids)/2 {
		ids = slices.Clone(ids)
	}
	return ids, unread, nil
}

// idsAround adds the ids that a damaged chunk holds before a position, one by one as the index
// names them: after a damaged item the file cannot be walked through. It does not find removed
// events.
func (rd *Reader) idsAround(ctx context.Context, v view, c *chunkfile.Chunk, before int64, ids []recentID, unread unreadIDs) ([]recentID, unreadIDs, error) {
	entries, err := index.Between(rd.index, c.Start(), before)
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(entries, func(a, b index.Entry) int { return cmp.Compare(b.Position, a.Position) })
	var scratch []byte
	for n, e := range entries {
		if len(ids) == rd.opts.RecentIDs {
			break
		}
		if n%4096 == 0 && ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		it, err := v.itemAt(e.Position, &scratch)
		switch {
		case event.IsCorruption(err):
			if unread == nil {
				unread = unreadIDs{}
			}
			unread[e.Hash] = err
		case err != nil:
			return nil, nil, err
		case it != nil && it.IsRecord():
			ids = append(ids, recentID{id: it.Id(), stream: it.StreamHash(), number: it.Number()})
		}
	}
	return ids, unread, nil
}

// eventsAtMost returns how many events the log may hold, as its files say, and limit if there may
// be more.
func (v view) eventsAtMost(limit int) int {
	var n int64
	for i := len(v.set.chunks) - 1; i >= 0 && n < int64(limit); i-- {
		if c := v.set.chunks[i]; c.Complete && c.Footer.End <= v.tail.End {
			n += int64(c.Footer.Records + c.Footer.Stubs)
		} else {
			n += (c.DataEnd(v.tail.End) - chunkfile.HeaderSize) / chunkfile.StubSize
		}
	}
	return int(min(n, int64(limit)))
}
