package subscription

import "time"

// checkpointPace is the least time between two checkpoints of a group. Each is an
// entry of the Raft log with its sync: a fast group would write one for every few
// milliseconds, and gain nothing but that less comes again after a crash.
const checkpointPace = 50 * time.Millisecond

// checkpoint is the last one of a group, and when the next is to be written. There is one write at
// a time. If something was answered since the last one, either moved says since when or the write
// in flight covers it, so that no answer waits for longer than the settings allow.
type checkpoint struct {
	settings  *Settings
	number    int64 // -1: none
	seq       int64
	at        time.Time // when, or when the group was loaded
	written   time.Time // when this one wrote one; zero: never
	isAsked   bool      // time passed: one that is due by time is to be written
	moved     time.Time // when there was something to write since this one; zero: there is nothing
	isWriting bool      // the effect was returned, and has no result yet
}

// write reports whether one is to be written, with the number and seq that it may have now: so much
// was answered that it must not wait, or its time has come.
func (p *checkpoint) write(number, seq int64, now time.Time) bool {
	due := p.due(seq)
	isDue := p.isAsked && !due.IsZero() && !due.After(now)
	p.isAsked = false
	if p.moved.IsZero() && seq > p.seq {
		p.moved = now
	}
	if latest := p.latest(); !latest.IsZero() && !latest.After(now) {
		isDue = true
	}
	isForced := seq-p.seq >= int64(max(1, p.settings.MaxCheckpointCount))
	if !isDue && !isForced || number < 0 || p.isWriting {
		return false
	}
	p.moved = time.Time{} // What comes from now on may not be in it.
	p.isWriting = true
	return true
}

// due returns when one is to be written by time; zero: it need not be.
func (p *checkpoint) due(seq int64) (at time.Time) {
	if p.isWriting || p.settings.CheckpointAfter <= 0 || seq-p.seq < int64(max(1, p.settings.MinCheckpointCount)) {
		return at
	}
	return p.at.Add(p.settings.CheckpointAfter)
}

// latest returns when one is to be written however few messages were answered; zero: it need not
// be.
func (p *checkpoint) latest() (at time.Time) {
	if p.isWriting || p.settings.CheckpointAtLeastEvery <= 0 || p.moved.IsZero() {
		return at
	}
	return p.moved.Add(p.settings.CheckpointAtLeastEvery)
}

// reset is the input that one was written elsewhere, next to the one that may be in flight.
func (p *checkpoint) reset(number, seq int64, now time.Time) {
	p.number, p.seq, p.at, p.moved = number, seq, now, time.Time{}
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

// checkpointed is the result of writing a checkpoint. Answers that came meanwhile count for the
// next one.
func (c *core) checkpointed(number, seq int64, now time.Time) {
	p := &c.checkpoint
	if _, last := c.position(); last <= seq {
		p.moved = time.Time{}
	}
	p.number, p.seq, p.at, p.written, p.isAsked, p.isWriting = number, seq, now, now, false, false
}
