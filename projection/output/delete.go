package output

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/position"
)

// Deletion says which streams of a projection are to be deleted.
type Deletion struct {
	Store       Store
	Streams     Streams
	Version     position.Version
	Checkpoints bool // those of the root and of partitions
	// the streams that are listed as emitted to, the list, and the order of several sources
	Emitted bool
	Results bool // the result streams, and the list of partitions
}

// deletion is one that runs.
type deletion struct {
	access
	Deletion
}

const deletedTogether = 16 // streams

// DeleteStreams soft-deletes streams. It can be called again after it failed, and continues where
// it was. A list goes when all that it names is gone.
func DeleteStreams(ctx context.Context, of Deletion) error {
	d := deletion{access{store: of.Store}, of}
	if d.Emitted {
		if err := d.emitted(ctx); err != nil {
			return err
		}
	}
	if d.Results {
		if err := d.listed(ctx, d.Streams.Partitions(), 0, d.Streams.PartitionResult, d.isOurs, nil); err != nil {
			return err
		}
		if err := d.removeAll(ctx, []string{d.Streams.Result()}, d.isOurs); err != nil {
			return err
		}
		if err := d.remove(ctx, d.Streams.Partitions()); err != nil {
			return err
		}
	}
	if !d.Checkpoints {
		return nil
	}
	// Not another projection's whose name looks the same.
	isPartition := func(e *event.Record) bool { return e.Type == TypePartitionCheckpoint }
	if err := d.listed(ctx, d.Streams.CheckpointedPartitions(), 0, d.Streams.PartitionCheckpoint, isPartition, nil); err != nil {
		return err
	}
	if err := d.remove(ctx, d.Streams.CheckpointedPartitions()); err != nil {
		return err
	}
	return d.remove(ctx, d.Streams.Checkpoint())
}

// emitted deletes the streams that were emitted to. How far it came is kept, as there may be many.
func (d *deletion) emitted(ctx context.Context) error {
	progress := d.Streams.EmittedProgress()
	from := int64(0)
	e, err := d.read(ctx, progress, event.Head)
	if err != nil {
		return err
	}
	if e != nil && json.Unmarshal(e.Data, &from) != nil {
		from = 0
	}
	same := func(name string) string { return name }
	err = d.listed(ctx, d.Streams.Emitted(), from, same, nil, func(next int64) error {
		return d.write(ctx, &event.Write{Stream: progress, ExpectedVersion: event.AnyVersion, Events: []event.Proposed{
			{ID: newID(), Type: TypePartitionCheckpoint, Flags: event.FlagJSON, Data: strconv.AppendInt(nil, next, 10)}}})
	})
	if err != nil {
		return err
	}
	for _, stream := range []string{d.Streams.Emitted(), progress, d.Streams.Order()} {
		if err := d.remove(ctx, stream); err != nil {
			return err
		}
	}
	return nil
}

// listed deletes the streams that a list names, from a number on. done is called after each page
// but the last.
func (d *deletion) listed(ctx context.Context, list string, from int64, stream func(name string) string, is func(*event.Record) bool, done func(next int64) error) error {
	return d.names(ctx, list, from, func(names []string, next int64) error {
		streams := make([]string, len(names))
		for i, name := range names {
			streams[i] = stream(name)
		}
		if err := d.removeAll(ctx, streams, is); err != nil || done == nil || len(names) < pageEvents {
			return err
		}
		return done(next)
	})
}

// removeAll deletes streams, those whose last event is one of the kind.
func (d *deletion) removeAll(ctx context.Context, streams []string, is func(*event.Record) bool) error {
	return side(len(streams), deletedTogether, func(i int) error {
		if is != nil {
			e, err := d.read(ctx, streams[i], event.Head)
			if err != nil || e == nil || !is(e) {
				return err
			}
		}
		return d.remove(ctx, streams[i])
	})
}

// remove deletes a stream that is there.
func (d *deletion) remove(ctx context.Context, stream string) error {
	info, err := d.info(ctx, stream)
	if err != nil || !info.Exists() {
		return err
	}
	return d.write(ctx, &event.Write{Kind: event.SoftDelete, Stream: stream, ExpectedVersion: event.AnyVersion})
}

func (d *deletion) write(ctx context.Context, w *event.Write) error {
	_, err := d.access.write(ctx, w)
	if err != nil && !errors.Is(err, event.ErrStreamDeleted) {
		return storageError("write to", w.Stream, err)
	}
	return nil
}

// isOurs reports whether this projection wrote an event, also before it was reset. Results of a
// query have no version.
func (d *deletion) isOurs(e *event.Record) bool {
	_, v, err := position.ParseStored(e.Metadata)
	return err == nil && v.Projection == d.Version.Projection || errors.Is(err, position.ErrNoVersion)
}
