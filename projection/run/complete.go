package run

import (
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
	"github.com/annalsdb/annals/projection/source"
)

// reached takes the run to the position at which it is to end, as all before it was read, and
// returns errStopped: a checkpoint follows.
func (r *Run) reached() error {
	at, err := position.Convert(*r.opts.Until, source.Zero(r.def.Definition))
	if err != nil {
		return err
	}
	r.lock.work()
	defer r.lock.release()
	r.progress.move(at)
	return errStopped
}

// complete writes the results of a projection that has read all, and returns errCompleted.
func (r *Run) complete() error {
	r.board.show(statusCompleting)
	if err := r.saver.settled(r.reading); err != nil {
		return err
	}
	if err := r.out.Flush(r.reading); err != nil {
		return r.cause(err)
	}
	r.board.show(statusPhaseCompleted)
	r.board.update(func() { // Nothing is read any more.
		r.board.status, r.board.results = statusRunning, true
		r.board.statistics.Progress, r.board.statistics.Behind = 100, 0
	})
	r.board.changed()

	at := position.Finished()
	emit := func(e handler.Emission) error {
		r.emitted++
		r.out.Emit(at, nil, []handler.Emission{e})
		if r.opts.tooMuch(r.out) {
			return r.hold()
		}
		return nil
	}
	if r.def.DefinesFold {
		if err := r.writeResults(emit); err != nil {
			return r.cause(err)
		}
	}
	if err := emit(r.names.QueryEnd()); err != nil {
		return r.cause(err)
	}
	if err := r.out.Flush(r.reading); err != nil {
		return r.cause(err)
	}
	r.lock.work()
	r.progress.move(at)
	r.lock.release()
	if r.opts.writesCheckpoints() {
		if err := r.last(); err != nil {
			return err
		}
	}
	return errCompleted
}

// writeResults emits the result of each state, in the order in which they began.
func (r *Run) writeResults(emit func(handler.Emission) error) error {
	if r.shared != nil && r.def.partitioned() {
		if err := emit(r.names.QueryResult(r.shared)); err != nil {
			return err
		}
	}
	for _, p := range r.cache.all {
		if p.result == nil {
			continue
		}
		if err := emit(r.names.QueryResult(p.result)); err != nil {
			return err
		}
	}
	return nil
}
