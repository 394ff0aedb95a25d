package subscription

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/catchup"
	"github.com/annalsdb/annals/event"
)

// Store is the database as groups see it. Errors are those of package event; a
// call that outlives its context returns the context's error.
type Store interface {
	catchup.Store
	catchup.Waiter
	// ReadPayload reads data and metadata of a record that a page left bare.
	ReadPayload(ctx context.Context, r *event.Record) error
	// ReadEvent reads one event; event.Head asks for the last visible one.
	ReadEvent(ctx context.Context, stream string, number int64, links event.LinkReader) (event.Resolved, error)
	// Write does w whole or not at all, on the leader only.
	Write(ctx context.Context, w *event.Write) (event.Written, error)
	// PositionAt returns the position of the first record that was not written before a time, in
	// nanoseconds since 1970; the end of the log when there is none.
	PositionAt(ctx context.Context, time int64) (int64, error)
}

func newID() event.ID { return event.ID(uuid.New()) }

func writeMetadata(ctx context.Context, s Store, stream string, expected int64, document []byte) error {
	_, err := s.Write(ctx, &event.Write{Stream: event.MetaStreamOf(stream), ExpectedVersion: expected,
		Events: []event.Proposed{{ID: newID(), Type: event.TypeMetadata, Flags: event.FlagJSON, Data: document}}})
	if err != nil {
		return fmt.Errorf("write metadata of stream %s: %w", stream, err)
	}
	return nil
}

// bound sees to it that only the newest events of a stream are kept. It looks each time: an
// operator may have deleted the stream, which an event brings back without its metadata.
func bound(ctx context.Context, s Store, stream, document string) error {
	info, err := s.StreamInfo(ctx, stream)
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", stream, err)
	}
	if info.Metadata.MaxCount > 0 {
		return nil
	}
	return writeMetadata(ctx, s, stream, event.AnyVersion, []byte(document))
}

// truncate hides the events of a stream before a number, and gives it the access
// list if it has none. What else its metadata says stays. Nothing that is hidden
// is shown again, and a stream that was deleted meanwhile stays deleted.
func truncate(ctx context.Context, s Store, stream string, before int64) error {
	for {
		info, err := s.StreamInfo(ctx, stream)
		if err != nil {
			return fmt.Errorf("look at stream %s: %w", stream, err)
		}
		if !info.Exists() || info.Metadata.TruncateBefore >= before {
			return nil
		}
		var meta event.Resolved
		if info.MetaLast >= 0 {
			meta, err = s.ReadEvent(ctx, event.MetaStreamOf(stream), info.MetaLast, nil)
			if err != nil && !errors.Is(err, event.ErrEventNotFound) && !errors.Is(err, event.ErrStreamNotFound) {
				return fmt.Errorf("read metadata of stream %s: %w", stream, err)
			}
		}
		document := event.WithTruncateBefore(event.WithAccessList(meta.Data, accessList), before)
		err = writeMetadata(ctx, s, stream, info.MetaLast, document)
		var other *event.WrongExpectedVersion
		if !errors.As(err, &other) {
			return err
		}
		if err := ctx.Err(); err != nil { // It was changed meanwhile: look again.
			return err
		}
	}
}

// remove soft-deletes a stream that is there.
func remove(ctx context.Context, s Store, stream string) error {
	info, err := s.StreamInfo(ctx, stream)
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", stream, err)
	}
	if !info.Exists() {
		return nil
	}
	_, err = s.Write(ctx, &event.Write{Kind: event.SoftDelete, Stream: stream, ExpectedVersion: event.AnyVersion})
	if err != nil && !errors.Is(err, event.ErrStreamDeleted) {
		return fmt.Errorf("delete stream %s: %w", stream, err)
	}
	return nil
}
