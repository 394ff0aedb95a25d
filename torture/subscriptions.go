package torture

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/client"
)

// subscriptions is the workload of groups: streams, those who write to them, consumers that compete
// for their messages, and itself as an operator who replays and forwards parked messages, updates,
// pauses and resets groups and restarts the subsystem now and then.
type subscriptions struct {
	worker
	groups    []*group
	consumers []*consumer
	acts      []step
	paused    *group // nil: none, as far as the operator knows
	// how far the stream of events is known to reach: number of the last event + 1
	fed atomic.Int64
	// drainTime is how long groups may take to hand out everything once all is calm.
	drainTime time.Duration
}

// writersOfQueue is how many clients write to the stream of events.
const writersOfQueue = 2

func newSubscriptions(l *load, groups []*group) *subscriptions {
	return &subscriptions{worker: l.worker(groupOperator), groups: groups, drainTime: groupsDrain}
}

// begin lets clients work. The linker's journal was opened before, since links are known by its
// number.
func (s *subscriptions) begin(consumers int, links *journal) {
	for range writersOfQueue {
		f := newWriter(s.load, s.hist.journal())
		s.employ(func(ctx context.Context) time.Duration { return s.feed(ctx, f) })
	}
	linker := newWriter(s.load, links)
	s.employ(func(ctx context.Context) time.Duration { return s.link(ctx, linker) })
	for i := range consumers {
		c := newConsumer(s, i, s.groups[i%len(s.groups)])
		s.consumers = append(s.consumers, c)
		s.employ(c.turn)
	}
	s.employ(s.turn)
}

// create makes the groups, before anything strikes.
func (s *subscriptions) create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startupLimit)
	defer cancel()
	for _, g := range s.groups {
		req, err := g.put(http.MethodPut)
		if err != nil {
			return err
		}
		// This comes of an earlier attempt.
		if _, err = s.command(ctx, req); err != nil && !client.HasStatus(err, http.StatusConflict) {
			return fmt.Errorf("create %s: %w", g, err)
		}
	}
	return nil
}

// remove deletes the groups.
func (s *subscriptions) remove(ctx context.Context) {
	for _, g := range s.groups {
		a, err := s.do(ctx, s.choose(), client.Request{Method: http.MethodDelete, Path: g.path()})
		if judge(a, err) == conflict {
			s.find.add(kindAnswer, "delete %s: %s", g, a)
		}
	}
}

// turn is one act of the operator.
func (s *subscriptions) turn(ctx context.Context) time.Duration {
	if err := s.meddle(ctx); err != nil {
		s.find.add(kindAnswer, "%v", err)
	}
	return s.pause(500, 2000)
}

func (s *subscriptions) meddle(ctx context.Context) error {
	if s.paused != nil && s.rng.IntN(2) == 0 {
		_, err := s.resume(ctx, s.paused)
		return err
	}
	g := s.groups[s.rng.IntN(len(s.groups))]
	what, req := actReplay, client.Request{Method: http.MethodPost, Path: g.path() + "/replayParked"}
	switch dice := s.rng.IntN(15); {
	case dice == 14:
		return s.reset(ctx, g)
	case dice >= 12:
		what, req.Path = actForward, g.path()+"/parked/forward?to="+url.QueryEscape(forwardStream(s.prefix))
	case dice < 2:
		req.Path += fmt.Sprintf("?stopAt=%d", s.rng.IntN(20))
	case dice < 5:
	case dice < 8:
		what = actUpdate
		var err error
		if req, err = g.put(http.MethodPost); err != nil {
			return err
		}
	case dice < 10 && s.paused == nil:
		what, s.paused, req.Path = actPause, g, g.path()+"/pause"
	default:
		what, g = actRestart, nil
		req = client.Request{Method: http.MethodPost, Path: "/subscriptions/restart"}
	}
	_, err := s.act(ctx, what, g, req)
	return err
}

// farthestBack bounds how many events a reset has given again.
const farthestBack = 60

// reset moves a group back from its last checkpoint: it never leaves out what has no answer.
func (s *subscriptions) reset(ctx context.Context, g *group) error {
	i, err := (&consumer{worker: s.worker, group: g}).info(ctx)
	if err != nil || i.Checkpoint == nil {
		return nil // Another time.
	}
	at, err := strconv.ParseInt(*i.Checkpoint, 10, 64)
	if err != nil {
		return fmt.Errorf("the checkpoint of %s: %w", g, err)
	}
	to := max(0, at+1-s.rng.Int64N(farthestBack))
	o, err := s.act(ctx, actReset, g, client.Request{Method: http.MethodPost, Path: g.path() + "/reset?to=" + strconv.FormatInt(to, 10)})
	s.acts[len(s.acts)-1].To = to
	if o == done {
		s.count.add(ofSubscriptions, "movedBack", int(at+1-to))
	}
	return err
}

// resume ends the pause of a group.
func (s *subscriptions) resume(ctx context.Context, g *group) (outcome, error) {
	o, err := s.act(ctx, actResume, g, client.Request{Method: http.MethodPost, Path: g.path() + "/resume"})
	if o == done && g == s.paused {
		s.paused = nil
	}
	return o, err
}

// act does something once, and remembers it. An answer that it should not get is an error.
func (s *subscriptions) act(ctx context.Context, what string, g *group, req client.Request) (outcome, error) {
	one := step{What: what, Group: g, Consumer: -1, Node: -1, Call: s.hist.now()}
	a, err := s.do(ctx, s.choose(), req)
	one.Return, one.Outcome = s.hist.now(), judge(a, err)
	if one.Outcome != done {
		s.wander()
	}
	odd := one.Outcome == conflict && (what != actRestart || a.Status != http.StatusBadRequest)
	if one.Outcome == conflict {
		one.Outcome = refused
	}
	s.count.add(ofSubscriptions, what+" "+one.Outcome.String(), 1)
	s.acts = append(s.acts, one)
	if odd {
		return one.Outcome, fmt.Errorf("%s, %s: %s", what, req.Path, a)
	}
	return one.Outcome, nil
}

// feed writes to the stream of events.
func (s *subscriptions) feed(ctx context.Context, w *writer) time.Duration {
	if !w.hist.reserve() {
		return enough
	}
	if o := w.append(ctx, w.plainStream(w.prefix+queueStream), anyVersion, 1+w.rng.IntN(6)); o.outcome == done {
		behind := o.number + int64(o.count)
		for last := s.fed.Load(); last < behind && !s.fed.CompareAndSwap(last, behind); last = s.fed.Load() {
		}
	}
	return w.pause(50, 300)
}

// linkBatch is how many links are written at once. What a link points at follows from its ref.
const linkBatch = 4

// link writes links to events that are there, each once and in order, and a few that lead nowhere.
func (s *subscriptions) link(ctx context.Context, w *writer) time.Duration {
	if s.fed.Load() >= int64(len(w.journal.ops)+1)*linkBatch && w.hist.reserve() {
		// Not plain: its readers resolve links.
		w.append(ctx, s.book.stream(w.prefix+linksStream), anyVersion, linkBatch)
	}
	return w.pause(50, 150)
}
