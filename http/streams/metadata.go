package streams

import (
	"context"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/caching"
	"github.com/annalsdb/annals/http/leader"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/page"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/jsontext"
)

var (
	errMetaOfMeta = problem.Bad("Stream must be non-empty string and should not be metastream")
	errWriteMeta  = problem.Bad("Invalid request. Stream must be non-empty string and should not be metastream")
	errMetaType   = problem.Bad("Bad Request. You should not include an event type for metadata.")
)

// WriteMetadata writes the metadata of a stream: the last event of its metadata
// stream.
func (s *Handlers) WriteMetadata(_ context.Context, x *request.Request) error {
	if event.IsMetaStream(x.Route.Stream) {
		return errWriteMeta
	}
	m := x.R.Header
	if t, ok := args.HeaderEventType.In(m); ok && t != event.TypeMetadata {
		return errMetaType
	}
	id, hasID, err := args.EventID(m)
	if err != nil {
		return err
	}
	w, body, err := s.newAppend(x, event.MetaStreamOf(x.Route.Stream))
	if err != nil {
		return err
	}
	e := &w.one[0]
	switch f := x.Body.Form; {
	case f.IsBatch():
		events, err := decodeBatch(x, body)
		if err != nil {
			return err
		}
		*e = events[len(events)-1]
		id, hasID = e.ID, true
	case f == media.FormJSON || f == media.FormAtomJSON:
		if !jsontext.ValidUTF8(body) {
			return problem.InvalidBody
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

// Metadata answers with the current metadata of a stream, or an earlier event of it.
func (s *Handlers) Metadata(_ context.Context, x *request.Request) error {
	stream := x.Route.Stream
	if event.IsMetaStream(stream) {
		return errMetaOfMeta
	}
	number := event.Head
	if from := x.Route.From; from != "" && from != page.SegHead {
		var err error
		if number, err = page.Number(from); err != nil {
			return err
		}
	}
	ctx, err := leader.ReadsAsked(x)
	if err != nil {
		return err
	}
	info, err := s.Store.StreamInfo(ctx, stream)
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
		x.Copies().Last(caching.Forever)
	} else {
		x.Copies().Open(e.Number, nil)
	}
	writeEvent(x, e)
	return nil
}

// noMetadata answers for metadata that is not there: an empty document when the
// stream that it would describe exists, else the error.
func (s *Handlers) noMetadata(ctx context.Context, x *request.Request, original string, missing error) error {
	info, err := s.Store.StreamInfo(ctx, original)
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
func writeEmpty(x *request.Request) {
	x.Out = x.Out[:0]
	if x.Media.Form.IsJSON() {
		x.Out = append(x.Out, request.EmptyObject...)
	}
	x.W.Header()[caching.KeyControl] = caching.Never
	x.SendBody()
}
