package run

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/output"
	"github.com/annalsdb/annals/projection/position"
	"github.com/annalsdb/annals/projection/source"
)

// world stands for the database: the input of a projection and what it has written.
// What is written is kept over the runs, and compared in recovery as output does.
type world struct {
	mu      sync.Mutex
	input   []*handler.Event
	more    chan struct{} // closed when input grows
	root    output.Checkpoint
	states  map[string][]storedState
	streams map[string][]written
	saves   int

	// What goes wrong; nil: nothing. Each may be called from any goroutine.
	onRead  func() error
	onWrite func(stream string) error
	onSave  func(ctx context.Context, step int) error
	block   chan struct{} // writes wait for it, until their context ends
	loads   int           // of partitions
}

type storedState struct {
	output.PartitionState
	at position.Position
}

type written struct {
	at         position.Position
	kind, data string
}

func newWorld() *world {
	return &world{more: make(chan struct{}), states: map[string][]storedState{}, streams: map[string][]written{}}
}

func (w *world) parts() parts {
	return parts{
		read: func(_ context.Context, o source.Options) (reader, error) {
			return &fakeReader{w: w, next: int(o.From.Commit), last: int(o.From.Commit), once: o.Once, end: w.size()}, nil
		},
		write: func(o output.Options) writer { return newFakeWriter(w, o) },
		keep:  func(o output.CheckpointOptions) checkpoints { return &fakeCheckpoints{w} },
	}
}

func (w *world) size() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.input)
}

// add appends an event to the input for each text, of the stream before the colon.
func (w *world) add(texts ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range texts {
		stream, data, _ := strings.Cut(text, ":")
		w.input = append(w.input, &handler.Event{Record: &event.Record{Stream: stream, Number: int64(len(w.input)), Type: "T",
			Flags: event.FlagJSON, Data: []byte(data)}})
	}
	close(w.more)
	w.more = make(chan struct{})
}

func (w *world) failure(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}

// stream returns what a stream holds: type and data of each event.
func (w *world) stream(name string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, e := range w.streams[name] {
		all = append(all, e.kind+" "+e.data)
	}
	return all
}

// all returns everything that was emitted.
func (w *world) all() map[string][]string {
	all := map[string][]string{}
	for name := range w.streams {
		all[name] = w.stream(name)
	}
	return all
}

// fakeReader reads a world's input. Positions are places in a log in which each event takes one
// byte.
type fakeReader struct {
	w          *world
	next, last int // the next event to be read, and to be returned
	end        int
	once       bool
	page       []*handler.Event
}

func (f *fakeReader) Fill(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := f.w.failure(f.w.onRead); err != nil {
			return err
		}
		f.w.mu.Lock()
		more := f.w.more
		f.page = append(f.page, f.w.input[f.next:min(len(f.w.input), f.next+100)]...)
		f.next += len(f.page)
		f.w.mu.Unlock()
		if len(f.page) > 0 {
			return nil
		}
		if f.once {
			return source.ErrEnd
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *fakeReader) Next() (*handler.Event, bool) {
	if len(f.page) == 0 {
		return nil, false
	}
	e := *f.page[0]
	f.page, f.last = f.page[1:], f.last+1
	return &e, true
}

func (f *fakeReader) Position() position.Position {
	if f.last == 0 {
		return position.OfLog()
	}
	return position.Position{Log: true, Commit: int64(f.last), Prepare: int64(f.last)}
}
func (f *fakeReader) Buffered() int     { return len(f.page) }
func (f *fakeReader) Passed() int64     { return int64(f.last) }
func (f *fakeReader) Progress() float64 { return 100 }
func (f *fakeReader) Unread() int64     { return 0 }
func (f *fakeReader) Done() int64       { return int64(f.last) + 1 }
func (f *fakeReader) Close()            {}

// fakeWriter writes to a world, one event after the other, by a goroutine of its own.
type fakeWriter struct {
	w      *world
	o      output.Options
	mu     sync.Mutex
	queue  []fakeEmission
	behind map[string][]written // what is still to be compared, by stream
	change chan struct{}        // closed on each change
	err    error
	failed context.Context
	giveUp context.CancelFunc
	ctx    context.Context
	stop   context.CancelFunc
	work   sync.WaitGroup
}

type fakeEmission struct {
	stream string
	written
}

func newFakeWriter(w *world, o output.Options) *fakeWriter {
	f := &fakeWriter{w: w, o: o, behind: map[string][]written{}, change: make(chan struct{})}
	f.ctx, f.stop = context.WithCancel(context.Background())
	f.failed, f.giveUp = context.WithCancel(context.Background())
	w.mu.Lock()
	for stream, events := range w.streams {
		for i, e := range events {
			if c, _ := position.Compare(e.at, o.From); c > 0 {
				f.behind[stream] = slices.Clone(events[i:])
				break
			}
		}
	}
	w.mu.Unlock()
	f.work.Go(f.run)
	return f
}

func (f *fakeWriter) signal() {
	close(f.change)
	f.change = make(chan struct{})
}

func (f *fakeWriter) run() {
	for {
		f.mu.Lock()
		change := f.change
		var e *fakeEmission
		if len(f.queue) > 0 {
			e = &f.queue[0]
		}
		f.mu.Unlock()
		if e == nil {
			select {
			case <-change:
				continue
			case <-f.ctx.Done():
				return
			}
		}
		err := f.write(e)
		f.mu.Lock()
		if err != nil {
			if f.ctx.Err() == nil {
				f.err = err
				f.giveUp()
			}
			f.signal()
			f.mu.Unlock()
			return
		}
		f.queue = f.queue[1:]
		f.signal()
		f.mu.Unlock()
	}
}

func (f *fakeWriter) write(e *fakeEmission) error {
	if old := f.behind[e.stream]; len(old) > 0 {
		f.behind[e.stream] = old[1:]
		if !old[0].at.Equal(e.at) || old[0].kind != e.kind {
			return &handler.Fault{Message: fmt.Sprintf("differs in recovery: %v, new %v", old[0], e.written)}
		}
		return nil
	}
	f.w.mu.Lock()
	block := f.w.block
	f.w.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-f.ctx.Done():
			return f.ctx.Err()
		}
	}
	if f.w.onWrite != nil {
		if err := f.w.onWrite(e.stream); err != nil {
			return err
		}
	}
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.w.streams[e.stream] = append(f.w.streams[e.stream], e.written)
	return nil
}

func (f *fakeWriter) Emit(at position.Position, _ *handler.Event, es []handler.Emission) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range es {
		f.queue = append(f.queue, fakeEmission{e.Stream, written{at, e.Type, string(e.Data)}})
	}
	f.signal()
}

func (f *fakeWriter) Result(at position.Position, by *handler.Event, partition string, result []byte, isNew bool) {
	kind, stream := output.TypeResult, f.o.Streams.Result()
	if result == nil {
		kind = output.TypeResultRemoved
	}
	if partition == "" {
		f.Emit(at, by, []handler.Emission{{Stream: stream, Type: kind, Data: result}})
		return
	}
	if isNew {
		f.Emit(at, by, []handler.Emission{{Stream: f.o.Streams.Partitions(), Type: output.TypePartition, Data: []byte(partition)}})
	}
	own := f.o.Streams.PartitionResult(partition)
	f.Emit(at, by, []handler.Emission{{Stream: own, Type: kind, Data: result}, {Stream: stream, Type: "$>", Data: []byte(own)}})
}

func (f *fakeWriter) Pending() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.queue)
}
func (f *fakeWriter) Bytes() int64 { return 0 }
func (f *fakeWriter) Writing() int { return min(1, f.Pending()) }

func (f *fakeWriter) WaitBelow(ctx context.Context, n int) error {
	for {
		f.mu.Lock()
		err, left, change := f.err, len(f.queue), f.change
		f.mu.Unlock()
		if err != nil || left <= n {
			return err
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
func (f *fakeWriter) Flush(ctx context.Context) error { return f.WaitBelow(ctx, 0) }
func (f *fakeWriter) Failed() context.Context         { return f.failed }
func (f *fakeWriter) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
func (f *fakeWriter) Close() {
	f.stop()
	f.work.Wait()
}

// fakeCheckpoints keep the last two states of each partition, as the streams do.
type fakeCheckpoints struct{ w *world }

func (f *fakeCheckpoints) Load(context.Context) (output.Checkpoint, error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	return f.w.root, nil
}

func (f *fakeCheckpoints) LoadPartition(_ context.Context, partition string) (p output.PartitionState, found bool, err error) {
	if err := f.w.failure(f.w.onRead); err != nil {
		return p, false, err
	}
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.w.loads++
	if !f.w.root.Found {
		return p, false, nil
	}
	for _, s := range slices.Backward(f.w.states[partition]) {
		if c, _ := position.Compare(s.at, f.w.root.At); c <= 0 {
			return s.PartitionState, true, nil
		}
	}
	return p, false, nil
}

func (f *fakeCheckpoints) Save(ctx context.Context, changed []output.PartitionState, root output.Checkpoint) error {
	for i, p := range changed {
		if f.w.onSave != nil {
			if err := f.w.onSave(ctx, i); err != nil {
				return err
			}
		}
		f.w.mu.Lock()
		f.w.states[p.Partition] = append(f.w.states[p.Partition], storedState{p, root.At})
		f.w.mu.Unlock()
	}
	if f.w.onSave != nil {
		if err := f.w.onSave(ctx, -1); err != nil {
			return err
		}
	}
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.w.root = root
	f.w.saves++
	return nil
}

// counter is a handler that counts events by partition. The data of events say
// what else it does: "emit" emits two events, "fault" faults, "skip" is not for it,
// "null" makes the state null, "same" changes nothing.
type counter struct {
	d         handler.Definition
	state     []byte
	shared    []byte
	partition string
	closed    *int
}

func newCounter(d handler.Definition) *counter {
	d.AllStreams, d.AllEvents, d.DefinesFold = true, true, true
	return &counter{d: d}
}

func (c *counter) Definition() *handler.Definition { return &c.d }

func (c *counter) PartitionOf(e *handler.Event) (string, bool, error) {
	if string(e.Data) == "nobody" {
		return "", false, nil
	}
	return e.Stream, true, nil
}

func (c *counter) Load(partition string, state []byte) error {
	c.partition, c.state = partition, state
	return nil
}

func (c *counter) LoadShared(state []byte) error {
	c.shared = state
	return nil
}

func (c *counter) Process(e *handler.Event) (handler.Outcome, error) {
	var out []handler.Emission
	switch string(e.Data) {
	case "skip":
		return handler.Outcome{Skipped: true}, nil
	case "fault":
		return handler.Outcome{}, &handler.Fault{Handler: "T", Message: "broken", Line: 3, Column: 7}
	case "null":
		c.state = nil
		return handler.Outcome{Shared: c.shared}, nil
	case "same":
		return handler.Outcome{State: c.state, Shared: c.shared}, nil
	case "emit":
		for i := range 2 {
			out = append(out, handler.Emission{Stream: "$out-" + e.Stream, Type: "E" + strconv.Itoa(i), JSON: true, Data: fmt.Appendf(nil, "%d", e.Number)})
		}
	}
	c.state = plusOne(c.state)
	if c.d.IsBiState {
		c.shared = plusOne(c.shared)
	}
	return handler.Outcome{State: c.state, Shared: c.shared, Emitted: out}, nil
}

func plusOne(state []byte) []byte {
	n, _ := strconv.Atoi(string(state))
	return strconv.AppendInt(nil, int64(n+1), 10)
}

func (c *counter) Deleted(*handler.Event) (handler.Outcome, error) {
	c.state = append(slices.Clone(c.state), "00"...)
	return handler.Outcome{State: c.state}, nil
}

// Result is ten times the state, and none for odd ones.
func (c *counter) Result() ([]byte, error) {
	n, _ := strconv.Atoi(string(c.state))
	if n%2 != 0 || c.state == nil {
		return nil, nil
	}
	return append(slices.Clone(c.state), '0'), nil
}

func (c *counter) Close() {
	if c.closed != nil {
		*c.closed++
	}
}

// options are those of a run of a counter.
func options(d handler.Definition) Options {
	return Options{Store: noStore{}, Name: "p", Turns: NewTurns(3, nil), Definition: newCounter(d).Definition(), Compile: func() (handler.Handler, error) { return newCounter(d), nil },
		Config: Config{EmitEnabled: true}}
}

// use has a run work with a handler that is there.
func (o *Options) use(h handler.Handler) {
	o.Definition, o.Compile = h.Definition(), func() (handler.Handler, error) { return h, nil }
}

func ended(t *testing.T, r *Run, want Ending) {
	t.Helper()
	<-r.Done()
	if f := r.Statistics(); f.Ending != want {
		t.Fatalf("ended %d, want %d: %s %s", f.Ending, want, f.Status, f.Reason)
	}
}

func state(t *testing.T, r *Run, partition string) string {
	t.Helper()
	a := check.Value(r.Ask(t.Context(), partition)).Must(t)
	return string(a.State)
}

func result(t *testing.T, r *Run, partition string) string {
	t.Helper()
	a := check.Value(r.Ask(t.Context(), partition)).Must(t)
	return string(a.Result)
}

// noStore is for runs whose parts are all fakes.
type noStore struct{ Store }

func (noStore) LogEnd() int64 { return 0 }
