package grpcapi

import (
	"context"
	"errors"
	"math"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/catchup"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/grpc/query"
)

// A read goes page by page. Each is sent before the next is read, so that the client's pace is that
// of the read, and one that is slow holds one page.
const (
	minReadPage = 32  // events of a page, unless fewer are asked for
	maxReadPage = 500 // as far as they fit
	// bytes of data and metadata of a page; events beyond them are read one by one
	readPayload = 512 << 10
)

// reading is a read or a subscription that runs.
type reading struct {
	catchup.Cursor
	s     *Server
	q     readRequest
	words wording
	out   sender
	room  *event.Room // that pages are read into; nil while there are none
	size  int         // events of the next page
	claim *api.Claim  // of the memory of all requests

	rights linkRights
}

// Read sends events of a stream or of the log, once or as they come.
func (t *streamsService) Read(req *streams.ReadReq, stream grpc.ServerStreamingServer[streams.ReadResp]) error {
	q, err := readRequestOf(req)
	if err != nil {
		return err
	}
	err = t.s.read(stream, q, &streamsWords{textIDs: q.textIDs})
	if q.all {
		return err
	}
	return onStream(q.stream, err)
}

// read does a read, or a subscription as long as it lasts.
func (s *Server) read(stream grpc.ServerStream, q readRequest, words wording) error {
	ctx := stream.Context()
	term := s.term.now() // Before it is known that this node leads.
	if err := s.freshly(ctx); err != nil {
		return err
	}
	if err := s.authorize(ctx, q.stream, access.ReadRight); err != nil {
		return err
	}
	release, err := s.share(ctx, &q)
	if err != nil {
		return err
	}
	defer release()
	r := reading{Cursor: catchup.Cursor{Store: s.opts.Store, Stream: q.stream, All: q.all, Query: q.query, Backward: q.backward, Seen: -1, Last: -1},
		s: s, q: q, words: words, out: sender{stream: stream}, size: minReadPage, claim: new(api.Claim),
		rights: linkRights{ctx, s, callOf(ctx)}}
	s.needs(ctx, access.ReadRight, q.stream)
	if err := s.await(ctx, s.opts.OwnLog()); err != nil {
		return err
	}
	defer r.leaveRoom()
	switch {
	case q.subscribed:
		s.metrics.subscriptions.Add(1)
		defer s.metrics.subscriptions.Add(-1)
		return (&following{reading: r}).run(ctx, term)
	case q.part != nil:
		return r.find(ctx)
	case q.all:
		return r.log(ctx)
	}
	return r.stream(ctx)
}

// share gives the caller what a read takes part of: subscriptions are bounded with live tails, and
// reads that have to look for their events among themselves.
func (s *Server) share(ctx context.Context, q *readRequest) (release func(), err error) {
	switch {
	case q.subscribed:
		return s.take(ctx, api.Tail)
	case q.filtered, q.part != nil:
		return s.take(ctx, api.Search)
	}
	return func() {}, nil
}

// stream reads a part of a stream.
func (r *reading) stream(ctx context.Context) error {
	info, err := r.s.opts.Store.StreamInfo(ctx, r.q.stream)
	switch {
	case err != nil:
		return err
	case info.HardDeleted:
		return event.ErrStreamDeleted
	case !info.Exists():
		return r.out.message(&streams.ReadResp{Content: &streams.ReadResp_StreamNotFound_{
			StreamNotFound: &streams.ReadResp_StreamNotFound{StreamIdentifier: streamOf(r.q.stream)},
		}})
	}
	left := r.q.limit
	r.Last = info.Last
	switch {
	case r.q.begin == beginsAtEnd && r.q.backward:
		r.Next = info.Last
	case r.q.begin == beginsAtEnd:
		left = 0
	case r.q.begin == beginsAt:
		r.Next = r.q.from
	}
	if err := r.once(ctx, left); err != nil || !r.q.positions {
		return err
	}
	return r.out.message(&streams.ReadResp{Content: &streams.ReadResp_LastStreamPosition{LastStreamPosition: uint64(r.Last)}})
}

// log reads a part of the log.
func (r *reading) log(ctx context.Context) error {
	switch {
	case r.q.begin == beginsAtEnd && r.q.backward:
		r.Next = event.End
	case r.q.begin == beginsAtEnd:
		return nil
	case r.q.begin == beginsAt:
		r.Next = r.q.from
	}
	return r.once(ctx, r.q.limit)
}

// find sends the position up to which the answer holds, and then what a query finds.
func (r *reading) find(ctx context.Context) error {
	q := r.q.part
	if err := r.s.opts.Cover(ctx, q); err != nil {
		return err
	}
	if err := r.out.message(&query.ReadResp{Position: positionOrNone(q.Until)}); err != nil {
		return err
	}
	if q.Until < 0 { // The log was empty.
		return nil
	}
	r.Next = q.From()
	return r.once(ctx, r.q.limit)
}

// once sends events, so many at most, up to the end that a page finds.
func (r *reading) once(ctx context.Context, left int64) error {
	asked, tellsFirst := r.Next, r.q.positions && !r.q.all && !r.q.backward
	for more := left > 0; more; {
		page, err := r.page(ctx, int(min(int64(r.size), left)), 0)
		if err != nil {
			return err
		}
		if tellsFirst && len(page.Events) > 0 {
			tellsFirst = false
			if first := page.Events[0].Number; first > asked {
				if err := r.out.message(&streams.ReadResp{Content: &streams.ReadResp_FirstStreamPosition{FirstStreamPosition: uint64(first)}}); err != nil {
					return err
				}
			}
		}
		more = page.More
		if part := r.q.part; part != nil {
			page.Events, more = part.Take(page.Events, r.Next, more, len(page.Events), math.MaxInt)
		}
		sent, err := r.events(ctx, page.Events)
		if err != nil {
			return err
		}
		left -= sent
		more = more && left > 0
	}
	return nil
}

// page reads a page of so many events at most, for which it looks at so many records of the log at
// most; 0: as many as it may.
func (r *reading) page(ctx context.Context, count, look int) (catchup.Page, error) {
	r.rights.call.flush() // The client has something to do meanwhile.
	if err := r.rights.call.check(ctx); err != nil {
		return catchup.Page{}, err
	}
	payload, err := r.roomFor(ctx)
	if err != nil {
		return catchup.Page{}, err
	}
	defer r.hasRead(payload)
	links, err := r.links(ctx)
	if err != nil {
		return catchup.Page{}, err
	}
	l := catchup.Look{Count: count, Links: links, MaxPayload: payload, Room: r.takeRoom(), MaxScan: look}
	if r.q.filtered {
		l.Filter, l.Names, l.IsSlow = r.q.filter.Takes, r.q.names, r.q.filter.IsSlow()
	}
	page, err := r.Read(ctx, &l)
	if err == nil {
		r.resize(page.Events)
	}
	return page, err
}

// links resolves links, if that is asked for. Of an index it judges the events, unless the caller
// may read all of them at this moment.
func (r *reading) links(ctx context.Context) (event.LinkReader, error) {
	if r.q.query == nil {
		if r.q.resolve {
			return &r.rights, nil
		}
		return nil, nil
	}
	err := r.s.authorize(ctx, event.AllStream, access.ReadRight)
	if errors.Is(err, event.ErrNotAuthorized) {
		return &r.rights, nil
	}
	return nil, err
}

// resize makes the next page as large as a page of such events may be.
func (r *reading) resize(events []event.Resolved) {
	r.size = min(2*r.size, maxReadPage)
	if n := len(events); n > 0 && events[n-1].IsBare() {
		r.size = max(r.size/4, minReadPage)
	}
}

// events sends the events of a page, but for those that a scavenge removed meanwhile. It tells how
// many there were.
func (r *reading) events(ctx context.Context, events []event.Resolved) (sent int64, err error) {
	defer func() { r.s.metrics.events.Add(uint64(sent)) }()
	for len(events) > 0 {
		if err := ctx.Err(); err != nil { // The client may have taken long for those before.
			return sent, err
		}
		n, size, payload := together(events)
		isThere := true
		if n > 1 {
			_, err = r.rights.call.send(ctx, int64(payload), &r.out, func() (*[]byte, error) {
				return r.encodeAll(events[:n], size), nil
			})
		} else {
			n = 1
			isThere, err = r.event(ctx, &events[0])
		}
		if err != nil {
			return sent, err
		}
		if isThere {
			sent += int64(n)
		}
		events = events[n:]
	}
	return sent, nil
}

// encodeAll encodes events into one buffer of so many bytes.
func (r *reading) encodeAll(events []event.Resolved, size int) *[]byte {
	room := mem.DefaultBufferPool().Get(size)
	b := (*room)[:0]
	for i := range events {
		b = r.words.append(b, &events[i])
	}
	*room = b
	return room
}

// takeRoom returns the memory that pages are read into.
func (r *reading) takeRoom() *event.Room {
	if r.room == nil {
		if r.room, _ = r.s.rooms.Get().(*event.Room); r.room == nil {
			r.room = new(event.Room)
		}
	}
	return r.room
}

// leaveRoom gives the memory of pages to others.
func (r *reading) leaveRoom() {
	if r.room != nil {
		r.s.rooms.Put(r.room)
		r.room = nil
	}
	r.claim.Release()
}
