package projection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/projection/run"
)

// Store is the database as projections see it.
type Store = run.Store

func newID() event.ID { return event.ID(uuid.New()) }

func pauses() clock.Pauses { return clock.Pauses{Least: 50 * time.Millisecond, Most: 5 * time.Second} }

// isUnknown reports whether a write with that error may have been done.
func isUnknown(err error) bool {
	return errors.Is(err, event.ErrOutcomeUnknown) || errors.Is(err, event.ErrWriteTimeout) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// write does w and returns when its outcome is known, or when the term ends. The ids of its events
// make a second try harmless.
func (t *term) write(w *event.Write) (event.Written, error) {
	p := pauses()
	for isOpen := false; ; {
		ctx, cancel := context.WithTimeout(t.ctx, t.opts.WriteTimeout)
		written, err := t.opts.Store.Write(ctx, w)
		cancel()
		var other *event.WrongExpectedVersion
		switch {
		case err == nil:
			return written, nil
		case t.ctx.Err() != nil:
			return written, fmt.Errorf("%w: %w", event.ErrOutcomeUnknown, err)
		case isUnknown(err):
			if !isOpen {
				t.opts.Logger.Warn("the outcome of storing a change of a projection is unknown, trying again", logkey.Stream, w.Stream, logkey.Error, err)
			}
			isOpen = true
		case !isOpen, errors.As(err, &other), errors.Is(err, event.ErrStreamDeleted):
			return written, err
		}
		if !p.Wait(t.ctx) {
			return written, event.ErrOutcomeUnknown
		}
	}
}

func appended(stream string, expected int64, eventType string, isJSON bool, data []byte) *event.Write {
	e := event.Proposed{ID: newID(), Type: eventType, Data: data}
	if isJSON {
		e.Flags = event.FlagJSON
	}
	return &event.Write{Stream: stream, ExpectedVersion: expected, Events: []event.Proposed{e}}
}

// register stores the creation of a projection and returns its id.
func (t *term) register(name string) (int64, error) {
	written, err := t.write(appended(listStream, event.AnyVersion, typeCreated, false, []byte(name)))
	return written.First, err
}

// unregister stores that a projection is gone.
func (t *term) unregister(name string) error {
	_, err := t.write(appended(listStream, event.AnyVersion, typeDeleted, false, []byte(name)))
	return err
}

// storeDefinition stores a definition, as storeAfter does.
func (t *term) storeDefinition(name string, d definition, forget bool, last int64) (int64, error) {
	return t.storeAfter(definitionStream(name), last, typeUpdated, d.Properties, func(number int64) ([]byte, error) { return d.encode(number, forget) })
}

// storeAfter stores an event directly after the event last of its stream, which is -1 without one,
// and returns its number. If another client has written to the stream, it goes after that event.
// encode makes it for a number.
func (t *term) storeAfter(stream string, last int64, eventType string, metadata []byte, encode func(number int64) ([]byte, error)) (int64, error) {
	for {
		data, err := encode(last + 1)
		if err != nil {
			return 0, err
		}
		w := appended(stream, last, eventType, true, data)
		w.Events[0].Metadata = metadata
		written, err := t.write(w)
		var other *event.WrongExpectedVersion
		if !errors.As(err, &other) {
			return written.Last, err
		}
		info, infoErr := t.opts.Store.StreamInfo(t.ctx, stream)
		if infoErr != nil || info.Last == last {
			return 0, errors.Join(err, infoErr)
		}
		if r, err := t.opts.Store.ReadEvent(t.ctx, stream, event.Head, nil); err == nil && r.ID == w.Events[0].ID {
			return r.Number, nil
		}
		last = info.Last
	}
}
