// Package atom writes pages of events as Atom feeds, and single events as entries, in
// JSON and in XML: a page comes in, bytes go out. It calls back for two things alone, a
// payload that the page was read without, and room when there is much of the text.
//
// Documents are appended by hand into buffers that are used again: no reflection, no
// encoding/json and no fmt.
package atom

import (
	"errors"

	"github.com/annalsdb/annals/event"
)

const (
	// PartText is how much of a feed is written before Source sees it.
	PartText = 16 << 10
	// MaxText is how much Source should hold at most.
	MaxText = 8 << 20
)

// Source is where a page is from and where its text goes.
type Source interface {
	// ReadPayload reads the data and metadata of a record that is bare.
	ReadPayload(r *event.Record) error
	// Part gets the part of a feed that has been written so far. It returns that part, or takes it
	// and returns a buffer for the rest.
	Part(b []byte) ([]byte, error)
}

// Writer writes the documents of one request after the other. It keeps buffers; feeds
// that it made are good until the next one.
type Writer struct {
	Source Source
	// Origin is what addresses begin with: scheme, host and port, and a proxy's prefix.
	Origin []byte
	// Index is the index stream whose events are shown, in which their numbers are their positions;
	// empty: there is none.
	Index string
	// MaxData bounds the data and the metadata that an entry shows of an event, in bytes. Entries
	// then tell how long the data is, in the levels that show any. Below 0 both are whole.
	MaxData int

	root []byte // address of the feed, which all its links begin with
	// by which messages are answered, in the order of delivery, each followed by a comma
	ids     []byte
	id      []byte // that of the message being written
	scratch []byte
	names   names
	second  int64 // since 1970, of the time written last; 0: none
	date    [len(dateText)]byte
}

// maxBuffer bounds the buffer that is kept.
const maxBuffer = 1 << 20

// Reset forgets the request and keeps the buffers.
func (w *Writer) Reset() {
	root, ids, scratch, n := w.root[:0], w.ids[:0], w.scratch[:0], w.names
	if cap(scratch) > maxBuffer {
		scratch = nil
	}
	n.reset()
	*w = Writer{root: root, ids: ids, scratch: scratch, names: n}
}

// AppendHome appends the address of a stream and a slash.
func (w *Writer) AppendHome(b []byte, stream string) []byte {
	w.name(stream, false)
	return append(b, w.names.home...)
}

// part shows the source what there is of a feed when that is much.
func (d *Feed) part(b []byte) ([]byte, error) {
	if len(b) < PartText {
		return b, nil
	}
	return d.w.Source.Part(b)
}

// whole returns an event of the page with its payload, where it was left out and
// the entry shows it; nil: the event is gone. The page keeps the bare one, so that the payload goes
// when the entry was written.
func (d *Feed) whole(e *event.Resolved, level Level) (*event.Resolved, error) {
	if level < Body && level != Content && e.Type != event.TypeLink {
		return e, nil
	}
	full, err := e.Complete(d.w.Source.ReadPayload)
	switch {
	case !errors.Is(err, event.ErrEventNotFound):
		return full, err
	case d.isGroup:
		// The messages are handed out already, and it may have been read long ago: it is
		// what a link to it would be now.
		of := e.Event()
		return &event.Resolved{Record: e.Record, Link: event.LinkDead, TargetStream: of.Stream, TargetNumber: of.Number}, nil
	}
	return nil, nil
}
