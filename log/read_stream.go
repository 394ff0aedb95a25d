package eventlog

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// Reader reads streams, events and the whole log as their metadata lets them be seen, and waits for
// more.
type Reader struct {
	lookup
	streamFacts
	eventIDs
	notify notifier

	withdrawn withdrawn
	choosing  choosing
}

// arena copies records out of the log into few larger blocks. The bytes and
// strings of the records share those blocks, which are never written again, but for
// the one of a Room, when the next page is read into it.
type arena struct {
	block []byte
	// unless a record needs more; 0: as much as it needs, and those to come if they are alike
	blockSize int
	// records that are still to come, the present one included, as far as that is known
	coming int
	left   int // how many bytes of data and metadata may still be copied
}

// A page in a room begins with a block of minBlock bytes. Each further one is twice as large, up
// to maxBlock. A page of its own may be kept for long: its blocks are made to be full,
// if records are alike. More than maxAlike bytes are not made in that hope.
const (
	minBlock = 8 << 10
	maxBlock = 1 << 20
	maxAlike = 64 << 10
)

// newArena returns an arena for a page whose payload is bounded; 0 means no bound.
func newArena(maxPayload int, room *event.Room) arena {
	if maxPayload <= 0 {
		maxPayload = math.MaxInt
	}
	a := arena{blockSize: minBlock, left: maxPayload}
	if room != nil {
		a.block = room.Block[:0]
	}
	return a
}

// keep leaves the memory of a page in its room for the next one.
func (a *arena) keep(room *event.Room, events []event.Resolved) {
	if room != nil {
		room.Block, room.Events = a.block, events
	}
}

// newSingleArena returns an arena for one record.
func newSingleArena() *arena { return &arena{left: math.MaxInt} }

func (a *arena) copy(b []byte) []byte {
	if cap(a.block)-len(a.block) < len(b) {
		size := len(b) * max(1, min(a.coming, maxAlike/len(b)))
		if a.blockSize > 0 {
			a.blockSize = min(max(a.blockSize, 2*cap(a.block)), maxBlock)
			size = max(a.blockSize, len(b))
		}
		a.block = make([]byte, 0, size)
	}
	at := len(a.block)
	a.block = append(a.block, b...)
	return a.block[at:len(a.block):len(a.block)]
}

// record returns the record that an item holds, without its payload from where
// that is more than is left. stream is its stream's name if the caller has it, else empty.
func (a *arena) record(it chunkfile.Item, position int64, stream string) event.Record {
	streamLen, typeLen, metadataLen := it.StreamLen(), it.TypeLen(), it.MetadataLen()
	content := it.Content()
	payload := len(content) - streamLen - typeLen
	isBare, leftOut := payload > a.left, 0
	if isBare {
		a.left, metadataLen, leftOut = 0, 0, payload
		content = content[:streamLen+typeLen]
	} else {
		a.left -= payload
	}
	if stream != "" {
		content = a.copy(content[streamLen:])
	} else {
		content = a.copy(content)
		stream, content = chunkfile.String(content[:streamLen]), content[streamLen:]
	}
	dataEnd := len(content) - metadataLen
	return event.Record{
		Position: position,
		Next:     position + int64(len(it)),
		Stream:   stream,
		Number:   it.Number(),
		ID:       it.Id(),
		Type:     chunkfile.String(content[:typeLen]),
		Time:     it.Time(),
		Flags:    event.Flags(it.Flags()),
		Bare:     isBare,
		LeftOut:  uint32(leftOut),
		Data:     content[typeLen:dataEnd:dataEnd],
		Metadata: content[dataEnd:],
	}
}

// visible returns an error when reads of a stream with these facts find nothing there.
func (rd *Reader) visible(info *event.StreamInfo) error {
	if info.HardDeleted {
		return event.ErrStreamDeleted
	}
	if !info.Exists() {
		return rd.nothing(event.ErrStreamNotFound)
	}
	return nil
}

// nothing is for reads of clients that find nothing. A node whose index is known to be damaged does
// not say that something is not there.
func (rd *Reader) nothing(err error) error {
	if damage := rd.index.Damage(); damage != nil {
		return fmt.Errorf("nothing was found, but the index is damaged: %w", damage)
	}
	return err
}

// ReadStream reads a page of a stream as its metadata lets it be seen.
func (rd *Reader) ReadStream(r event.StreamRead) (page event.StreamPage, err error) {
	// The facts first: whatever they name is in every view taken later.
	info, err := rd.StreamInfo(r.Stream)
	if err != nil {
		return page, err
	}
	if err := rd.visible(&info); err != nil {
		return page, err
	}
	v, err := rd.view()
	if err != nil {
		return page, err
	}
	defer v.release()
	defer rd.met(&err)
	defer chunkfile.GuardFaults(&err)()

	page = event.StreamPage{Stream: r.Stream, From: r.From, Last: info.Last, Min: info.Metadata.MinVisible(info.Last), Metadata: info.Metadata}
	a := newArena(r.MaxPayload, r.Room)
	defer func() { a.keep(r.Room, page.Events) }()
	if r.Room != nil {
		page.Events = r.Room.Events[:0]
	} else {
		a.blockSize = 0
	}
	if r.Backward {
		err = rd.readBackward(v, &a, r, &page)
	} else {
		err = rd.readForward(v, &a, r, &page)
	}
	if err != nil {
		return page, fmt.Errorf("read stream %q from %d: %w", r.Stream, page.From, err)
	}
	page.SetNext(&r)
	return page, rd.finish(&a, page.Events, r.Links)
}

// finish counts the events of a page, and resolves links if it is asked to.
func (rd *Reader) finish(a *arena, events []event.Resolved, links event.LinkReader) error {
	rd.metrics.reads.page(events)
	if links == nil {
		return nil
	}
	for i := range events {
		if err := rd.resolve(a, &events[i], links); err != nil {
			return err
		}
	}
	return nil
}

func (rd *Reader) readBackward(v view, a *arena, r event.StreamRead, page *event.StreamPage) error {
	if page.From == event.Head {
		page.From = page.Last
	}
	if page.From < 0 {
		page.End = true
		return nil
	}
	lowest := page.From - r.Span() + 1
	if err := rd.readNumbers(v, a, page, min(page.From, page.Last), max(lowest, page.Min), r); err != nil {
		return err
	}
	n := len(page.Events)
	if n == r.Count {
		lowest = page.Events[n-1].Number
	}
	isGone := lowest <= page.Last && (n == 0 || page.Events[n-1].Number != lowest)
	if isGone && r.MaxScan > 0 {
		// A gap does not end the read. Times never fall along the log: an expired event does.
		it, _, err := rd.recordOf(v, r.Stream, lowest, new([]byte))
		if err != nil {
			return err
		}
		isGone = it != nil
	}
	page.End = lowest <= page.Min || page.From < page.Min || isGone
	return nil
}

func (rd *Reader) readForward(v view, a *arena, r event.StreamRead, page *event.StreamPage) error {
	highest := page.From + r.Span() - 1
	if highest < page.From {
		highest = math.MaxInt64
	}
	if highest < page.Min {
		return nil // All of the page is hidden; more follows.
	}
	if err := rd.readNumbers(v, a, page, max(page.From, page.Min), min(highest, page.Last), r); err != nil {
		return err
	}
	if n := len(page.Events); n == r.Count {
		highest = page.Events[n-1].Number
	}
	page.End = highest >= page.Last
	if !page.End && len(page.Events) == 0 {
		// Times never fall along the log: when the last event is expired, so are all.
		it, _, err := rd.recordOf(v, r.Stream, page.Last, new([]byte))
		if err != nil {
			return err
		}
		page.End = it == nil || it.Time() < page.Metadata.Oldest(rd.opts.Now())
	}
	return nil
}

// readNumbers adds the first events of a range of numbers, in the order given, that are there and
// not expired.
func (rd *Reader) readNumbers(v view, a *arena, page *event.StreamPage, from, to int64, r event.StreamRead) error {
	backward, count := r.Backward, to-from+1
	if backward {
		count = from - to + 1
	}
	if count <= 0 {
		return nil
	}
	hash := chunkfile.HashStream(page.Stream)
	oldest := page.Metadata.Oldest(rd.opts.Now())
	var room [32]index.Entry
	var scratch []byte
	page.Events = slices.Grow(page.Events, int(min(count, int64(r.Count), 4096)))
	for count > 0 && len(page.Events) < r.Count {
		limit := int(min(count, int64(r.Count-len(page.Events)), 4096))
		var found []index.Entry
		var err error
		if backward {
			found, err = rd.index.Descend(room[:0], hash, from, to, limit)
		} else {
			found, err = rd.index.Ascend(room[:0], hash, from, to, limit)
		}
		if err != nil {
			return err
		}
		seen := int64(-1)
		add := func(it chunkfile.Item, position int64) {
			if seen = it.Number(); it.Time() >= oldest {
				page.Events = append(page.Events, event.Resolved{Record: a.record(it, position, page.Stream)})
			}
		}
		for i, e := range found {
			a.coming = len(found) - i
			it, err := rd.confirm(v, e, page.Stream, &scratch)
			if err != nil {
				return err
			}
			if it != nil {
				add(it, e.Position)
			}
		}
		if len(found) < limit {
			return nil
		}
		// Entries of another stream of the same hash may have taken places. Continue after the last
		// number: its own entry may be the one that was cut off.
		last := found[len(found)-1].Number
		if seen != last {
			it, position, err := rd.recordOf(v, page.Stream, last, &scratch)
			if err != nil {
				return err
			}
			if it != nil {
				add(it, position)
			}
		}
		if backward {
			from = last - 1
			count = from - to + 1
		} else {
			from = last + 1
			count = to - from + 1
		}
	}
	return nil
}

// ReadEvent reads one event as the stream's metadata lets it be seen. The number
// event.Head means the stream's last. links is as in event.StreamRead.
func (rd *Reader) ReadEvent(stream string, number int64, links event.LinkReader) (event.Resolved, error) {
	return rd.ReadEventUpTo(stream, number, math.MaxInt, links)
}

// ReadEventUpTo is ReadEvent for callers who claim the memory of a large event before they
// have it: beyond so many bytes, data and metadata are left out.
func (rd *Reader) ReadEventUpTo(stream string, number int64, maxPayload int, links event.LinkReader) (r event.Resolved, err error) {
	info, err := rd.StreamInfo(stream)
	if err != nil {
		return r, err
	}
	a := arena{left: maxPayload}
	r.Record, err = rd.readEvent(&a, stream, number, &info)
	if err == nil && links != nil {
		err = rd.resolve(&a, &r, links)
	}
	return r, err
}

// readEvent reads an event of a stream, of which info is what is known.
func (rd *Reader) readEvent(a *arena, stream string, number int64, info *event.StreamInfo) (rec event.Record, err error) {
	if err := rd.visible(info); err != nil {
		return rec, err
	}
	if number == event.Head {
		number = info.Last
	}
	if number < info.Metadata.MinVisible(info.Last) || number > info.Last {
		return rec, rd.nothing(event.ErrEventNotFound)
	}
	return rd.readRecord(a, stream, number, info.Metadata.Oldest(rd.opts.Now()))
}

// readRecord reads an event unless it is older than a time.
func (rd *Reader) readRecord(a *arena, stream string, number, oldest int64) (rec event.Record, err error) {
	v, err := rd.view()
	if err != nil {
		return rec, err
	}
	defer v.release()
	defer rd.met(&err)
	defer chunkfile.GuardFaults(&err)()
	var scratch []byte
	it, position, err := rd.recordOf(v, stream, number, &scratch)
	if err != nil {
		return rec, fmt.Errorf("read event %d of stream %q: %w", number, stream, err)
	}
	if it == nil || it.Time() < oldest {
		return rec, rd.nothing(event.ErrEventNotFound)
	}
	rd.metrics.reads.add(uint64(position)>>6, 1, int64(len(it)))
	return a.record(it, position, stream), nil
}

// LastRecord reads the last ordinary event of a stream, deleted or not, hidden
// or not. It is for what the database itself keeps in streams.
func (rd *Reader) LastRecord(stream string) (rec event.Record, err error) {
	info, err := rd.StreamInfo(stream)
	if err != nil {
		return rec, err
	}
	if info.Last < 0 {
		return rec, event.ErrStreamNotFound
	}
	return rd.readRecord(newSingleArena(), stream, info.Last, math.MinInt64)
}

// Tombstone reads the tombstone of a stream; event.ErrEventNotFound when it has none.
func (rd *Reader) Tombstone(stream string) (event.Record, error) {
	return rd.readRecord(newSingleArena(), stream, event.TombstoneNumber, math.MinInt64)
}

// ReadPayload reads the data and metadata of a record that a page left bare. When
// a scavenge removed the record meanwhile that is event.ErrEventNotFound.
func (rd *Reader) ReadPayload(r *event.Record) (err error) {
	v, err := rd.view()
	if err != nil {
		return err
	}
	defer v.release()
	defer rd.met(&err)
	defer chunkfile.GuardFaults(&err)()
	var scratch []byte
	it, err := v.itemAt(r.Position, &scratch)
	if err != nil {
		return fmt.Errorf("read event %d of stream %q: %w", r.Number, r.Stream, err)
	}
	if it == nil || !it.IsRecord() || it.Id() != r.ID || it.Number() != r.Number {
		return event.ErrEventNotFound
	}
	full := newSingleArena().record(it, r.Position, r.Stream)
	// It may have been redacted since.
	r.Data, r.Metadata, r.Flags = full.Data, full.Metadata, full.Flags
	r.Bare, r.LeftOut = false, 0
	return nil
}

// resolve looks up the target of a link, if the reader may see it. Otherwise the link is
// dead, and the target is not looked at.
func (rd *Reader) resolve(a *arena, r *event.Resolved, links event.LinkReader) error {
	if r.Type != event.TypeLink {
		return nil
	}
	link := r.Record
	if link.Bare {
		// Where it leads is not known without its data, which are not kept. When a
		// scavenge removed it meanwhile, who reads them next hears of it.
		if err := rd.ReadPayload(&link); err != nil {
			if err == event.ErrEventNotFound {
				return nil
			}
			return err
		}
	}
	number, stream, ok := event.ParseLink(link.Data)
	if !ok {
		return nil
	}
	r.TargetNumber, r.TargetStream = number, stream
	info, err := rd.StreamInfo(stream)
	if err != nil {
		return err
	}
	if may, err := links.MayRead(stream, &info); err != nil || !may {
		r.Link = event.LinkDead
		return err
	}
	target, err := rd.readEvent(a, stream, number, &info)
	switch err {
	case nil:
		r.Link, r.Target = event.LinkResolved, &target
	case event.ErrStreamNotFound, event.ErrStreamDeleted, event.ErrEventNotFound:
		r.Link = event.LinkDead
	default:
		return err
	}
	return nil
}

// WaitStream blocks until the last number of a stream is above a number, or the stream is
// hard-deleted. A metadata stream is hard-deleted with the stream it describes. A soft deletion
// does not end a wait; events that are written after it do.
func (rd *Reader) WaitStream(ctx context.Context, stream string, after int64) error {
	return rd.notify.wait(ctx, func() (bool, error) {
		info, err := rd.StreamInfo(stream)
		return info.Last > after || info.HardDeleted, err
	}, wakers(nil, stream)...)
}

// wakers adds the hashes of the streams whose events end the waits for a stream.
func wakers(hashes []uint64, stream string) []uint64 {
	hashes = append(hashes, chunkfile.HashStream(stream))
	if event.IsMetaStream(stream) {
		hashes = append(hashes, chunkfile.HashStream(event.RootOf(stream)))
	}
	return hashes
}

// WaitStreams blocks until the last number of one of the streams is above what
// stands for it in after, or one is hard-deleted. Without streams it waits for the context.
func (rd *Reader) WaitStreams(ctx context.Context, streams []string, after []int64) error {
	if len(streams) == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	hashes := make([]uint64, 0, len(streams))
	for _, s := range streams {
		hashes = wakers(hashes, s)
	}
	return rd.notify.wait(ctx, func() (bool, error) {
		for i, s := range streams {
			if info, err := rd.StreamInfo(s); err != nil || info.Last > after[i] || info.HardDeleted {
				return true, err
			}
		}
		return false, nil
	}, hashes...)
}

// WaitLog blocks until the log's end is above a position, for reads of streams too (see Settled).
func (rd *Reader) WaitLog(ctx context.Context, position int64) error {
	return rd.notify.waitFor(ctx, position, func() (bool, error) {
		return rd.Settled() > position, rd.Failed()
	}, nil)
}
