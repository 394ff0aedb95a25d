package run

import (
	"context"

	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/output"
	"github.com/annalsdb/annals/projection/position"
	"github.com/annalsdb/annals/projection/source"
)

// Answer has the state and result of a partition. Without a transformation its result is its state.
type Answer struct {
	State, Result []byte // JSON; nil: there is none
	// Position is how far the projection had got; nil: it completed, or is being loaded.
	Position *position.Position
}

// Ask returns state and result of a partition; empty: of the root. Once the run has ended they are
// those of the last checkpoint, or those in memory if the projection does not resume from a
// checkpoint. It looks in memory, then in the checkpoints, and once more in memory as the partition
// may have got there in between.
func (r *Run) Ask(ctx context.Context, partition string) (Answer, error) {
	a, checkpoints, err := r.look(ctx, partition)
	if checkpoints == nil || err != nil {
		return a, err
	}
	p, err := r.def.stored(ctx, checkpoints, partition)
	if err != nil {
		return Answer{}, err
	}
	again, checkpoints, err := r.look(ctx, partition)
	if checkpoints == nil || err != nil {
		return again, err
	}
	a.State, a.Result = p.state, p.result
	return a, nil
}

// look returns what memory knows, and the checkpoints if the partition's is to be asked.
func (r *Run) look(ctx context.Context, partition string) (a Answer, ask checkpoints, err error) {
	if err := r.lock.ask(ctx); err != nil {
		return a, nil, err
	}
	defer r.lock.release()
	at := r.at
	resumes := r.opts.resumes()
	if r.ending != Unfinished && resumes {
		at = r.saved.At
	}
	switch {
	case r.ending == Unfinished && !r.entered:
		return a, nil, nil // It is being loaded.
	case r.ending != Completed:
		a.Position = &at
	}
	if r.ending != Unfinished && resumes {
		switch {
		case partition == "":
			a.State, a.Result = rootOf(r.def.Definition, &r.saved)
		case r.def.partitioned():
			ask = r.checkpoints
		}
		return a, ask, nil
	}
	if r.cache == nil { // It ended before it began.
		return a, nil, nil
	}
	p := r.cache.entries[partition]
	switch {
	case partition == "" && r.def.IsBiState:
		a.State, a.Result = r.shared, r.shared
		if p != nil && p.known && r.def.DefinesStateTransform {
			a.Result = p.result
		}
	case p != nil:
		a.State, a.Result = p.state, p.result
	case partition != "" && resumes && r.def.partitioned():
		ask = r.checkpoints
	}
	return a, ask, nil
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

// Stored returns what Ask of a run that has stopped would: from the checkpoint, for a
// projection that was never started. Of the options it takes Store, Name, Mode, Version
// and Definition.
func Stored(ctx context.Context, o Options, partition string) (a Answer, err error) {
	o.ensureDefaults()
	zero := source.Zero(o.Definition)
	a.Position = &zero
	if !o.resumes() {
		return a, nil
	}
	all := output.NewCheckpoints(o.checkpointOptions())
	root, err := all.Load(ctx)
	if err != nil || !root.Found {
		return a, err
	}
	if at, err := position.Convert(root.At, zero); err == nil {
		a.Position = &at
	} else {
		a.Position = &root.At
	}
	if partition == "" {
		a.State, a.Result = rootOf(o.Definition, &root)
		return a, nil
	}
	p, err := definition{o.Definition, &o}.stored(ctx, all, partition)
	if err == nil {
		a.State, a.Result = p.state, p.result
	}
	return a, err
}
