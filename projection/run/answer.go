package run

import (
	"context"
	"errors"

	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/output"
	"github.com/annalsdb/annals/projection/position"
	"github.com/annalsdb/annals/projection/source"
)

// Answer is a state or a result.
type Answer struct {
	Text []byte // JSON; nil: there is none
	// Position is what the projection had processed by then; nil: it completed, or is being loaded.
	Position *position.Position
}

// found is what is known of a partition.
type found struct {
	state, result []byte
	at            *position.Position
	checkpoints   checkpoints // to be asked for what memory does not have
}

// State returns the state of a partition; empty: of the root. Once the run has
// ended it is that of the last checkpoint, or, of projections that do not go on from
// one, that in memory.
func (r *Run) State(ctx context.Context, partition string) (Answer, error) {
	f, err := r.find(ctx, partition)
	return Answer{f.state, f.at}, err
}

// Result returns the result of a partition, as State does.
func (r *Run) Result(ctx context.Context, partition string) (Answer, error) {
	f, err := r.find(ctx, partition)
	return Answer{f.result, f.at}, err
}

// find looks in memory, then in the checkpoints, and once more in memory as it
// may have got there in between.
func (r *Run) find(ctx context.Context, partition string) (found, error) {
	f, ok, err := r.look(ctx, partition)
	if ok || err != nil {
		return f, err
	}
	p, err := r.def.stored(ctx, f.checkpoints, partition)
	if err != nil {
		return found{}, err
	}
	again, ok, err := r.look(ctx, partition)
	if ok || err != nil {
		return again, err
	}
	f.state, f.result = p.state, p.result
	return f, nil
}

// look returns what memory knows. It is not ok when the partition's checkpoint is to be asked.
func (r *Run) look(ctx context.Context, partition string) (f found, ok bool, err error) {
	if err := r.lock.ask(ctx); err != nil {
		return found{}, false, err
	}
	defer r.lock.release()
	f.checkpoints = r.checkpoints
	at := r.at
	resumes := r.opts.resumes()
	if r.ending != Unfinished && resumes {
		at = r.saved.At
	}
	switch {
	case r.ending == Unfinished && !r.entered:
		return found{}, true, nil // It is being loaded.
	case r.ending != Completed:
		f.at = &at
	}
	if r.ending != Unfinished && resumes {
		if partition == "" {
			f.state, f.result = rootOf(r.def.Definition, &r.saved)
			return f, true, nil
		}
		return f, !r.def.partitioned(), nil
	}
	if r.cache == nil { // It ended before it began.
		return f, true, nil
	}
	p := r.cache.entries[partition]
	switch {
	case partition == "" && r.def.IsBiState:
		f.state, f.result = r.shared, r.shared
		if p != nil && p.known && r.def.DefinesStateTransform {
			f.result = p.result
		}
	case p != nil:
		f.state, f.result = p.state, p.result
	default:
		return f, partition == "" || !resumes || !r.def.partitioned(), nil
	}
	return f, true, nil
}

// rootOf returns state and result of the root as a checkpoint has them.
func rootOf(d *handler.Definition, c *output.Checkpoint) (state, result []byte) {
	state, result = c.State, c.State
	if d.IsBiState {
		state, result = c.Shared, c.Shared
	}
	if d.DefinesStateTransform && (!d.IsBiState || c.State != nil) {
		result = c.Result
	}
	return state, result
}

var errNoHandler = errors.New("a projection without a handler has no states")

// StoredState and StoredResult return what State and Result of a run that has
// stopped would: from the checkpoint, for a projection that was never started. Of the options
// they take Store, Name, Mode, Version and Handler, which they do not close.
func StoredState(ctx context.Context, o Options, partition string) (Answer, error) {
	f, err := ofStopped(ctx, o, partition)
	return Answer{f.state, f.at}, err
}

// StoredResult is as StoredState.
func StoredResult(ctx context.Context, o Options, partition string) (Answer, error) {
	f, err := ofStopped(ctx, o, partition)
	return Answer{f.result, f.at}, err
}

func ofStopped(ctx context.Context, o Options, partition string) (f found, err error) {
	o.ensureDefaults()
	if o.Handler == nil {
		return f, errNoHandler
	}
	d := o.Handler.Definition()
	zero := source.Zero(d)
	f.at = &zero
	if !o.resumes() {
		return f, nil
	}
	all := output.NewCheckpoints(o.checkpointOptions(d))
	root, err := all.Load(ctx)
	if err != nil {
		return f, err
	}
	if !root.Found {
		return f, nil
	}
	if at, err := position.Convert(root.At, zero); err == nil {
		f.at = &at
	} else {
		f.at = &root.At
	}
	if partition == "" {
		f.state, f.result = rootOf(d, &root)
		return f, nil
	}
	p, _, err := all.LoadPartition(ctx, partition)
	if err != nil {
		return f, err
	}
	f.state, f.result = p.State, p.State
	if d.DefinesStateTransform {
		f.result = p.Result
	}
	return f, nil
}
