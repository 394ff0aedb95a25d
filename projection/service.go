package projection

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/run"
	"github.com/annalsdb/annals/stats"
)

// Options of a Service. Store and May are needed.
type Options struct {
	Store Store
	// May decides about the right of an identity to read or write a stream
	// (event.AllStream: the log): nil, event.ErrNotAuthorized, or what kept it from finding out.
	May func(ctx context.Context, who Identity, stream string, write bool) error
	// Links decides which links an identity may follow; nil: none.
	Links  func(ctx context.Context, who Identity) event.LinkReader
	Logger hclog.Logger     // nil: nothing is logged
	Stats  *stats.Registry  // may be nil
	Now    func() time.Time // nil: time.Now

	// SystemOnly lets only projections run whose name begins with "$".
	SystemOnly bool
	// StartStandard enables the system projections once, when they are loaded first.
	StartStandard    bool
	Threads          int           // projections that handle events at the same time; 0: 3
	QueryExpiry      time.Duration // of transient projections that are not asked for; 0: 5 minutes
	CompileTimeout   time.Duration // of the text of a script; 0: 500 ms
	ExecutionTimeout time.Duration // of one call of a handler; 0: 250 ms
	FaultOutOfOrder  bool          // fault where numbers of a stream are missing
	MaxStateSize     int64         // bytes of state and result of one partition; 0: no bound
	WriteTimeout     time.Duration // of one write; 0: 10 seconds

	// Compile makes handlers; nil: the function of that name.
	Compile func(Source) (handler.Handler, error)
	// Start begins a run, and Stored answers for a projection that does not run; nil: those of
	// package run.
	Start  func(ctx context.Context, o run.Options) Run
	Stored func(ctx context.Context, o run.Options, partition string) (run.Answer, error)
}

func (o *Options) ensureDefaults() {
	or := func(d *time.Duration, otherwise time.Duration) {
		if *d <= 0 {
			*d = otherwise
		}
	}
	or(&o.QueryExpiry, 5*time.Minute)
	or(&o.CompileTimeout, 500*time.Millisecond)
	or(&o.ExecutionTimeout, 250*time.Millisecond)
	or(&o.WriteTimeout, 10*time.Second)
	if o.Threads <= 0 {
		o.Threads = 3
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.May == nil {
		o.May = func(context.Context, Identity, string, bool) error { return event.ErrNotAuthorized }
	}
	if o.Links == nil {
		o.Links = func(context.Context, Identity) event.LinkReader { return event.NoLink }
	}
	if o.Compile == nil {
		o.Compile = Compile
	}
	if o.Start == nil {
		o.Start, o.Stored = func(ctx context.Context, o run.Options) Run { return run.Start(ctx, o) }, run.Stored
	}
}

// Run is one projection at work, as package run has it.
type Run interface {
	Stop()  // begins to end it, with a checkpoint
	Abort() // begins to end it
	Close() // ends it and waits
	Started() <-chan struct{}
	Done() <-chan struct{}
	Statistics() run.Statistics
	Ask(ctx context.Context, partition string) (run.Answer, error)
	Look()
	Flush(ctx context.Context) error
	Partitions(ctx context.Context, contains, after string, most int) ([]run.Partition, bool, error)
}

// Service runs all projections while its node leads. Its methods may be called
// from any goroutine. While it is not started, or loads the projections, they
// return event.ErrNotReady.
//
// Names are those of projections; ErrNotFound says that there is none. Changes return when the deed
// is done: ErrAborted when another change came first, *Refused when the projection cannot be
// changed so as it is, *Conflict when its rebuild is in the way, and the errors of writing. A
// change continues when the context of its caller ends.
type Service struct {
	opts     Options
	metrics  *metrics
	standard atomic.Bool // the system projections were enabled
	first    sync.Once   // of loaded
	loaded   chan struct{}

	life sync.Mutex // serialises Start, Stop and Restart; guards ctx
	ctx  context.Context
	term atomic.Pointer[term]
}

// New returns a service that is not started.
func New(o Options) *Service {
	o.ensureDefaults()
	s := &Service{opts: o, loaded: make(chan struct{})}
	s.metrics = newMetrics(o.Stats, s)
	return s
}

// Start begins to load the projections and run them, and returns at once. It does nothing when the
// service is started. The end of ctx ends all of it, as Stop does.
func (s *Service) Start(ctx context.Context) {
	s.life.Lock()
	defer s.life.Unlock()
	if s.term.Load() != nil {
		return
	}
	s.ctx = ctx
	t := newTerm(ctx, s.opts, s.metrics, s.noteLoaded)
	s.term.Store(t)
	t.work.Go(func() { t.life(&s.standard) })
}

// Stop ends all projections without a word to the store, and waits for all
// goroutines. The service can be started again.
func (s *Service) Stop() {
	s.life.Lock()
	defer s.life.Unlock()
	if t := s.term.Load(); t != nil {
		t.stop()
		s.term.Store(nil)
	}
}

// Restart begins to load all projections again, as if the node began to lead. A
// service that is not running, or restarts already, is *BadInput.
func (s *Service) Restart(context.Context) error {
	s.life.Lock()
	defer s.life.Unlock()
	before, err := s.running()
	if err != nil {
		return &BadInput{"Projections are not running, or are being restarted."}
	}
	t := newTerm(s.ctx, s.opts, s.metrics, s.noteLoaded)
	s.term.Store(t)
	t.work.Go(func() {
		before.stop()
		t.life(&s.standard)
	})
	return nil
}

// Running reports whether the projections are loaded and run on this node.
func (s *Service) Running() bool {
	_, err := s.running()
	return err == nil
}

// Loaded is closed when the projections were loaded for the first time.
func (s *Service) Loaded() <-chan struct{} { return s.loaded }

func (s *Service) noteLoaded() { s.first.Do(func() { close(s.loaded) }) }

// running returns the term if its projections are loaded.
func (s *Service) running() (*term, error) {
	t := s.term.Load()
	if t == nil || !t.ready.Load() || t.ctx.Err() != nil {
		return nil, event.ErrNotReady
	}
	return t, nil
}

func (s *Service) find(name string) (*projection, error) {
	t, err := s.running()
	if err != nil {
		return nil, err
	}
	return t.find(name)
}

// Create makes a projection and returns its name, when it runs, has faulted, or
// is stopped if it is not enabled. Errors are *BadInput, *Exists,
// event.ErrNotAuthorized and those of writing.
func (s *Service) Create(ctx context.Context, c Creation) (name string, err error) {
	isThere := false
	defer func() {
		if !isThere && c.Gone != nil {
			c.Gone()
		}
	}()
	t, err := s.running()
	if err != nil {
		return "", err
	}
	if c.Mode != Transient && !c.By.Operator {
		return "", event.ErrNotAuthorized
	}
	if strings.TrimSpace(c.Name) == "" {
		if c.Mode == Continuous {
			return "", &BadInput{"Projection name is required"}
		}
		c.Name = uuid.NewString()
	}
	switch {
	case c.EngineVersion != "" && c.EngineVersion != "0" && c.EngineVersion != "1":
		return "", &BadInput{fmt.Sprintf("Projection engine version %s is not supported by this server.", c.EngineVersion)}
	case c.Mode == OneTime && c.Emit && !c.Checkpoints:
		return "", errEmitWithoutCheckpoints
	case len(definitionStream(c.Name))+len(longestSuffix) > event.MaxNameBytes, len(c.Query) > maxQuery:
		return "", event.ErrTooLarge
	case c.Name == listName:
		return "", &Exists{c.Name}
	case strings.Contains(c.Type, statesMark):
		return "", &BadInput{"The type of a projection does not name its states"}
	case isRebuildName(c.Name):
		return "", &BadInput{"Names that begin with " + rebuildPrefix + " are those of rebuilds"}
	}
	d := newDefinition(&c)
	p := newProjection(t, c.Name, d)
	p.gone = c.Gone
	if err := t.add(p, true); err != nil {
		return "", err
	}
	isThere = true
	defer s.metrics.changing()()
	reads := t.examine(c.Name, &d)
	return c.Name, p.request(ctx, func(m *machine, who ticket) []effect { return m.create(d, who, reads) }, 0)
}

// maxQuery is the longest text of a projection: its definition has to fit into an event.
const maxQuery = event.MaxEventBytes / 2

var errEmitWithoutCheckpoints = &BadInput{"Emit requires checkpoints"}

// change asks a projection for a change that the user may make: an operator any, others only
// of a transient one that runs as themselves.
func (s *Service) change(ctx context.Context, name string, by Identity, patience time.Duration, make func(p *projection) (*change, error)) error {
	p, err := s.find(name)
	if err != nil {
		return err
	}
	if d := p.view().m.def; !by.Operator && (d.Mode != Transient || !d.runsAs(by)) {
		return event.ErrNotAuthorized
	}
	p.touch()
	defer s.metrics.changing()()
	c, err := make(p)
	if err != nil {
		return err
	}
	return p.request(ctx, func(m *machine, who ticket) []effect {
		c.ticket = who
		return m.command(c)
	}, patience)
}

// Command enables, disables, resets or aborts a projection.
func (s *Service) Command(ctx context.Context, name string, c Command, by Identity) error {
	return s.change(ctx, name, by, 0, func(*projection) (*change, error) {
		kind := [...]changeKind{enable, disable, reset, abort}[c]
		if kind == reset {
			return &change{kind: reset}, nil
		}
		return &change{kind: kind, edit: func(d *definition) { d.Enabled = kind == enable }}, nil
	})
}

// UpdateQuery replaces the text of a projection. From then on it runs as the user who wrote the
// text, so that no one writes a text that runs with the rights of another user. The system
// projections stay what they are: their texts only set names.
func (s *Service) UpdateQuery(ctx context.Context, name string, u Update, by Identity) error {
	return s.change(ctx, name, by, 0, func(p *projection) (*change, error) {
		if len(u.Query) > maxQuery {
			return nil, event.ErrTooLarge
		}
		d := p.view().m.def
		edit := func(d *definition) {
			d.Query = u.Query
			if u.Emit != nil && d.Mode != Transient {
				d.EmitEnabled = *u.Emit
			}
			if u.Properties != nil {
				d.Properties = u.Properties
			}
			if !isStandard(name) {
				d.RunAs = runAs(by)
			}
		}
		if edit(&d); d.emitsWithoutCheckpoints() {
			return nil, errEmitWithoutCheckpoints
		}
		return &change{kind: setQuery, reads: p.t.examine(name, &d), edit: func(to *definition) {
			edit(to)
			to.Source = d.Source
		}}, nil
	})
}

// Config returns the settings of a projection.
func (s *Service) Config(name string) (Settings, error) {
	p, err := s.find(name)
	if err != nil {
		return Settings{}, err
	}
	d := p.view().m.def
	if d.Properties == nil {
		d.Properties = json.RawMessage("{}")
	}
	return Settings{d.Config, d.Properties}, nil
}

// SetConfig replaces the settings of a projection, which hold from its next start.
func (s *Service) SetConfig(ctx context.Context, name string, c Config, by Identity) error {
	return s.change(ctx, name, by, 0, func(p *projection) (*change, error) {
		if err := validate(&c); err != nil {
			return nil, err
		}
		d := p.view().m.def
		if d.Config = c; d.emitsWithoutCheckpoints() {
			return nil, errEmitWithoutCheckpoints
		}
		return &change{kind: setConfig, edit: func(d *definition) { d.Config = c }}, nil
	})
}

// patience is how long a deletion waits for streams to be deleted. The rest is done in the
// background.
const patience = 5 * time.Second

// Delete removes a projection. From then on it is not found; its name is free once its streams are
// gone.
func (s *Service) Delete(ctx context.Context, name string, o DeleteOptions, by Identity) error {
	return s.change(ctx, name, by, patience, func(p *projection) (*change, error) {
		if isStandard(name) {
			return nil, &Refused{"We currently don't allow for the deletion of System Projections."}
		}
		return &change{kind: remove, edit: func(d *definition) {
			d.Deleting = true
			d.DeleteStateStream, d.DeleteCheckpointStream, d.DeleteEmittedStreams = o.StateStream, o.CheckpointStream, o.EmittedStreams
		}}, nil
	})
}

// Statistics describes a projection.
func (s *Service) Statistics(name string) (Statistics, error) {
	p, err := s.find(name)
	if err != nil {
		return Statistics{}, err
	}
	v := p.view()
	return v.statistics(), nil
}

// List describes projections, in the order of their creation.
func (s *Service) List(k Kinds) ([]Statistics, error) {
	t, err := s.running()
	if err != nil {
		return nil, err
	}
	list := []Statistics{}
	for _, p := range t.projections() {
		if v := p.view(); k.has(v.m.def.Mode) && !v.hidden {
			list = append(list, v.statistics())
		}
	}
	return list, nil
}

// State returns the state of a partition; empty: of the root. It is for operators, for the one the
// projection runs as, and for those who may read its sources: others get event.ErrNotAuthorized.
func (s *Service) State(ctx context.Context, name, partition string, by Identity) (Content, error) {
	a, err := s.ask(ctx, name, partition, by)
	return Content{a.State, a.Position}, err
}

// Result returns the result of a partition, as State does.
func (s *Service) Result(ctx context.Context, name, partition string, by Identity) (Content, error) {
	a, err := s.ask(ctx, name, partition, by)
	return Content{a.Result, a.Position}, err
}

// Partition is a partition whose state is in memory.
type Partition = run.Partition

// Partitions returns partitions whose states are in memory, as run.Run has it, for those who may
// see the states.
func (s *Service) Partitions(ctx context.Context, name, contains, after string, most int, by Identity) (list []Partition, more bool, err error) {
	v, err := s.look(ctx, name, by)
	if err != nil {
		return nil, false, err
	}
	if r := v.run; r != nil {
		return r.Partitions(ctx, contains, after, most)
	}
	return nil, false, nil
}

func (s *Service) ask(ctx context.Context, name, partition string, by Identity) (run.Answer, error) {
	v, err := s.look(ctx, name, by)
	if err != nil {
		return run.Answer{}, err
	}
	v.p.touch()
	return v.ask(ctx, partition)
}

// look finds a projection whose outputs a user may see.
func (s *Service) look(ctx context.Context, name string, by Identity) (v view, err error) {
	p, err := s.find(name)
	if err != nil {
		return v, err
	}
	v = p.view()
	return v, v.mayLook(ctx, by)
}

// Query returns the text of a projection and its definition.
func (s *Service) Query(name string) (Query, error) {
	p, err := s.find(name)
	if err != nil {
		return Query{}, err
	}
	p.touch()
	v := p.view()
	return v.query(), nil
}
