package schedule

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/admin/cron"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
)

// Pauses. While a round is running the membership is looked at more often.
const (
	idlePause  = time.Minute
	pollPause  = grace / 60 // between two looks during a round
	retryFirst = time.Second
	retryMost  = 30 * time.Second
)

// Scheduler takes this node's part in the scavenges of the cluster.
type Scheduler struct {
	opts     Options
	schedule cron.Schedule
	self     event.ID
	session  event.ID // of this Scheduler: tells its turns from those of the process before
	logger   hclog.Logger
	metrics  metrics

	// What follows belongs to the goroutine of Run.
	lifetime context.Context // of Run
	state    *state
	info     event.StreamInfo // when the state was made
	hidden   int64            // $tb of the stream then
	live     bool             // the state was made once: what comes now is news
	changed  time.Time        // when the state changed last, as far as this node saw
	deadAt   map[event.ID]time.Time
	worker   *worker // of this node's turn, or nil
	workers  sync.WaitGroup
	handOver handOver
	written  int64    // number of the last event that this node wrote
	last     proposal // that was written last, if it was decided just before
	retry    time.Duration
	warned   map[string]bool
}

// handOver counts the attempts to hand over leadership in one round.
type handOver struct {
	due   time.Time
	tries int
	next  time.Time
}

// New returns a scheduler that Run sets going.
func New(o Options) (*Scheduler, error) {
	o.EnsureDefaults()
	schedule, err := cron.Parse(o.Expression)
	if err != nil {
		return nil, fmt.Errorf("schedule of scavenges: %w", err)
	}
	return &Scheduler{
		opts: o, schedule: schedule, session: event.ID(uuid.New()), logger: o.Logger, metrics: newMetrics(o.Stats),
		state: newState(), written: -1, warned: make(map[string]bool),
	}, nil
}

// Run takes part until ctx ends, and returns when nothing of it is left. It may be
// called once. A node without a schedule calls it too: it takes back what it
// said when it had one.
//
// ctx must end before the runner is closed: a run that is stopped while it has not
// ended counts as stopped by an operator, and the node would not take its turn up
// again after the restart.
func (s *Scheduler) Run(ctx context.Context) {
	s.lifetime = ctx
	s.self = s.opts.Cluster.Node()
	defer s.workers.Wait()
	for ctx.Err() == nil {
		pause, err := s.step(ctx)
		if ctx.Err() != nil {
			return
		}
		s.measure()
		if err != nil {
			s.failed(err)
			_ = clock.Sleep(ctx, s.retry)
			continue
		}
		s.retry = 0
		s.pause(ctx, pause)
	}
}

// failed remembers a failure, and warns once if it lasts.
func (s *Scheduler) failed(err error) {
	before, text := s.retry, err.Error()
	s.retry = min(max(2*s.retry, retryFirst), retryMost)
	switch {
	case errors.Is(err, errStreamGone):
		s.retry = idlePause
		if !s.warned[text] && !s.schedule.IsZero() {
			s.warned[text] = true
			s.logger.Error("the schedule no longer starts scavenges on this node", logkey.Error, err)
		}
	case s.retry == retryMost && before < retryMost:
		s.logger.Warn("the schedule of scavenges makes no progress", logkey.Error, err)
	default:
		s.logger.Debug("a step of the schedule of scavenges failed, trying again", logkey.Error, err)
	}
}

// step does the next thing and returns how long nothing else is due, if the stream does not grow.
func (s *Scheduler) step(ctx context.Context) (time.Duration, error) {
	if err := s.follow(ctx); err != nil {
		return 0, err
	}
	if s.state.version < s.written {
		return pollPause, nil // What this node wrote has not come back yet.
	}
	v := s.look()
	if ctx.Err() != nil {
		return 0, nil // What the scavenge of a turn came to may be due to that.
	}
	next := decide(s.state, &v)
	if next.why != "" {
		s.logger.Warn(next.why)
	}
	if next.do != propose {
		s.last = proposal{}
	}
	switch next.do {
	case propose:
		if next.event.sameAs(&s.last) {
			// It was written, read again, and had no effect: a client writes into the stream as
			// well, or nodes have versions that do not agree.
			s.last = proposal{}
			return pollPause, fmt.Errorf("%s was written and had no effect", next.event.kind)
		}
		return 0, s.propose(ctx, next.event)
	case start:
		s.begin(ctx, s.state.round.turn.number, s.state.round.started)
		return pollPause, nil
	case stop:
		s.worker.cancel(errLost)
		if s.worker.done.Err() != nil {
			s.worker = nil
			return 0, nil
		}
		return pollPause, nil
	case resign:
		return s.resign(ctx)
	}
	if s.state.round != nil {
		return pollPause, nil
	}
	pause := idlePause
	if due := s.schedule.Next(v.now); !due.IsZero() {
		pause = min(pause, max(due.Sub(v.now), time.Millisecond))
	}
	return pause, nil
}

// resign asks for another leader once.
func (s *Scheduler) resign(ctx context.Context) (time.Duration, error) {
	s.handOver.tries++
	s.logger.Info("handing leadership over, to be scavenged", logkey.Attempt, s.handOver.tries)
	limited, cancel := context.WithTimeout(ctx, handOverPace)
	defer cancel()
	if err := s.opts.Cluster.Resign(limited); err != nil {
		s.logger.Warn("leadership was not handed over", logkey.Error, err)
	}
	s.handOver.next = s.opts.Now().Add(handOverPace)
	return 0, nil
}

// look gathers what this node knows beyond the stream.
func (s *Scheduler) look() view {
	now := s.opts.Now()
	v := view{
		now: now, self: s.self, endpoint: s.opts.Endpoint, session: s.session, schedule: s.schedule,
		leading: s.opts.Cluster.Leading(), quiet: now.Sub(s.changed),
		away: make(map[event.ID]time.Duration),
	}
	if s.worker != nil {
		v.work = work{number: s.worker.number, running: s.worker.done.Err() == nil}
		if !v.work.running {
			v.work.outcome = s.worker.outcome
		}
	}
	if r := s.state.round; r != nil {
		if !s.handOver.due.Equal(r.due) {
			s.handOver = handOver{due: r.due}
		}
		v.handOvers, v.pausing = s.handOver.tries, now.Before(s.handOver.next)
	}
	s.watch(&v)
	s.compare(&v)
	return v
}

// watch keeps how long those that matter have been dead. A node that sees no leader
// may itself be the one that is cut off: what it sees says nothing.
func (s *Scheduler) watch(v *view) {
	alive, led := map[event.ID]bool{s.self: true}, v.leading
	for _, m := range s.opts.Cluster.View().Members {
		if m.Alive {
			alive[m.Node] = true
			led = led || m.State == event.StateLeader
			v.successor = v.successor || m.Node != s.self && m.Voter && !m.ReadOnly
		}
	}
	matter := slices.Collect(maps.Keys(s.state.joined))
	if r := s.state.round; r != nil && r.turn != nil {
		matter = append(matter, r.turn.node)
	}
	before := s.deadAt
	s.deadAt = make(map[event.ID]time.Time)
	for _, node := range matter {
		if !led || alive[node] {
			continue
		}
		since, known := before[node]
		if !known {
			since = v.now
		}
		s.deadAt[node], v.away[node] = since, v.now.Sub(since)
	}
}

// compare warns when living nodes have different schedules: rounds then begin by all of them.
func (s *Scheduler) compare(v *view) {
	if s.schedule.IsZero() {
		return
	}
	for node, p := range s.state.joined {
		if _, dead := v.away[node]; dead || node == s.self || p.schedule == s.schedule.String() {
			continue
		}
		key := p.endpoint + " " + p.schedule
		if !s.warned[key] {
			s.warned[key] = true
			s.logger.Warn("another node has a different schedule of scavenges: both schedules start rounds", "endpoint", p.endpoint,
				logkey.Theirs, p.schedule, logkey.Ours, s.schedule.String())
		}
	}
}

// pause waits until the stream grows, the scavenge of this node's turn ends, or some time has
// passed.
func (s *Scheduler) pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	limited, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if s.worker != nil && s.worker.done.Err() == nil {
		defer context.AfterFunc(s.worker.done, cancel)()
	}
	if err := s.opts.Store.WaitStream(limited, Stream, s.state.version); err != nil {
		<-limited.Done() // The stream cannot be watched now: look when the time is over.
	}
}

// measure sets the gauges to what is so now.
func (s *Scheduler) measure() {
	due := int64(0)
	if next := s.schedule.Next(s.opts.Now()); !next.IsZero() {
		due = next.Unix()
	}
	s.metrics.next.Set(due)
	s.metrics.round.Set(oneIf(s.state.round != nil))
	s.metrics.turn.Set(oneIf(s.state.holds(s.self)))
}

func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
