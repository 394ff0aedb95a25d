package subscription

import "time"

// checkpointPace is the least time between two checkpoints of a group. Each is an
// entry of the Raft log with its sync: a fast group would write one for every few
// milliseconds, and gain nothing but that less comes again after a crash.
const checkpointPace = 50 * time.Millisecond

// checkpoint is the last one of a group.
type checkpoint struct {
	number  int64 // -1: none
	seq     int64
	at      time.Time // when, or when the group was loaded
	written time.Time // when this one wrote one; zero: never
	isAsked bool      // time passed: one that is due by time is to be written
	moved   time.Time // when there was something to write since this one; zero: there is nothing
}

// position returns the number that a checkpoint may have now, and how many
// messages were read up to it: everything up to there is answered. It lies before
// the oldest message that is not, or was not handed out; replayed messages do not
// count. -1: there is none.
func (c *core) position() (number, seq int64) {
	number, seq, _ = c.answered()
	return number, seq
}

// answered is position, with the position of the log of the event that has the number, -1: not
// known. In the log that event may be later than this position: see batch.passed.
func (c *core) answered() (number, seq, at int64) {
	number, seq, at = c.last, c.seq, c.lastAt
	if m := c.unanswered.head; m != nil {
		number, seq, at = m.before, m.seq-1, m.beforeAt
	}
	if m := c.buffer.head; m != nil && m.number <= number {
		number, seq, at = m.before, m.seq-1, m.beforeAt
	}
	return number, seq, at
}

// needsCheckpoint reports whether one is to be written: so much was answered that it must not wait,
// or its time has come.
func (c *core) needsCheckpoint(now time.Time) bool {
	due := c.checkpointDue()
	isDue := c.checkpoint.isAsked && !due.IsZero() && !due.After(now)
	c.checkpoint.isAsked = false
	number, seq := c.position()
	if c.checkpoint.moved.IsZero() && seq > c.checkpoint.seq {
		c.checkpoint.moved = now
	}
	if latest := c.checkpointLatest(); !latest.IsZero() && !latest.After(now) {
		isDue = true
	}
	isForced := seq-c.checkpoint.seq >= int64(max(1, c.settings.MaxCheckpointCount))
	if !isDue && !isForced || number < 0 || c.isCheckpointing {
		return false
	}
	c.checkpoint.moved = time.Time{} // What comes from now on may not be in it.
	return true
}

// checkpointDue returns when a checkpoint is to be written by time; zero: it need not be.
func (c *core) checkpointDue() (at time.Time) {
	_, seq := c.position()
	if c.isCheckpointing || c.settings.CheckpointAfter <= 0 || seq-c.checkpoint.seq < int64(max(1, c.settings.MinCheckpointCount)) {
		return at
	}
	return c.checkpoint.at.Add(c.settings.CheckpointAfter)
}

// checkpointLatest returns when a checkpoint is to be written however few messages were answered;
// zero: it need not be.
func (c *core) checkpointLatest() (at time.Time) {
	if c.isCheckpointing || c.settings.CheckpointAtLeastEvery <= 0 || c.checkpoint.moved.IsZero() {
		return at
	}
	return c.checkpoint.moved.Add(c.settings.CheckpointAtLeastEvery)
}

// checkpointed is the result of writing a checkpoint. Answers that came meanwhile count for the
// next one.
func (c *core) checkpointed(number, seq int64, now time.Time) {
	moved := c.checkpoint.moved
	if _, last := c.position(); last <= seq {
		moved = time.Time{}
	}
	c.checkpoint, c.isCheckpointing = checkpoint{number: number, seq: seq, at: now, written: now, moved: moved}, false
}
