package subscription

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/stats"
)

// Options of a Service. Only Store is needed.
type Options struct {
	Store        Store
	Logger       hclog.Logger     // nil: nothing is logged
	Stats        *stats.Registry  // may be nil
	Now          func() time.Time // nil: time.Now
	WriteTimeout time.Duration    // of one write; 0: 10 seconds
	// CorrelationMember returns the member of an event's metadata by which
	// PinnedByCorrelation chooses; nil: event.CorrelationMember. It must not block.
	CorrelationMember func() string
}

func (o *Options) ensureDefaults() {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = 10 * time.Second
	}
	if o.CorrelationMember == nil {
		o.CorrelationMember = func() string { return event.CorrelationMember }
	}
}

// Service runs all groups while its node leads. Its methods may be called from
// any goroutine. While it is not started, or loads the groups, they return
// event.ErrNotReady.
type Service struct {
	opts    Options
	metrics *metrics
	life    sync.Mutex // serialises Start and Stop
	term    atomic.Pointer[term]
}

// New returns a service that is not started.
func New(o Options) *Service {
	o.ensureDefaults()
	s := &Service{opts: o}
	s.metrics = newMetrics(o.Stats, s)
	return s
}

// Start begins to load the groups and run them, and returns at once. It does nothing when the
// service is started. The end of ctx ends all of it, as Stop does.
func (s *Service) Start(ctx context.Context) {
	s.life.Lock()
	defer s.life.Unlock()
	if s.term.Load() != nil {
		return
	}
	t := newTerm(ctx, s.opts, s.metrics)
	s.term.Store(t)
	t.work.Go(t.run)
}

// Stop drops all groups and connections, and waits for all goroutines.
// The service can be started again.
func (s *Service) Stop() {
	s.life.Lock()
	defer s.life.Unlock()
	if t := s.term.Load(); t != nil {
		t.stop()
		s.term.Store(nil)
	}
}

// running returns the term if its groups are loaded.
func (s *Service) running() (*term, error) {
	t := s.term.Load()
	if t == nil || !t.ready.Load() || t.ctx.Err() != nil {
		return nil, event.ErrNotReady
	}
	return t, nil
}

// group returns a group, or ErrNotFound.
func (s *Service) group(k Key) (*group, error) {
	t, err := s.running()
	if err != nil {
		return nil, err
	}
	return t.group(k)
}

// Create makes a group and returns when it is stored and loaded. Errors are
// *SettingsError, ErrExists and those of writing. When the outcome of the
// write is not known, the group may exist afterwards.
func (s *Service) Create(ctx context.Context, k Key, set Settings, by string) error {
	if err := set.Validate(); err != nil {
		return err
	}
	return s.change(ctx, func(ctx context.Context, t *term) error { return t.create(ctx, k, set, by) })
}

// Update replaces all settings of a group but its filter, and loads it again from its checkpoint:
// its connections are dropped. Errors are those of Create, with ErrNotFound in place of ErrExists.
func (s *Service) Update(ctx context.Context, k Key, set Settings, by string) error {
	if err := set.ValidateSizes(); err != nil {
		return err
	}
	return s.change(ctx, func(ctx context.Context, t *term) error { return t.update(ctx, k, set, by) })
}

// Pause has a group hand out nothing until Resume: that is stored, and holds for later leaders. Its
// connections stay, and messages that are out can be answered. Errors are ErrNotFound and those of
// writing.
func (s *Service) Pause(ctx context.Context, k Key, by string) error {
	p := &Pause{By: by, At: s.opts.Now().UTC()}
	return s.change(ctx, func(ctx context.Context, t *term) error { return t.setPaused(ctx, k, p, by) })
}

// Resume ends a pause, with the errors of Pause.
func (s *Service) Resume(ctx context.Context, k Key, by string) error {
	return s.change(ctx, func(ctx context.Context, t *term) error { return t.setPaused(ctx, k, nil, by) })
}

// Delete ends a group and soft-deletes its streams. Errors are ErrNotFound and those of writing.
func (s *Service) Delete(ctx context.Context, k Key, by string) error {
	return s.change(ctx, func(ctx context.Context, t *term) error { return t.remove(ctx, k, by) })
}

// change changes the set of groups within the time allowed.
func (s *Service) change(ctx context.Context, do func(context.Context, *term) error) error {
	t, err := s.running()
	if err != nil {
		return err
	}
	defer s.metrics.begin(s.metrics.changing).end()
	bound, cancel := t.bound(ctx)
	defer cancel()
	return t.outcome(ctx, do(bound, t))
}

// Read hands out at most count messages, and none when there is none at the moment. Of links
// the reader sees those targets that links lets it see.
func (s *Service) Read(ctx context.Context, k Key, count int, links event.LinkReader) ([]Message, error) {
	g, err := s.group(k)
	if err != nil {
		return nil, err
	}
	defer s.metrics.begin(s.metrics.reading).end()
	got := g.read(ctx, count)
	for i := range got {
		if err := g.show(ctx, &got[i], links); err != nil {
			return nil, err
		}
	}
	return got, nil
}

// Ack answers messages as processed. Ids and groups that are not known are passed over.
func (s *Service) Ack(_ context.Context, k Key, ids []event.ID) error {
	return s.answer(k, func(g *group) { g.ack(ids) })
}

// Nack answers messages as not processed. The reason is stored with messages that are parked. after
// is the delay of a Retry, at most MaxDelay; nil: that of the group.
func (s *Service) Nack(_ context.Context, k Key, ids []event.ID, action Action, reason string, after *time.Duration) error {
	return s.answer(k, func(g *group) { g.nack(ids, action, reason, after) })
}

func (s *Service) answer(k Key, do func(*group)) error {
	t, err := s.running()
	if err != nil {
		return err
	}
	if g, err := t.group(k); err == nil {
		defer s.metrics.begin(s.metrics.answering).end()
		do(g)
	}
	return nil
}

// Replay begins to hand out again the parked messages whose number in the parked stream is below
// stopAt; -1: all. With a rate above 0 so many are handed out again a second, also after the leader
// changes. It returns when the first of them can be read, or cannot be moved yet. While a replay
// runs it does nothing but change its rate, if that has one.
func (s *Service) Replay(ctx context.Context, k Key, stopAt int64, rate int) error {
	return s.parked(ctx, k, func(d *desk) error { return d.replay(ctx, stopAt, rate) })
}

// Parked returns parked messages from a number on, at most count, with the payloads of their events
// if they are asked for. Events that links does not let the reader see are missing, like those that
// are gone.
func (s *Service) Parked(ctx context.Context, k Key, from int64, count int, payload bool, links event.LinkReader) (p ParkedPage, err error) {
	err = s.parked(ctx, k, func(d *desk) error { p, err = d.list(ctx, from, count, payload, links); return err })
	return p, err
}

// ReplayParked hands parked messages out again, in the order of their numbers, or none of them: one
// that is not parked is *NotParked. It returns when a reader finds them. Errors are also those of
// writing.
func (s *Service) ReplayParked(ctx context.Context, k Key, numbers []int64) error {
	return s.parked(ctx, k, func(d *desk) error { return d.replaySome(ctx, inOrder(numbers)) })
}

// DropParked drops parked messages, with the errors of ReplayParked and ErrDeskFull.
func (s *Service) DropParked(ctx context.Context, k Key, numbers []int64) error {
	return s.parked(ctx, k, func(d *desk) error { return d.drop(ctx, inOrder(numbers)) })
}

// NoteParked leaves a note at a parked message, with the errors of DropParked. A note without a
// text is none.
func (s *Service) NoteParked(ctx context.Context, k Key, number int64, text, by string) error {
	return s.parked(ctx, k, func(d *desk) error { return d.note(ctx, number, Note{text, by, s.opts.Now().UTC()}) })
}

// parked does something at the desk of a group.
func (s *Service) parked(ctx context.Context, k Key, do func(d *desk) error) error {
	g, err := s.group(k)
	if err != nil {
		return err
	}
	return g.term.outcome(ctx, do(&g.desk))
}

// inOrder returns numbers in order, each once.
func inOrder(numbers []int64) []int64 { return slices.Compact(slices.Sorted(slices.Values(numbers))) }

// Restart loads all groups again, as if the node began to lead, and returns when they are loaded.
func (s *Service) Restart(ctx context.Context) error {
	t, err := s.running()
	if err != nil {
		return err
	}
	return t.outcome(ctx, t.restart(ctx))
}

// Trouble returns why no group can be used though the node leads, nil when they can.
func (s *Service) Trouble() error {
	if t := s.term.Load(); t != nil && t.ctx.Err() == nil {
		if err := t.trouble.Load(); err != nil {
			return fmt.Errorf("persistent subscriptions cannot be loaded: %w", *err)
		}
	}
	return nil
}

// Info describes a group. It also starts the statistics since the last call again.
func (s *Service) Info(ctx context.Context, k Key) (Info, error) {
	t, err := s.running()
	if err != nil {
		return Info{}, err
	}
	g, err := t.group(k)
	if err != nil {
		return Info{}, err
	}
	return g.info(ctx), nil
}

// List returns all groups, by stream and within a stream in the order of their
// creation; those of one stream when that is not empty.
func (s *Service) List(ctx context.Context, stream string) ([]Info, error) {
	t, err := s.running()
	if err != nil {
		return nil, err
	}
	all := []Info{}
	for _, g := range t.all() {
		if stream == "" || g.Stream == stream {
			all = append(all, g.info(ctx))
		}
	}
	slices.SortStableFunc(all, func(a, b Info) int { return strings.Compare(a.Stream, b.Stream) })
	return all, nil
}

// Connect adds a consumer that messages are pushed to, until it is closed or the
// group ends. Besides the errors of Read it returns ErrTooManySubscribers.
func (s *Service) Connect(_ context.Context, k Key, o ConnectOptions) (*Connection, error) {
	g, err := s.group(k)
	if err != nil {
		return nil, err
	}
	return g.connect(o)
}
