package run

import (
	"bytes"

	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/output"
)

// handle hands one event to the handler and takes in the outcome. The caller has a turn and the
// lock.
func (r *Run) handle(e *handler.Event) error {
	h, err := r.code()
	if err != nil {
		return err
	}
	e.Partition = ""
	name, ok, err := r.def.partitionOf(h, e)
	if err != nil {
		return faulted(r.opts.Name, r.at, err, e, "process an event")
	}
	if !ok {
		return nil
	}
	if err := r.load(name); err != nil {
		return faulted(r.opts.Name, r.at, err, e, "process an event")
	}
	e.Partition = name
	o := handler.Outcome{Skipped: true}
	if !e.GoneOnly {
		if o, err = h.Process(e); err != nil {
			return faulted(r.opts.Name, r.at, err, e, "process an event")
		}
	}
	if e.Gone != "" {
		gone, err := h.Deleted(e)
		if err != nil {
			return faulted(r.opts.Name, r.at, err, e, "process a delete partition notification")
		}
		// Both together are the outcome: all of the event is taken in, or nothing.
		if !gone.Skipped {
			gone.Emitted = append(o.Emitted, gone.Emitted...)
			o = gone
		}
	}
	if o.Skipped {
		return nil
	}
	return r.takeIn(e, &o)
}

// takeIn makes the outcome of an event the run's state, and hands the emissions to the output.
func (r *Run) takeIn(e *handler.Event, o *handler.Outcome) error {
	p := r.in
	own := !same(o.State, p.state)
	shared := r.def.IsBiState && !same(o.Shared, r.shared)
	result := p.result
	if own || shared {
		result = o.State
		if r.def.DefinesStateTransform {
			var err error
			if result, err = r.script.handler.Result(); err != nil {
				return faulted(r.opts.Name, r.at, err, e, "process an event")
			}
		}
		if err := r.def.fits(p.name, o.State, result, o.Shared); err != nil {
			return err
		}
	}

	if len(o.Emitted) > 0 {
		r.emitted += int64(len(o.Emitted))
		r.out.Emit(r.at, e, o.Emitted)
	}
	switch {
	case r.def.runningResults():
		if own || shared {
			r.result(e, p, result)
		}
	case r.opts.Mode != Continuous && !r.def.DefinesFold && result != nil:
		r.emitted++
		r.out.Emit(r.at, e, []handler.Emission{r.names.QueryResult(result)})
	}

	if own || shared {
		r.cache.set(p, o.State, result)
		r.shared = o.Shared
	}
	r.processed++
	r.saver.handled++
	return nil
}

// result has a partition's result written, if it is another than before.
func (r *Run) result(e *handler.Event, p *entry, result []byte) {
	isNew := !p.known
	switch {
	case !same(result, p.result):
		r.out.Result(r.at, e, p.name, result, isNew)
	case isNew && p.name != "": // It has no result, but is listed.
		r.out.Emit(r.at, e, []handler.Emission{{Stream: r.names.Partitions(), Type: output.TypePartition, Data: []byte(p.name)}})
	default:
		return
	}
	r.emitted++
}

// same says that two states are of the same text, or both are not there.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// load makes a partition the one that the handler works on.
func (r *Run) load(name string) error {
	if r.in != nil && r.in.name == name {
		return nil
	}
	p := r.cache.get(name)
	if p == nil {
		var err error
		if p, err = r.fetch(name); err != nil {
			return err
		}
		r.cache.add(p)
	}
	if err := r.script.handler.Load(name, p.state); err != nil {
		return err
	}
	r.in = p
	return nil
}

// fetch reads the state of a partition from its checkpoint, without a turn.
func (r *Run) fetch(name string) (*entry, error) {
	if !r.opts.resumes() {
		return &entry{name: name}, nil
	}
	r.turn.give()
	p, err := r.def.stored(r.reading, r.checkpoints, name)
	if err == nil {
		err = r.turn.take(r.reading)
	}
	r.spent.start(r.opts.Now())
	return p, err
}

// mark emits what tells how far a handler came that wants that.
func (r *Run) mark() {
	if r.def.Mark == nil || !r.at.Log {
		return
	}
	r.out.Emit(r.at, nil, []handler.Emission{r.def.Mark(r.at.Commit, r.at.Prepare)})
}
