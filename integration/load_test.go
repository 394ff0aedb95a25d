package integration_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/annalsdb/annals/internal/testkit"
)

// gate lets writers through to the node that serves at the moment.
type gate struct {
	mu      sync.Mutex
	node    *testkit.Process
	changed chan struct{}
}

func newGate() *gate { return &gate{changed: make(chan struct{})} }

func (g *gate) open(p *testkit.Process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.node = p
	close(g.changed)
	g.changed = make(chan struct{})
}

// pass waits for a node that has not ended.
func (g *gate) pass(ctx context.Context) (*testkit.Process, error) {
	for ctx.Err() == nil {
		g.mu.Lock()
		node, changed := g.node, g.changed
		g.mu.Unlock()
		if node != nil {
			select {
			case <-node.Exited():
			default:
				return node, nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil, ctx.Err()
}

// load is a number of writers that append to shared streams until they are
// stopped. Whatever they learn goes into the ledger.
type load struct {
	gate    *gate
	ledger  *ledger
	streams int
	stop    chan struct{}
	abandon context.CancelFunc
	owned   sync.WaitGroup
}

func startLoad(ctx context.Context, seed uint64, writers, streams int) *load {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{gate: newGate(), ledger: &ledger{}, streams: streams, stop: make(chan struct{}), abandon: cancel}
	for i := range writers {
		w := &nodeWriter{load: l, writer: newWriter(l.ledger, seed, i, streams)}
		l.owned.Go(func() { w.run(ctx) })
	}
	return l
}

// finish lets every writer bring its write to a certain outcome, which takes a node that serves.
func (l *load) finish() <-chan struct{} {
	close(l.stop)
	return l.ended()
}

// ended closes when all writers have returned.
func (l *load) ended() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.owned.Wait()
	}()
	return done
}

// cut ends the writers wherever they are; the outcome of writes in flight stays unknown.
func (l *load) cut() {
	l.abandon()
	l.owned.Wait()
}

// writer is what one client knows. It has one write in flight.
type writer struct {
	ledger  *ledger
	streams int
	number  int
	rng     *rand.Rand
	own     int              // streams that it made
	known   map[string]int64 // last number of a stream that it has heard of
}

func newWriter(l *ledger, seed uint64, number, streams int) *writer {
	return &writer{ledger: l, streams: streams, number: number, rng: rand.New(rand.NewPCG(seed, uint64(number))), known: map[string]int64{}}
}

// nodeWriter writes to one node that is killed and started again.
type nodeWriter struct {
	*writer
	load *load
}

func (w *nodeWriter) run(ctx context.Context) {
	for {
		select {
		case <-w.load.stop:
			return
		case <-ctx.Done():
			return
		default:
		}
		next := w.next()
		w.load.ledger.begin(next)
		if err := w.perform(ctx, next); err != nil {
			return
		}
	}
}

// next invents a write.
func (w *writer) next() *write {
	stream := fmt.Sprintf("load-%d", w.rng.IntN(w.streams))
	expected := int64(-2)
	switch dice := w.rng.IntN(10); {
	case dice < 4:
	case dice < 8:
		expected = w.last(stream)
	case dice < 9:
		expected = max(-1, w.last(stream)-1) // As a rule too old.
	default:
		w.own++
		stream = fmt.Sprintf("own-%d-%d", w.number, w.own%10)
		expected = w.last(stream)
	}
	one := &write{stream: stream, expected: expected, single: w.rng.IntN(2) == 0}
	count := 1
	if !one.single {
		count = 1 + w.rng.IntN(8)
	}
	for range count {
		one.events = append(one.events, newEvent(w.rng))
	}
	return one
}

func (w *writer) last(stream string) int64 {
	if n, ok := w.known[stream]; ok {
		return n
	}
	return -1
}

// newEvent makes an event that its data alone identify.
func newEvent(rng *rand.Rand) testkit.Event {
	var b [16]byte
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	x := hex.EncodeToString(b[:])
	id := x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
	data := dataStart(id) + `,"fill":"` + strings.Repeat("x", rng.IntN(400)) + `"}`
	return testkit.Event{ID: id, Type: "Loaded", Data: []byte(data)}
}

// perform sends a write with the same ids until its outcome is certain.
func (w *nodeWriter) perform(ctx context.Context, one *write) error {
	for {
		node, err := w.load.gate.pass(ctx)
		if err != nil {
			return err
		}
		answer, err := node.Append(ctx, one.stream, one.expected, one.single, one.events...)
		if err == nil && w.judge(one, answer) {
			return nil
		}
		if err != nil && len(one.answers) < 10 {
			one.answers = append(one.answers, err.Error())
		}
		// Whatever happened may pass by itself, or with the node.
		pause := time.NewTimer(20 * time.Millisecond)
		select {
		case <-pause.C:
		case <-node.Exited():
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

// judge notes what an answer means. certain is false if the write must be sent again.
func (w *writer) judge(one *write, answer testkit.Response) (certain bool) {
	ledger := w.ledger
	if len(one.answers) < 10 {
		one.answers = append(one.answers, answer.String())
	}
	current := answer.Header.Get(testkit.HeaderCurrentVersion)
	switch {
	case answer.Status == http.StatusCreated:
		number, err := answer.FirstNumber(one.stream)
		if err != nil {
			ledger.complain("%s: %v", one, err)
			return true
		}
		w.known[one.stream] = number + int64(len(one.events)) - 1
		ledger.ack(one, number)
		return true
	case answer.Status == http.StatusBadRequest && current != "":
		n, err := strconv.ParseInt(current, 10, 64)
		if err != nil || n == one.expected || one.expected == -2 {
			ledger.complain("%s: refused with the current version %q", one, current)
		}
		w.known[one.stream] = n
		ledger.refuse(one)
		return true
	case answer.Status >= 500:
		return false
	}
	ledger.complain("%s: unexpected answer %s", one, answer)
	return true
}
