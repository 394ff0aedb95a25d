package subscription

import (
	"time"

	"github.com/annalsdb/annals/internal/clock"
)

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
}

// forced reports whether so much was answered, up to the message seq, that another is written at
// once.
func (c *checkpoint) forced(seq int64, s *Settings) bool {
	return seq-c.seq >= int64(max(1, s.MaxCheckpointCount))
}

// due returns when another is to be written by time; not ok: it need not be.
func (c *checkpoint) due(seq int64, s *Settings) (at time.Time, ok bool) {
	if s.CheckpointAfter <= 0 || seq-c.seq < int64(max(1, s.MinCheckpointCount)) {
		return at, false
	}
	return c.at.Add(s.CheckpointAfter), true
}

// checkpointAt returns when a checkpoint is to be written by time. The caller holds mu.
func (g *group) checkpointAt() (at time.Time, ok bool) {
	if g.tasks.checkpointing {
		return at, false
	}
	_, seq := g.position()
	return g.checkpoint.due(seq, &g.Settings)
}

// writeCheckpoints writes a checkpoint, and another one if enough was answered
// meanwhile. It is the only one that does, so no checkpoint overtakes another.
func (g *group) writeCheckpoints() {
	p := pauses()
	for asked := true; ; asked = false {
		g.mu.Lock()
		number, seq := g.position()
		due := (asked || p.Failures > 0) && seq > g.checkpoint.seq || g.checkpoint.forced(seq, &g.Settings)
		if !due || number < 0 || g.closed {
			g.tasks.checkpointing = false
			g.settle()
			g.mu.Unlock()
			return
		}
		early := checkpointPace - g.now().Sub(g.checkpoint.written)
		g.mu.Unlock()
		if early > 0 {
			// It covers messages that are answered meanwhile as well.
			if clock.Sleep(g.ctx, early) != nil {
				return
			}
			g.mu.Lock()
			number, seq = g.position()
			g.mu.Unlock()
		}

		err := g.streams.writeCheckpoint(number)
		if g.ctx.Err() != nil {
			return
		}
		g.troubles.note(troubleCheckpoint, err)
		if err != nil {
			g.metrics.failed.Inc()
			if !p.Wait(g.ctx) {
				return
			}
			continue
		}
		p.Failures = 0
		g.metrics.checkpoints.Inc()
		g.mu.Lock()
		now := g.now()
		g.checkpoint = checkpoint{number, seq, now, now}
		g.mu.Unlock()
	}
}
