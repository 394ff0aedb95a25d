package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/clock"
)

// subscriptions is the workload of groups: streams, those who write to them,
// consumers that compete for their messages, and an operator who meddles.
type subscriptions struct {
	*load
	groups    []*group
	feeders   []*feeder
	linker    *linker
	consumers []*consumer // and, from the draining on, those who drain
	competing int         // consumers until then
	operator  *operator
	count     groupCounters
	// drainTime is how long groups may take to hand out everything once all is calm.
	drainTime time.Duration
}

// groupCounters are numbers of the consumers of a round. Replies are counted by outcome.
type groupCounters struct {
	deliveries, left, crashes, failed atomic.Int64
	replies                           [len(actionWords)][4]atomic.Int64
}

// writersOfQueue is how many clients write to the stream of events.
const writersOfQueue = 2

// newSubscriptions makes the clients. The linker's journal was opened before, since links are known by its number.
func newSubscriptions(l *load, seed uint64, groups []*group, consumers int, links *journal) *subscriptions {
	s := &subscriptions{load: l, groups: groups, competing: consumers, drainTime: groupsDrain}
	shared := &fed{}
	for range writersOfQueue {
		s.feeders = append(s.feeders, &feeder{newWriter(l, seed), shared})
	}
	s.linker = &linker{newWriterOf(l, seed, links), shared}
	for i := range consumers {
		s.consumers = append(s.consumers, newConsumer(s, seed, i))
	}
	s.operator = newOperator(s, seed)
	return s
}

// clients returns what runs until the clients shall end.
func (s *subscriptions) clients() []func(context.Context) {
	list := []func(context.Context){s.linker.run, s.operator.run}
	for _, f := range s.feeders {
		list = append(list, f.run)
	}
	for _, c := range s.consumers {
		list = append(list, c.run)
	}
	return list
}

// errNoGroups says that nodes know no persistent subscriptions at all.
var errNoGroups = errors.New("the nodes have no persistent subscriptions")

// create makes the groups, before anything strikes.
func (s *subscriptions) create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startupLimit)
	defer cancel()
	for _, g := range s.groups {
		req, err := g.put(http.MethodPut)
		if err != nil {
			return err
		}
		for {
			a, err := s.operator.client.do(ctx, s.operator.client.choose(), req)
			result := judgeCommand(a, err)
			if result == done || a != nil && a.Status == http.StatusConflict {
				break // The second comes of an earlier attempt.
			}
			if result == conflict && a.Status == http.StatusNotFound {
				return errNoGroups
			}
			if result == conflict {
				return fmt.Errorf("create %s: %s", g, a)
			}
			s.operator.client.wander()
			if clock.Sleep(ctx, 100*time.Millisecond) != nil {
				return fmt.Errorf("create %s: %w", g, errors.Join(ctx.Err(), err))
			}
		}
	}
	return nil
}

// remove deletes the groups.
func (s *subscriptions) remove(ctx context.Context) {
	for _, g := range s.groups {
		a, err := s.operator.client.do(ctx, s.operator.client.choose(), client.Request{Method: http.MethodDelete, Path: g.path()})
		if judgeCommand(a, err) == conflict {
			s.find.add(kindAnswer, "delete %s: %s", g, a)
		}
	}
}

// close ends connections.
func (s *subscriptions) close() {
	s.operator.client.close()
	for _, c := range s.consumers {
		c.client.close()
	}
}

// What an operator does.
const (
	actReplay  = "replay of parked messages"
	actUpdate  = "update"
	actRestart = "restart of the subsystem"
)

// act is one thing that the operator did.
type act struct {
	what      string
	group     int // -1: all
	call, ret int64
	outcome   outcome
}

// operator replays parked messages, updates groups and restarts the subsystem now and then.
type operator struct {
	*subscriptions
	client *caller
	rng    *rand.Rand
	acts   []act
}

func newOperator(s *subscriptions, seed uint64) *operator {
	rng := rand.New(rand.NewPCG(seed, 6<<32))
	return &operator{subscriptions: s, rng: rng, client: newCaller(s.targets, rng, s.timeout, &s.load.count.hops)}
}

func (o *operator) run(ctx context.Context) {
	defer o.client.close()
	for o.rest(ctx, time.Duration(500+o.rng.IntN(2000))*time.Millisecond) {
		if err := o.meddle(ctx); err != nil {
			o.find.add(kindAnswer, "%v", err)
		}
	}
}

func (o *operator) meddle(ctx context.Context) error {
	index := o.rng.IntN(len(o.groups))
	g := o.groups[index]
	what, req := actReplay, client.Request{Method: http.MethodPost, Path: g.path() + "/replayParked"}
	switch dice := o.rng.IntN(10); {
	case dice < 2:
		req.Path += fmt.Sprintf("?stopAt=%d", o.rng.IntN(20))
	case dice < 5:
	case dice < 8:
		what = actUpdate
		var err error
		if req, err = g.put(http.MethodPost); err != nil {
			return err
		}
	default:
		what, index = actRestart, -1
		req = client.Request{Method: http.MethodPost, Path: "/subscriptions/restart"}
	}
	call := o.load.hist.now()
	a, err := o.client.do(ctx, o.client.choose(), req)
	one := act{what: what, group: index, call: call, ret: o.load.hist.now(), outcome: judgeCommand(a, err)}
	if one.outcome != done {
		o.client.wander()
	}
	odd := one.outcome == conflict && (what != actRestart || a.Status != http.StatusBadRequest)
	if one.outcome == conflict {
		one.outcome = refused
	}
	o.acts = append(o.acts, one)
	if odd {
		return fmt.Errorf("%s, %s: %s", what, req.Path, a)
	}
	return nil
}

// fed is how far the stream of events is known to reach.
type fed struct{ last atomic.Int64 } // number of the last event + 1

// feeder is a writer of the stream of events.
type feeder struct {
	*writer
	fed *fed
}

func (f *feeder) run(ctx context.Context) {
	defer f.client.close()
	stream := f.plainStream(f.prefix + queueStream)
	for !f.stopped() && ctx.Err() == nil && f.hist.reserve() {
		o := f.append(ctx, stream, anyVersion, 1+f.rng.IntN(6))
		if o.outcome == done {
			behind := o.number + int64(o.count)
			for last := f.fed.last.Load(); last < behind && !f.fed.last.CompareAndSwap(last, behind); last = f.fed.last.Load() {
			}
		}
		f.rest(ctx, time.Duration(50+f.rng.IntN(300))*time.Millisecond)
	}
}

// linkBatch is how many links are written at once. What a link points at follows from its ref.
const linkBatch = 4

// linker writes links to events that are there, each once and in order, and a few that lead nowhere.
type linker struct {
	*writer
	fed *fed
}

func (l *linker) run(ctx context.Context) {
	defer l.client.close()
	stream := l.names.of(l.prefix + linksStream) // Not plain: its readers resolve links.
	for !l.stopped() && ctx.Err() == nil {
		if number := l.journal.len(); l.fed.last.Load() >= int64(number+1)*linkBatch && l.hist.reserve() {
			l.journal.begin(op{kind: opAppend, call: l.hist.now(), ret: never, stream: stream, expected: anyVersion, count: linkBatch, node: -1})
			o := l.journal.at(number)
			req := write(l.ids, l.names.name(stream), anyVersion, refOf(l.journal.client, number, 0), linkBatch, false)
			v, _ := l.insist(ctx, o, req, http.StatusCreated, patience)
			if o.number = v.number; o.outcome == done {
				l.acknowledged(o)
			}
			l.load.count.writes[o.outcome].Add(1)
		}
		l.rest(ctx, time.Duration(50+l.rng.IntN(150))*time.Millisecond)
	}
}
