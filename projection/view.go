package projection

import (
	"cmp"
	"context"
	"strings"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/output"
	"github.com/annalsdb/annals/projection/position"
	"github.com/annalsdb/annals/projection/run"
	"github.com/annalsdb/annals/projection/source"
)

// view is a projection as it was at one moment. It takes no lock, and nothing of it changes but
// what the run says of itself.
type view struct {
	p           *projection
	m           machine
	id          int64
	last        int64
	lastRebuild int64
	run         Run
	definition  *handler.Definition
	stored      position.Position
	follower    *follower
	faults      int64
	hidden      bool
}

// view looks at the projection.
func (p *projection) view() view {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.viewLocked()
}

func (p *projection) viewLocked() view {
	return view{
		p: p, m: p.m, id: p.id, last: p.last, lastRebuild: p.lastRebuild, run: p.run, definition: p.definition,
		stored: p.stored, follower: p.follower, faults: p.faults, hidden: p.hidden,
	}
}

// ofRun returns the statistics of its run, or of the substitute for a run.
func (v *view) ofRun() run.Statistics {
	switch {
	case v.m.run == storedRun:
		f := run.Statistics{Status: "Stopped", Progress: -1}
		if v.m.status == loadingStopped {
			f.Status = "LoadStateRequested"
		}
		if v.definition != nil && v.stored.String() != source.Zero(v.definition).String() {
			f.Position, f.Checkpoint = &v.stored, &v.stored
		}
		return f
	case v.m.run == noRun || v.run == nil:
		return run.Statistics{Status: "Initial", Progress: -1}
	}
	return v.run.Statistics()
}

// statistics describes the projection. One that runs and waits for links which only a system
// projection writes says so.
func (v *view) statistics() Statistics {
	f, m := v.ofRun(), &v.m
	s := Statistics{
		Name: v.p.name, EffectiveName: v.p.name, Mode: m.def.Mode, Status: m.text(f.Status), StateReason: cmp.Or(m.reason, f.Reason),
		Version: m.version, Epoch: m.def.Epoch, Position: textOf(f.Position), LastCheckpoint: textOf(f.Checkpoint),
		CheckpointStatus: f.CheckpointStatus, Progress: f.Progress, Processed: f.Processed, ProcessingMs: f.ProcessingTime.Milliseconds(),
		PartitionsCached: f.PartitionsCached, Buffered: f.Buffered, ReadsInProgress: f.ReadsInProgress, WritesInProgress: f.WritesInProgress,
		PendingBefore: f.PendingBefore, PendingAfter: f.PendingAfter, CheckpointsOf: m.def.States,
	}
	if m.status == faulted && m.run == noRun {
		s.Version, s.Epoch = -1, -1
	}
	if m.rebuilding() {
		s.Rebuild = v.rebuildStatus()
	}
	if v.definition == nil {
		return s
	}
	s.ResultStream = string(v.definition.ResultStream)
	if s.StateReason == "" && strings.HasPrefix(s.Status, "Running") {
		// Else it is not known now.
		if reason, err := source.StateReason(context.Background(), v.p.t.opts.Store, v.definition); err == nil {
			s.StateReason = reason
		}
	}
	return s
}

// rebuildStatus is the status of the second version in a word.
func (v *view) rebuildStatus() string {
	s := v.follower.status()
	if s == RebuildReady && !v.m.status.ended() && !v.ofRun().Settled {
		return RebuildRunning // The first has to come again to where it was.
	}
	return s
}

func textOf(at *position.Position) string {
	if at == nil {
		return ""
	}
	return at.String()
}

// ask asks the run, or the checkpoint if there was none, for state and result of a partition.
func (v *view) ask(ctx context.Context, partition string) (a run.Answer, err error) {
	how := v.m.run
	if v.definition == nil {
		how = noRun
	}
	switch {
	case how == storedRun:
		if o := v.options(); o.Mode == run.Continuous { // Nothing is kept of others.
			a, err = v.p.t.opts.Stored(ctx, o, partition)
		}
		if a.Position == nil {
			a.Position = &v.stored
		}
	case how != noRun && v.run != nil:
		a, err = v.run.Ask(ctx, partition)
	}
	if err != nil {
		return run.Answer{}, err
	}
	if !v.m.tellsPosition() {
		a.Position = nil
	}
	return a, nil
}

func (v *view) query() Query {
	d := &v.m.def
	q := Query{
		Name: v.p.name, Text: d.Query, Mode: d.Mode, EmitEnabled: d.EmitEnabled, TrackEmittedStreams: d.TrackEmittedStreams,
		CheckpointsEnabled: !d.CheckpointsDisabled, Definition: v.definition,
	}
	streams := output.Streams{Projection: v.p.name}
	// It is not prepared yet.
	if q.Definition == nil && !(v.m.status == faulted && v.m.run == noRun) {
		q.Definition = d.Source
	}
	if q.Definition != nil {
		streams = output.StreamsOf(v.p.name, &q.Definition.Options)
	}
	q.ResultStream = streams.Result()
	return q
}

// mayLook returns event.ErrNotAuthorized unless a user may see the outputs of the projection.
func (v *view) mayLook(ctx context.Context, by Identity) error {
	switch {
	case by.Operator || v.m.def.runsAs(by):
		return nil
	case v.definition == nil: // Its sources are not known.
		return event.ErrNotAuthorized
	}
	for _, s := range source.Names(v.definition) {
		if err := v.p.t.opts.May(ctx, by, s, false); err != nil {
			return err
		}
	}
	return nil
}

// writers are the system projections that write what the projection reads.
func (v *view) writers() []string {
	reads := cmp.Or(v.definition, v.m.def.Source)
	if reads == nil {
		return nil
	}
	return source.Writers(reads)
}

// options are those of a run.
func (v *view) options() run.Options { return v.optionsOf(&v.m.def, v.definition) }

// optionsOf are those of a run of a definition, which reads that.
func (v *view) optionsOf(d *definition, reads *handler.Definition) run.Options {
	t, name := v.p.t, v.p.name
	o := &t.opts
	def, who, config := *d, Identity{}, d.Config
	if d.RunAs != nil {
		who = *d.RunAs
	}
	config.EmitEnabled = config.EmitEnabled && d.Mode != Transient
	mode := map[Mode]run.Mode{Continuous: run.Continuous, OneTime: run.OneTime, Transient: run.Transient}[d.Mode]
	return run.Options{
		Store: o.Store, Turns: t.turns, Name: name, Mode: mode, Version: v.version(), Definition: reads,
		States: d.States, Saved: v.p.marked,
		Config: config, Checkpoints: !d.CheckpointsDisabled,
		Compile: func() (handler.Handler, error) { return t.compile(name, &def) },
		Links:   o.Links(t.ctx, who),
		MayRead: func(ctx context.Context, stream string) error { return o.May(ctx, who, stream, false) },
		MayWrite: func(ctx context.Context, stream string) error {
			// It is the projection's own, no matter who made the projection.
			if isResultStream(name, stream) {
				return nil
			}
			return o.May(ctx, who, stream, true)
		},
		FaultOutOfOrder: o.FaultOutOfOrder, MaxStateSize: o.MaxStateSize, Logger: o.Logger.With("projection", name), Now: o.Now,
	}
}

// version is the version that the projection writes with.
func (v *view) version() position.Version {
	return position.Version{Projection: v.id, Epoch: v.m.def.Epoch, Version: v.m.version}
}
