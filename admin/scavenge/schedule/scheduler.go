// Package schedule scavenges the whole cluster by the clock, one node at a time.
//
// A schedule is a cron expression. At each of its due times a round begins, in
// which every node of the cluster that has a schedule takes one turn: followers
// and read-only replicas first, the leader last and after it handed leadership
// over. A turn is one scavenge of that node.
//
// The leader says whose turn it is. It asks all nodes time and again how far they are, decides its
// next step from that and from the record that it keeps in the stream $scavengeSchedule, and stores
// the record before the step has an effect: the next leader continues from there. The decision is
// pure. DESIGN.md has the rules and why they are so.
package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/admin/cron"
	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/stats"
)

// Pauses. While a round is running nodes are asked more often.
const (
	idlePause  = time.Minute
	pollPause  = grace / 60 // between two looks during a round
	askTime    = pollPause  // an answer may wait so long for the end of a turn
	retryFirst = time.Second
	retryMost  = 30 * time.Second
)

// Scheduler takes this node's part in the scavenges of the cluster: it answers the leader, and
// while this node leads it says whose turn it is.
type Scheduler struct {
	opts     Options
	schedule cron.Schedule
	session  event.ID // of this Scheduler: tells its turns from those of the process before
	logger   hclog.Logger
	metrics  metrics
	running  context.Context // of this node's turns and attempts to hand over, until Close
	cancel   context.CancelFunc
	turns    turns

	life    sync.Mutex // serialises Start and Stop
	leading context.CancelFunc
	led     chan struct{} // closed when the goroutine of lead has ended

	// What follows belongs to the goroutine of lead.
	record      *record
	version     int64            // number of the last event when the record was read
	info        event.StreamInfo // then
	silentSince map[event.ID]time.Time
	handOver    handOver
	written     int64 // number of the last event that this node wrote
	retry       time.Duration
	warned      map[string]bool
}

// handOver counts the attempts to hand over leadership in one round.
type handOver struct {
	due   time.Time
	tries int
	next  time.Time
}

// New returns a scheduler that answers, and must be closed. A node without a schedule has one too,
// for it may lead.
func New(o Options) (*Scheduler, error) {
	o.EnsureDefaults()
	schedule, err := cron.Parse(o.Expression)
	if err != nil {
		return nil, fmt.Errorf("schedule of scavenges: %w", err)
	}
	s := &Scheduler{
		opts: o, schedule: schedule, session: event.ID(uuid.New()), logger: o.Logger, warned: make(map[string]bool), written: -1,
	}
	s.metrics = newMetrics(o.Stats, s.nextDue)
	s.running, s.cancel = context.WithCancel(context.Background())
	s.turns.asked.Version = -1
	s.turns.silence = time.AfterFunc(grace, func() {
		s.turns.mu.Lock()
		defer s.turns.mu.Unlock()
		s.lose()
	})
	return s, nil
}

// Close ends all that this node does, and waits for it. It comes before the runner is closed: a run
// that is stopped while it has not ended counts as stopped by an operator, and the node would not
// take its turn up again after the restart.
func (s *Scheduler) Close() {
	s.Stop()
	s.turns.silence.Stop()
	s.cancel()
	s.turns.owned.Wait()
}

// Start begins to say whose turn it is, as this node leads now. It does not wait.
func (s *Scheduler) Start(ctx context.Context) {
	s.life.Lock()
	defer s.life.Unlock()
	if s.led != nil {
		return
	}
	led := make(chan struct{})
	ctx, s.leading = context.WithCancel(ctx)
	s.led, s.record, s.version, s.silentSince = led, &record{}, -1, make(map[event.ID]time.Time)
	go func() {
		defer close(led)
		s.lead(ctx)
	}()
}

// Stop ends that and waits for it. It may be called when nothing was started.
func (s *Scheduler) Stop() {
	s.life.Lock()
	defer s.life.Unlock()
	if s.led != nil {
		s.leading()
		<-s.led
		s.led = nil
	}
}

func (s *Scheduler) lead(ctx context.Context) {
	for ctx.Err() == nil {
		pause, err := s.step(ctx)
		if ctx.Err() != nil {
			return
		}
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
	if err := s.load(ctx); err != nil {
		return 0, err
	}
	if s.version < s.written {
		return pollPause, nil // What this node wrote has not come back yet.
	}
	begun := time.Now()
	v := s.look(ctx)
	if ctx.Err() != nil {
		return 0, nil // That no node answers may be due to that.
	}
	next := decide(s.record, &v)
	switch {
	case next.next != nil:
		return 0, s.save(ctx, &next)
	case next.resigns:
		s.resign()
	}
	if s.record.Round != nil {
		return pollPause - time.Since(begun), nil
	}
	pause := idlePause
	for expression := range s.record.Schedules {
		if schedule, err := cron.Parse(expression); err == nil {
			pause = min(pause, max(schedule.Next(v.now).Sub(v.now), time.Millisecond))
		}
	}
	return pause, nil
}

// resign asks for another leader once. It does not wait: Stop is called meanwhile.
func (s *Scheduler) resign() {
	s.handOver.tries++
	s.handOver.next = s.opts.Now().Add(handOverPace)
	s.logger.Info("handing leadership over, to be scavenged", logkey.Attempt, s.handOver.tries)
	s.turns.owned.Go(func() {
		limited, cancel := context.WithTimeout(s.running, handOverPace)
		defer cancel()
		if err := s.opts.Cluster.Resign(limited); err != nil {
			s.logger.Warn("leadership was not handed over", logkey.Error, err)
		}
	})
}

// look gathers what this node knows beyond the record: it asks all nodes.
func (s *Scheduler) look(ctx context.Context) view {
	self := s.opts.Cluster.Node()
	v := view{now: s.opts.Now(), self: self, nodes: map[event.ID]*peer{self: {}}}
	q := Ask{Version: s.version}
	if last := s.record.Last; last != nil {
		q.Ended, q.Result = last.Ended, last.Result
	}
	if r := s.record.Round; r != nil {
		q.Round, q.Started = r.Due, r.Started
		if r.Turn != nil {
			q.Node, q.Session, q.Wait = r.Turn.Node, r.Turn.Session, askTime
			v.nodes[r.Turn.Node] = &peer{}
		}
		if !s.handOver.due.Equal(r.Due) {
			s.handOver = handOver{due: r.Due}
		}
		v.handOvers, v.pausing = s.handOver.tries, v.now.Before(s.handOver.next)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*askTime)
	defer cancel()
	var asked sync.WaitGroup
	for _, m := range s.opts.Cluster.View().Members {
		p := &peer{}
		v.nodes[m.Node] = p
		if m.Node != self && m.Alive {
			v.successor = v.successor || m.Voter && !m.ReadOnly
			asked.Go(func() {
				answer, err := s.opts.Cluster.Ask(ctx, m.Node, q)
				p.Answer, p.isHeard = answer, err == nil
			})
		}
	}
	v.nodes[self] = &peer{Answer: s.Answer(ctx, q), isHeard: true}
	asked.Wait()
	s.note(&v)
	return v
}

// note keeps how long nodes have been silent, and warns when those that are not have different
// schedules: rounds then begin by all of them.
func (s *Scheduler) note(v *view) {
	for node, p := range v.nodes {
		if !p.isHeard {
			if _, known := s.silentSince[node]; !known {
				s.silentSince[node] = v.now
			}
			p.silent = v.now.Sub(s.silentSince[node])
			continue
		}
		delete(s.silentSince, node)
		key := p.Endpoint + " " + p.Schedule
		if ours := s.schedule.String(); p.Schedule != "" && ours != "" && p.Schedule != ours && !s.warned[key] {
			s.warned[key] = true
			s.logger.Warn("another node has a different schedule of scavenges: both schedules start rounds", "endpoint", p.Endpoint,
				logkey.Theirs, p.Schedule, logkey.Ours, ours)
		}
	}
}

// pause waits until the stream grows or some time has passed.
func (s *Scheduler) pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	limited, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if err := s.opts.Store.WaitStream(limited, Stream, s.version); err != nil {
		<-limited.Done() // The stream cannot be watched now: look when the time is over.
	}
}

// nextDue is the Unix time at which scavenges are due next by this node's schedule, 0 for never.
func (s *Scheduler) nextDue() float64 {
	if next := s.schedule.Next(s.opts.Now()); !next.IsZero() {
		return float64(next.Unix())
	}
	return 0
}

func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// Runner scavenges this node.
type Runner interface {
	// Start begins a run, or resumes one that was stopped. It fails with scavenge.ErrRunning if one
	// is running, which Current then returns.
	Start(scavenge.Request) (event.ID, error)
	// Stop ends a run and returns when it has ended, or ctx. It fails with scavenge.ErrNoSuchRun if
	// it has ended before.
	Stop(ctx context.Context, id event.ID) (event.ID, error)
	// Last returns the run that was started last in this process; its id is zero if none was.
	Last() scavenge.Status
	// Current returns the run that is running; its id is zero if there is none.
	Current() scavenge.Status
	// Wait returns when the run has ended, at once if it has. It fails when ctx ends before.
	Wait(ctx context.Context, id event.ID) (scavenge.Status, error)
}

// Store is the database.
type Store interface {
	// WriteOwn does a write of the node's own, wherever the leader is, and waits for
	// a leader as long as ctx allows. It fails with *event.WrongExpectedVersion if the
	// stream is elsewhere.
	WriteOwn(ctx context.Context, w *event.Write) (event.Written, error)
	// StreamInfo returns what this node knows of a stream, of one never written too.
	StreamInfo(ctx context.Context, stream string) (event.StreamInfo, error)
	ReadStream(ctx context.Context, r event.StreamRead) (event.StreamPage, error)
	// WaitStream returns nil when the stream's last number is above after on this node.
	WaitStream(ctx context.Context, stream string, after int64) error
}

// Cluster is the membership as this node sees it.
type Cluster interface {
	Node() event.ID
	View() event.ClusterView
	// Ask asks another node.
	Ask(ctx context.Context, node event.ID, q Ask) (Answer, error)
	// Resign hands leadership over. It returns nil as well when no node took it over.
	Resign(ctx context.Context) error
}

// Options say what a Scheduler works with.
type Options struct {
	Expression string           // see Parse; empty: this node takes no turns
	Request    scavenge.Request // how this node is scavenged
	Endpoint   string           // of this node, host:port, for those who read the stream
	Runner     Runner
	Store      Store
	Cluster    Cluster

	Now    func() time.Time // time.Now if nil
	Logger hclog.Logger     // may be nil
	Stats  *stats.Registry  // may be nil
}

// EnsureDefaults sets the fields that are zero.
func (o *Options) EnsureDefaults() {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, hclog.NewNullLogger())
}
