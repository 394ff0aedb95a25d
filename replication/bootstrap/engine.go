package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
)

// ErrRan says that Run was called before: another search needs another Engine.
var ErrRan = errors.New("the search for a cluster has been run already")

// Engine finds or forms the cluster of one node.
type Engine struct {
	o     Options
	calls sync.WaitGroup
	done  chan struct{} // closed when outcome or err is there

	// mu guards what follows. It is held for a whole step, what that step asks for included: a
	// durable write of the record at most.
	mu      sync.Mutex
	core    *core
	durable situation // after the last step whose effects were all carried out
	ran     bool
	running context.Context // that of Run; nil while it does not run
	outcome Outcome
	err     error
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
	e := &Engine{o: o, done: make(chan struct{})}
	e.core = newCore(&e.o, record, func() event.ID { return event.ID(uuid.New()) })
	e.durable = e.core.situation
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

// Run blocks until it is decided which cluster this node is to create or to join; for a node with
// state that is at once. It is called once. An error is that of ctx, or of the Store: after the
// latter it is not known what the record holds, and the node must be restarted.
//
// The decision to form a cluster is durable, that to join one is not. Until the
// node has state, Run of the next start comes to the same decision to form,
// with the same id, so creating must be idempotent.
func (e *Engine) Run(ctx context.Context) (Outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	e.mu.Lock()
	if e.ran {
		e.mu.Unlock()
		cancel()
		return Outcome{}, ErrRan
	}
	e.ran, e.running = true, ctx
	e.mu.Unlock()
	defer e.calls.Wait()
	defer cancel()
	defer func() {
		e.mu.Lock()
		e.running = nil
		e.mu.Unlock()
	}()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		changed := e.o.Changed() // before Peers, so that no change falls between
		e.step(input{})
		select {
		case <-e.done:
			return e.outcome, e.err
		case <-ctx.Done():
			return Outcome{}, ctx.Err()
		case <-tick.C:
		case <-changed:
		}
	}
}

// Handle answers another node's request: before, during and after Run. It
// promises something new only during Run. It waits for one durable write at most.
func (e *Engine) Handle(r Request) Answer { return e.step(input{request: &r}) }

// step has the core take something in, carries out what it asks for, and returns the answer to the
// request. While Run does not run, nothing is done.
func (e *Engine) step(in input) (a Answer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if in.request != nil {
		a = e.durable.passive(*in.request)
	}
	if e.running == nil {
		return a
	}
	in.now, in.peers = time.Now(), e.o.Peers()
	decided := false
	for _, does := range e.core.step(in) {
		switch does := does.(type) {
		case save:
			if err := e.o.Store.Save(does.record); err != nil {
				e.err = fmt.Errorf("record what this node promised: %w", err)
				e.end()
				return a
			}
		case reply:
			a = does.answer
		case call:
			e.start(does)
		case decide:
			e.outcome, decided = does.outcome, true
		case say:
			e.o.Logger.Log(does.level, does.message, readable(does.args)...)
		}
	}
	e.durable = e.core.situation
	if decided {
		e.end()
	}
	return a
}

// end has Run return. e.mu is held.
func (e *Engine) end() {
	e.running = nil
	close(e.done)
}

// start makes a call in the background. The core has at most one call to a node in flight. e.mu is
// held.
func (e *Engine) start(c call) {
	running := e.running
	e.calls.Go(func() {
		ctx, cancel := context.WithTimeout(running, callTimeout)
		defer cancel()
		a, err := e.o.Call(ctx, c.address, c.request)
		e.step(input{result: &result{c.to, a, err}})
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
