package integration_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/testkit"
)

// outlives breaks something under load, checks that writes continue, and makes all whole again with
// the function that broken returns. How long they stopped is only logged: annals torture measures
// it.
func (l *clusterLoad) outlives(t *testing.T, what string, broken func() (heal func())) {
	t.Helper()
	l.more(t, 50)
	begun := time.Now()
	heal := broken()
	l.more(t, 100)
	t.Logf("%s: no write for %s", what, l.gap(begun).Round(time.Millisecond))
	heal()
}

// TestClusterKill kills nodes under load: writes stop for a moment only, and
// what was acknowledged is on every node, once.
func TestClusterKill(t *testing.T) { killMembers(t, 3, 1) }

// TestLongClusterKill kills two nodes of five.
func TestLongClusterKill(t *testing.T) { killMembers(t, 5, 2) }

func killMembers(t *testing.T, size, killed int) {
	t.Helper()
	base := seed(t)
	c := startCluster(t, clusterOptions{size: size})
	followed := c.startTails(8)
	l := c.startLoad(base, 8, loadPatience)
	restart := func() {
		for _, m := range c.members {
			if m.process == nil {
				m.start()
			}
		}
		c.settled()
	}
	l.outlives(t, fmt.Sprintf("leader and %d followers killed", killed-1), func() func() {
		leader, followers := c.settled()
		leader.kill()
		for _, m := range followers[:killed-1] {
			m.kill()
		}
		return restart
	})
	l.outlives(t, fmt.Sprintf("%d followers killed", killed), func() func() {
		_, followers := c.settled()
		for _, m := range followers[:killed] {
			m.kill()
		}
		return restart
	})
	l.finish(t)
	t.Logf("answers: %s", l.told())
	c.acknowledgedOnce(l.ledger)
	followed.have(t, c.identical().places)
	c.finish()
}

// probeStream is written by one writer; its head is what readings are compared with.
const probeStream = "probe"

// probe writes one event after the other to those nodes until the context ends.
// newest is the number of the last one that was acknowledged.
func (c *cluster) probe(ctx context.Context, l *ledger, among []*member, newest *atomic.Int64) {
	at := 0
	for n := 0; ctx.Err() == nil; n++ {
		event := bigEvent(1_000_000 + int(newest.Load()) + 1)
		w := &write{stream: probeStream, expected: -2, events: []testkit.Event{event}}
		l.begin(w)
		for ctx.Err() == nil {
			m := among[at%len(among)]
			short, cancel := context.WithTimeout(context.WithoutCancel(ctx), 500*time.Millisecond)
			answer, err := m.Append(short, probeStream, -2, false, event)
			cancel()
			if err == nil && answer.Status == http.StatusCreated {
				if number, err := answer.FirstNumber(probeStream); err == nil {
					l.ack(w, number)
					newest.Store(number)
					break
				}
			}
			at++
			if pause(ctx, 5*time.Millisecond) != nil {
				return
			}
		}
	}
}

// watch reads the head of the probe from a node that may have lost its leadership
// and writes to it, until the context ends. What it answers as the leader must hold all that
// was acknowledged before the question; and it must acknowledge nothing.
func (c *cluster) watch(ctx context.Context, t *testing.T, old *member, newest *atomic.Int64) (answered map[string]int) {
	answered = map[string]int{}
	for n := 0; ctx.Err() == nil; n++ {
		known := newest.Load()
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		feed, ok, err := old.ReadFeed(short, "/streams/"+probeStream+"/head/backward/1", map[string]string{testkit.HeaderRequireLeader: "True"})
		cancel()
		switch {
		case err != nil:
			answered["reading refused or lost"]++
		case !ok || len(feed.Entries) != 1 || feed.Entries[0].Number < known:
			t.Errorf("%s answered a reading of the leader with %+v, %d was acknowledged before", old, feed.Entries, known)
		default:
			answered["reading answered"]++
		}
		event := bigEvent(2_000_000 + n)
		short, cancel = context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		answer, err := old.Append(short, "at-the-old-leader", -2, false, event)
		cancel()
		switch {
		case err != nil:
			answered["write lost"]++
		case answer.Status == http.StatusCreated:
			t.Errorf("%s acknowledged a write while it was cut off", old)
		default:
			answered[fmt.Sprintf("write %d", answer.Status)]++
		}
	}
	return answered
}

// TestClusterLeaderIsolated cuts the leader off from the others, in both
// directions and in one; clients reach it all the time. It never acknowledges a write
// that the others do not have, and never answers with what is out of date.
func TestClusterLeaderIsolated(t *testing.T) { isolateLeader(t, cutOff{"both ways", true, true}) }

// TestLongClusterLeaderIsolated cuts it off in one direction only.
func TestLongClusterLeaderIsolated(t *testing.T) {
	isolateLeader(t, cutOff{"it is not heard", false, true}, cutOff{"it hears no one", true, false})
}

// cutOff says which way the leader is cut off from the others.
type cutOff struct {
	name    string
	in, out bool
}

func isolateLeader(t *testing.T, ways ...cutOff) {
	t.Helper()
	base := seed(t)
	c := startCluster(t, clusterOptions{links: true})
	l := c.startLoad(base, 6, hastyPatience)
	for _, v := range ways {
		l.outlives(t, "leader cut off, "+v.name, func() func() {
			leader, followers := c.settled()
			var newest atomic.Int64
			var work sync.WaitGroup
			first := make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			leader.append(probeStream, bigEvent(1_000_000+c.filled))
			feed, ok, err := leader.ReadFeed(ctx, "/streams/"+probeStream+"/head/backward/1", nil)
			if err != nil || !ok {
				t.Fatal(err)
			}
			newest.Store(feed.Entries[0].Number)
			for _, m := range followers {
				if v.out {
					if err := c.lab.Link(leader.host, m.host).Cut(); err != nil {
						t.Fatal(err)
					}
				}
				if v.in {
					if err := c.lab.Link(m.host, leader.host).Cut(); err != nil {
						t.Fatal(err)
					}
				}
			}
			close(first)
			work.Go(func() { c.probe(ctx, l.ledger, followers, &newest) })
			work.Go(func() { t.Logf("the old leader's answers: %v", c.watch(ctx, t, leader, &newest)) })
			return func() {
				c.leader(followers...)
				at := newest.Load()
				testkit.Eventually(t, settleLimit, func() error {
					if now := newest.Load(); now < at+20 {
						return fmt.Errorf("the probe stands at %d, it was at %d", now, at)
					}
					if state, err := leader.state(); err != nil || state == "leader" {
						return fmt.Errorf("the old leader is %s, %v", state, err)
					}
					return nil
				})
				cancel()
				work.Wait()
				if err := c.lab.HealAll(); err != nil {
					t.Fatal(err)
				}
				c.settled()
			}
		})
	}
	l.finish(t)
	t.Logf("answers: %s", l.told())
	c.acknowledgedOnce(l.ledger)
	c.finish()
}

// TestClusterLeaderPaused pauses the leader, as a machine that hangs, and then lets it continue. It
// answers the requests in its queues as the node that it is now.
func TestClusterLeaderPaused(t *testing.T) {
	base := seed(t)
	c := startCluster(t, clusterOptions{})
	l := c.startLoad(base, 6, hastyPatience)
	l.outlives(t, "leader paused", func() func() {
		leader, followers := c.settled()
		followers[0].append(probeStream, bigEvent(1_000_000))
		if err := leader.process.Pause(); err != nil {
			t.Fatal(err)
		}
		return func() {
			c.leader(followers...)
			// Its kernel takes these for it.
			var asked sync.WaitGroup
			followers[0].append(probeStream, bigEvent(1_000_001))
			for n := range 8 {
				asked.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), settleLimit)
					defer cancel()
					feed, ok, err := leader.ReadFeed(ctx, "/streams/"+probeStream+"/head/backward/1", map[string]string{testkit.HeaderRequireLeader: "True"})
					if err == nil && (!ok || feed.Entries[0].ID != bigEvent(1_000_001).ID) {
						t.Errorf("the leader of before answered with %+v", feed.Entries)
					}
					event := bigEvent(3_000_000 + n)
					w := &write{stream: "at-the-old-leader", expected: -2, events: []testkit.Event{event}}
					l.ledger.begin(w)
					answer, err := leader.Append(ctx, w.stream, -2, false, event)
					if err == nil && answer.Status == http.StatusCreated {
						if number, err := answer.FirstNumber(w.stream); err == nil {
							l.ledger.ack(w, number)
						}
					}
				})
			}
			if err := leader.process.Resume(); err != nil {
				t.Fatal(err)
			}
			asked.Wait()
			c.settled()
		}
	})
	l.finish(t)
	t.Logf("answers: %s", l.told())
	c.acknowledgedOnce(l.ledger)
	c.finish()
}
