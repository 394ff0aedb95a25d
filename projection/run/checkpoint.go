package run

import (
	"context"
	"errors"

	"github.com/annalsdb/annals/projection/output"
)

// What checkpointStatus says.
const (
	checkpointRequested = "Requested"
	checkpointWriting   = "Writing (1)"
)

// snapshot is the content of the next checkpoint.
type snapshot struct {
	root       output.Checkpoint
	partitions []output.PartitionState
	entries    []*entry
}

// checkpoint waits until everything emitted so far is stored, and begins to write a checkpoint. It
// is written while the next events are handled. The loop calls it, without a turn and the lock.
func (r *Run) checkpoint() error {
	if err := r.saver.settled(r.reading); err != nil {
		return err
	}
	s, err := r.prepare(r.reading)
	if err != nil {
		return err
	}
	r.board.checkpoint(checkpointWriting)
	fail := r.fail
	r.saver.begin(&r.work, func() error {
		err := r.save(s)
		if err != nil {
			fail(err)
		}
		return err
	})
	return nil
}

// prepare waits until everything emitted is stored, and takes a snapshot.
func (r *Run) prepare(ctx context.Context) (*snapshot, error) {
	r.board.checkpoint(checkpointRequested)
	r.mark()
	if err := r.out.Flush(ctx); err != nil {
		r.board.checkpoint("")
		return nil, err
	}
	r.lock.work()
	defer r.lock.release()
	s := &snapshot{root: output.Checkpoint{At: r.at, Version: r.opts.Version, Shared: r.shared, Found: true}}
	s.entries = r.cache.take()
	for _, e := range s.entries {
		if e.name != "" {
			s.partitions = append(s.partitions, output.PartitionState{Partition: e.name, State: e.state, Result: r.def.storedResult(e)})
		}
	}
	if root := r.cache.entries[""]; root != nil {
		s.root.State, s.root.Result = root.state, r.def.storedResult(root)
	}
	r.saver.restart(r.reader.Passed(), r.processed, r.opts.Now())
	return s, nil
}

// save writes a checkpoint. If that fails the attempt is over.
func (r *Run) save(s *snapshot) error {
	err := r.checkpoints.Save(r.all, s.partitions, s.root)
	r.board.checkpoint("")
	if err != nil {
		return err
	}
	if err := r.lock.ask(context.Background()); err != nil {
		return err
	}
	defer r.lock.release()
	r.cache.saved(s.entries, r.in)
	r.saved = s.root
	at := s.root.At // A pointer into the snapshot would keep all of its states.
	r.board.update(func() { r.board.statistics.Checkpoint = &at })
	r.opts.Saved()
	return nil
}

// finish ends an attempt. It writes the emissions and a checkpoint, unless nothing may be written
// any more.
func (r *Run) finish(err error) error {
	stopped := errors.Is(err, errStopped)
	switch {
	case r.out == nil, r.all.Err() != nil, errors.Is(err, errCompleted), errors.Is(err, output.ErrRestart), output.IsLost(err):
		return err
	case r.out.Err() != nil: // Nothing can be written.
		return r.out.Err()
	case stopped:
		r.board.show(statusStopping)
	default:
		r.board.show(statusFaultedStopping)
	}
	if last := r.last(); last != nil && (stopped || errors.Is(last, output.ErrRestart)) {
		return last
	}
	return err
}

// last writes the last checkpoint of an attempt, if it is another than the one before.
func (r *Run) last() error {
	failed := r.saver.wait()
	switch {
	case failed != nil: // Another one would lack the states of this one.
		return failed
	case !r.opts.writesCheckpoints(), r.saved.Found && r.saved.At.Equal(r.at) && len(r.cache.changed) == 0:
		return r.out.Flush(r.all)
	}
	s, err := r.prepare(r.all)
	if err != nil {
		return err
	}
	r.board.checkpoint(checkpointWriting)
	return r.save(s)
}
