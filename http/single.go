package httpapi

import (
	"errors"

	"github.com/annalsdb/annals/event"
)

var emptyObject = []byte("{}")

// single answers with one event of a stream.
func (x *exchange) single() error {
	stream := x.route.stream
	number := event.Head
	var err error
	if x.route.from != segHead {
		if number, err = eventNumber(x.route.from); err != nil {
			return err
		}
	}
	resolve, err := headerResolveLinks.flag(x.r.Header, true)
	if err != nil {
		return err
	}
	leader, err := requireLeader(x.r.Header)
	if err != nil {
		return err
	}
	ctx := x.reads()
	defer ctx.release()
	if leader {
		if err := x.onLeader(ctx); err != nil {
			return err
		}
	}
	if stream == event.AllStream { // The log is no stream: it has no event with a number.
		return event.ErrStreamNotFound
	}
	e, err := x.s.store.ReadEvent(ctx, stream, number, resolve)
	if err != nil {
		if event.IsMetaStream(stream) && (errors.Is(err, event.ErrEventNotFound) || errors.Is(err, event.ErrStreamNotFound)) {
			return x.noMetadata(ctx, event.OriginalOf(stream), err)
		}
		return err
	}
	if e.Link == event.LinkDead {
		return event.ErrEventNotFound
	}
	if number != event.Head {
		x.closed()
	} else {
		info, err := x.s.store.StreamInfo(ctx, stream)
		if err != nil {
			return err
		}
		x.open(e.Number, &info.Metadata)
	}
	x.writeEvent(&e)
	return nil
}

// writeEvent answers with an event in the negotiated type.
func (x *exchange) writeEvent(e *event.Resolved) {
	rec := e.Event()
	b := x.out[:0]
	switch x.media.form {
	case formJSON:
		b = appendValue(b, rec.Data, rec.IsJSON())
	case formTextXML, formAppXML:
		if len(rec.Data) == 0 {
			b = append(b, `<data />`...)
		} else {
			b = appendElement(b, "data", rec.Data, false)
		}
	case formEventJSON:
		b = x.appendEventJSON(b, e)
	case formEventXML:
		b = append(b, `<event>`...)
		b = appendEventXML(b, e, false)
		b = append(b, `</event>`...)
	case formAtomJSON:
		b = x.appendEntryJSON(b, e, nil, embedOf(x), true)
	case formRaw:
		b = append(b, rec.Data...)
	case formHTML:
		b = x.appendPage(b, e.Stream, e.Number)
	default:
		b = x.appendEntryXML(b, e, nil, &singleEntry, true)
	}
	x.out = b
	x.ok()
}
