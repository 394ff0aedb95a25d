package streams

import (
	"context"
	"errors"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/caching"
	"github.com/annalsdb/annals/http/leader"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/page"
	"github.com/annalsdb/annals/http/request"
)

// Event answers with one event of a stream.
func (s *Handlers) Event(_ context.Context, x *request.Request) error {
	stream := x.Route.Stream
	number := event.Head
	var err error
	if x.Route.From != page.SegHead {
		if number, err = page.Number(x.Route.From); err != nil {
			return err
		}
	}
	links, err := x.Caller.LinksOf(true)
	if err != nil {
		return err
	}
	ctx, err := leader.ReadsAsked(x)
	if err != nil {
		return err
	}
	switch {
	case stream == event.AllStream: // $all has no numbered events.
		return event.ErrStreamNotFound
	case event.IsIndexStream(stream):
		return s.Finder.indexEvent(ctx, x, number)
	}
	e, err := s.readEvent(ctx, x, stream, number, links)
	if err != nil {
		if event.IsMetaStream(stream) && (errors.Is(err, event.ErrEventNotFound) || errors.Is(err, event.ErrStreamNotFound)) {
			return s.noMetadata(ctx, x, event.OriginalOf(stream), err)
		}
		return err
	}
	if e.Link == event.LinkDead {
		return event.ErrEventNotFound
	}
	if number != event.Head {
		x.Copies().Last(caching.Forever)
	} else {
		info, err := s.Store.StreamInfo(ctx, stream)
		if err != nil {
			return err
		}
		x.Copies().Open(e.Number, &info.Metadata)
	}
	x.Copies().OfCaller(*e)
	writeEvent(x, e)
	return nil
}

// writeEvent answers with an event in the negotiated type.
func writeEvent(x *request.Request, e *event.Resolved) {
	rec := e.Event()
	b := x.Out[:0]
	switch x.Media.Form {
	case media.FormJSON:
		b = atom.AppendValue(b, rec.Data, rec.IsJSON())
	case media.FormTextXML, media.FormAppXML:
		b = atom.AppendDataXML(b, rec.Data)
	case media.FormEventJSON:
		b = atom.AppendEventJSON(b, e)
	case media.FormEventXML:
		b = atom.AppendEventXML(b, e)
	case media.FormAtomJSON:
		b = x.Atom().AppendEntryJSON(b, e, x.EmbedOf())
	case media.FormRaw:
		b = append(b, rec.Data...)
	case media.FormHTML:
		b = request.AppendPage(x, b, e.Stream, e.Number)
	default:
		b = x.Atom().AppendEntryXML(b, e)
	}
	x.Out = b
	x.SendBody()
}

// readEvent reads one event. The memory of a large one is claimed before it is read.
func (s *Handlers) readEvent(ctx context.Context, x *request.Request, stream string, number int64, links event.LinkReader) (*event.Resolved, error) {
	e, err := s.Store.ReadEventUpTo(ctx, stream, number, request.EventPayload, links)
	if err != nil {
		return nil, err
	}
	return complete(ctx, x, &e)
}

// complete returns an event with what was left out of it, as readEvent does.
func complete(ctx context.Context, x *request.Request, e *event.Resolved) (*event.Resolved, error) {
	if e.IsBare() {
		// It is written as well.
		if err := x.Claim.Grow(ctx, 2*int64(e.PayloadBytes())); err != nil {
			return nil, err
		}
	}
	return e.Complete(func(r *event.Record) error { return x.Node.Store.ReadPayload(ctx, r) })
}
