package manager_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/backup/manager"
	"github.com/annalsdb/annals/admin/cron"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/stats"
)

// place keeps backups in memory. It outlives the nodes of a test.
type place struct {
	backup.Target
	mu      sync.Mutex
	began   []time.Time
	backups []backup.Manifest
	takes   time.Duration
	fails   []error // of the next runs, nil: success
	pruning error
	closed  int
}

func (p *place) Close() { p.closed++ }

func (p *place) Create(ctx context.Context, id string, progress func(backup.Progress)) (backup.Manifest, error) {
	p.mu.Lock()
	p.began = append(p.began, time.Now())
	var fail error
	takes := p.takes
	if len(p.fails) > 0 {
		fail, p.fails = p.fails[0], p.fails[1:]
	}
	p.mu.Unlock()
	progress(backup.Progress{Phase: backup.PhaseCopy, Done: 10, Total: 100})
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return backup.Manifest{}, fmt.Errorf("copy: %w", ctx.Err())
	}
	if fail != nil {
		return backup.Manifest{}, fail
	}
	m := backup.Manifest{ID: id, Kind: backup.KindFull, BytesCopied: 60, Verified: true, Session: backup.Session{
		Position: 4711, Time: time.Now().UTC(), Files: []backup.File{{Size: 60}, {Size: 40}},
	}}
	p.mu.Lock()
	p.backups = append(p.backups, m)
	p.mu.Unlock()
	return m, nil
}

func (p *place) List(context.Context) ([]backup.Manifest, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.backups), nil
}

func (p *place) Remove(_ context.Context, _, keep []backup.Manifest, _ time.Time, _ bool) (freed int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pruning == nil {
		p.backups = slices.Clone(keep)
	}
	return 0, p.pruning
}

// times returns when runs began.
func (p *place) times() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.began)
}

func (p *place) take(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.takes = d
}

func (p *place) fail(with ...error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fails = with
}

func (p *place) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.backups)
}

// records is the database as far as the history needs it.
type records struct {
	mu     sync.Mutex
	ids    map[event.ID]bool
	events map[string][]event.Record
	fail   error
}

func (r *records) WriteOwn(_ context.Context, w *event.Write) (event.Written, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return event.Written{}, r.fail
	}
	for _, e := range w.Events {
		if !r.ids[e.ID] {
			r.ids[e.ID] = true
			r.events[w.Stream] = append(r.events[w.Stream], event.Record{Stream: w.Stream, Type: e.Type, Data: e.Data})
		}
	}
	return event.Written{}, nil
}

func (r *records) refuse(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}

func (r *records) StreamInfo(_ context.Context, stream string) (event.StreamInfo, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return event.StreamInfo{Last: int64(len(r.events[stream])) - 1, MetaLast: int64(len(r.events[event.MetaStreamOf(stream)])) - 1}, nil
}

func (r *records) ReadEvent(_ context.Context, stream string, number int64, _ event.LinkReader) (event.Resolved, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return event.Resolved{Record: r.events[stream][number]}, nil
}

var anyID = regexp.MustCompile(`\d{8}T\d{6}\.\d{3}Z-[0-9a-f]{8}`)

// String is what is written, each id as the number of its first appearance.
func (r *records) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, stream := range []string{"$$$backups", "$backups"} {
		for _, e := range r.events[stream] {
			fmt.Fprintf(&b, "%s %s\n", e.Type, e.Data)
		}
	}
	seen := map[string]string{}
	return anyID.ReplaceAllStringFunc(b.String(), func(id string) string {
		if seen[id] == "" {
			seen[id] = fmt.Sprintf("<%d>", len(seen)+1)
		}
		return seen[id]
	})
}

// world is the surroundings of a manager.
type world struct {
	t       *testing.T
	place   *place
	records *records
	fs      vfs.FS
	stats   *stats.Registry
	options manager.Options
}

// inWorld runs a test with a clock of its own.
func inWorld(t *testing.T, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, place: &place{takes: 10 * time.Second}, records: &records{ids: map[event.ID]bool{}, events: map[string][]event.Record{}}, fs: vfs.NewMem()}
		check.Must(t, w.fs.MkdirAll("/db"))
		w.options = manager.Options{
			To: "/backups", Target: w.place, Create: w.place.Create, FS: w.fs, Dir: "/db", Records: w.records, Endpoint: func() string { return "a:2113" },
		}
		test(w)
	})
}

// node is a manager that runs as it does in a node.
type node struct {
	*manager.Manager
	t      *testing.T
	cancel context.CancelFunc
	done   chan struct{}
}

func (w *world) start() *node {
	w.t.Helper()
	w.stats = new(stats.Registry)
	o := w.options
	o.Stats = w.stats
	m := check.Value(manager.New(o)).Must(w.t)
	n := &node{Manager: m, t: w.t, done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	go func() {
		defer close(n.done)
		m.Run(ctx)
	}()
	synctest.Wait()
	return n
}

func (n *node) close() {
	n.cancel()
	<-n.done
	n.Close()
}

// backUp starts a run.
func (n *node) backUp() string {
	n.t.Helper()
	id := check.Value(n.Start()).Must(n.t)
	synctest.Wait()
	return id
}

func (n *node) current() manager.Status {
	n.t.Helper()
	s := check.Value(n.Current()).Must(n.t)
	return s
}

func (n *node) last() manager.Status {
	n.t.Helper()
	s := check.Value(n.Last()).Must(n.t)
	return s
}

func (w *world) schedule(expression string) {
	w.t.Helper()
	s := check.Value(cron.Parse(expression)).Must(w.t)
	w.options.Schedule = s
}

// metric returns a figure.
func (w *world) metric(name string) (value int64) {
	w.stats.Each(func(s stats.Sample) {
		if s.Name == name {
			value = int64(s.Value)
		}
	})
	return value
}
