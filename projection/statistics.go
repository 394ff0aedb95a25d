package projection

import (
	"context"
	"strings"

	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/output"
	"github.com/annalsdb/annals/projection/position"
	"github.com/annalsdb/annals/projection/run"
	"github.com/annalsdb/annals/projection/source"
)

func (p *projection) isHidden() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hidden
}

// asStored returns the definition as it is stored.
func (p *projection) asStored() definition {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.m.def
}

// statisticsLocked returns the statistics of its run, or of the substitute for a run.
func (p *projection) statisticsLocked() run.Statistics {
	switch {
	case p.m.run == storedRun:
		f := run.Statistics{Status: "Stopped", Progress: -1}
		if p.m.status == loadingStopped {
			f.Status = "LoadStateRequested"
		}
		if p.definition != nil && p.stored.String() != source.Zero(p.definition).String() {
			f.Position, f.Checkpoint = &p.stored, &p.stored
		}
		return f
	case p.m.run == noRun || p.run == nil:
		return run.Statistics{Status: "Initial", Progress: -1}
	}
	return p.run.Statistics()
}

// statistics describes the projection. One that runs and waits for links which only a system
// projection writes says so.
func (p *projection) statistics() Statistics {
	s, reads := p.known()
	if reads != nil && s.StateReason == "" && strings.HasPrefix(s.Status, "Running") {
		// Else it is not known now.
		if reason, err := source.StateReason(context.Background(), p.t.opts.Store, reads); err == nil {
			s.StateReason = reason
		}
	}
	return s
}

// known returns the facts that the projection itself knows, and its sources; nil: they are not
// known.
func (p *projection) known() (Statistics, *handler.Definition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.statisticsLocked()
	s := Statistics{
		Name: p.name, EffectiveName: p.name, Mode: p.m.def.Mode, Status: p.m.text(f.Status), StateReason: p.m.reason,
		Version: p.m.version, Epoch: p.m.def.Epoch, Position: textOf(f.Position), LastCheckpoint: textOf(f.Checkpoint),
		CheckpointStatus: f.CheckpointStatus, Progress: f.Progress, Processed: f.Processed, ProcessingMs: f.ProcessingTime.Milliseconds(),
		PartitionsCached: f.PartitionsCached, Buffered: f.Buffered, ReadsInProgress: f.ReadsInProgress, WritesInProgress: f.WritesInProgress,
		PendingBefore: f.PendingBefore, PendingAfter: f.PendingAfter, CheckpointsOf: p.m.def.States,
	}
	if s.StateReason == "" {
		s.StateReason = f.Reason
	}
	if p.m.status == faulted && p.m.run == noRun {
		s.Version, s.Epoch = -1, -1
	}
	if p.definition != nil {
		s.ResultStream = string(p.definition.ResultStream)
	}
	if p.m.rebuilding() {
		s.Rebuild = p.rebuildStatus()
	}
	return s, p.definition
}

func textOf(at *position.Position) string {
	if at == nil {
		return ""
	}
	return at.String()
}

// ask asks the run, or the checkpoint if there was none, for state and result of a partition.
func (p *projection) ask(ctx context.Context, partition string) (a run.Answer, err error) {
	p.touch()
	p.mu.Lock()
	r, how, tells := p.run, p.m.run, p.m.tellsPosition()
	if p.definition == nil {
		how = noRun
	}
	o, at := p.options(), p.stored
	p.mu.Unlock()
	switch {
	case how == storedRun:
		if o.Mode == run.Continuous { // Nothing is kept of others.
			a, err = p.t.opts.Stored(ctx, o, partition)
		}
		if a.Position == nil {
			a.Position = &at
		}
	case how != noRun && r != nil:
		a, err = r.Ask(ctx, partition)
	}
	if err != nil {
		return run.Answer{}, err
	}
	if !tells {
		a.Position = nil
	}
	return a, nil
}

func (p *projection) query() Query {
	p.touch()
	p.mu.Lock()
	defer p.mu.Unlock()
	d := &p.m.def
	q := Query{
		Name: p.name, Text: d.Query, Mode: d.Mode, EmitEnabled: d.EmitEnabled, TrackEmittedStreams: d.TrackEmittedStreams,
		CheckpointsEnabled: !d.CheckpointsDisabled, Definition: p.definition,
	}
	streams := output.Streams{Projection: p.name}
	// It is not prepared yet.
	if q.Definition == nil && !(p.m.status == faulted && p.m.run == noRun) {
		q.Definition = d.Source
	}
	if q.Definition != nil {
		streams = output.StreamsOf(p.name, &q.Definition.Options)
	}
	q.ResultStream = streams.Result()
	return q
}
