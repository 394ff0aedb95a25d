package integration_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/testkit"
)

// clusterLoad is a number of writers that append to shared streams through any
// node until they are stopped. They follow redirects, and repeat a write with the
// same ids until its outcome is certain.
type clusterLoad struct {
	ledger   *ledger
	patience time.Duration // with one request
	writers  int
	stop     chan struct{}
	abandon  context.CancelFunc
	owned    sync.WaitGroup

	mu      sync.Mutex
	members []*member
	acks    []time.Time
	answers map[string]int // of each status and kind of failure
}

// loadStreams is how many streams the writers of a cluster share.
const loadStreams = 6

// How long a client waits for one answer: loadPatience where nodes that go away say
// so, hastyPatience where they just fall silent.
const (
	loadPatience  = 2 * time.Second
	hastyPatience = 500 * time.Millisecond
)

// startLoad begins to write to all nodes that run.
func (c *cluster) startLoad(seed uint64, writers int, patience time.Duration) *clusterLoad {
	ctx, cancel := context.WithCancel(c.t.Context())
	l := &clusterLoad{
		ledger: &ledger{}, patience: patience, writers: writers, stop: make(chan struct{}), abandon: cancel,
		members: c.running(), answers: map[string]int{},
	}
	for i := range writers {
		w := &clusterWriter{load: l, at: i % len(l.members), writer: newWriter(l.ledger, seed, i, loadStreams)}
		l.owned.Go(func() { w.run(ctx) })
	}
	c.t.Cleanup(l.cut)
	return l
}

// cut ends the writers wherever they are.
func (l *clusterLoad) cut() {
	l.abandon()
	l.owned.Wait()
}

// finish lets every writer bring its write to a certain outcome.
func (l *clusterLoad) finish(t *testing.T) {
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
func (l *clusterLoad) more(t *testing.T, n int) {
	t.Helper()
	within(t, settleLimit, fmt.Sprintf("%d more acknowledgements; answers so far: %s", n, l.told()), l.ledger.after(n))
}

// note counts an answer.
func (l *clusterLoad) note(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[what]++
	if what == "201" {
		l.acks = append(l.acks, time.Now())
	}
}

// told lists the answers so far.
func (l *clusterLoad) told() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(l.answers)) {
		parts = append(parts, fmt.Sprintf("%s: %d", what, l.answers[what]))
	}
	return strings.Join(parts, ", ")
}

// counted returns the answers so far.
func (l *clusterLoad) counted() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.answers)
}

// gap is the longest time without any acknowledgement since a moment.
func (l *clusterLoad) gap(since time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, longest := since, time.Duration(0)
	for _, at := range l.acks {
		if at.After(since) {
			longest = max(longest, at.Sub(last))
			last = at
		}
	}
	return longest
}

// clusterWriter is one client of the cluster. It has one write in flight.
type clusterWriter struct {
	*writer
	load *clusterLoad
	at   int // of the member that it asks
}

const (
	writerPause = 3 * time.Millisecond  // between two writes: the machine is shared by all nodes
	retryPause  = 20 * time.Millisecond // a failure may pass by itself
)

func (w *clusterWriter) run(ctx context.Context) {
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
		if pause(ctx, writerPause) != nil {
			return
		}
	}
}

// maxHops bounds how often one attempt is redirected.
const maxHops = 3

// try sends a write once, and reports whether its outcome is certain.
func (w *clusterWriter) try(ctx context.Context, one *write) (certain bool) {
	for range maxHops {
		m := w.load.members[w.at]
		ctx, cancel := context.WithTimeout(ctx, w.load.patience)
		answer, err := m.Append(ctx, one.stream, one.expected, one.single, one.events...)
		cancel()
		switch {
		case err != nil:
			w.load.note("no answer")
			if len(one.answers) < 10 {
				one.answers = append(one.answers, err.Error())
			}
			w.at = (w.at + 1) % len(w.load.members)
			return false
		case answer.Status == http.StatusTemporaryRedirect:
			w.load.note("307")
			if !w.follow(answer) {
				w.load.ledger.complain("%s: redirected to %q", one, answer.Header.Get("Location"))
			}
			continue
		}
		w.load.note(kind(answer))
		if w.judge(one, answer) {
			return true
		}
		w.at = (w.at + 1) % len(w.load.members)
		return false
	}
	return false
}

// kind is how an answer is counted.
func kind(answer testkit.Response) string {
	if answer.Status >= 500 {
		return fmt.Sprintf("%d %s", answer.Status, answer.Reason)
	}
	return fmt.Sprint(answer.Status)
}

// follow goes where a redirect leads.
func (w *clusterWriter) follow(answer testkit.Response) bool {
	to, err := url.Parse(answer.Header.Get("Location"))
	if err != nil {
		return false
	}
	at := slices.IndexFunc(w.load.members, func(m *member) bool { return m.Host() == to.Host })
	if at < 0 {
		return false
	}
	w.at = at
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

// acknowledgedOnce demands that all nodes hold the same events, among them every acknowledged write
// of the load, once, at the place that the answer named.
func (c *cluster) acknowledgedOnce(l *ledger) {
	c.t.Helper()
	if err := l.check(c.identical()); err != nil {
		c.t.Fatal(err)
	}
}
