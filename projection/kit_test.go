package projection_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/memdb"
	"github.com/annalsdb/annals/projection"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
	"github.com/annalsdb/annals/projection/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// complainer is what *testing.T and *rapid.T have in common.
type complainer interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Cleanup(func())
}

var errInjected = fmt.Errorf("injected: %w", event.ErrOutcomeUnknown)

// fakeHandler is a text and nothing else.
type fakeHandler struct {
	handler.Handler
	text string
	open *openHandlers
	once sync.Once
}

// openHandlers counts the handlers that were made and not closed.
type openHandlers struct {
	mu sync.Mutex
	n  int
}

func (o *openHandlers) add(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n += n
}

func (h *fakeHandler) Definition() *handler.Definition {
	d := &handler.Definition{AllStreams: true, AllEvents: true, Options: handler.Options{DefinesFold: true}}
	if strings.Contains(h.text, "named") {
		d.ResultStream = "named-results"
	}
	return d
}

// textOf returns the text of a handler, which answers any event with it.
func textOf(h handler.Handler) string {
	name, _, err := h.PartitionOf(nil)
	if err != nil {
		panic(err)
	}
	return name
}

// PartitionOf returns the text.
func (h *fakeHandler) PartitionOf(*handler.Event) (string, bool, error) { return h.text, true, nil }

func (h *fakeHandler) Close() { h.once.Do(func() { h.open.add(-1) }) }

// fakeRunner makes runs whose texts say what they do: "slow" ones start when they
// are let, "hangs" do not stop until they are aborted, "faults" fault at the start,
// "dies" at the next event, and others count events. One-time ones end when fed a last one.
type fakeRunner struct {
	mu          sync.Mutex
	checkpoints map[string]saved // by name
	runs        map[string]*fakeRun
	started     int
	live        map[string]int // runs that have not ended, by name
	handlers    openHandlers
	compiled    int
}

type saved struct {
	version position.Version
	n       int64
}

type fakeRun struct {
	r             *fakeRunner
	o             run.Options
	h             handler.Handler
	text          string
	stop, abort   chan struct{}
	let           chan struct{}
	fed           chan int64 // -1: the end of the input
	started, done chan struct{}
	onceStop      sync.Once
	onceAbort     sync.Once
	cancel        context.CancelFunc

	mu sync.Mutex
	f  run.Statistics
	n  int64
}

func (f *fakeRunner) compile(s projection.Source) (handler.Handler, error) {
	f.mu.Lock()
	f.compiled++
	f.mu.Unlock()
	if strings.Contains(s.Query, "bad") {
		return nil, &handler.Fault{Message: "bad text", Definition: true}
	}
	f.handlers.add(1)
	return &fakeHandler{text: s.Query, open: &f.handlers}, nil
}

func (f *fakeRunner) Start(ctx context.Context, o run.Options) projection.Run {
	h, err := o.Compile()
	if err != nil {
		panic(err)
	}
	text := textOf(h)
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &fakeRun{r: f, o: o, h: h, text: text, stop: make(chan struct{}), abort: make(chan struct{}), let: make(chan struct{}),
		fed: make(chan int64, 1), started: make(chan struct{}), done: make(chan struct{})}
	if c, ok := f.checkpoints[o.Name]; ok && o.Mode == run.Continuous && o.Version.IsOurs(c.version) {
		r.n = c.n
	}
	r.f = run.Statistics{Status: "LoadStateRequested", Progress: -1}
	f.runs[o.Name] = r
	f.started++
	f.live[o.Name]++
	if f.live[o.Name] > 1 {
		panic("two runs of " + o.Name)
	}
	ctx, r.cancel = context.WithCancel(ctx)
	go r.work(ctx)
	return r
}

func (r *fakeRun) Look() {}

func (r *fakeRun) Flush(context.Context) error { return nil }

func (r *fakeRun) set(status string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.f.Status = status
}

func (r *fakeRun) end(how run.Ending, status, reason string) {
	r.mu.Lock()
	r.f.Status, r.f.Ending, r.f.Reason = status, how, reason
	n := r.n
	r.mu.Unlock()
	r.r.mu.Lock()
	r.r.live[r.o.Name]--
	if r.o.Mode == run.Continuous && (how == run.Stopped || how == run.Faulted) {
		r.r.checkpoints[r.o.Name] = saved{r.o.Version, n}
	}
	r.r.mu.Unlock()
	r.h.Close()
	select {
	case <-r.started:
	default:
		close(r.started)
	}
	close(r.done)
}

func (r *fakeRun) work(ctx context.Context) {
	if strings.Contains(r.text, "slow") {
		select {
		case <-r.let:
		case <-r.stop:
			r.end(run.Stopped, "Stopped", "")
			return
		case <-r.abort:
			r.end(run.Aborted, "Stopped", "")
			return
		case <-ctx.Done():
			r.end(run.Lost, "Stopped", "")
			return
		}
	}
	if strings.Contains(r.text, "faults") {
		r.end(run.Faulted, "Faulted", "it faults")
		return
	}
	r.set("Running")
	close(r.started)
	for stop := r.stop; ; {
		select {
		case n := <-r.fed:
			if n < 0 && r.o.Mode != run.Continuous {
				r.end(run.Completed, "Stopped/Writing results", "")
				return
			}
			if strings.Contains(r.text, "dies") {
				r.end(run.Faulted, "Faulted", "it died")
				return
			}
			r.mu.Lock()
			r.n += max(n, 0)
			r.mu.Unlock()
		case <-stop:
			if strings.Contains(r.text, "hangs") {
				r.set("Stopping")
				stop = nil
				continue
			}
			r.end(run.Stopped, "Stopped", "")
			return
		case <-r.abort:
			r.end(run.Aborted, "Stopped", "")
			return
		case <-ctx.Done():
			r.end(run.Lost, "Stopped", "")
			return
		}
	}
}

func (r *fakeRun) Stop()                    { r.onceStop.Do(func() { close(r.stop) }) }
func (r *fakeRun) Abort()                   { r.onceAbort.Do(func() { close(r.abort) }) }
func (r *fakeRun) Close()                   { r.cancel(); <-r.done }
func (r *fakeRun) Started() <-chan struct{} { return r.started }
func (r *fakeRun) Done() <-chan struct{}    { return r.done }

func (r *fakeRun) Statistics() run.Statistics {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.f
	f.Processed = r.n
	return f
}

func answer(n int64) run.Answer {
	a := run.Answer{Position: &position.Position{Log: true, Commit: n, Prepare: n}}
	if n > 0 {
		a.State = fmt.Appendf(nil, `{"n":%d}`, n)
		a.Result = a.State
	}
	return a
}

func (r *fakeRun) Partitions(_ context.Context, contains, after string, most int) ([]run.Partition, bool, error) {
	return []run.Partition{{Name: fmt.Sprint(contains, after, most)}}, true, nil
}

func (r *fakeRun) Ask(context.Context, string) (run.Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return answer(r.n), nil
}

func (f *fakeRunner) Stored(_ context.Context, o run.Options, _ string) (run.Answer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c, ok := f.checkpoints[o.Name]; ok && o.Version.IsOurs(c.version) {
		return answer(c.n), nil
	}
	return run.Answer{}, nil
}

// bench is a service over a store in memory, in a bubble of time.
type bench struct {
	complainer
	*projection.Service
	store  *memdb.DB
	runner *fakeRunner
	ctx    context.Context
	opts   projection.Options
	refuse func(who projection.Identity) error // nil: no one
}

var admin = projection.Identity{Name: "admin", Roles: []string{"$admins"}, Operator: true}
var somebody = projection.Identity{Name: "somebody"}

// test runs a test in a bubble with a service that was started.
func test(t *testing.T, f func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.begin()
		defer func() { b.Stop() }() // Also after a failure.
		f(b)
		b.finish()
	})
}

func newBench(t complainer) *bench {
	return &bench{complainer: t, store: memdb.Open(t, memdb.Options{}), ctx: context.Background(), runner: &fakeRunner{checkpoints: map[string]saved{}, runs: map[string]*fakeRun{}, live: map[string]int{}}}
}

// begin starts a new service on the store, as a node that begins to lead.
func (b *bench) begin() {
	o := b.opts
	o.Store, o.Start, o.Stored, o.Compile = b.store, b.runner.Start, b.runner.Stored, b.runner.compile
	o.May = func(_ context.Context, who projection.Identity, _ string, _ bool) error {
		if b.refuse != nil {
			return b.refuse(who)
		}
		return nil
	}
	b.Service = projection.New(o)
	b.Start(b.ctx)
	synctest.Wait()
}

// lead ends the service and lets another node lead.
func (b *bench) lead() {
	b.Stop()
	b.begin()
}

// finish stops the service and looks whether anything is left.
func (b *bench) finish() {
	b.Helper()
	b.Stop()
	check.Equal(b, b.runner.handlers.n, 0, "handlers were not closed")
	for name, n := range b.runner.live {
		check.Equal(b, n, 0, "runs of", name, "go on")
	}
}

func (b *bench) must(err error) {
	b.Helper()
	check.Must(b, err)
}

func (b *bench) is(what string, got, want any) {
	b.Helper()
	check.MustEqual(b, fmt.Sprint(got), fmt.Sprint(want), what, got, "want", want)
}

// refused looks at the text of an error and at its type.
func (b *bench) refused(err error, text string) {
	b.Helper()
	if err == nil || err.Error() != text {
		b.Fatalf("error %v, want %s", err, text)
	}
}

func (b *bench) create(name, text string, edit ...func(c *projection.Creation)) {
	b.Helper()
	c := projection.Creation{Name: name, Mode: projection.Continuous, Query: text, Enabled: true, By: admin}
	for _, e := range edit {
		e(&c)
	}
	got, err := b.Create(b.ctx, c)
	b.must(err)
	b.is("name", got, name)
	synctest.Wait()
}

func (b *bench) command(name string, c projection.Command) {
	b.Helper()
	b.must(b.Command(b.ctx, name, c, admin))
	synctest.Wait()
}

// later does something that waits, and returns a function that tells what came of it.
func (b *bench) later(do func() error) (result func() error) {
	done := make(chan error, 1)
	go func() { done <- do() }()
	synctest.Wait()
	return func() error { return <-done }
}

func (b *bench) status(name string) string {
	b.Helper()
	s, err := b.Statistics(name)
	b.must(err)
	return s.Status
}

func (b *bench) expect(name, status string) {
	b.Helper()
	b.is("status of "+name, b.status(name), status)
}

// runOf returns the last run of a projection.
func (b *bench) runOf(name string) *fakeRun {
	b.runner.mu.Lock()
	defer b.runner.mu.Unlock()
	return b.runner.runs[name]
}

// feed hands events to a projection that runs; -1 is the end of the input.
func (b *bench) feed(name string, n int64) {
	b.runOf(name).fed <- n
	synctest.Wait()
}

func (b *bench) state(name string) string {
	b.Helper()
	c, err := b.State(b.ctx, name, "", admin)
	b.must(err)
	at := "nowhere"
	if c.Position != nil {
		at = c.Position.String()
	}
	return string(c.Text) + " at " + at
}

// definition returns the last definition that is stored.
func (b *bench) definition(name string) (number int64, members map[string]any) {
	b.Helper()
	all := b.store.All("$projections-" + name)
	if len(all) == 0 {
		return -1, nil
	}
	last := all[len(all)-1]
	b.must(json.Unmarshal(last.Data, &members))
	return last.Number, members
}

func enabledNo(c *projection.Creation) { c.Enabled = false }

func transient(c *projection.Creation) { c.Mode = projection.Transient }

// row is values with a space between them.
func row(values ...any) string { return strings.TrimSuffix(fmt.Sprintln(values...), "\n") }
