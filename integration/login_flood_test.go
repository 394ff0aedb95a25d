package integration_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/testkit"
)

// The flood: so many guesses a second, each of another password, whatever becomes
// of those before, as far as so many connections carry them.
const (
	floodRate        = 200
	floodLeast       = 600 // guesses
	floodConnections = 128
)

// leastWrites is what writers bring about during the flood on the slowest machine. On a quiet one
// of two processors they keep more than half of their rate, which is thousands a second.
const leastWrites = 100

// TestLongLoginFlood: a client that guesses passwords gets nothing but refusals, and does not keep
// others from working.
func TestLongLoginFlood(t *testing.T) {
	// With the tag invariants a guess costs next to nothing.
	t.Setenv("ANNALS_TEST_PASSWORD_COST", "real")
	node := testkit.StartNode(t, t.TempDir(), "--mem-db") // Of a disk others decide how fast it is.
	calm, end := observe(t, node)
	time.AfterFunc(time.Second, end)
	calm.wait()

	flooded, end := observe(t, node)
	guesses := startFlood(t, node)
	within(t, settleLimit, "a second of the flood", guesses.sent(floodRate))
	// A user who has not logged in yet.
	begun, refusals := time.Now(), 0
	testkit.Eventually(t, settleLimit, func() error {
		answer, err := node.Do(t.Context(), testkit.Request{Path: "/info", User: "ops", Password: "changeit"})
		if err == nil && answer.Status == http.StatusOK {
			return nil
		}
		refusals++
		if err == nil && answer.Status != http.StatusServiceUnavailable {
			t.Errorf("the right password was answered with %s", answer)
		}
		return fmt.Errorf("%s, %v", answer, err)
	})
	took := time.Since(begun)
	within(t, settleLimit, "the flood", guesses.sent(floodLeast-floodRate))
	guesses.finish()
	end()
	flooded.wait()

	t.Logf("guesses: %s; %d found no connection", guesses.told(), guesses.unsent.Load())
	t.Logf("a user not remembered was let in after %s, %d refusals", took.Round(time.Millisecond), refusals)
	t.Logf("without the flood: %s", calm)
	t.Logf("with it:           %s", flooded)
	for status := range guesses.counts() {
		if status != http.StatusUnauthorized && status != http.StatusServiceUnavailable {
			t.Errorf("guesses were answered with %d", status)
		}
	}
	if guesses.counts()[http.StatusUnauthorized] == 0 {
		t.Error("no guess was checked")
	}
	for _, o := range []*observed{calm, flooded} {
		if only(o.callers.counts(), http.StatusOK) == 0 {
			t.Errorf("callers who are remembered were answered %s", o.callers.told())
		}
		if only(o.writers.counts(), http.StatusCreated) == 0 {
			t.Errorf("writers were answered %s", o.writers.told())
		}
	}
	t.Logf("writers kept %.0f %% of their rate", 100*flooded.writers.rate()/calm.writers.rate())
	if n := flooded.writers.counts()[http.StatusCreated]; n < leastWrites {
		t.Errorf("%d writes in all that time", n)
	}
	node.Stop()
}

// only is how many answers there were, if all of them had that status.
func only(counts map[int]int, status int) int {
	if len(counts) != 1 {
		return 0
	}
	return counts[status]
}

// answers counts what clients of a kind were answered.
type answers struct {
	begun time.Time
	owned sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	status map[int]int
	worst  time.Duration
	ended  time.Time
}

func newAnswers() *answers { return &answers{begun: time.Now(), status: map[int]int{}} }

// note counts an answer to a request that was sent at a moment; a failure is one of status 0.
func (a *answers) note(sent time.Time, answer testkit.Response, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	status := answer.Status
	if err != nil {
		status = 0
	}
	a.status[status]++
	a.ended = time.Now()
	a.worst = max(a.worst, a.ended.Sub(sent))
}

func (a *answers) counts() map[int]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.status)
}

func (a *answers) rate() float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	total := 0
	for _, n := range a.status {
		total += n
	}
	return float64(total) / a.ended.Sub(a.begun).Seconds()
}

func (a *answers) told() string {
	rate, counts := a.rate(), a.counts()
	var parts []string
	for _, status := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d: %d", status, counts[status]))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprintf("%s (%.0f a second, the worst took %s)", strings.Join(parts, ", "), rate, a.worst.Round(time.Millisecond))
}

// observed are clients that work during the flood: some log in with credentials that the node
// remembers, and some write.
type observed struct{ callers, writers *answers }

func (o *observed) wait() {
	o.callers.owned.Wait()
	o.writers.owned.Wait()
}

func (o *observed) String() string {
	return "callers " + o.callers.told() + "; writers " + o.writers.told()
}

// observe has them work until end is called.
func observe(t *testing.T, node *testkit.Process) (o *observed, end func()) {
	t.Helper()
	login := testkit.Request{Path: "/admin/login", Admin: true}
	must(t, node, login, http.StatusOK)
	ctx, end := context.WithCancel(t.Context())
	o = &observed{newAnswers(), newAnswers()}
	work := func(a *answers, r func() testkit.Request) {
		a.owned.Go(func() {
			for ctx.Err() == nil {
				begun := time.Now()
				answer, err := node.Do(t.Context(), r())
				a.note(begun, answer, err)
			}
		})
	}
	work(o.callers, func() testkit.Request { return login })
	var number atomic.Int64
	write := appendOf("flooded", "")
	for range 2 {
		work(o.writers, func() testkit.Request {
			r := write
			r.Header = maps.Clone(write.Header)
			return withID(r, int(time.Now().UnixNano()/1000%1_000_000_000)*1000+int(number.Add(1)%1000))
		})
	}
	return o, end
}

// flood is a client that guesses the administrator's password.
type flood struct {
	*answers
	unsent  atomic.Int64 // as there was no connection
	tried   chan struct{}
	guesser sync.WaitGroup
	abandon context.CancelFunc
}

func startFlood(t *testing.T, node *testkit.Process) *flood {
	f := &flood{answers: newAnswers(), tried: make(chan struct{}, floodLeast)}
	var ctx context.Context
	ctx, f.abandon = context.WithCancel(t.Context())
	free := make(chan struct{}, floodConnections)
	f.guesser.Go(func() {
		next := time.NewTicker(time.Second / floodRate)
		defer next.Stop()
		for n := 0; ; n++ {
			select {
			case <-next.C:
			case <-ctx.Done():
				return
			}
			select {
			case f.tried <- struct{}{}:
			default: // The answers are not counted any more.
			}
			select {
			case free <- struct{}{}:
			default:
				f.unsent.Add(1)
				continue
			}
			f.owned.Go(func() {
				defer func() { <-free }()
				begun := time.Now()
				answer, err := node.Do(ctx, testkit.Request{Path: "/info", User: "admin", Password: fmt.Sprintf("guess %d", n)})
				if ctx.Err() == nil || err == nil {
					f.note(begun, answer, err)
				}
			})
		}
	})
	return f
}

// finish ends the flood. Guesses that still wait for an answer give up.
func (f *flood) finish() {
	f.abandon()
	f.guesser.Wait()
	f.owned.Wait()
}

// sent closes when so many more guesses have been made.
func (f *flood) sent(n int) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range n {
			<-f.tried
		}
	}()
	return done
}
