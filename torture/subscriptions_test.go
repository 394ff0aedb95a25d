package torture

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/clock"
)

// TestGroups lets all clients of groups work against a server that keeps its promises, and
// against some that break one of them: each must be noticed, and nothing else be claimed.
func TestGroups(t *testing.T) {
	cases := []struct {
		promise string
		want    string   // is found
		may     []string // follows from it, if chance will have it
	}{
		{breakNothing, "", nil},
		// What is passed over without an answer is also covered by a checkpoint.
		{breakSkip, kindSkipped, []string{kindAhead}},
		// Some of these were in an answer that was given up, so no consumer knows of a delivery.
		{breakForget, kindForgotten, []string{kindSkipped, kindAhead, kindPassed}},
		{breakPark, kindForgotten, []string{kindSkipped, kindAhead}},
		// After a restart nothing comes again.
		{breakAhead, kindAhead, []string{kindForgotten, kindSkipped}},
		{breakEnd, kindAhead, nil},
		{breakList, kindAnswer, nil},
		{breakTwice, kindTwice, []string{kindPassed, kindEarly}},
		{breakPhantom, kindPhantom, nil},
		{breakTitle, kindMessage, nil},
		{breakRetries, kindRetries, nil},
		{breakStuck, kindDrain, nil},
		{breakDelay, kindEarly, []string{kindTwice, kindPassed}},
		{breakOrder, kindPassed, nil},
		{breakPause, kindPaused, nil},
		{breakReset, kindUnmoved, nil},
		{breakForward, kindForwarded, nil},
	}
	for _, c := range cases {
		t.Run(c.promise, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, f := runGroups(t, c.promise)
				list, counts := s.find.list()
				for _, v := range list {
					if v.Kind != c.want && !slices.Contains(c.may, v.Kind) {
						t.Errorf("%s: %s", v.Kind, v.Text)
					}
				}
				if c.want != "" && counts[c.want] == 0 {
					t.Errorf("%q was not found: %v", c.want, counts)
				}
				if c.promise == breakNothing && (f["events"] == 0 || f["deliveries"] < f["events"] || f["duplicates"] == 0 ||
					f["leftUnanswered"] == 0 || f["parked"] == 0 || f["checkpoints"] == 0 || f[actUpdate+" "+done.String()] == 0 ||
					f[actPause+" "+done.String()] == 0 || f["delays"] == 0 ||
					f["movedBack"] == 0 || f["forwarded"] == 0) {
					t.Errorf("the run is too poor to say anything: %v", f)
				}
				for _, v := range list {
					if v.Kind != kindDrain && v.Kind != kindPhantom && !strings.Contains(v.Text, "history of ") && c.promise != breakEnd && c.promise != breakList && c.promise != breakForward {
						t.Errorf("no history: %s", v.Text)
					}
				}
			})
		})
	}
}

// runGroups runs the workload for a short time and checks it.
func runGroups(t *testing.T, promise string) (*scene, map[string]int64) {
	t.Helper()
	s := newScene(t)
	s.hist = newHistory(s.book.find.start, 1_000_000)
	links := s.hist.journal()
	s.ids = identity{tag: 0xfeed, linker: links.client, prefix: scenePrefix}
	s.book = newBook(s.ids, s.find, scenePrefix, 0)
	fake := newFakeGroups(t, promise)
	nodes := &targets{}
	nodes.set([]Target{{Name: nodeName(0), Base: "http://leader", Index: 0}, {Name: nodeName(1), Base: "http://follower", Index: 1}})
	l := newLoad(1, newHTTP(newFakeWire(fake.handler())), s.hist, s.book, nodes)
	subs := newSubscriptions(l, tormentedGroups(scenePrefix))
	check.Must(t, subs.create(t.Context()))
	var working sync.WaitGroup
	subs.begin(8, links)
	for _, run := range l.work {
		working.Go(func() { run(t.Context()) })
	}
	_ = clock.Sleep(t.Context(), 30*time.Second)
	close(l.stop)
	working.Wait()
	drained := subs.drain(context.WithoutCancel(t.Context()))
	check.Equal(t, drained, promise != breakStuck, "drained")
	s.book.logForward(place{node: "node 0", at: l.hist.now()}, 0, fake.log, int64(len(fake.log))*eventSize, true)
	ledger := newLedger(s.hist, s.book)
	ledger.check()
	checkGroups(ledger, subs, func(int64, int64) bool { return true })
	return s, l.count.of(ofSubscriptions)
}

// TestIsStuck: a group that may have finished is not judged before it has said so.
func TestIsStuck(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name            string
		drained, silent time.Duration
		want            bool
	}{
		{"all in time", 10 * s, 9 * s, false},
		{"messages come late", 27 * s, 5200 * time.Millisecond, false},
		{"nothing comes", 27 * s, 12 * s, true},
		{"messages come for ever", 61 * s, s, true},
	} {
		check.Equal(t, isStuck(c.drained, c.silent, 5500*time.Millisecond, groupsDrain), c.want, c.name)
	}
}

// TestDate: an event of the log was there before later ones were acknowledged.
func TestDate(t *testing.T) {
	s := newScene(t)
	j := s.client()
	x := s.wrote(j, "a", anyVersion, 0, 10, 20)
	y := s.wrote(j, "a", anyVersion, 1, 30, 40)
	server := entry{ID: "server", Type: "checkpoint", Stream: "other", Time: then}
	s.book.logForward(place{node: "node 0", at: 100}, 0, []entry{s.shown(x, "a", 0), server, s.shown(y, "a", 1)}, 3*eventSize, true)
	server.Number = 1
	s.book.logForward(place{node: "node 0", at: 200}, 3, []entry{server}, 4*eventSize, true)
	c := groupCheck{ledger: newLedger(s.hist, s.book)}
	c.date()
	check.Slice(t, c.dated, []int64{20, 40, 40, 200})
}
