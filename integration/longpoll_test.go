package integration_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// longPoll is a request that waits for an event.
type longPoll struct {
	done chan pollAnswer
}

type pollAnswer struct {
	status int
	feed   string
	at     time.Time
	err    error
}

func startLongPoll(t *testing.T, node *testkit.Process, stream string, seconds int) *longPoll {
	t.Helper()
	return startLongPollAt(t, node, stream, 0, seconds)
}

// startLongPollAt returns when the request is on its way and the node has
// answered another one since.
func startLongPollAt(t *testing.T, node *testkit.Process, stream string, from int64, seconds int) *longPoll {
	t.Helper()
	p := &longPoll{done: make(chan pollAnswer, 1)}
	sent := make(chan struct{})
	// It is written again when the node closes the idle connection that was chosen first.
	written := sync.OnceFunc(func() { close(sent) })
	trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { written() }}
	ctx := httptrace.WithClientTrace(t.Context(), trace)
	go func() {
		answer, err := node.Do(ctx, testkit.Request{
			Path:   fmt.Sprintf("/streams/%s/%d/forward/20?embed=body", stream, from),
			Header: map[string]string{"Accept": testkit.MediaAtomJSON, testkit.HeaderLongPoll: strconv.Itoa(seconds)},
		})
		p.done <- pollAnswer{status: answer.Status, feed: string(answer.Body), at: time.Now(), err: err}
	}()
	within(t, settleLimit, "sending a long poll", sent)
	must(t, node, testkit.Request{Path: "/ping"}, http.StatusOK)
	return p
}

func (p *longPoll) answer(t *testing.T, limit time.Duration) pollAnswer {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case a := <-p.done:
		return a
	case <-timer.C:
		t.Fatalf("no answer to a long poll within %s", limit)
		return pollAnswer{}
	}
}

// mustAppend appends so many events to a stream, each with its own data.
func mustAppend(t *testing.T, node *testkit.Process, stream string, expected int64, count int) []testkit.Event {
	t.Helper()
	rng := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	events := make([]testkit.Event, count)
	for i := range events {
		events[i] = newEvent(rng)
	}
	answer, err := node.Append(t.Context(), stream, expected, false, events...)
	if err != nil || answer.Status != http.StatusCreated {
		t.Fatalf("append to %s: %s, %v", stream, answer, err)
	}
	return events
}

// TestPoll: every append answers all that wait for it. How quickly, annals bench visible
// measures.
func TestPoll(t *testing.T) {
	t.Parallel()
	node := testkit.StartNode(t, t.TempDir())
	const rounds, waiting = 20, 5
	for round := range rounds {
		var polls []*longPoll
		for range waiting {
			polls = append(polls, startLongPollAt(t, node, "polled", int64(round), 300))
		}
		event := mustAppend(t, node, "polled", int64(round)-1, 1)[0]
		for _, poll := range polls {
			a := poll.answer(t, settleLimit)
			if a.err != nil || a.status != http.StatusOK || !strings.Contains(a.feed, event.ID) {
				t.Fatalf("a long poll got %d %v without the event %s: %.300s", a.status, a.err, event.ID, a.feed)
			}
		}
	}
	node.Stop()
}

// TestLongPollDisconnect: a client that leaves while it waits takes its connection with it.
func TestLongPollDisconnect(t *testing.T) {
	t.Parallel()
	node := testkit.StartNode(t, t.TempDir())
	if _, err := sockets(node); err != nil {
		t.Skipf("open sockets of a process cannot be counted here: %v", err)
	}
	mustAppend(t, node, "left", -1, 1)
	before := check.Value(sockets(node)).Must(t)
	const clients = 200
	var conns []net.Conn
	var dialer net.Dialer
	for range clients {
		ctx, cancel := context.WithTimeout(t.Context(), settleLimit)
		conn, err := dialer.DialContext(ctx, "tcp", node.Host())
		cancel()
		check.Must(t, err)
		conns = append(conns, conn)
		check.Must(t, check.Err(fmt.Fprintf(conn, "GET /streams/left/1/forward/20 HTTP/1.1\r\nHost: %s\r\n%s: 300\r\n\r\n", node.Host(), testkit.HeaderLongPoll)))
	}
	count := func(want func(int) bool) func() error {
		return func() error {
			n, err := sockets(node)
			if err == nil && !want(n) {
				err = fmt.Errorf("the node has %d sockets, before it had %d", n, before)
			}
			return err
		}
	}
	testkit.Eventually(t, settleLimit, count(func(n int) bool { return n >= before+clients }))
	for _, conn := range conns {
		check.NoError(t, conn.Close())
	}
	testkit.Eventually(t, settleLimit, count(func(n int) bool { return n <= before }))
	node.Stop()
}

// sockets counts the open sockets of a process.
func sockets(p *testkit.Process) (int, error) {
	folder := fmt.Sprintf("/proc/%d/fd", p.PID())
	files, err := os.ReadDir(folder)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, f := range files {
		if target, err := os.Readlink(folder + "/" + f.Name()); err == nil && strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n, nil
}
