package subscription

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/catchup"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/bell"
	"github.com/annalsdb/annals/internal/logkey"
)

// term is the time during which this node leads, with all the groups that run in it.
//
// changing is held while the set of groups is changed, in the stream or in memory,
// so that changes come one after the other. mu guards what readers look at.
type term struct {
	opts    Options
	metrics *metrics
	ctx     context.Context // of the term's own life
	cancel  context.CancelFunc
	work    sync.WaitGroup
	kick    chan struct{} // one element: load again
	ready   atomic.Bool
	trouble atomic.Pointer[error] // why the groups cannot be loaded; nil: they can

	changing chan struct{} // one element; guards version and stale
	version  int64         // number of the event that holds the groups, -1: none
	stale    bool          // the stream may hold something else than definitions
	dropAll  atomic.Bool   // load all groups again, also those that run

	mu          sync.RWMutex // guards the fields below
	closed      bool
	definitions []*definition // in the order of creation
	groups      map[Key]*group
}

func newTerm(ctx context.Context, o Options, m *metrics) *term {
	t := &term{opts: o, metrics: m, kick: make(chan struct{}, 1), changing: make(chan struct{}, 1), groups: map[Key]*group{}, version: -1}
	t.ctx, t.cancel = context.WithCancel(ctx)
	return t
}

func (t *term) stop() {
	t.cancel()
	t.mu.Lock()
	t.closed = true
	groups := t.groups
	t.groups = map[Key]*group{}
	t.mu.Unlock()
	for k, g := range groups {
		g.stop(event.ErrNotReady)
		t.metrics.removed(k)
	}
	t.work.Wait()
}

// run loads the groups, and loads them again whenever that is asked for.
func (t *term) run() {
	p := pauses()
	for {
		err := t.load()
		switch {
		case t.ctx.Err() != nil:
			return
		case err != nil:
			if !t.ready.Load() {
				t.trouble.Store(&err)
			}
			if p.Failures == 0 {
				t.opts.Logger.Error("persistent subscriptions cannot be loaded, trying again", logkey.Error, err)
			}
			if !p.Wait(t.ctx) {
				return
			}
			continue
		}
		p.Failures = 0
		select {
		case <-t.kick:
		case <-t.ctx.Done():
			return
		}
	}
}

// restart loads all groups again, and returns when they are loaded.
func (t *term) restart(ctx context.Context) error {
	ctx, cancel := t.bound(ctx)
	defer cancel()
	if err := t.lock(ctx); err != nil {
		return err
	}
	defer t.unlock()
	t.dropAll.Store(true)
	t.ready.Store(false)
	err := t.loadLocked(ctx)
	if err != nil {
		bell.Ring(t.kick)
	}
	return err
}

// lock waits until no other caller changes the set of groups.
func (t *term) lock(ctx context.Context) error {
	select {
	case t.changing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-t.ctx.Done():
		return event.ErrNotReady
	}
}

func (t *term) unlock() { <-t.changing }

// bound returns a context that also ends with the term.
func (t *term) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, t.opts.WriteTimeout)
	stop := context.AfterFunc(t.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// outcome turns the end of the time allowed, or of the term, into an error that says so: the
// caller's own context has not ended. A write in flight may have been done or not.
func (t *term) outcome(ctx context.Context, err error) error {
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", event.ErrWriteTimeout, err)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %w", event.ErrOutcomeUnknown, err)
	}
	return err
}

// load makes the groups that run those that are stored.
func (t *term) load() error {
	if err := t.lock(t.ctx); err != nil {
		return err
	}
	defer t.unlock()
	return t.loadLocked(t.ctx)
}

func (t *term) loadLocked(ctx context.Context) error {
	drop := t.dropAll.Swap(false)
	missing, err := t.reconcile(ctx, drop)
	if err != nil {
		if drop {
			t.dropAll.Store(true)
		}
		return err
	}
	if !t.dropAll.Load() {
		t.ready.Store(true)
		t.trouble.Store(nil)
	}
	return missing
}

// reconcile makes the groups that run those that are stored. missing says why some of
// them do not run though all others do.
func (t *term) reconcile(ctx context.Context, drop bool) (missing, err error) {
	stored, version, err := t.readConfig(ctx)
	if err != nil {
		return nil, err
	}
	wanted, later := map[Key]*definition{}, map[Key]bool{}
	for _, d := range stored {
		// Of a group that another version stored it is not known what existed when it
		// was created: what exists now did for certain not come later than now.
		if d.runs() && d.Settings.StartFrom < 0 && d.startAt < 0 {
			at, err := t.next(ctx, d.reads().Stream)
			if err != nil {
				missing = errors.Join(missing, fmt.Errorf("group %s: %w", d.Key, err))
				later[d.Key] = true
				continue
			}
			d.startAt = at
		}
		if d.runs() {
			wanted[d.Key] = d
		}
	}
	for _, g := range t.all() {
		switch d, ok := wanted[g.Key]; {
		case later[g.Key]: // It runs on as it is.
		case !ok:
			t.drop(g)
		case drop || !reflect.DeepEqual(d.Settings, g.Settings) || d.place.Since != g.place.Since:
			t.end(g)
		default:
			delete(wanted, g.Key)
			g.apply(func(c *core, now time.Time) { c.pause(d.paused, now) })
		}
	}
	t.version, t.stale = version, false
	t.mu.Lock()
	t.definitions = stored
	t.mu.Unlock()
	var started []*group
	for _, d := range wanted {
		if g := t.begin(d); g != nil {
			started = append(started, g)
		}
	}
	for _, g := range started {
		g.await(ctx)
	}
	return missing, ctx.Err()
}

// next returns the number that the next event of a stream will have, or of the log.
func (t *term) next(ctx context.Context, stream string) (int64, error) {
	if stream == event.AllStream || event.IsIndex(stream) {
		return t.opts.Store.LogEnd(), nil
	}
	info, err := t.opts.Store.StreamInfo(ctx, stream)
	return info.Last + 1, err
}

// begin starts a group, unless the term is over.
func (t *term) begin(d *definition) *group {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	g := newGroup(t, d)
	t.groups[d.Key] = g
	t.metrics.added(d.Key)
	g.start()
	return g
}

// drop ends a group that is deleted, if it was not ended with the term.
func (t *term) drop(g *group) {
	t.mu.Lock()
	mine := t.groups[g.Key] == g
	if mine {
		delete(t.groups, g.Key)
	}
	t.mu.Unlock()
	if mine {
		g.stop(ErrNotFound)
		t.metrics.removed(g.Key)
	}
}

// end ends a group that another one with the same key is about to replace. Until
// then it is found, and its callers must try again.
func (t *term) end(g *group) {
	g.stop(ErrDropped)
	t.metrics.removed(g.Key)
}

// await waits until the group is loaded, or loading it failed once.
func (g *group) await(ctx context.Context) {
	select {
	case <-g.tried:
	case <-g.ctx.Done():
	case <-ctx.Done():
	}
}

func (t *term) group(k Key) (*group, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	switch g := t.groups[k]; {
	case t.closed, g != nil && g.ctx.Err() != nil:
		return nil, event.ErrNotReady
	case g != nil:
		return g, nil
	case slices.ContainsFunc(t.definitions, func(d *definition) bool { return d.Key == k && d.runs() }):
		return nil, event.ErrNotReady // It is tried again to begin it.
	}
	return nil, ErrNotFound
}

// taken reports whether there is a group whose streams have the names that those
// of k would have: of the same key, or of one with the same text.
func (t *term) taken(k Key) bool {
	return slices.ContainsFunc(t.definitions, func(d *definition) bool {
		return d.Key == k && d.runs() || d.Key != k && d.Key.String() == k.String()
	})
}

// all returns the groups in the order of their creation.
func (t *term) all() []*group {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make([]*group, 0, len(t.groups))
	for _, d := range t.definitions {
		if g := t.groups[d.Key]; g != nil && d.runs() {
			all = append(all, g)
		}
	}
	return all
}

// change stores another set of groups, which make builds from the present one.
// The caller holds changing, and begins and drops the groups afterwards.
func (t *term) change(ctx context.Context, by string, make func([]*definition) []*definition) error {
	next := make(slices.Clone(t.definitions))
	version, err := t.writeConfig(ctx, next, t.version, by)
	if err != nil {
		// The stored configuration is not known, or differs from the one in memory.
		t.stale = true
		bell.Ring(t.kick)
		var other *event.WrongExpectedVersion
		if errors.As(err, &other) {
			err = fmt.Errorf("%w: another node changed the groups: %v", event.ErrNotReady, err)
		}
		return err
	}
	t.version = version
	t.mu.Lock()
	t.definitions = next
	t.mu.Unlock()
	return nil
}

// enter begins a change: no other caller makes one, and the stored state is known.
func (t *term) enter(ctx context.Context) error {
	if err := t.lock(ctx); err != nil {
		return err
	}
	if t.stale {
		if err := t.loadLocked(ctx); err != nil {
			t.unlock()
			return err
		}
	}
	return nil
}

// enterFor is enter for a change of a group, which must be there.
func (t *term) enterFor(ctx context.Context, k Key) (*group, error) {
	if err := t.enter(ctx); err != nil {
		return nil, err
	}
	g, err := t.group(k)
	if err != nil {
		t.unlock()
	}
	return g, err
}

func (t *term) create(ctx context.Context, k Key, set Settings, by string) error {
	if len(k.CheckpointStream()) > event.MaxNameBytes {
		return event.ErrTooLarge
	}
	names, err := set.Filter.compile()
	if err != nil {
		return err
	}
	if set.Source == k.Stream {
		set.Source = ""
	}
	set.Filter = set.Filter.plain()
	if err := t.checkStart(ctx, k, &set); err != nil {
		return err
	}
	if err := t.enter(ctx); err != nil {
		return err
	}
	defer t.unlock()
	if t.taken(k) {
		return ErrExists
	}
	d := &definition{Key: k, Settings: set, startAt: -1, storedIn: -1, names: names}
	if set.Source != "" {
		d.place.Since = t.version + 2
	}
	// The streams of an earlier group of that name must not become this one's, also when its
	// deletion was cut short.
	if err := t.removeStreams(ctx, k); err != nil {
		return err
	}
	if err := t.resolveStart(ctx, d); err != nil {
		return err
	}
	err = t.change(ctx, by, func(all []*definition) []*definition {
		// An entry of this name that cannot be run here gives way.
		return append(slices.DeleteFunc(all, func(d *definition) bool { return d.Key == k }), d)
	})
	if err != nil {
		return err
	}
	if g := t.begin(d); g != nil {
		g.await(ctx)
	}
	return nil
}

// checkStart returns a *SettingsError if a group cannot start where its settings say.
func (t *term) checkStart(ctx context.Context, k Key, set *Settings) error {
	k = set.reads(k)
	index, err := k.index(set.Filter)
	if err != nil {
		return err
	}
	if k.Stream != event.AllStream {
		if set.Filter != nil {
			return &SettingsError{Text: "Invalid filter: only the events of $all can be filtered."}
		}
		return nil
	}
	if set.StartFrom > t.opts.Store.LogEnd() {
		return &SettingsError{Text: "Invalid Start From position: commit position must be less than or equal to the last commit position in the transaction file."}
	}
	if index != nil {
		return nil // Any position will do.
	}
	at := catchup.Cursor{Store: t.opts.Store, All: true, Next: set.StartFrom}
	err = at.Check(ctx)
	if errors.Is(err, event.ErrBadPosition) {
		return &SettingsError{Text: fmt.Sprintf("Invalid Start From position: no event begins at commit position %d.", set.StartFrom)}
	}
	return err
}

// resolveStart finds where a group that starts at the end begins, right before it is stored.
func (t *term) resolveStart(ctx context.Context, d *definition) (err error) {
	if d.Settings.StartFrom >= 0 {
		return nil
	}
	if err := bound(ctx, t.opts.Store, configStream, configMetadata); err != nil {
		return err
	}
	info, err := t.opts.Store.StreamInfo(ctx, configStream)
	if err != nil {
		return err
	}
	d.storedIn = info.Last + 1
	d.startAt, err = t.next(ctx, d.reads().Stream)
	return err
}

func (t *term) update(ctx context.Context, k Key, set Settings, by string) error {
	g, err := t.enterFor(ctx, k)
	if err != nil {
		return err
	}
	defer t.unlock()
	set.keep(k, &g.Settings)
	if err := set.validateRest(); err != nil {
		return err
	}
	if err := t.checkStart(ctx, k, &set); err != nil {
		return err
	}
	at := t.index(k)
	d := &definition{Key: k, Settings: set, startAt: -1, storedIn: -1, paused: t.definitions[at].paused, place: g.place}
	if d.names, err = set.Filter.compile(); err != nil {
		return err
	}
	isMoved := d.reads() != g.reads()
	if isMoved {
		// Answers that come from now on may be passed over, but none is lost.
		leave, err := g.hold(ctx)
		if err != nil {
			return err
		}
		d.place = place{Since: t.version + 2}
		err = d.move(ctx, g)
		leave()
		if err == nil {
			err = t.resolveStart(ctx, d)
		}
		if err != nil {
			return err
		}
	} else if set.StartFrom < 0 {
		// The end of this moment would lose what came since the group was created, until the
		// first checkpoint all that is known of it.
		d.startAt, d.storedIn = g.first(), g.storedIn
	}
	if err := t.change(ctx, by, replace(at, d)); err != nil {
		return err
	}
	t.end(g)
	if g := t.begin(d); g != nil {
		g.await(ctx)
	}
	return nil
}

// index returns where the definition of a group that runs is. The caller holds changing.
func (t *term) index(k Key) int {
	return slices.IndexFunc(t.definitions, func(d *definition) bool { return d.Key == k && d.runs() })
}

// replace puts a definition in the place of another.
func replace(at int, d *definition) func([]*definition) []*definition {
	return func(all []*definition) []*definition {
		all[at] = d
		return all
	}
}

// setPaused stores that a group is paused, nil: that it is not any more, and has it do so. The
// group is not loaded again.
func (t *term) setPaused(ctx context.Context, k Key, p *Pause, by string) error {
	g, err := t.enterFor(ctx, k)
	if err != nil {
		return err
	}
	defer t.unlock()
	at := t.index(k)
	d := *t.definitions[at]
	if (d.paused != nil) == (p != nil) {
		return nil
	}
	d.paused, d.encoded = p, nil
	if err := t.change(ctx, by, replace(at, &d)); err != nil {
		return err
	}
	g.apply(func(c *core, now time.Time) { c.pause(p, now) })
	return nil
}

func (t *term) remove(ctx context.Context, k Key, by string) error {
	g, err := t.enterFor(ctx, k)
	if err != nil {
		return err
	}
	defer t.unlock()
	err = t.change(ctx, by, func(all []*definition) []*definition {
		return slices.DeleteFunc(all, func(d *definition) bool { return d.Key == k && d.runs() })
	})
	if err != nil {
		return err
	}
	t.drop(g) // It writes nothing any more, so the deletion that follows is final.
	return t.removeStreams(ctx, k)
}

func (t *term) removeStreams(ctx context.Context, k Key) error {
	for _, stream := range []string{k.CheckpointStream(), k.ParkedStream(), k.replayingStream(), k.DeskStream()} {
		if err := remove(ctx, t.opts.Store, stream); err != nil {
			return err
		}
	}
	return nil
}
