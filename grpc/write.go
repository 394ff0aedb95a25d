package grpcapi

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
)

// recordBytes is about how much an event takes in an entry in addition to its texts.
const recordBytes = 64

// smallEntry is what an append may take in an entry whatever is held: calls that come to no end
// must not keep others from writing.
const smallEntry = 4 << 10

// appending is an append under construction, with room for the usual single event.
type appending struct {
	end func() // ends what changing began; nil: it began nothing
	event.Write
	payload int64 // data and metadata of the events
	kept
	one [1]event.Proposed
}

// kept is what an append holds until it is answered.
type kept struct {
	entry int64     // about what the append takes in an entry
	claim api.Claim // of the memory of all requests: as much as entry
}

// target sets the stream of an append or a deletion.
func (a *appending) target(stream string, expected int64, err error) error {
	if err := checkName(stream); err != nil {
		return err
	}
	a.Stream, a.ExpectedVersion = stream, expected
	return err
}

// add takes one event more, of a call.
func (s *Server) add(c *call, a *appending, m *proposal) error {
	switch {
	case m.kind == nil:
		return missingProperty(mapType)
	case !m.hasContentType:
		return missingProperty(mapContentType)
	case len(m.kind) == 0:
		return invalid("the type of an event is empty")
	case api.CheckName(len(m.kind)) != nil:
		return invalid("the type of an event has %d bytes, at most %d are possible", len(m.kind), event.MaxNameBytes)
	}
	id, err := m.id.get()
	if err != nil {
		return err
	}
	if id.IsZero() {
		return invalid("the id of an event is zero")
	}
	e := event.Proposed{ID: id, Data: m.data, Metadata: m.metadata}
	if m.isJSON {
		e.Flags = event.FlagJSON
	}
	size := len(e.Data) + len(e.Metadata)
	entry := int64(size + len(m.kind) + recordBytes)
	switch err := s.opts.CheckEvent(len(m.kind), size, &a.payload); {
	case err == event.ErrTooLarge:
		return largeEvent(id, size, s.opts.MaxEventBytes)
	case err != nil || a.entry+entry > api.MaxAppendBytes:
		return s.largeAppend()
	}
	if err := s.keep(c, &a.kept, entry); err != nil {
		return err
	}
	if a.Events == nil {
		a.Events = a.one[:0]
	}
	if len(a.Events) == cap(a.Events) {
		a.Events = slices.Grow(a.Events, 1+c.in.waiting())
	}
	if n := len(a.Events); n > 0 && a.Events[n-1].Type == string(m.kind) {
		e.Type = a.Events[n-1].Type
	} else {
		e.Type = string(m.kind)
	}
	a.Events = append(a.Events, e)
	return nil
}

// keep claims an event that an append keeps. What its message claimed for it goes over.
func (s *Server) keep(c *call, k *kept, entry int64) error {
	k.claim.Use(s.opts.Memory)
	switch {
	case c.message >= entry:
		c.message -= entry
		c.claim.Shrink(entry)
		k.claim.Add(entry)
	case k.entry+entry <= smallEntry:
		k.claim.Add(entry)
	case !k.claim.Try(entry):
		return event.ErrNoRoom
	}
	k.entry += entry
	return nil
}

// drop makes room for others when an append is done with.
func (s *Server) drop(k *kept) { k.claim.Release() }

// Names of problems with appended events.
const (
	exceptionLargeAppend = "maximum-append-size-exceeded"
	exceptionLargeEvent  = "maximum-append-event-size-exceeded"
)

func missingProperty(name string) error {
	return &problem{codes.InvalidArgument, "Required Metadata Property '" + name + "' is missing", "missing-required-metadata-property",
		[]string{"required-metadata-properties", mapType + "," + mapContentType}}
}

func (s *Server) largeAppend() error {
	most := strconv.FormatInt(s.opts.MaxAppendBytes, 10)
	return &problem{codes.InvalidArgument, "Maximum Append Size of " + most + " Exceeded.", exceptionLargeAppend, []string{"maximum-append-size", most}}
}

func largeEvent(id event.ID, size, most int) error {
	is, may := strconv.Itoa(size), strconv.Itoa(most)
	return &problem{codes.InvalidArgument, "Event with Id: " + id.String() + ", Size: " + is + ", exceeds Maximum Append Event Size of " + may + ".",
		exceptionLargeEvent, []string{"maximum-append-event-size", may, "event-id", id.String(), "proposed-append-event-size", is}}
}

// expectedOf reads an expected version; set tells whether one was chosen, E is an empty message.
func expectedOf[E any](set bool, revision uint64, noStream, anyVersion, exists *E) (int64, error) {
	switch {
	case !set:
		return 0, invalid("the expected revision is missing")
	case noStream != nil:
		return event.NoStream, nil
	case anyVersion != nil:
		return event.AnyVersion, nil
	case exists != nil:
		return event.StreamExists, nil
	case revision == noRevision:
		return event.NoStream, nil
	}
	return revisionOf(revision)
}

// write does a write, here if the caller wants the leader, else wherever it is.
func (s *Server) write(ctx context.Context, w *event.Write) (event.Written, error) {
	written, err := s.submit(ctx, w)
	if errors.Is(err, event.ErrTooLarge) { // Each event was within its limit.
		err = s.largeAppend()
	}
	return written, onStream(w.Stream, err)
}

func (s *Server) submit(ctx context.Context, w *event.Write) (written event.Written, err error) {
	limited := clock.NewDeadline(ctx, s.opts.WriteTimeout)
	defer limited.Release()
	if callOf(ctx).leader {
		written, err = s.opts.Store.Write(limited, w)
	} else {
		written, err = s.opts.Store.WriteAnywhere(limited, w)
	}
	if errors.Is(err, event.ErrWriteTimeout) && ctx.Err() != nil {
		err = ctx.Err()
	}
	return written, err
}

// received is the end of a call whose messages cannot be received any more. A message that cannot
// be decoded is the caller's fault.
func received(ctx context.Context, err error) error {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	code := status.Code(err)
	if code == codes.Internal {
		code = codes.InvalidArgument
	}
	return plain(code, "receive a message: "+err.Error())
}
