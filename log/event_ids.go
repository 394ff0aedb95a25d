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

// eventIDs tells under which numbers the newest events of the log were written. An answer of the
// memory counts only if the log, where it can still be read, says the same. Where the memory lacks
// ids of a damaged log the answer is an error, and never that an event is new.
type eventIDs struct {
	lookup
	ids *recentIDs
}

// FindID returns the number under which an event id was last written to a
// stream, if that is among the newest events of the log.
func (k *eventIDs) FindID(stream string, id event.ID) (int64, bool, error) {
	number, ok, err := k.ids.find(id, chunkfile.HashStream(stream))
	if err != nil || !ok {
		return 0, false, errors.Join(err, k.Failed())
	}
	// The memory knows streams by their hash. Where the record is still there, it confirms the
	// name.
	found, known, err := k.idAt(stream, number)
	// Two streams with one hash and the same event: that is less likely than any damage.
	if event.IsCorruption(err) {
		return number, true, nil
	}
	if err != nil || known && found != id {
		return 0, false, err
	}
	return number, true, nil
}

// HasID reports whether the event with a number has an id, whether or not reads of the
// stream show it. Of an event that was removed it is known as long as that is
// among the newest events of the log.
func (k *eventIDs) HasID(stream string, number int64, id event.ID) (bool, error) {
	found, there, damage := k.idAt(stream, number)
	if there || damage != nil && !event.IsCorruption(damage) {
		return found == id, damage
	}
	has, err := k.ids.has(id, chunkfile.HashStream(stream), number)
	switch {
	case has:
		return true, nil
	case damage != nil:
		// It may have had the id before the memory begins, or the memory could not be filled.
		return false, damage
	case err != nil:
		return false, errors.Join(err, k.Failed())
	}
	return false, nil
}

// loadRecentIDs fills the memory of event ids with the newest of the log.
func (k *eventIDs) loadRecentIDs(ctx context.Context) {
	ids, unread, err := k.newestIDs(ctx)
	switch {
	case errors.Is(err, context.Canceled):
		err = event.ErrClosed
	case err != nil:
		// Reads keep working, but a retried write might be taken for a new one: FindID returns this
		// error.
		err = fmt.Errorf("load recent event ids: %w", err)
		k.logger.Error("retried writes cannot be recognised", logkey.Error, err)
		k.opts.OnDamage(err)
	case unread.any() != nil:
		k.logger.Error("retried writes cannot all be recognised", logkey.Error, unread.any())
	}
	k.ids.load(ids, unread, err)
}

// newestIDs returns the newest ids, newest first. Of what is damaged it finds by the index which
// streams are concerned.
func (k *eventIDs) newestIDs(ctx context.Context) (ids []recentID, unread *unreadIDs, err error) {
	v, err := k.view()
	if err != nil {
		return nil, nil, err
	}
	defer v.release()
	defer k.met(&err)
	defer chunkfile.GuardFaults(&err)()
	// As many as there can be: growing the list would leave several large ones to the collector.
	ids = make([]recentID, 0, v.eventsAtMost(k.opts.RecentIDs))
	upper := v.tail.End // What lies before it was not looked at.
	cu := cursor{v: v}
	err = cu.seekBackward(upper)
	for n := 0; len(ids) < k.opts.RecentIDs; n++ {
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
			if ids, unread, err = k.idsAround(ctx, v, c, upper, ids, unread); err != nil {
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

// idsAround adds the ids of what is whole in a damaged chunk before a position. The index names the
// events that are not. It does not know those that were removed: where one of them is damaged no
// stream is certain.
func (k *eventIDs) idsAround(ctx context.Context, v view, c *chunkfile.Chunk, before int64, ids []recentID, unread *unreadIDs) ([]recentID, *unreadIDs, error) {
	if unread == nil {
		unread = &unreadIDs{streams: map[uint64]error{}}
	}
	whole, holes, err := wholeIDs(ctx, c, v.tail.End, before)
	if err != nil {
		return nil, nil, err
	}
	oldest := int64(0) // position that matters
	for _, w := range slices.Backward(whole) {
		if len(ids) == k.opts.RecentIDs {
			oldest = w.position
			break
		}
		ids = append(ids, w.recentID)
	}
	entries, err := index.Between(k.index, max(c.Start(), oldest), before)
	if err != nil {
		return nil, nil, err
	}
	var scratch []byte
	for n, e := range entries {
		if n%4096 == 0 && ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		_, found := slices.BinarySearchFunc(whole, e.Position, func(w placedID, at int64) int { return cmp.Compare(w.position, at) })
		if found {
			continue
		}
		switch _, err := v.itemAt(e.Position, &scratch); {
		case event.IsCorruption(err):
			unread.streams[e.Hash] = err
		case err != nil:
			return nil, nil, err
		}
	}
	if holes.removed > 0 && holes.end > oldest {
		unread.removed = c.Corrupt(-1, "the ids of %d removed events are damaged", holes.removed)
	}
	return ids, unread, nil
}

// placedID is an id with the position of its event.
type placedID struct {
	recentID
	position int64
}

// lostIDs are removed events of a chunk that are damaged: how many, and the position before which
// they all were.
type lostIDs struct {
	removed int
	end     int64
}

// wholeIDs returns the ids of the events before a position, removed ones too, that are whole in a
// damaged chunk.
func wholeIDs(ctx context.Context, c *chunkfile.Chunk, logEnd, before int64) (ids []placedID, lost lostIDs, err error) {
	s := salvaging(c, logEnd)
	if c.Header.Mapped {
		lost.removed = c.Footer.Stubs
	}
	for n := 0; ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return nil, lost, ctx.Err()
		}
		it, position, gap := s.next()
		if it == nil {
			position = before
		}
		if gap {
			lost.end = position
		}
		if it == nil {
			return ids, lost, nil
		}
		if it.IsStub() {
			lost.removed--
		}
		if position < before && !it.IsTrailer() {
			ids = append(ids, placedID{recentID{id: it.Id(), stream: it.StreamHash(), number: it.Number()}, position})
		}
	}
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
