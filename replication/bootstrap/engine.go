package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
)

// ErrRan says that Run was called before: it ends once, and what comes after
// needs another Engine.
var ErrRan = errors.New("the search for a cluster has been run already")

// Engine finds or forms the cluster of one node.
type Engine struct {
	o    Options
	core *core // of the goroutine in Run

	// passive is what Handle answers from while nothing runs: what was durable
	// when Run had not begun, or had ended.
	passive  atomic.Pointer[situation]
	ran      atomic.Bool
	running  chan struct{} // closed when Run begins
	stopped  chan struct{} // closed when Run ends
	requests chan incoming
	results  chan result
}

// incoming is a request that waits in Handle. The channel holds one answer, so
// that nobody waits for who went away.
type incoming struct {
	request Request
	answer  chan Answer
}

// New reads the record of this node, which Identify made. Nothing runs yet, but
// Handle already answers.
func New(o Options) (*Engine, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	record, err := o.Store.Load()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("bootstrap: this node has not been identified: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("bootstrap: load what this node promised: %w", err)
	}
	if err := checkRecord(&o, &record); err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	e := &Engine{
		o: o, running: make(chan struct{}), stopped: make(chan struct{}),
		requests: make(chan incoming), results: make(chan result),
	}
	e.core = newCore(&e.o, record, func() event.ID { return event.ID(uuid.New()) })
	passive := e.core.situation
	e.passive.Store(&passive)
	return e, nil
}

func checkRecord(o *Options, record *Record) error {
	if err := record.Validate(); err != nil {
		return err
	}
	if record.Node != o.Node {
		return fmt.Errorf("the record belongs to node %s, this is %s", record.Node, o.Node)
	}
	if record.Formed && !o.Cluster.IsZero() && o.Cluster != record.Promise.Cluster {
		return fmt.Errorf("this node formed cluster %s and has the state of cluster %s: stop it and remove its %s",
			record.Promise.Cluster, o.Cluster, o.RecordPlace)
	}
	return nil
}

// Run blocks until it is decided which cluster this node is to create or to
// join; for a node with state that is at once. It is called once. An error is
// that of ctx, or of the Store: after the latter it is not known what the record
// holds, and only a restart may go on.
//
// The decision to form a cluster is durable, that to join one is not. Until the
// node has state, Run of the next start comes to the same decision to form,
// with the same id, so creating must be idempotent.
func (e *Engine) Run(ctx context.Context) (Outcome, error) {
	if !e.ran.CompareAndSwap(false, true) {
		return Outcome{}, ErrRan
	}
	ctx, cancel := context.WithCancel(ctx)
	d := &driver{Engine: e, ctx: ctx, durable: e.core.situation}
	close(e.running)
	defer func() {
		cancel()
		e.passive.Store(&d.durable)
		close(e.stopped) // before waiting: two nodes of one process may be in each other's Handle
		d.calls.Wait()
	}()
	return d.run()
}

// Handle answers another node's request: before, during and after Run. It
// promises something new only during Run. It waits for one durable write at most.
func (e *Engine) Handle(r Request) Answer {
	select {
	case <-e.running:
	default:
		return e.passive.Load().passive(r)
	}
	in := incoming{r, make(chan Answer, 1)}
	select {
	case e.requests <- in:
	case <-e.stopped:
		return e.passive.Load().passive(r)
	}
	select {
	case a := <-in.answer:
		return a
	case <-e.stopped:
	}
	select {
	case a := <-in.answer: // given in the last step
		return a
	default:
		return e.passive.Load().passive(r)
	}
}

// driver is one run of an engine.
type driver struct {
	*Engine
	ctx     context.Context
	calls   sync.WaitGroup
	durable situation // after the last step whose effects were all carried out
}

func (d *driver) run() (Outcome, error) {
	tick := time.NewTicker(d.o.PollInterval)
	defer tick.Stop()
	var (
		in     input
		answer chan Answer // of the request in this step
	)
	for {
		changed := d.o.View.Changed() // before Peers, so that no change falls between
		in.now, in.peers = time.Now(), d.o.View.Peers()
		outcome, err := d.carryOut(d.core.step(in), answer)
		if err != nil || outcome != nil {
			return deref(outcome), err
		}
		in, answer = input{}, nil
		select {
		case <-d.ctx.Done():
			return Outcome{}, d.ctx.Err()
		case <-tick.C:
		case <-changed:
		case r := <-d.requests:
			in.request, answer = &r.request, r.answer
		case r := <-d.results:
			in.result = &r
		}
	}
}

func deref(o *Outcome) Outcome {
	if o == nil {
		return Outcome{}
	}
	return *o
}

func (d *driver) carryOut(effects []effect, answer chan Answer) (*Outcome, error) {
	var outcome *Outcome
	for _, e := range effects {
		switch e := e.(type) {
		case save:
			if err := d.o.Store.Save(e.record); err != nil {
				return nil, fmt.Errorf("record what this node promised: %w", err)
			}
		case reply:
			answer <- e.answer
		case call:
			d.start(e)
		case decide:
			outcome = &e.outcome
		case say:
			d.o.Logger.Log(e.level, e.message, readable(e.args)...)
		}
	}
	d.durable = d.core.situation
	return outcome, nil
}

// start makes a call in the background. The core has one call to a node under way at most.
func (d *driver) start(c call) {
	d.calls.Go(func() {
		ctx, cancel := context.WithTimeout(d.ctx, d.o.CallTimeout)
		defer cancel()
		a, err := d.o.Caller.Call(ctx, c.address, c.request)
		select {
		case d.results <- result{c.to, a, err}:
		case <-d.ctx.Done():
		}
	})
}

// readable turns ids into text; a structured log would show them as numbers.
func readable(args []any) []any {
	shown := make([]any, len(args))
	for i, arg := range args {
		switch arg := arg.(type) {
		case event.ID:
			shown[i] = arg.String()
		case []event.ID:
			ids := make([]string, len(arg))
			for j, id := range arg {
				ids[j] = id.String()
			}
			shown[i] = ids
		default:
			shown[i] = arg
		}
	}
	return shown
}
