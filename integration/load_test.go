package integration_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// load is a number of writers that append to shared streams until they are stopped, through any of
// the nodes. They follow redirects, and repeat a write with the same ids until its outcome is
// certain. Whatever they learn is in the ledger.
type load struct {
	ledger   *ledger
	patience time.Duration // with one request
	writers  int
	streams  int
	stop     chan struct{}
	abandon  context.CancelFunc
	owned    sync.WaitGroup

	mu      sync.Mutex // guards what follows
	nodes   []*testkit.Client
	ended   <-chan struct{} // with the only node; its port may be that of another one then
	answers map[string]int  // of each status and kind of failure
}

// loadStreams is how many streams the writers of a cluster share.
const loadStreams = 6

// loadPatience is how long a client waits for one answer where nodes go away.
const loadPatience = 2 * time.Second

// startLoad begins to write to one node.
func startLoad(t *testing.T, node *testkit.Process, seed uint64, writers, streams int) *load {
	l := startLoadOn(t, seed, writers, streams, settleLimit)
	l.serve(node)
	return l
}

// startLoad begins to write to all nodes that run.
func (c *cluster) startLoad(seed uint64, writers int, patience time.Duration) *load {
	var nodes []*testkit.Client
	for _, m := range c.running() {
		nodes = append(nodes, m.Client)
	}
	return startLoadOn(c.t, seed, writers, loadStreams, patience, nodes...)
}

func startLoadOn(t *testing.T, seed uint64, writers, streams int, patience time.Duration, nodes ...*testkit.Client) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := newLoad(&ledger{}, writers, streams, patience, make(chan struct{}), cancel, nodes...)
	for i := range writers {
		w := l.writer(seed, i)
		l.owned.Go(func() { w.run(ctx) })
	}
	t.Cleanup(l.cut)
	return l
}

// newLoad makes a load that nothing does.
func newLoad(of *ledger, writers, streams int, patience time.Duration, stop chan struct{}, abandon context.CancelFunc, nodes ...*testkit.Client) *load {
	return &load{
		ledger: of, patience: patience, writers: writers, streams: streams, stop: stop, abandon: abandon,
		nodes: nodes, answers: map[string]int{},
	}
}

// serve has the writers turn to the only node, which may have been started again.
func (l *load) serve(node *testkit.Process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes, l.ended = []*testkit.Client{node.Client}, node.Exited()
}

// at returns a node to ask, nil if none runs, and how many there are.
func (l *load) at(i int) (node *testkit.Client, of int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.ended:
		return nil, 0
	default:
	}
	if of = len(l.nodes); of > 0 {
		node = l.nodes[i%of]
	}
	return node, of
}

// cut ends the writers wherever they are; the outcome of writes in flight stays unknown.
func (l *load) cut() {
	l.abandon()
	l.owned.Wait()
}

// finish lets every writer bring its write to a certain outcome, which takes a node that serves.
func (l *load) finish(t *testing.T) {
	t.Helper()
	close(l.stop)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.owned.Wait()
	}()
	within(t, settleLimit, "a certain outcome of every write", done)
}

// more waits for more acknowledgements.
func (l *load) more(t *testing.T, n int) {
	t.Helper()
	within(t, settleLimit, fmt.Sprintf("%d more acknowledgements; answers so far: %s", n, l.told()), l.ledger.after(n))
}

// note counts an answer.
func (l *load) note(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[what]++
}

// told lists the answers so far.
func (l *load) told() string {
	var parts []string
	counted := l.counted()
	for _, what := range slices.Sorted(maps.Keys(counted)) {
		parts = append(parts, fmt.Sprintf("%s: %d", what, counted[what]))
	}
	return strings.Join(parts, ", ")
}

// counted returns the answers so far.
func (l *load) counted() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.answers)
}

// acknowledgedOnce demands that all nodes hold the same events, among them every acknowledged write
// of the load, once, at the place that the answer named.
func (c *cluster) acknowledgedOnce(l *ledger) {
	c.t.Helper()
	check.Must(c.t, l.check(c.identical()))
}

// writer is one client. It has one write in flight.
type writer struct {
	load   *load
	at     int // of the node that it asks
	number int
	rng    *rand.Rand
	own    int              // streams that it made
	known  map[string]int64 // last number of a stream that it has heard of
}

func (l *load) writer(seed uint64, number int) *writer {
	return &writer{load: l, at: number, number: number, rng: rand.New(rand.NewPCG(seed, uint64(number))), known: map[string]int64{}}
}

const (
	writerPause = 3 * time.Millisecond  // between two writes: the machine is shared by all nodes
	retryPause  = 20 * time.Millisecond // a failure may pass by itself, or with the node
)

func (w *writer) run(ctx context.Context) {
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
		for !w.try(ctx, next) {
			if pause(ctx, retryPause) != nil {
				return
			}
		}
		if _, nodes := w.load.at(w.at); nodes > 1 && pause(ctx, writerPause) != nil {
			return
		}
	}
}

// next invents a write.
func (w *writer) next() *write {
	stream := fmt.Sprintf("load-%d", w.rng.IntN(w.load.streams))
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

// maxHops bounds how often one attempt is redirected.
const maxHops = 3

// try sends a write once, and reports whether its outcome is certain. It turns to the next node if
// that is not so.
func (w *writer) try(ctx context.Context, one *write) (certain bool) {
	for range maxHops {
		node, _ := w.load.at(w.at)
		if node == nil {
			return false
		}
		ctx, cancel := context.WithTimeout(ctx, w.load.patience)
		answer, err := node.Append(ctx, one.stream, one.expected, one.single, one.events...)
		cancel()
		switch {
		case err != nil:
			w.load.note("no answer")
			one.answered(err.Error())
		case answer.Status == http.StatusTemporaryRedirect:
			w.load.note("307")
			if !w.follow(answer) {
				w.load.ledger.complain("%s: redirected to %q", one, answer.Header.Get("Location"))
			}
			continue
		default:
			w.load.note(kind(answer))
			if w.judge(one, answer) {
				return true
			}
		}
		w.at++
		return false
	}
	return false
}

// answered keeps some of the answers to a write.
func (w *write) answered(text string) {
	if len(w.answers) < 10 {
		w.answers = append(w.answers, text)
	}
}

// kind is how an answer is counted.
func kind(answer testkit.Response) string {
	if answer.Status >= 500 {
		return fmt.Sprintf("%d %s", answer.Status, answer.Reason)
	}
	return fmt.Sprint(answer.Status)
}

// follow goes where a redirect leads.
func (w *writer) follow(answer testkit.Response) bool {
	to, err := url.Parse(answer.Header.Get("Location"))
	if err != nil {
		return false
	}
	w.load.mu.Lock()
	defer w.load.mu.Unlock()
	at := slices.IndexFunc(w.load.nodes, func(c *testkit.Client) bool { return c.Host() == to.Host })
	w.at = max(at, 0)
	return at >= 0
}

// judge notes what an answer means. certain is false if the write must be sent again.
func (w *writer) judge(one *write, answer testkit.Response) (certain bool) {
	ledger := w.load.ledger
	one.answered(answer.String())
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

// pause waits for a moment.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
