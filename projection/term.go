package projection

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/projection/run"
	"github.com/annalsdb/annals/projection/standard"
)

// term is the time during which this node leads, with all the projections of it.
type term struct {
	opts      Options
	metrics   *metrics
	turns     *run.Turns
	ctx       context.Context // of the term's own life
	cancel    context.CancelFunc
	work      sync.WaitGroup
	ready     atomic.Bool
	beginning atomic.Int64  // requests that begin a rebuild
	loaded    func()        // is called once it is
	compiling chan struct{} // one element for each text that is being compiled

	mu     sync.RWMutex // guards the fields below
	closed bool
	byName map[string]*projection
	all    []*projection // in the order of their creation
}

// Bounds of the work in parallel while the projections are loaded.
const (
	reading  = 32
	pageSize = 500
)

func newTerm(ctx context.Context, o Options, m *metrics, loaded func()) *term {
	t := &term{opts: o, metrics: m, loaded: loaded, turns: run.NewTurns(o.Threads, o.Stats), byName: map[string]*projection{}}
	t.compiling = make(chan struct{}, max(2, runtime.GOMAXPROCS(0)))
	t.ctx, t.cancel = context.WithCancel(ctx)
	return t
}

// stop ends all projections as the loss of leadership does, and waits for it.
func (t *term) stop() {
	t.cancel()
	t.mu.Lock()
	t.closed = true
	all := t.all
	t.mu.Unlock()
	for _, p := range all {
		p.close()
	}
	t.work.Wait()
	for _, p := range all {
		p.drop()
		p.left()
		t.metrics.removed(p.name)
	}
}

// life loads the projections, and deletes queries that are no longer asked for.
func (t *term) life(startStandard *atomic.Bool) {
	p := pauses()
	for {
		stored, err := t.load()
		if err == nil {
			t.begin(stored, startStandard)
			break
		}
		if t.ctx.Err() == nil && p.Failures == 0 {
			t.opts.Logger.Error("projections cannot be loaded, trying again", logkey.Error, err)
		}
		if !p.Wait(t.ctx) {
			return
		}
	}
	every := time.NewTicker(time.Minute)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			t.expire()
		case <-t.ctx.Done():
			return
		}
	}
}

// expire deletes transient projections that are no longer asked for.
func (t *term) expire() {
	before := t.opts.Now().Add(-t.opts.QueryExpiry).UnixNano()
	for _, p := range t.projections() {
		p.push(func(m *machine) []effect {
			if !m.transient() || p.accessed.Load() > before {
				return nil
			}
			return m.command(&change{kind: remove})
		})
	}
}

// stored is a projection as it was found in the streams.
type stored struct {
	name    string
	id      int64
	d       definition
	version int64 // of the definition, -1: there is none
	last    int64 // event of its stream
	unread  error // the definition cannot be read
	rebuild *rebuild
	// lastRebuild is the last event of the stream of its rebuilds.
	lastRebuild int64
}

// load returns all projections that are stored, in the order of their creation. It makes the system
// projections that are not there, and removes projections whose creation was interrupted.
func (t *term) load() ([]*stored, error) {
	all, err := t.readList()
	if err != nil {
		return nil, err
	}
	if all, err = t.addStandard(all); err != nil {
		return nil, err
	}
	errs := make([]error, len(all))
	next := atomic.Int64{}
	var readers sync.WaitGroup
	for range min(reading, len(all)) {
		readers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(all)) && t.ctx.Err() == nil; i = next.Add(1) - 1 {
				errs[i] = t.readDefinition(all[i])
			}
		})
	}
	readers.Wait()
	if err := errors.Join(append(errs, t.ctx.Err())...); err != nil {
		return nil, err
	}
	kept := all[:0]
	for _, s := range all {
		switch i := slices.IndexFunc(standard.All, func(p standard.Projection) bool { return p.Name == s.name }); {
		case s.version >= 0 && !s.d.Deleted:
		case i >= 0:
			if err := t.defineStandard(s, &standard.All[i]); err != nil {
				return nil, err
			}
		default: // Its creation or its deletion was cut short.
			if err := t.unregister(s.name); err != nil {
				return nil, fmt.Errorf("delete projection %s: %w", s.name, err)
			}
			continue
		}
		kept = append(kept, s)
	}
	return kept, nil
}

// readList returns the projections that were created and not deleted.
func (t *term) readList() ([]*stored, error) {
	found := map[string]*stored{}
	for from := int64(0); ; {
		page, err := t.opts.Store.ReadStream(t.ctx, event.StreamRead{Stream: listStream, From: from, Count: pageSize})
		if errors.Is(err, event.ErrStreamNotFound) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read stream %s: %w", listStream, err)
		}
		for i := range page.Events {
			r := &page.Events[i]
			switch name := string(r.Data); r.Type {
			case typeCreated:
				found[name] = &stored{name: name, id: r.Number}
			case typeDeleted:
				delete(found, name)
			}
		}
		if page.End {
			break
		}
		from = page.Next
	}
	all := make([]*stored, 0, len(found))
	for _, s := range found {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *stored) int { return int(a.id - b.id) })
	return all, nil
}

// addStandard stores the creation of the system projections that are not there.
func (t *term) addStandard(all []*stored) ([]*stored, error) {
	w := &event.Write{Stream: listStream, ExpectedVersion: event.AnyVersion}
	var added []*stored
	for _, p := range standard.All {
		if !slices.ContainsFunc(all, func(s *stored) bool { return s.name == p.Name }) {
			w.Events = append(w.Events, event.Proposed{ID: newID(), Type: typeCreated, Data: []byte(p.Name)})
			added = append(added, &stored{name: p.Name})
		}
	}
	if len(added) == 0 {
		return all, nil
	}
	info, err := t.opts.Store.StreamInfo(t.ctx, listStream)
	if err != nil {
		return nil, fmt.Errorf("look at stream %s: %w", listStream, err)
	}
	offset := int64(0)
	if info.Last < 0 {
		w.Events = slices.Insert(w.Events, 0, event.Proposed{ID: newID(), Type: typeInitialized})
		offset = 1
	}
	written, err := t.write(w)
	if err != nil {
		return nil, fmt.Errorf("write stream %s: %w", listStream, err)
	}
	for i, s := range added {
		s.id = written.First + offset + int64(i)
	}
	return append(all, added...), nil
}

// defineStandard stores the first definition of a system projection.
func (t *term) defineStandard(s *stored, of *standard.Projection) (err error) {
	s.d = newDefinition(&Creation{Mode: Continuous, Type: of.Type, Query: of.Source, Emit: true, By: systemIdentity})
	t.examine(s.name, &s.d)
	if s.last, err = t.storeDefinition(s.name, s.d, false, s.last); err != nil {
		return fmt.Errorf("define projection %s: %w", s.name, err)
	}
	s.version = s.last
	return nil
}

// readDefinition finds the last definition of a projection.
func (t *term) readDefinition(s *stored) error {
	s.version, s.lastRebuild = -1, -1
	r, last, err := t.lastOf(definitionStream(s.name), typeUpdated)
	if s.last = last; err != nil || r == nil {
		return err
	}
	s.version = r.Number
	if s.d, s.unread = decodeDefinition(r.Data); s.unread != nil {
		s.d = newDefinition(&Creation{Mode: Continuous, Name: s.name})
		return nil
	}
	if jsontext.ValidUTF8(r.Metadata) && jsontext.IsObject(r.Metadata) {
		s.d.Properties = bytes.Clone(r.Metadata)
	}
	return t.readRebuild(s)
}

// lastOf returns the last event of a type in a stream, nil if there is none, and the number of the
// last of any type, -1 if there is none.
func (t *term) lastOf(stream, eventType string) (r *event.Record, last int64, err error) {
	info, err := t.opts.Store.StreamInfo(t.ctx, stream)
	if err != nil {
		return nil, -1, fmt.Errorf("look at stream %s: %w", stream, err)
	}
	for from := event.Head; info.Exists(); {
		page, err := t.opts.Store.ReadStream(t.ctx, event.StreamRead{Stream: stream, From: from, Count: 1, Backward: true})
		if errors.Is(err, event.ErrStreamNotFound) {
			break
		}
		if err != nil {
			return nil, -1, fmt.Errorf("read stream %s: %w", stream, err)
		}
		for i := range page.Events {
			if r := &page.Events[i].Record; r.Type == eventType {
				return r, info.Last, nil
			}
		}
		if from = page.From - 1; page.End || from < 0 {
			break
		}
	}
	return nil, info.Last, nil
}

// begin makes the projections known, and prepares them, some at once.
func (t *term) begin(all []*stored, startStandard *atomic.Bool) {
	known, after := make([]*projection, len(all)), make([][]effect, len(all))
	for i, s := range all {
		p := newProjection(t, s.name, s.d)
		p.id, p.last, p.lastRebuild, p.m.rebuild = s.id, s.last, s.lastRebuild, s.rebuild
		if s.unread != nil && !s.d.Deleting {
			p.m.unreadable(s.d, s.version, "Its definition cannot be read: "+s.unread.Error())
		} else {
			after[i] = p.m.load(s.d, s.version)
			p.hidden = s.d.Deleting
		}
		if t.add(p, false) != nil { // The term is over.
			return
		}
		known[i] = p
	}
	t.ready.Store(true)
	t.loaded()
	slots := make(chan struct{}, 2*cap(t.compiling))
	for i, p := range known {
		select {
		case slots <- struct{}{}:
		case <-t.ctx.Done():
			return
		}
		p.push(func(m *machine) []effect {
			p.release = func() { <-slots }
			effects := append(after[i], m.begin()...)
			if !slices.ContainsFunc(effects, func(e effect) bool { return e.kind == doPrepare }) {
				p.releaseLocked()
			}
			return effects
		})
	}
	if t.opts.StartStandard && startStandard.CompareAndSwap(false, true) {
		t.enableStandard()
	}
}

func (t *term) enableStandard() {
	for _, of := range standard.All {
		if p, err := t.find(of.Name); err == nil {
			p.push(func(m *machine) []effect {
				return m.command(&change{kind: enable, edit: func(d *definition) { d.Enabled = true }})
			})
		}
	}
}

// add makes a projection known, if its name is free, and with isNew no stream
// would have two of them write to it.
func (t *term) add(p *projection, isNew bool) error {
	t.mu.Lock()
	err := error(nil)
	switch {
	case t.closed:
		err = event.ErrNotReady
	case t.byName[p.name] != nil:
		err = &Exists{p.name}
	}
	for i := 0; isNew && err == nil && i < len(t.all); i++ {
		err = overlaps(t.all[i].name, p.name)
	}
	if err == nil {
		t.byName[p.name] = p
		t.all = append(t.all, p)
	}
	t.mu.Unlock()
	if err == nil {
		t.metrics.added(p.name)
	}
	return err
}

// forget takes a projection out of the set.
func (t *term) forget(p *projection) {
	t.metrics.removed(p.name)
	t.mu.Lock()
	delete(t.byName, p.name)
	t.all = slices.DeleteFunc(slices.Clone(t.all), func(o *projection) bool { return o == p })
	t.mu.Unlock()
	p.close()
	p.left()
}

// find returns a projection, or ErrNotFound.
func (t *term) find(name string) (*projection, error) {
	t.mu.RLock()
	p := t.byName[name]
	t.mu.RUnlock()
	if p == nil {
		return nil, ErrNotFound
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hidden {
		return nil, ErrNotFound
	}
	return p, nil
}

// projections returns all, in the order of their creation. The slice is not changed afterwards.
func (t *term) projections() []*projection {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.all
}
