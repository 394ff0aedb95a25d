package projection

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/milestone"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/output"
	"github.com/annalsdb/annals/projection/position"
	"github.com/annalsdb/annals/projection/run"
	"github.com/annalsdb/annals/projection/source"
)

// projection is one of the set: its machine, and the code that carries out its effects.
//
// Events are put into the inbox. One goroutine, which lives only while the inbox is not empty,
// hands them to the machine and carries out the effects, one after the other. Work that takes time
// runs in goroutines of its own, which put the result into the inbox.
type projection struct {
	t        *term
	name     string
	gone     func()         // is called when it is no longer there; may be nil
	accessed atomic.Int64   // time of the last request for it, nanoseconds since 1970
	line     milestone.Line // up to which the sources are handled

	mu   sync.Mutex // guards the fields below; not held while anything waits
	m    machine
	id   int64 // number of its creation; -1: it has none
	last int64 // number of the last event of its definition stream, -1: none
	// lastRebuild is that of the stream of its rebuilds.
	lastRebuild int64
	follower    *follower // the second version at work, or as it ended; may be nil
	endClear    func()    // ends the deletion of unused checkpoints, and waits; may be nil
	inbox       []func(m *machine) []effect
	draining    bool
	closed      bool            // nothing happens any more
	active      context.Context // ends with rest, when it gets no further
	rest        context.CancelCauseFunc
	noted       status // that active is of
	hidden      bool   // it is deleted for all who ask
	tickets     map[ticket]chan error
	issued      ticket

	run        Run                 // may be nil
	definition *handler.Definition // nil: it is not prepared
	// that a projection stopped at which has not run since it was loaded
	stored  position.Position
	faults  int64
	release func() // lets the next one be prepared; may be nil
}

func newProjection(t *term, name string, d definition) *projection {
	p := &projection{t: t, name: name, id: -1, last: -1, lastRebuild: -1, tickets: map[ticket]chan error{}}
	p.m.def, p.m.version = d, -1
	p.active, p.rest = context.WithCancelCause(t.ctx)
	p.m.allowed = !t.opts.SystemOnly || event.IsSystemStream(name)
	p.touch()
	return p
}

func (p *projection) touch() { p.accessed.Store(p.t.opts.Now().UnixNano()) }

func (p *projection) releaseLocked() {
	if p.release != nil {
		p.release()
		p.release = nil
	}
}

// push puts something that happened into the inbox. It returns false when nothing happens any more.
func (p *projection) push(what func(m *machine) []effect) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pushLocked(what)
}

func (p *projection) pushLocked(what func(m *machine) []effect) bool {
	if p.closed {
		return false
	}
	p.inbox = append(p.inbox, what)
	if !p.draining {
		p.draining = true
		p.t.work.Go(p.drain)
	}
	return true
}

func (p *projection) drain() {
	for {
		p.mu.Lock()
		if p.closed || len(p.inbox) == 0 {
			p.inbox, p.draining = nil, false
			if p.closed {
				p.dismissLocked()
			}
			p.mu.Unlock()
			return
		}
		what := p.inbox[0]
		p.inbox = p.inbox[1:]
		effects := what(&p.m)
		p.noteRest()
		p.mu.Unlock()
		for _, e := range effects {
			p.do(e)
		}
	}
}

// close makes that nothing happens any more.
func (p *projection) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if !p.draining {
		p.dismissLocked()
	}
}

// left tells who made the projection that it is no longer there.
func (p *projection) left() {
	if p.gone != nil {
		p.gone()
	}
}

// dismissLocked answers who waits still.
func (p *projection) dismissLocked() {
	err := ErrNotFound
	if p.t.ctx.Err() != nil {
		err = event.ErrOutcomeUnknown
	}
	for t, done := range p.tickets {
		done <- err
		delete(p.tickets, t)
	}
	p.releaseLocked()
}

// request hands a command to the machine and waits until it is done. Of a deletion
// it does not wait for the last stream to be gone.
func (p *projection) request(ctx context.Context, what func(m *machine, t ticket) []effect, patience time.Duration) error {
	done := make(chan error, 1)
	p.mu.Lock()
	p.issued++
	t := p.issued
	p.tickets[t] = done
	if !p.pushLocked(func(m *machine) []effect { return what(m, t) }) {
		p.dismissLocked()
	}
	p.mu.Unlock()

	var late <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		late = timer.C
	}
	for {
		select {
		case err := <-done:
			return err
		case <-late:
			if p.hide() {
				return nil
			}
			late = nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// hide makes a projection not found whose deletion is stored.
func (p *projection) hide() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hidden = p.hidden || p.m.status == deleting && p.m.def.Deleting
	return p.hidden
}

// settle answers a ticket.
func (p *projection) settle(t ticket, err error) {
	p.mu.Lock()
	done := p.tickets[t]
	delete(p.tickets, t)
	p.mu.Unlock()
	if done != nil {
		done <- err
	}
}

// do does an effect. It does not wait for anything but a run that has ended.
func (p *projection) do(e effect) {
	switch e.kind {
	case doReply:
		p.settle(e.ticket, e.err)
	case doRegister:
		p.t.work.Go(p.register)
	case doStore:
		p.t.work.Go(func() { p.store(e.change) })
	case doFollow:
		p.follow()
	case doClear:
		p.clear()
	case doCatchUp:
		p.t.work.Go(p.catchUp)
	case doPrepare, doRetry:
		p.t.work.Go(func() { p.prepare(e) })
	case doStart:
		p.start(e.gen)
	case doLoadStopped:
		v := p.view() // The definition may be gone when the goroutine begins.
		p.t.work.Go(func() { p.loadStopped(e.gen, v.options()) })
	case doStop:
		if r := p.view().run; r != nil {
			r.Stop()
		}
	case doAbort:
		if r := p.view().run; r != nil {
			r.Abort()
		}
	case doDrop:
		p.drop()
	case doRemove:
		p.t.work.Go(p.remove)
	case doForget:
		p.t.forget(p)
		p.drop()
	}
}

// drop lets go of the run, which has ended. What it has handled may not be in a state any more.
func (p *projection) drop() {
	p.mu.Lock()
	r := p.run
	p.run = nil
	p.mu.Unlock()
	if r != nil {
		r.Close()
	}
	p.line.Move(0)
}

func (p *projection) register() {
	id, err := p.t.register(p.name)
	p.push(func(m *machine) []effect {
		if err == nil {
			p.id = id
		}
		return m.registered(err)
	})
}

func (p *projection) store(c *change) {
	if c.rebuild != nil {
		p.storeRebuild(c.rebuild)
		return
	}
	number, err := p.t.storeDefinition(p.name, c.def, c.forget, p.view().last)
	p.push(func(m *machine) []effect {
		if err != nil {
			return m.notStored(err)
		}
		p.last = number
		return m.stored(number)
	})
}

func (p *projection) prepare(e effect) {
	if e.kind == doRetry && clock.Sleep(p.t.ctx, 800*time.Millisecond) != nil {
		return
	}
	var reads *handler.Definition
	var err error
	if e.change != nil {
		reads = e.change.reads
	}
	if reads == nil {
		v := p.view()
		reads, err = p.t.define(p.name, &v.m.def)
	}
	p.push(func(m *machine) []effect {
		p.releaseLocked()
		if err != nil {
			if e.gen == m.gen {
				p.definition = nil
			}
			return m.unprepared(e.gen, err.Error())
		}
		effects := m.prepared(e.gen)
		if effects != nil {
			p.definition = reads
		}
		return effects
	})
}

// start begins a run in place of the one that has ended.
func (p *projection) start(gen int) {
	p.drop()
	v := p.view()
	o := v.options()
	o.Done = p.line.Move
	r := p.t.opts.Start(p.t.ctx, o)
	p.mu.Lock()
	p.run = r
	p.mu.Unlock()
	p.t.work.Go(func() { p.watch(r, gen) })
}

// watch reports the steps of a run to the machine.
func (p *projection) watch(r Run, gen int) {
	select {
	case <-r.Started():
		if r.Statistics().Ending == run.Unfinished {
			p.push(func(m *machine) []effect { return m.started(gen) })
		}
	case <-p.t.ctx.Done():
	}
	<-r.Done()
	f := r.Statistics()
	p.push(func(m *machine) []effect {
		if f.Ending == run.Faulted {
			p.faults++
		}
		return m.ended(f.Ending, f.Reason)
	})
}

// loadStopped looks how far a projection came that is not to run.
func (p *projection) loadStopped(gen int, o run.Options) {
	at, reason := source.Zero(o.Definition), ""
	if o.Mode == run.Continuous {
		answer, err := p.t.opts.Stored(p.t.ctx, o, "")
		switch {
		case p.t.ctx.Err() != nil:
			return
		case err != nil:
			reason = err.Error()
		case answer.Position != nil:
			at = *answer.Position
		}
	}
	p.push(func(m *machine) []effect {
		if gen == m.gen {
			p.stored = at
			p.line.Move(at.End())
		}
		return m.stoppedLoaded(gen, reason)
	})
}

// remove deletes the stored data of the projection, however often it has to try.
func (p *projection) remove() {
	p.mu.Lock()
	f, endClear := p.follower, p.endClear
	p.mu.Unlock()
	f.end()
	if endClear != nil {
		endClear()
	}
	pause := pauses()
	for {
		err := p.tryRemove()
		switch {
		case p.t.ctx.Err() != nil:
			return
		case err == nil:
			p.push(func(m *machine) []effect { return m.vanish(nil) })
			return
		case pause.Failures == 0:
			p.t.opts.Logger.Error("a projection cannot be deleted, trying again", "projection", p.name, logkey.Error, err)
		}
		if !pause.Wait(p.t.ctx) {
			return
		}
	}
}

func (p *projection) tryRemove() error {
	v := p.view()
	d, version := v.m.def, v.version()
	var besides []string // names of checkpoints that go, too
	if r := v.m.rebuild; r != nil && r.Status != rebuildCleared {
		besides = append(besides, cmp.Or(v.m.unused(), p.name))
	}
	if d.States != "" && d.DeleteCheckpointStream {
		besides = append(besides, d.States)
	}
	for _, name := range besides {
		if err := p.deleteCheckpoints(p.t.ctx, name, version); err != nil {
			return err
		}
	}
	if version.Version >= 0 {
		streams := output.Streams{Projection: p.name}
		if s := d.Source; s != nil {
			streams = output.StreamsOf(p.name, &s.Options)
		}
		err := output.DeleteStreams(p.t.ctx, output.Deletion{
			Store: p.t.opts.Store, Streams: streams, Version: version,
			Checkpoints: d.DeleteCheckpointStream, Emitted: d.DeleteEmittedStreams && d.EmitEnabled, Results: d.DeleteStateStream,
		})
		if err != nil {
			return err
		}
	}
	if v.id < 0 { // Nothing else of it is stored.
		return nil
	}
	if version.Version >= 0 {
		d.Deleted, d.Enabled = true, false
		number, err := p.t.storeDefinition(p.name, d, false, v.last)
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.last = number
		p.mu.Unlock()
	}
	return p.t.unregister(p.name)
}
