package grpcapi_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	grpcapi "github.com/annalsdb/annals/grpc"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

func TestSubscriptionToStream(t *testing.T) {
	conn, c := ownNode(t)
	r := open(t, conn, "", read(ofStream("sub", start), subscribed))
	r.expect("confirmed", "caught-up")
	write(t, c, "sub", "t", "1", "2")
	r.expect("sub/0", "sub/1")
	fromEnd := open(t, conn, "", read(ofStream("sub", end), subscribed))
	fromEnd.expect("confirmed", "caught-up")
	after := open(t, conn, "", read(ofStream("sub", 0), subscribed))
	after.expect("confirmed", "sub/1", "caught-up:1")
	beyond := open(t, conn, "", read(ofStream("sub", 3), subscribed))
	beyond.expect("confirmed", "caught-up")
	far := open(t, conn, "", read(ofStream("sub", 1<<63-2), subscribed))
	far.expect("confirmed", "caught-up")

	remove(t, c, "sub", false)
	deleted := open(t, conn, "", read(ofStream("sub", start), subscribed))
	deleted.expect("confirmed", "caught-up")
	write(t, c, "sub", "t", "3", "4", "5")
	for _, r := range []*reader{r, fromEnd, after, deleted} {
		r.expect("sub/2", "sub/3", "sub/4")
	}
	beyond.expect("sub/4")
	open(t, conn, "", read(ofStream("sub", start), subscribed, positions)).expect("confirmed", "sub/2", "sub/3", "sub/4", "caught-up:4")
	describe(t, c, "sub", `{"$tb":4}`)
	open(t, conn, "", read(ofStream("sub", start), subscribed)).expect("confirmed", "sub/4", "caught-up:4")
	describe(t, c, "sub", `{"$tb":5}`)
	open(t, conn, "", read(ofStream("sub", start), subscribed)).expect("confirmed", "caught-up:4")

	remove(t, c, "sub", true)
	gone := ended{codes.FailedPrecondition, "Event stream 'sub' is deleted.", "exception=stream-deleted;stream-name=sub;"}
	for _, r := range []*reader{r, fromEnd, after, beyond, far, deleted} {
		rest, e := r.end()
		if check.Equal(t, e, gone, "end"); len(rest) != 1 || short(rest[0]) != "sub/9223372036854775807" ||
			rest[0].GetEvent().GetEvent().Metadata["type"] != "$streamDeleted" {
			t.Errorf("at the deletion: %v", rest)
		}
	}
	rest, e := open(t, conn, "", read(ofStream("sub", start), subscribed)).end()
	if check.Equal(t, e, gone, "end"); len(rest) > 0 {
		t.Errorf("of what is deleted: %v", rest)
	}
}

// A stream may be truncated further than it goes: reads and subscriptions end at its end, and what
// comes when it is no longer truncated is not passed over.
func TestSubscriptionTruncatedBeyondTheEnd(t *testing.T) {
	conn, c := ownNode(t)
	write(t, c, "cut", "t", numbered(5)...)
	describe(t, c, "cut", `{"$tb":100}`)
	r := open(t, conn, "", read(ofStream("cut", start), subscribed))
	r.expect("confirmed", "caught-up:4")
	describe(t, c, "cut", `{}`)
	write(t, c, "cut", "t", numbered(2)...)
	r.expect("cut/5", "cut/6")
	describe(t, c, "cut", `{"$tb":4611686018427387904}`)
	open(t, conn, "", read(ofStream("cut", start), subscribed)).expect("confirmed", "caught-up:6")
	check.Equal(t, whole(t, conn, "", read(ofStream("cut", start), positions)), "last:6", "read")
	check.Equal(t, whole(t, conn, "", read(ofStream("cut", 3))), "", "read from 3")
	check.Equal(t, whole(t, conn, "", read(ofStream("cut", end), backward)), "", "read backward")
}

// The metadata of a stream go with it. They have no tombstone of their own.
func TestSubscriptionToMetadata(t *testing.T) {
	conn, c := ownNode(t)
	write(t, c, "meta", "t", "1")
	r := open(t, conn, "admin", read(ofStream("$$meta", start), subscribed))
	r.expect("confirmed", "caught-up")
	describe(t, c, "meta", `{"a":1}`)
	r.expect("$$meta/0")
	remove(t, c, "meta", true)
	rest, e := r.end()
	if e.code != codes.FailedPrecondition || len(rest) > 0 {
		t.Errorf("%v, %+v", rest, e)
	}
}

func TestSubscriptionToAll(t *testing.T) {
	conn, c := ownNode(t)
	write(t, c, "suball-a", "t", "1")
	names := window(byStream("", "suball-"), 1000, 1000)
	fromEnd := open(t, conn, "admin", read(ofAll(end), subscribed, names))
	fromEnd.arrive()
	beyond := open(t, conn, "admin", read(ofAll(1<<50), subscribed))
	beyond.expect("confirmed", "caught-up")
	writeBytes(t, c, "suball-l", "$>", []byte("0@suball-a"))
	write(t, c, "suball-a", "t", "2")
	fromEnd.expect("suball-l/0", "suball-a/1")
	_, at := readAll(t, conn, read(ofAll(start), names))
	resolving := open(t, conn, "admin", read(ofAll(at[0]), subscribed, resolved, names))
	resolving.expect("confirmed", "suball-a/0<-suball-l/0", "suball-a/1")
	if m := resolving.next(); m.GetCheckpoint().GetCommitPosition() < uint64(at[2]) {
		t.Errorf("before it has caught up: %v", m)
	}
	if m := resolving.next(); m.GetCaughtUp().GetPosition().GetCommitPosition() < uint64(at[2]) {
		t.Errorf("caught up: %v", m)
	}
}

// What a subscription sends until it has caught up: the events, where they and checkpoints lie, and
// how many records lie between checkpoints.
func caughtUp(t testing.TB, conn *grpc.ClientConn, req *streams.ReadReq) (events []string, at, checkpoints []int64) {
	t.Helper()
	r := open(t, conn, "admin", req)
	defer r.leave()
	r.expect("confirmed")
	highest := int64(-1)
	for {
		m := r.next()
		if m.GetCaughtUp() != nil {
			return events, at, checkpoints
		}
		p, ok := positionOf(m)
		switch isCheckpoint := m.GetCheckpoint() != nil; {
		case !ok || p < highest || p == highest && (!isCheckpoint || slices.Contains(checkpoints, p)):
			t.Fatalf("%v behind position %d", m, highest)
		case isCheckpoint:
			checkpoints = append(checkpoints, p)
		case short(m)[0] != '$':
			events, at = append(events, short(m)), append(at, p)
		}
		highest = p
	}
}

// From every position of the log, filtered and not, a subscription sends the events after it. It
// may be resumed at every checkpoint and every event: nothing is lost, nothing sent twice.
func TestSubscriptionResumed(t *testing.T) {
	conn, c := ownNode(t)
	for i := range 7 {
		write(t, c, "resume-"+string(rune('a'+i%3)), "t", numbered(1+i%3)...)
	}
	remove(t, c, "resume-b", true)
	all, every := readAll(t, conn, read(ofAll(start)))
	behind := func(events []string, at []int64, p int64) []string {
		for i, a := range at {
			if a > p {
				return events[i:]
			}
		}
		return nil
	}
	for _, p := range every {
		if got, _, none := caughtUp(t, conn, read(ofAll(p), subscribed)); !slices.Equal(got, behind(all, every, p)) || none != nil {
			t.Errorf("from %d: %v, checkpoints %v", p, got, none)
		}
	}
	for _, filter := range []*streams.ReadReq_Options_FilterOptions{byStream("", "resume-a", "resume-b"), byStream("^resume-c"), byType("^nothing$")} {
		for _, interval := range []uint32{1, 2, 3, 7, 1000} {
			by := window(filter, interval, 1)
			events, at, checkpoints := caughtUp(t, conn, read(ofAll(start), subscribed, by))
			for _, p := range slices.Concat(every, at, checkpoints) {
				if got, _, _ := caughtUp(t, conn, read(ofAll(p), subscribed, by)); !slices.Equal(got, behind(events, at, p)) {
					t.Errorf("%v each %d from %d: %v, want %v", filter, interval, p, got, behind(events, at, p))
				}
			}
		}
	}
	// A filter that takes everything shows where checkpoints must be.
	everything, where, _ := readRaw(t, conn, read(ofAll(start), count(40)))
	_, _, checkpoints := caughtUp(t, conn, read(ofAll(start), subscribed, window(byStream("."), 5, 2)))
	for i := 1; 10*i <= len(everything); i++ {
		check.Equal(t, checkpoints[i-1], where[10*i-1], "checkpoint")
	}
}

// readRaw reads all events there are, the node's own as well.
func readRaw(t testing.TB, conn *grpc.ClientConn, req *streams.ReadReq) (events []string, at []int64, e ended) {
	t.Helper()
	rest, e := open(t, conn, "admin", req).end()
	for _, m := range rest {
		p, _ := positionOf(m)
		events, at = append(events, short(m)), append(at, p)
	}
	return events, at, e
}

// Live, the records are counted on from what was there, and a checkpoint comes with the record that
// completes the interval.
func TestSubscriptionCheckpointsLive(t *testing.T) {
	conn, c := ownNode(t)
	r := open(t, conn, "admin", read(ofAll(end), subscribed, window(byStream("", "live-a"), 2, 2)))
	r.arrive()
	write(t, c, "live-b", "t", numbered(3)...)
	write(t, c, "live-a", "t", numbered(3)...)
	var got []string
	for len(got) < 4 {
		m := r.next()
		if m.GetCheckpoint() != nil {
			got = append(got, "checkpoint")
			continue
		}
		got = append(got, short(m))
	}
	// The node may write something of its own in between.
	if i := slices.Index(got, "checkpoint"); i < 0 || !slices.Equal(slices.Delete(slices.Clone(got), i, i+1), []string{"live-a/0", "live-a/1", "live-a/2"}) {
		t.Errorf("%v", got)
	}
}

// Subscriptions that begin before, during and after thousands of events are appended send each
// once, in order.
func TestSubscriptionWhileAppending(t *testing.T) {
	const writers, batch = 4, 25
	batches := testkit.Fewer(20, 100)
	conn, c := ownNode(t)
	var readers sync.WaitGroup
	begin := func(name string, n int, set ...option) {
		readers.Go(func() {
			r := open(t, conn, "admin", read(append(set, subscribed)...))
			defer r.leave()
			next, times, confirmed := make(map[string]uint64), 0, 0
			for left := n; left > 0 || times == 0; {
				m, err := r.stream.Recv()
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				switch {
				case m.GetCaughtUp() != nil:
					times++
				case m.GetConfirmation() != nil:
					confirmed++
				case m.GetEvent() != nil:
					e := m.GetEvent().GetEvent()
					stream := string(e.StreamIdentifier.StreamName)
					if !strings.HasPrefix(stream, "busy-") {
						continue
					}
					if e.StreamRevision != next[stream] {
						t.Errorf("%s: %s/%d, expected %d", name, stream, e.StreamRevision, next[stream])
						return
					}
					next[stream]++
					left--
				}
			}
			if times != 1 || confirmed != 1 {
				t.Errorf("%s: caught up %d times, confirmed %d times", name, times, confirmed)
			}
		})
	}
	kinds := func(when string) {
		all := writers * batches * batch
		begin(when+", stream", all/writers, ofStream("busy-0", start))
		begin(when+", log", all, ofAll(start))
		begin(when+", filtered", all, ofAll(start), window(byStream("", "busy-"), 32, 1))
	}
	kinds("before")
	var appending sync.WaitGroup
	reached := make(chan int, batches)
	for w := range writers {
		appending.Go(func() {
			for i := range batches {
				write(t, c, fmt.Sprintf("busy-%d", w), "t", numbered(batch)...)
				if w == 0 && i%30 == 10 {
					reached <- i
				}
			}
			if w == 0 {
				close(reached)
			}
		})
	}
	for at := range reached {
		kinds(fmt.Sprint("during, ", at))
	}
	appending.Wait()
	kinds("after")
	readers.Wait()
}

// A client that takes nothing for a while costs little, and loses nothing.
func TestSubscriptionSlowClient(t *testing.T) {
	conn, c := ownNode(t)
	write(t, c, "slow", "t", numbered(100)...)
	r := open(t, conn, "", read(ofStream("slow", start), subscribed))
	r.expect("confirmed")
	text := fmt.Sprintf("%q", strings.Repeat("x", 20_000))
	for range 40 {
		write(t, c, "slow", "t", slices.Repeat([]string{text}, 25)...)
	}
	for i := range uint64(1100) {
		m := r.next()
		if m.GetCaughtUp() != nil {
			m = r.next()
		}
		check.Equal(t, short(m), fmt.Sprintf("slow/%d", i), "event")
	}
}

// Subscriptions at rest are many on a connection, and each ends without a trace.
func TestSubscriptionsAtRest(t *testing.T) {
	conn, c := ownNode(t)
	before := runtime.NumGoroutine()
	all := make([]*reader, 500)
	for i := range all {
		all[i] = open(t, conn, "", read(ofStream("rest", end), subscribed))
	}
	for _, r := range all {
		r.expect("confirmed", "caught-up")
	}
	write(t, c, "rest", "t", "1")
	for _, r := range all {
		r.expect("rest/0")
	}
	for _, r := range all {
		r.leave()
	}
	testkit.Eventually(t, time.Minute, func() error {
		if n := runtime.NumGoroutine(); n > before+grpcapi.RestingWorkers+20 {
			return fmt.Errorf("%d goroutines, %d before", n, before)
		}
		return nil
	})
}
