package projection

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/projection/output"
	"github.com/annalsdb/annals/projection/position"
	"github.com/annalsdb/annals/projection/run"
	"github.com/annalsdb/annals/projection/source"
)

// rebuild is a second version of a projection, as it is stored. Other versions read and write it:
// do not change.
type rebuild struct {
	Status string    `json:"status"`
	Query  string    `json:"query"`
	Emit   *bool     `json:"emitEnabled"` // nil: as the projection has it
	RunAs  *Identity `json:"runAs"`
	Epoch  int64     `json:"epoch"` // of the projection
	// States is the name that the streams of its checkpoints are of, and Before that of the version
	// that runs; empty: the projection's.
	States string `json:"states"`
	Before string `json:"before"`
}

// Names of stored data. Other versions read and write them: do not change.
const (
	rebuildPrefix = "$rebuilt" // no projection has a name that begins so
	typeRebuild   = "$ProjectionRebuild"

	rebuildBegun   = "begun"
	rebuildEnded   = "ended"
	rebuildCleared = "cleared" // the streams that are not used any more are deleted
)

// rebuildName is what the stream of the rebuilds of a projection is named after.
func rebuildName(id int64) string { return fmt.Sprintf("%s-%d", rebuildPrefix, id) }

// isRebuildName reports whether a stream of a projection of that name could be one of a rebuild.
func isRebuildName(name string) bool {
	return name == rebuildPrefix || strings.HasPrefix(name, rebuildPrefix+"-")
}

// apply makes a definition that of the second version.
func (r *rebuild) apply(d *definition) {
	d.Query, d.RunAs, d.States = r.Query, r.RunAs, r.States
	if r.Emit != nil {
		d.EmitEnabled = *r.Emit
	}
}

// asks reports whether two rebuilds are of the same request.
func (r *rebuild) asks(o *rebuild) bool {
	return r.Query == o.Query && (r.Emit == nil) == (o.Emit == nil) && (r.Emit == nil || *r.Emit == *o.Emit)
}

// storeRebuild stores a rebuild, as storeAfter does.
func (t *term) storeRebuild(id int64, r *rebuild, last int64) (int64, error) {
	name := rebuildName(id)
	return t.storeAfter(definitionStream(name), last, typeRebuild, nil, func(number int64) ([]byte, error) {
		if r.Status == rebuildBegun && r.Before == "" {
			r.States = fmt.Sprintf("%s-%d", name, number)
		}
		return json.Marshal(r)
	})
}

// readRebuild finds the last rebuild of a projection. One that makes no sense is none, and says so
// in unread: nothing is deleted because of it.
func (t *term) readRebuild(s *stored) error {
	stream := definitionStream(rebuildName(s.id))
	e, last, err := t.lastOf(stream, typeRebuild)
	if s.lastRebuild = last; err != nil || e == nil {
		return err
	}
	r := &rebuild{}
	if err := json.Unmarshal(e.Data, r); err != nil {
		s.unread = fmt.Errorf("event %d of stream %s: %w", e.Number, stream, err)
		return nil
	}
	s.rebuild = r
	return nil
}

// rebuilding reports whether there is a second version. A definition with its states says that it
// took over, and another epoch that the projection was reset by a node that knows no rebuilds.
func (m *machine) rebuilding() bool {
	r := m.rebuild
	return r != nil && r.Status == rebuildBegun && r.Epoch == m.def.Epoch && r.States != m.def.States
}

// rebuilt reports whether the last second version took over.
func (m *machine) rebuilt() bool { return m.rebuild != nil && m.rebuild.States == m.def.States }

// clearing reports whether there are streams to delete: those of the version that is not used.
func (m *machine) clearing() bool {
	return m.rebuild != nil && m.rebuild.Status != rebuildCleared && !m.rebuilding()
}

// unused is what the streams of the version that is not the projection are named after; empty: the
// projection.
func (m *machine) unused() string {
	if m.rebuilt() {
		return m.rebuild.Before
	}
	return m.rebuild.States
}

// Conflict says why a rebuild cannot be what was asked for now.
type Conflict struct{ Text string }

func (e *Conflict) Error() string { return e.Text }

// ErrNoRebuild says that a projection has no second version.
var ErrNoRebuild = errors.New("The projection is not being rebuilt") //lint:ignore ST1005 the text is that of the wire

var (
	errRebuilding = &Conflict{"The projection is being rebuilt. Swap or end the rebuild first"}
	errTooMany    = &Conflict{fmt.Sprintf("%d projections are being rebuilt, which is the most. Swap or end one of the rebuilds first", maxRebuilds)}
	errRebuilt    = &Conflict{"The projection is being rebuilt already"}
	errClearing   = &Conflict{"The streams of the rebuild before are being deleted. Try again later"}
	errNotSwapped = &Conflict{"The projection could not be stopped. Nothing was swapped"}
	errUnsettled  = &Conflict{"The projection is being started or stopped. Try again later"}
	errAhead      = &Conflict{"The projection may have emitted after its last checkpoint. Start it, let it catch up, and swap then; if it cannot, end the rebuild and update it"}
	errBehind     = &Conflict{"The rebuild has not caught up with the projection yet"}
)

// rebuildRefusal says why a command cannot be because of a rebuild that there is, or is not; nil:
// it can. isDone says that it is done already.
func (m *machine) rebuildRefusal(c *change) (err error, isDone bool) {
	there := m.rebuilding()
	switch {
	case there && (c.kind == reset || c.kind == setQuery):
		return errRebuilding, false
	case there && c.kind == beginRebuild && m.rebuild.asks(c.rebuild), m.rebuilt() && c.kind == swapRebuild:
		return nil, true
	case there && c.kind == beginRebuild:
		return errRebuilt, false
	case m.clearing() && c.kind == beginRebuild:
		return errClearing, false
	case !there && (c.kind == endRebuild || c.kind == swapRebuild):
		return ErrNoRebuild, false
	case c.kind == swapRebuild && m.status != running && !m.status.ended():
		return errUnsettled, false
	}
	return nil, false
}

// recorded says that a change of the rebuild is stored.
func (m *machine) recorded(r *rebuild) []effect {
	m.storing, m.rebuild = nil, r
	return m.unqueue(append(m.resumeRebuild(), m.answer(nil)...))
}

// resumeRebuild takes up what is to be done with the last rebuild.
func (m *machine) resumeRebuild() []effect {
	switch {
	case m.rebuilding():
		return []effect{{kind: doFollow}}
	case m.clearing():
		return []effect{{kind: doClear}}
	}
	return nil
}

// swap begins to take over the second version: the projection stops at a mark.
func (m *machine) swap(c *change) []effect {
	m.rebuild.apply(&c.def)
	m.storing = c
	if m.run != liveRun {
		return []effect{{kind: doCatchUp}}
	}
	m.status, m.next = stopping, swapping
	return []effect{{kind: doStop}}
}

// caughtUp says that the second version is at the mark of the first; with an error that it is not.
func (m *machine) caughtUp(err error) []effect {
	if err == nil {
		return []effect{{kind: doStore, change: m.storing}}
	}
	m.storing = nil
	return m.unqueue(append(m.answer(err), m.backOut()...))
}

// backOut makes the projection what it was before the swap.
func (m *machine) backOut() []effect {
	out := m.resumeRebuild()
	if m.status == stopping {
		out = append(out, m.prepare(nil)...)
	}
	return out
}

// storeRebuild stores the change of a rebuild.
func (p *projection) storeRebuild(r *rebuild) {
	v := p.view()
	number, err := p.t.storeRebuild(v.id, r, v.lastRebuild)
	p.push(func(m *machine) []effect {
		if err != nil {
			return m.notStored(err)
		}
		p.lastRebuild = number
		return m.recorded(r)
	})
}

// clear begins to delete the checkpoints of the version that is not used any more.
func (p *projection) clear() {
	ctx, cancel := context.WithCancel(p.t.ctx)
	done := make(chan struct{})
	p.mu.Lock()
	p.endClear = func() {
		cancel()
		<-done
	}
	p.mu.Unlock()
	p.t.work.Go(func() {
		defer close(done)
		defer cancel()
		p.clearUnused(ctx)
	})
}

// clearUnused does what clear begins. It ends early with ctx, as a projection of this name that is
// created later has checkpoints in the same streams.
func (p *projection) clearUnused(ctx context.Context) {
	v := p.view()
	v.follower.end()
	p.mu.Lock()
	p.follower = nil
	p.mu.Unlock()
	r, last := *v.m.rebuild, v.lastRebuild
	pause := pauses()
	for {
		err := p.deleteCheckpoints(ctx, cmp.Or(v.m.unused(), p.name), v.version())
		if err == nil {
			r.Status = rebuildCleared
			last, err = p.t.storeRebuild(v.id, &r, last)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			p.push(func(m *machine) []effect {
				m.rebuild, p.lastRebuild = &r, last
				return nil
			})
			return
		case pause.Failures == 0:
			p.t.opts.Logger.Warn("the old checkpoints of a projection cannot be deleted, trying again", "projection", p.name, logkey.Error, err)
		}
		if !pause.Wait(ctx) {
			return
		}
	}
}

// deleteCheckpoints deletes the checkpoints whose streams are of a name.
func (p *projection) deleteCheckpoints(ctx context.Context, name string, v position.Version) error {
	return output.DeleteStreams(ctx, output.Deletion{Store: p.t.opts.Store, Streams: output.Streams{Projection: name}, Version: v, Checkpoints: true})
}

// States of a rebuild, as they are shown: do not change.
const (
	RebuildRunning = "Running" // reads what the projection has handled
	RebuildReady   = "Ready"   // has read it, and can take over
	RebuildFaulted = "Faulted"
	RebuildStopped = "Stopped" // this node does not let it run
	RebuildSwapped = "Swapped" // took over
)

// Rebuild describes the second version of a projection. Names are part of the wire: do not change.
type Rebuild struct {
	Name        string `json:"name"`
	Status      string `json:"status"`
	Reason      string `json:"reason"` // why it is faulted
	Query       string `json:"query"`
	EmitEnabled bool   `json:"emitEnabled"`
	Position    string `json:"position"` // as text; empty: nothing was handled
	// Mark is the checkpoint of the projection, up to where it reads, as text.
	Mark      string  `json:"mark"`
	Progress  float64 `json:"progress"`                    // percent of the way to the mark
	Processed int64   `json:"eventsProcessedAfterRestart"` // events since the last start
	// Comparison is the last that was asked for; nil: there was none since this node leads.
	Comparison *run.Comparison `json:"comparison"`
}

// Rebuild begins a second version of a projection, which runs next to it. A query that cannot be
// prepared, or that reads another kind of source, is *BadInput. Errors of this and of the next
// three methods are also *Conflict and ErrNoRebuild.
func (s *Service) Rebuild(ctx context.Context, name string, u Update, by Identity) error {
	t, err := s.running()
	if err != nil {
		return err
	}
	beginning := t.beginning.Add(1)
	defer t.beginning.Add(-1)
	return s.change(ctx, name, by, 0, func(p *projection) (*change, error) {
		v := p.view()
		d := v.m.def
		switch {
		case d.Mode != Continuous:
			return nil, &BadInput{"Only a continuous projection can be rebuilt"}
		case isStandard(name):
			return nil, &BadInput{"A system projection cannot be rebuilt"}
		case len(u.Query) > maxQuery:
			return nil, event.ErrTooLarge
		}
		r := &rebuild{Status: rebuildBegun, Query: u.Query, Emit: u.Emit, RunAs: runAs(by)}
		r.apply(&d)
		reads, err := p.t.define(name, &d)
		if err != nil {
			return nil, &BadInput{"The query cannot be prepared: " + err.Error()}
		}
		v = p.view()
		if !v.m.rebuilding() && t.areTooMany(beginning) {
			return nil, errTooMany
		}
		if before := v.definition; before != nil { // Else it is seen at its checkpoint.
			if _, err := position.Convert(source.Zero(before), source.Zero(reads)); err != nil {
				return nil, otherSource(err)
			}
		}
		return &change{kind: beginRebuild, rebuild: r}, nil
	})
}

// maxRebuilds is how many second versions there are at once, each with states in memory: as many as
// transient queries.
const maxRebuilds = 64

// areTooMany reports whether one more second version is too many, besides those that begin.
func (t *term) areTooMany(beginning int64) bool {
	n := beginning
	for _, p := range t.projections() {
		p.mu.Lock()
		if p.m.rebuilding() {
			n++
		}
		p.mu.Unlock()
	}
	return n > maxRebuilds
}

func otherSource(err error) *BadInput {
	return &BadInput{"The query reads another kind of source than the projection: " + err.Error()}
}

// EndRebuild ends the second version of a projection, which did not take over.
func (s *Service) EndRebuild(ctx context.Context, name string, by Identity) error {
	return s.change(ctx, name, by, 0, func(*projection) (*change, error) { return &change{kind: endRebuild}, nil })
}

// SwapRebuild makes the second version the projection. It returns once it runs, or has faulted, or
// is stopped as the projection was.
func (s *Service) SwapRebuild(ctx context.Context, name string, by Identity) error {
	return s.change(ctx, name, by, 0, func(p *projection) (*change, error) {
		if v := p.view(); v.m.rebuilding() {
			if err := v.follower.notReady(); err != nil {
				return nil, err
			}
			if !v.ofRun().Settled {
				return nil, errAhead
			}
		}
		return &change{kind: swapRebuild}, nil
	})
}

// RebuildStatus describes the second version of a projection. With compare its states are compared
// with those of the projection first, which takes compareTime at most.
func (s *Service) RebuildStatus(ctx context.Context, name string, compare, withStates bool, by Identity) (Rebuild, error) {
	p, err := s.find(name)
	if err != nil {
		return Rebuild{}, err
	}
	if !by.Operator {
		return Rebuild{}, event.ErrNotAuthorized
	}
	v := p.view()
	r, d, f := v.m.rebuild, v.m.def, v.follower
	switch {
	case v.m.rebuilding():
	case v.m.rebuilt():
		return Rebuild{Name: name, Status: RebuildSwapped, Query: r.Query, EmitEnabled: d.EmitEnabled, Progress: 100}, nil
	default:
		return Rebuild{}, ErrNoRebuild
	}
	r.apply(&d)
	out := Rebuild{Name: name, Status: v.rebuildStatus(), Query: d.Query, EmitEnabled: d.EmitEnabled, Progress: -1}
	if f == nil {
		return out, nil
	}
	if compare {
		if err := f.compare(ctx, withStates); err != nil {
			return Rebuild{}, err
		}
	}
	f.describe(&out, withStates)
	return out, nil
}

// Times that are waited at most.
const (
	compareTime = 8 * time.Second // for a comparison
	// for the second version to reach the mark, while the projection stands. Clients wait for an
	// answer for 30 seconds, and then ask for another swap.
	swapTime = 20 * time.Second
)
