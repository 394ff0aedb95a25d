package subscription

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

// ownStreams reads and writes the streams of a group: those of its checkpoints, of parked
// messages and of replays.
type ownStreams struct {
	*definition
	ctx     context.Context // of the group's own life
	store   Store
	logger  hclog.Logger
	timeout time.Duration // of one write
}

// checkpointWrite makes the write of a checkpoint: at an event that lies there in the log, -1: that
// is not known. One below the first number is written twice: then versions that do not know it see
// no older one, and the group begins where it did.
func (s *ownStreams) checkpointWrite(number, at int64, reset *resetBy) *event.Write {
	var metadata []byte
	m := checkpointMetadata{Since: s.place.Since, Reset: reset}
	if at >= 0 {
		m.Log = &at
	}
	if m != (checkpointMetadata{}) {
		var err error
		if metadata, err = json.Marshal(&m); err != nil {
			panic(err) // Texts and numbers always have a form in JSON.
		}
	}
	e := event.Proposed{ID: newID(), Type: typeCheckpoint, Flags: event.FlagJSON, Data: []byte(`"` + s.Position(number) + `"`), Metadata: metadata}
	w := &event.Write{Stream: s.CheckpointStream(), ExpectedVersion: event.AnyVersion, Events: []event.Proposed{e}}
	if number < 0 {
		e.ID = newID()
		w.Events = append(w.Events, e)
	}
	return w
}

// saveCheckpoint does a write of a checkpoint, right after the last one, so that one that is late
// never comes after a newer one. A repetition is not written twice.
func (s *ownStreams) saveCheckpoint(ctx context.Context, w *event.Write) error {
	if err := bound(ctx, s.store, w.Stream, `{"$maxCount":2,"$acl":`+accessList+`}`); err != nil {
		return err
	}
	if w.ExpectedVersion == event.AnyVersion {
		info, err := s.store.StreamInfo(ctx, w.Stream)
		if err != nil {
			return fmt.Errorf("look at stream %s: %w", w.Stream, err)
		}
		w.ExpectedVersion = info.Last
	}
	if _, err := s.store.Write(ctx, w); err != nil {
		if _, isOther := errors.AsType[*event.WrongExpectedVersion](err); isOther {
			w.ExpectedVersion = event.AnyVersion // It was not written: the next try looks again.
		}
		return fmt.Errorf("write checkpoint %s: %w", w.Events[0].Data, err)
	}
	return nil
}

// checkpoint returns the number of the last checkpoint: -1 says that nothing is answered, from the
// start on. There need not be one. at is as in checkpointWrite.
func (s *ownStreams) checkpoint(ctx context.Context) (number, at int64, isFound bool, err error) {
	page, err := s.store.ReadStream(ctx, event.StreamRead{Stream: s.CheckpointStream(), From: event.Head, Count: 2, Backward: true})
	switch {
	case errors.Is(err, event.ErrStreamNotFound), errors.Is(err, event.ErrStreamDeleted):
	case err != nil:
		return -1, -1, false, fmt.Errorf("read the checkpoint: %w", err)
	}
	for i := range page.Events {
		e := &page.Events[i].Record
		var m checkpointMetadata
		if json.Unmarshal(e.Metadata, &m) != nil {
			m = checkpointMetadata{} // Other versions have none.
		}
		if m.Since != s.place.Since {
			continue // It is of another source.
		}
		if n, ok := s.parseCheckpoint(e); ok {
			if at = -1; m.Log != nil {
				at = *m.Log
			}
			return n, at, true, nil
		}
		// Events that were processed after an older checkpoint come again, which is allowed.
		s.logger.Warn("an event is not a checkpoint and is skipped", logkey.Stream, e.Stream, logkey.Number, e.Number, logkey.Type, e.Type)
	}
	if after := s.place.After; after != nil {
		return *after, -1, true, nil
	}
	return -1, -1, false, nil
}

// parseCheckpoint reads the number, which is in a JSON string, or bare in older data.
func (d *definition) parseCheckpoint(e *event.Record) (int64, bool) {
	if e.Type != typeCheckpoint && e.Type != typeCheckpointNew {
		return 0, false
	}
	var text string
	if json.Unmarshal(e.Data, &text) != nil {
		text = string(e.Data)
	}
	n, ok := d.parsePosition(text)
	return n, ok && n >= -1
}

// park tries the write several times. The ids stay the same, so that a try
// whose outcome was not known is not written twice.
func (s *ownStreams) park(w *event.Write, failed func()) (err error) {
	p := pauses()
	for try := range parkTries {
		if try > 0 && !p.Wait(s.ctx) {
			return s.ctx.Err()
		}
		if _, err = s.write(w); err == nil {
			return nil
		}
		failed()
	}
	return fmt.Errorf("write to stream %s: %w", w.Stream, err)
}

// write does a write within the time allowed.
func (s *ownStreams) write(w *event.Write) (event.Written, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
	defer cancel()
	return s.store.Write(ctx, w)
}

// complete reads the payload that a page left out of a record that the group itself needs.
func (s *ownStreams) complete(ctx context.Context, r *event.Record) error {
	if !r.Bare {
		return nil
	}
	if err := s.store.ReadPayload(ctx, r); err != nil {
		return fmt.Errorf("read event %d of stream %s: %w", r.Number, r.Stream, err)
	}
	return nil
}

// replays are the messages that were being replayed when a group was loaded the last time.
type replays struct {
	all       []replayed
	from, end int64 // numbers of the first and after the last
}

// replays reads the messages that were being replayed, and completes the move of pages that a crash
// may have cut short.
func (s *ownStreams) replays(ctx context.Context) (r replays, err error) {
	stream := s.replayingStream()
	info, err := s.store.StreamInfo(ctx, stream)
	if err != nil {
		return r, fmt.Errorf("look at stream %s: %w", stream, err)
	}
	if !info.Exists() {
		return r, nil
	}
	r.from, r.end = info.Metadata.MinVisible(info.Last), info.Last+1
	moved := int64(-1)
	for at := r.from; at < r.end; {
		page, err := s.store.ReadStream(ctx, event.StreamRead{Stream: stream, From: at, Count: replayBatch, Links: event.EveryLink, MaxPayload: groupPayload})
		if err != nil {
			return r, fmt.Errorf("read stream %s: %w", stream, err)
		}
		at = page.Next
		for _, e := range page.Events {
			number := e.Number
			if err := s.complete(ctx, &e.Record); err != nil {
				return r, err
			}
			var was struct {
				Page   *int64 `json:"parkedEventNumber"`
				Single *int64 `json:"settledEventNumber"` // What was before it may be parked.
			}
			if json.Unmarshal(e.Metadata, &was) == nil && cmp.Or(was.Page, was.Single) != nil {
				e.Stream, e.Number = s.ParkedStream(), *cmp.Or(was.Page, was.Single)
			}
			if was.Page != nil {
				moved = max(moved, *was.Page)
			}
			r.all = append(r.all, replayed{number, e})
		}
	}
	if moved >= 0 {
		ctx, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		if err := truncate(ctx, s.store, s.ParkedStream(), moved+1); err != nil {
			return r, err
		}
	}
	return r, nil
}

// whole returns the event that consumers are after with its payload, where that
// was left out. One whose payload is gone is as good as one without.
func (s *ownStreams) whole(e *event.Resolved) *event.Resolved {
	of := e.Event()
	if !of.Bare {
		return e
	}
	full := *of
	if err := s.store.ReadPayload(s.ctx, &full); err != nil {
		return e
	}
	if e.Target == nil {
		return &event.Resolved{Record: full}
	}
	return &event.Resolved{Record: e.Record, Link: e.Link, Target: &full, TargetStream: e.TargetStream, TargetNumber: e.TargetNumber}
}
