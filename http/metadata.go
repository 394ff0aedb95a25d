package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/jsontext"
)

var (
	errMetaOfMeta = badRequest("Stream must be non-empty string and should not be metastream")
	errWriteMeta  = badRequest("Invalid request. Stream must be non-empty string and should not be metastream")
	errMetaType   = badRequest("Bad Request. You should not include an event type for metadata.")
)

// writeMetadata writes the metadata of a stream: the last event of its metadata
// stream.
func (s *streamHandlers) writeMetadata(_ context.Context, x *exchange) error {
	if event.IsMetaStream(x.route.stream) {
		return errWriteMeta
	}
	m := x.r.Header
	if t, ok := headerEventType.in(m); ok && t != event.TypeMetadata {
		return errMetaType
	}
	id, hasID, err := eventID(m)
	if err != nil {
		return err
	}
	w, err := newWrite(x, event.MetaStreamOf(x.route.stream))
	if err != nil {
		return err
	}
	w.hasIDs = hasID || x.body.form.isBatch()
	if done, err := s.way.passOn(x, w.leader, w.hasIDs); done || err != nil {
		return err
	}
	body, err := x.readBody(maxBody, problemTooLarge, problemInvalidBody)
	if err != nil {
		return err
	}
	e := &w.one[0]
	switch f := x.body.form; {
	case f.isBatch():
		events, err := decodeBatch(x, body)
		if err != nil {
			return err
		}
		*e = events[len(events)-1]
		id, hasID = e.ID, true
	case f == formJSON || f == formAtomJSON:
		if !jsontext.ValidUTF8(body) {
			return problemInvalidBody
		}
		e.Data = body
		if data, itemID, itemHasID, isItem := translateMetadataItem(body); isItem {
			e.Data = data
			if !hasID {
				id, hasID = itemID, itemHasID
			}
		}
	default:
		e.Data = body
	}
	if !hasID {
		id = event.ID(uuid.New())
	}
	e.ID, e.Type, e.Flags = id, event.TypeMetadata, 0
	if jsontext.IsObject(e.Data) {
		e.Flags = event.FlagJSON
	}
	w.Events = w.one[:]
	return s.sendAppended(x, w, http.StatusCreated)
}

// streamMetadata answers with the current metadata of a stream, or an earlier event of it.
func (s *streamHandlers) streamMetadata(_ context.Context, x *exchange) error {
	stream := x.route.stream
	if event.IsMetaStream(stream) {
		return errMetaOfMeta
	}
	number := event.Head
	if from := x.route.from; from != "" && from != segHead {
		var err error
		if number, err = eventNumber(from); err != nil {
			return err
		}
	}
	ctx, err := x.readsAsked()
	if err != nil {
		return err
	}
	info, err := s.store.StreamInfo(ctx, stream)
	if err != nil {
		return err
	}
	switch {
	case info.HardDeleted:
		return event.ErrStreamDeleted
	case info.MetaLast < 0:
		return s.noMetadata(ctx, x, stream, event.ErrStreamNotFound)
	}
	e, err := s.readEvent(ctx, x, event.MetaStreamOf(stream), number, nil)
	switch {
	case errors.Is(err, event.ErrEventNotFound) || errors.Is(err, event.ErrStreamNotFound):
		return s.noMetadata(ctx, x, stream, err)
	case err != nil:
		return err
	}
	if number != event.Head {
		x.closed()
	} else {
		x.open(e.Number, nil)
	}
	writeEvent(x, e)
	return nil
}

// noMetadata answers for metadata that is not there: an empty document when the
// stream that it would describe exists, else the error.
func (s *streamHandlers) noMetadata(ctx context.Context, x *exchange, original string, missing error) error {
	info, err := s.store.StreamInfo(ctx, original)
	switch {
	case err != nil:
		return err
	case info.HardDeleted:
		return event.ErrStreamDeleted
	case !info.Exists():
		return missing
	}
	writeEmpty(x)
	return nil
}

// writeEmpty answers with the empty document of the negotiated type.
func writeEmpty(x *exchange) {
	x.out = x.out[:0]
	if x.media.form.isJSON() {
		x.out = append(x.out, emptyObject...)
	}
	x.w.Header()[keyCacheControl] = cacheNever
	x.ok()
}
