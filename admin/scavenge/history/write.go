package history

import (
	"context"
	"strconv"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/admin/record"
	"github.com/annalsdb/annals/event"
)

// linkIDs is the name space of the ids of links: a link has the same id whatever node
// writes it, so that it is written once.
var linkIDs = uuid.MustParse("5d1c3f0a-6f2b-4f43-9a4e-3f6c0b1d7e92")

// write writes an event of a run, and the link to it.
func (w *Writer) write(ctx context.Context, it *item) error {
	r := it.run
	written, err := w.append(ctx, r.journal, it.event)
	if err != nil || !it.boundary() {
		return err
	}
	link, err := w.link(ctx, r.index, r.stream, written.First)
	if err == nil && it.event.Type == TypeStarted {
		r.link = link
	}
	return err
}

// append appends an event to a stream, whatever its version.
func (w *Writer) append(ctx context.Context, to *record.Journal, e event.Proposed) (event.Written, error) {
	written, err := to.Append(ctx, e)
	if err == nil {
		w.metrics.written.Inc()
	}
	return written, err
}

// link puts a link to an event of a run into IndexStream, and returns its number there.
func (w *Writer) link(ctx context.Context, index *record.Journal, stream string, number int64) (int64, error) {
	data := append(strconv.AppendInt(nil, number, 10), "@"+stream...)
	written, err := w.append(ctx, index, event.Proposed{ID: event.ID(uuid.NewSHA1(linkIDs, data)), Type: event.TypeLink, Data: data})
	return written.First, err
}
