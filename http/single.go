package httpapi

import (
	"context"
	"errors"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/atom"
)

var emptyObject = []byte("{}")

// singleEvent answers with one event of a stream.
func (s *streamHandlers) singleEvent(ctx context.Context, x *exchange) error {
	stream := x.route.stream
	number := event.Head
	var err error
	if x.route.from != segHead {
		if number, err = eventNumber(x.route.from); err != nil {
			return err
		}
	}
	links, err := linksOf(x, true)
	if err != nil {
		return err
	}
	if ctx, err = x.readsAsked(); err != nil {
		return err
	}
	if stream == event.AllStream { // $all has no numbered events.
		return event.ErrStreamNotFound
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
		x.closed()
	} else {
		info, err := s.store.StreamInfo(ctx, stream)
		if err != nil {
			return err
		}
		x.open(e.Number, &info.Metadata)
	}
	ofCaller(x, *e)
	writeEvent(x, e)
	return nil
}

// writeEvent answers with an event in the negotiated type.
func writeEvent(x *exchange, e *event.Resolved) {
	rec := e.Event()
	b := x.out[:0]
	switch x.media.form {
	case formJSON:
		b = atom.AppendValue(b, rec.Data, rec.IsJSON())
	case formTextXML, formAppXML:
		b = atom.AppendDataXML(b, rec.Data)
	case formEventJSON:
		b = atom.AppendEventJSON(b, e)
	case formEventXML:
		b = atom.AppendEventXML(b, e)
	case formAtomJSON:
		b = x.atom().AppendEntryJSON(b, e, embedOf(x))
	case formRaw:
		b = append(b, rec.Data...)
	case formHTML:
		b = appendPage(x, b, e.Stream, e.Number)
	default:
		b = x.atom().AppendEntryXML(b, e)
	}
	x.out = b
	x.ok()
}
