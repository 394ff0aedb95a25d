package subscription

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/annalsdb/annals/event"
)

// checkpointPace is the least time between two checkpoints of a group. Each is an
// entry of the Raft log with its sync: a fast group would write one for every few
// milliseconds, and gain nothing but that less comes again after a crash.
const checkpointPace = 50 * time.Millisecond

// position returns the number that a checkpoint may have now, and how many
// messages were read up to it: everything up to there is answered. It lies before
// the oldest message that is not, also before one that another was pushed past;
// replayed messages do not count. -1: there is none. The caller holds mu.
func (g *group) position() (number, seq int64) {
	number, seq = g.newest, g.newestSeq
	if m := g.unanswered.head; m != nil {
		number, seq = m.before, m.seq-1
	}
	if m := g.buffer.head; m != nil && m.number <= number {
		number, seq = m.before, m.seq-1
	}
	return number, seq
}

// progress returns how many messages a checkpoint would gain. The caller holds mu.
func (g *group) progress() int64 {
	_, seq := g.position()
	return seq - g.checkpointSeq
}

// forced reports whether so much was answered that a checkpoint is written at once. The caller holds mu.
func (g *group) forced() bool { return g.progress() >= int64(max(1, g.Settings.MaxCheckpointCount)) }

// checkpointAt returns when a checkpoint is to be written by time. The caller holds mu.
func (g *group) checkpointAt() (at time.Time, ok bool) {
	if g.Settings.CheckpointAfter <= 0 || g.tasks.checkpointing || g.progress() < int64(max(1, g.Settings.MinCheckpointCount)) {
		return at, false
	}
	return g.checkpointTime.Add(g.Settings.CheckpointAfter), true
}

// writeCheckpoints writes a checkpoint, and another one if enough was answered
// meanwhile. It is the only one that does, so no checkpoint overtakes another.
func (g *group) writeCheckpoints() {
	var p pauser
	for asked := true; ; asked = false {
		g.mu.Lock()
		number, seq := g.position()
		due := (asked || p.failures > 0) && seq > g.checkpointSeq || g.forced()
		if !due || number < 0 || g.closed {
			g.tasks.checkpointing = false
			g.settle()
			g.mu.Unlock()
			return
		}
		early := checkpointPace - g.now().Sub(g.checkpointPast)
		g.mu.Unlock()
		if early > 0 {
			// What is answered meanwhile is in it as well.
			if !rest(g.ctx, early) {
				return
			}
			g.mu.Lock()
			number, seq = g.position()
			g.mu.Unlock()
		}

		err := g.writeCheckpoint(number)
		if g.ctx.Err() != nil {
			return
		}
		g.note(troubleCheckpoint, err)
		if err != nil {
			g.metrics.failed.Inc()
			if !p.pause(g.ctx) {
				return
			}
			continue
		}
		p.failures = 0
		g.metrics.checkpoints.Inc()
		g.mu.Lock()
		g.checkpoint, g.checkpointSeq, g.checkpointTime = number, seq, g.now()
		g.checkpointPast = g.checkpointTime
		g.mu.Unlock()
	}
}

func (g *group) writeCheckpoint(number int64) error {
	ctx, cancel := context.WithTimeout(g.ctx, g.timeout)
	defer cancel()
	stream := g.CheckpointStream()
	// Read each time: an operator may have deleted the stream, which the event
	// below brings back without what was said about it.
	info, err := g.store.StreamInfo(ctx, stream)
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", stream, err)
	}
	if info.Metadata.MaxCount == 0 {
		document := []byte(`{"$maxCount":2,"$acl":` + accessList + `}`)
		if err := writeMetadata(ctx, g.store, stream, event.AnyVersion, document); err != nil {
			return err
		}
	}
	data := []byte(`"` + strconv.FormatInt(number, 10) + `"`)
	_, err = g.store.Write(ctx, &event.Write{Stream: stream, ExpectedVersion: event.AnyVersion,
		Events: []event.Proposed{{ID: newID(), Type: typeCheckpoint, Flags: event.FlagJSON, Data: data}}})
	if err != nil {
		return fmt.Errorf("write checkpoint %d: %w", number, err)
	}
	return nil
}

// readCheckpoint returns the number of the last checkpoint, -1 when there is none.
func (g *group) readCheckpoint(ctx context.Context) (int64, error) {
	page, err := g.store.ReadStream(ctx, event.StreamRead{Stream: g.CheckpointStream(), From: event.Head, Count: 2, Backward: true})
	switch {
	case errors.Is(err, event.ErrStreamNotFound), errors.Is(err, event.ErrStreamDeleted):
		return -1, nil
	case err != nil:
		return -1, fmt.Errorf("read the checkpoint: %w", err)
	}
	for i := range page.Events {
		e := &page.Events[i].Record
		if n, ok := parseCheckpoint(e); ok {
			return n, nil
		}
		// What was processed behind an older checkpoint comes again, which is allowed.
		g.logger.Warn("an event is not a checkpoint and is passed over", "stream", e.Stream, "number", e.Number, "type", e.Type)
	}
	return -1, nil
}

// parseCheckpoint reads the number, which is in a JSON string, or bare in older data.
func parseCheckpoint(e *event.Record) (int64, bool) {
	if e.Type != typeCheckpoint && e.Type != typeCheckpointNew {
		return 0, false
	}
	var text string
	if json.Unmarshal(e.Data, &text) != nil {
		text = string(e.Data)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 0
}
