package source

import (
	"context"
	"errors"

	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
)

const categoryPrefix = "$ce-"

// streamsOf returns the streams that a definition names.
func streamsOf(d *handler.Definition) []string {
	streams := make([]string, 0, len(d.Categories)+len(d.Streams))
	for _, c := range d.Categories {
		streams = append(streams, categoryPrefix+c)
	}
	return append(streams, d.Streams...)
}

var errUnfinished = errors.New("not built yet")

// Reader reads the sources of a projection. It belongs to one goroutine.
type Reader struct{}

// Open returns a reader that goes on behind a position. It begins with the check
// of rights; nothing else is read but what the order of several streams needs.
func Open(ctx context.Context, o Options) (*Reader, error) { return nil, errUnfinished }

// Fill reads ahead. It returns when an event is buffered or the position moved
// over events that are not selected, and waits at the end of the input until one
// of both is so. It returns ErrEnd at the end of what is read once, a
// *handler.Fault for numbers that are missing, and errors of the store, after
// which it can be called again.
func (r *Reader) Fill(ctx context.Context) error { return errUnfinished }

// Next returns the next event of the buffer; it reads nothing. The event and all
// that it points to may be used until the next Fill.
func (r *Reader) Next() (e *handler.Event, ok bool) { return nil, false }

// Position is the position behind the event that Next returned last; once Next
// found the buffer empty it is behind all that was read.
func (r *Reader) Position() position.Position { return position.Position{} }

// Buffered is how many events Next can return.
func (r *Reader) Buffered() int { return 0 }

// Passed is how many bytes of the log were passed since the reader was opened: up
// to where Position is, also those of events that are not selected.
func (r *Reader) Passed() int64 { return 0 }

// Progress is how much of the input was read: -1 before anything was, else
// percent, 100 when all was.
func (r *Reader) Progress() float64 { return -1 }

// Behind is about how much is not read yet: bytes of the log (then inBytes is set), or events.
func (r *Reader) Behind() (n int64, inBytes bool) { return 0, false }

// Close lets go of what is buffered.
func (r *Reader) Close() {}

// Page reads at most so many events for a look at what a definition selects, and
// the position from which reading goes on. A page ends before that where the
// input does, and where its events have become many megabytes.
func Page(ctx context.Context, o Options, maxEvents int) ([]PageEvent, position.Position, error) {
	return nil, position.Position{}, errUnfinished
}

// StateReason says of a definition what it waits for that only a system projection
// writes, so that nobody wonders why no event comes; empty: nothing.
func StateReason(ctx context.Context, s Store, d *handler.Definition) (string, error) { return "", nil }
