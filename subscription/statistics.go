package subscription

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/stats"
)

// stallAfter is the least time without progress that counts as a stall.
const stallAfter = 30 * time.Second

// statistics are those of a core since the group was loaded.
type statistics struct {
	total, sinceLast int64
	measured         time.Time // time of the last call
	asked            time.Time // when a reader that pulls asked for messages last
	answered         time.Time // when a message was answered last
}

// counters are the rest of a group's statistics.
type counters struct {
	parked, replays stats.Counter

	// number of a parked message, and when it was parked; guarded by the group's mutex
	oldestParked   int64
	oldestParkedAt time.Time
}

// perSecond returns the rate since the last call, and starts to count again.
func perSecond(since *int64, measured *time.Time, now time.Time) (rate float64, count int64) {
	count = *since
	if d := now.Sub(*measured).Seconds(); d > 0 {
		rate = float64(count) / d
	}
	*since, *measured = 0, now
	return rate, count
}

// The kinds of trouble that a group can have.
const (
	troubleLoading = iota
	troubleReading
	troubleParking
	troubleCheckpoint
	troubleReplay
	troubleDesk
	troubleKinds
)

var troubleTexts = [troubleKinds]string{
	"the group cannot be loaded", "the source cannot be read", "parking fails", "the checkpoint could not be written",
	"parked messages cannot be replayed", "parked messages cannot be counted",
}

// trouble is something that fails time and again.
type trouble struct {
	since time.Time
	err   error // nil: all is well
}

// troubles are those of a group, by kind.
type troubles struct {
	logger hclog.Logger
	now    func() time.Time
	mu     sync.Mutex
	all    [troubleKinds]trouble
}

// note remembers how something went, and logs when it begins to fail and when it is over.
func (s *troubles) note(kind int, err error) {
	s.mu.Lock()
	t := &s.all[kind]
	was := t.err
	t.err = err
	if was == nil {
		t.since = s.now()
	}
	s.mu.Unlock()
	switch {
	case err != nil && was == nil:
		s.logger.Warn(troubleTexts[kind]+", trying again", logkey.Error, err)
	case err == nil && was != nil:
		s.logger.Info("it works again", "failed", troubleTexts[kind])
	}
}

// since returns one that is there since a time or longer; empty: there is none.
func (s *troubles) since(at time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for kind, t := range s.all {
		if t.err != nil && !t.since.After(at) {
			return fmt.Sprintf("%s: %v", troubleTexts[kind], t.err)
		}
	}
	return ""
}

// stalled says why the group makes no progress, if it should and does not. The caller holds mu.
func (g *group) stalled(now time.Time) string {
	limit := g.core.patience()
	if text := g.troubles.since(now.Add(-limit)); text != "" {
		return text
	}
	return g.core.stalled(now)
}

// patience is how long nothing may come of messages before that counts as a stall.
func (c *core) patience() time.Duration { return max(stallAfter, 3*c.settings.MessageTimeout) }

// stalled says why consumers make no progress, if they should and do not.
func (c *core) stalled(now time.Time) string {
	limit, unanswered := c.patience(), c.unanswered.n+c.copied.unanswered.n-len(c.due)
	wanted := len(c.consumers) > 0 || !c.statistics.asked.IsZero() && now.Sub(c.statistics.asked) < limit
	if unanswered == 0 || !wanted || c.paused != nil {
		return ""
	}
	oldest := c.oldestOutstanding(true)
	if oldest.IsZero() || now.Sub(oldest) < limit || now.Sub(c.statistics.answered) < limit {
		return ""
	}
	if !c.mayHandOut() {
		return fmt.Sprintf("all %d messages that may be handed out are unanswered", unanswered)
	}
	return fmt.Sprintf("all %d messages handed out are unanswered", unanswered)
}

// status is the group's status in words.
func (c *core) status() string {
	if !c.loaded {
		return "NotReady"
	}
	if c.paused != nil {
		return "Paused"
	}
	var flags []string
	if !c.live {
		flags = append(flags, "Behind")
		if c.reading {
			flags = append(flags, "OutstandingPageRequest")
		}
	}
	if c.replay.isOn {
		flags = append(flags, "ReplayingParkedMessages")
	}
	if c.live {
		flags = append(flags, "Live")
	}
	return strings.Join(flags, ", ")
}

// info describes the group, and begins a new measurement.
func (g *group) info(ctx context.Context) Info {
	oldestParked, parked := g.oldestParked(ctx)
	_, newest, err := g.source.span(ctx)
	if err != nil {
		newest = -1 // Unknown for now.
	}
	end, unknown := g.term.next(ctx, g.reads().Stream)
	g.mu.Lock()
	defer g.mu.Unlock()
	c, now := &g.core, g.now()
	i := Info{
		Key: g.Key, Settings: g.Settings, Status: c.status(),
		Total: c.statistics.total, Checkpoint: c.checkpoint.number, LastKnown: max(c.known, newest),
		ReadBuffer: c.buffer.n, RetryBuffer: c.retry.n + c.replays.n + len(c.due), Delayed: len(c.due), Outstanding: c.out.n,
		Parked: parked, OldestParked: oldestParked, OldestOutstanding: c.oldestOutstanding(false), Stalled: g.stalled(now), Paused: c.paused,
	}
	if c.replay.isOn {
		i.Replaying = &Replaying{Remaining: c.replay.target - c.replay.from, Rate: c.replay.rate}
		if s := g.desk.known.Load(); s != nil {
			i.Replaying.Remaining -= s.count(c.replay.from, c.replay.target)
		}
	}
	if unknown == nil && i.Checkpoint >= end {
		i.Stalled = fmt.Sprintf("the checkpoint %s is beyond the end, %s: the group gets nothing until events reach it", g.Position(i.Checkpoint), g.Position(end))
	}
	i.PerSecond, i.SinceLast = perSecond(&c.statistics.sinceLast, &c.statistics.measured, now)
	for _, c := range g.connections {
		i.Connections = append(i.Connections, c.info(now))
	}
	return i
}
