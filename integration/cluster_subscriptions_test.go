package integration_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/testkit"
)

// TestLongClusterSubscriptions uses groups through followers, and what is parked while leaders come
// and go.
func TestLongClusterSubscriptions(t *testing.T) {
	t.Parallel()
	c, leader, redirecting, relaying := startForwarding(t)
	t.Run("followers", func(t *testing.T) {
		c.in(t)
		c.subscribeThroughFollowers(leader, redirecting, relaying)
	})
	for _, taken := range []int{0, 7} {
		t.Run(fmt.Sprintf("replay across a change of leaders, %d handed out", taken), func(t *testing.T) {
			c.in(t)
			c.replayWhileLost(fmt.Sprintf("replayed-%d", taken), taken)
		})
	}
	t.Run("single parked messages across a change of leaders", func(t *testing.T) {
		c.in(t)
		c.settleParkedWhileLost("settled")
	})
	t.Run("metrics", func(t *testing.T) {
		c.in(t)
		c.groupsAreTheLeaders()
	})
	t.Run("shutdown of the leader", func(t *testing.T) {
		c.in(t)
		c.shutdownWithConsumers()
	})
	t.Run("no leader", func(t *testing.T) {
		c.in(t)
		c.noSubscriptionsWithoutLeader()
	})
	for _, m := range c.members {
		if m.process == nil {
			m.start()
		}
	}
	c.settled()
	c.same()
	c.finish()
}

// subscribeThroughFollowers uses every route through both kinds of followers.
func (c *cluster) subscribeThroughFollowers(leader, redirecting, relaying *member) {
	t := c.t
	leader.append("s", batch(1, 40)...)
	for _, r := range []struct {
		method, path, body string
	}{
		{http.MethodPut, "/subscriptions/s/g%2Fslash", `{"messageTimeoutMilliseconds":600000,"maxCheckPointCount":1,"minCheckPointCount":1}`},
		{http.MethodPost, "/subscriptions/s/g%2Fslash", `{"messageTimeoutMilliseconds":600000,"maxCheckPointCount":1,"minCheckPointCount":1,"liveBufferSize":7}`},
		{http.MethodPost, "/subscriptions/s/g%2Fslash/ack?ids=" + bigEvent(1).ID, ""}, {http.MethodPost, "/subscriptions/s/g%2Fslash/nack/" + bigEvent(1).ID + "?action=Park", ""},
		{http.MethodPost, "/subscriptions/s/g%2Fslash/replayParked?stopAt=3", ""}, {http.MethodPost, "/subscriptions/restart", ""},
		{http.MethodDelete, "/subscriptions/s/g%2Fslash", ""},
	} {
		request := userRequest(r.method, r.path, r.body)
		answer, err := redirecting.ask(request)
		if want := leader.URL() + r.path; err != nil || answer.Status != http.StatusTemporaryRedirect || answer.Header.Get("Location") != want {
			t.Errorf("%s, %s: %s, Location %q, %v, want 307 to %s", r.method, r.path, answer, answer.Header.Get("Location"), err, want)
		}
		redirecting.manage(request, http.StatusOK)
		testkit.Eventually(t, settleLimit, func() error { _, _, err := listGroups(t.Context(), leader.Client); return err })
	}
	jane := asUser("jane", "pw", userRequest(http.MethodPost, "/users/", `{"loginName":"jane","groups":[],"password":"pw"}`))
	leader.manage(testkit.Request{Method: jane.Method, Path: jane.Path, Body: jane.Body, Header: jane.Header, Admin: true}, http.StatusCreated)
	newGroup(t, leader.Client, "s", "hers", settings{})
	newGroup(t, leader.Client, "closed", "hers", settings{})
	setMetadata(t, leader.Client, "closed", `{"$acl":{"$r":"$admins"}}`)
	c.inForce("creation of jane", func(m *member) error { return m.letsIn("jane", "pw") })
	c.level()
	for _, m := range c.members {
		for path, status := range map[string]int{"/subscriptions/s/hers/1": 200, "/subscriptions/closed/hers/1": 401} {
			jane := asUser("jane", "pw", testkit.Request{Path: path})
			if _, answer, err := takeFrom(t.Context(), m.Client, jane); err != nil || answer.Status != status {
				t.Errorf("%s, jane reads %s: %s, %v, want %d", m, path, answer, err, status)
			}
			if _, answer, err := takeFrom(t.Context(), m.Client, testkit.Request{Path: path}); err != nil || answer.Status != http.StatusUnauthorized {
				t.Errorf("%s, no client reads %s: %s, %v", m, path, answer, err)
			}
			jane.Path, jane.Method = path[:len(path)-2], http.MethodDelete
			must(t, m, jane, http.StatusUnauthorized)
		}
	}
	leader.manage(testkit.Request{Method: http.MethodDelete, Path: "/subscriptions/s/hers", Admin: true}, http.StatusOK)
	leader.manage(testkit.Request{Method: http.MethodDelete, Path: "/subscriptions/closed/hers", Admin: true}, http.StatusOK)
	for _, m := range []*member{redirecting, relaying, leader} {
		name := fmt.Sprintf("of %d", m.host.Index())
		put := userRequest(http.MethodPut, groupPath("s", name), `{"messageTimeoutMilliseconds":600000,"maxCheckPointCount":1,"minCheckPointCount":1}`)
		answer := m.manage(put, http.StatusOK)
		if m != redirecting && answer.Header.Get("Location") != m.URL()+groupPath("s", name) {
			t.Errorf("%s: Location %q", m, answer.Header.Get("Location"))
		}
		m.manage(put, http.StatusConflict)
		g := &group{t, m.Client, "s", name}
		got := g.take(40)
		wantNumbers(t, m.String(), got, span(0, 39))
		if !strings.HasPrefix(got.ackAll, m.URL()+groupPath("s", name, "ack?ids=")) {
			t.Errorf("%s: ackAll is %s", m, got.ackAll)
		}
		if i := g.info(); i.Outstanding != 40 || i.LastKnown != 39 {
			t.Errorf("%s: %+v", m, i)
		}
		for _, path := range []string{"/subscriptions", "/subscriptions/s", groupPath("s", name, "info")} {
			answer, err := m.ask(testkit.Request{Path: path, Admin: true})
			if err != nil || answer.Status != http.StatusOK || !strings.Contains(string(answer.Body), m.URL()+groupPath("s", name)) {
				t.Errorf("%s, %s has no links to the node: %.3000s, %v", m, path, answer.Body, err)
			}
		}
		m.manage(testkit.Request{Method: http.MethodPost, Path: groupPath("s", name, "nack", got.all[3].ID) + "?action=park", Admin: true}, http.StatusOK)
		m.manage(testkit.Request{Method: http.MethodPost, Path: got.ackAll, Admin: true}, http.StatusOK)
		g.awaitCheckpoint(39)
		g.await("1 parked", func(i *groupInfo) bool { return i.Parked == 1 && i.Outstanding == 0 })
		for _, other := range c.members {
			testkit.Eventually(t, settleLimit, func() error {
				if parked := (&group{t, other.Client, "s", name}).parked(); len(parked) != 1 || parked[0].Number != 3 {
					return fmt.Errorf("%s shows %v as parked", other, parked)
				}
				return nil
			})
		}
		m.manage(testkit.Request{Method: http.MethodPost, Path: groupPath("s", name, "replayParked"), Admin: true}, http.StatusOK)
		again := g.takeUntil(1)
		m.manage(testkit.Request{Method: http.MethodPost, Path: groupPath("s", name, "ack", again.all[0].ID), Admin: true}, http.StatusOK)
		m.manage(testkit.Request{Method: http.MethodDelete, Path: groupPath("s", name), Admin: true}, http.StatusOK)
		for _, other := range c.members {
			if answer := (&group{t, other.Client, "s", name}).do(http.MethodGet, nil, "info"); answer.Status != http.StatusNotFound {
				t.Errorf("deleted, at %s: %s", other, answer)
			}
		}
	}
}

// batch are so many events from a number on.
func batch(from, count int) (events []testkit.Event) {
	for n := range count {
		id := bigEvent(from + n).ID
		events = append(events, testkit.Event{ID: id, Type: "Small", Data: []byte(dataStart(id) + "}")})
	}
	return events
}

// replayWhileLost parks messages, replays them, and kills the leader before they
// are answered, with some of them handed out.
func (c *cluster) replayWhileLost(stream string, taken int) {
	t := c.t
	const events = 20
	leader, _ := c.settled()
	leader.append(stream, batch(700_000_000+taken*1000, events)...)
	g := newGroup(t, leader.Client, stream, "g", prompt(nil))
	got := g.take(events)
	g.park(got.ids()...)
	g.await("20 parked", func(i *groupInfo) bool { return i.Parked == events })
	g.awaitCheckpoint(events - 1) // Or they would come again as well.
	g.must(http.MethodPost, nil, "replayParked")
	if taken > 0 {
		g.takeUntil(taken)
	}
	leader.kill()
	now := c.leader()
	g.node = now.Client
	testkit.Eventually(t, settleLimit, func() error { _, _, err := listGroups(t.Context(), now.Client); return err })
	found := map[int64]int{}
	replayed := 0
	testkit.Eventually(t, settleLimit, func() error {
		if got := g.take(100); len(got.all) > 0 {
			for _, m := range got.all {
				found[m.Number]++
				replayed++
			}
			g.ack(got.ids()...)
		}
		for _, m := range g.parked() {
			found[m.Number]++
		}
		if len(found) < events {
			return fmt.Errorf("of %d messages these are there: %v", events, slices.Sorted(maps.Keys(found)))
		}
		return nil
	})
	t.Logf("%d were handed out again, %d stay parked", replayed, g.info().Parked)
	leader.start()
	c.settled()
}

// settleParkedWhileLost drops, notes and replays parked messages one by one and kills the leader
// at once, has the next one replay another and resign at once: what was dropped never comes again,
// what was replayed does.
func (c *cluster) settleParkedWhileLost(stream string) {
	t := c.t
	const events = 10
	leader, _ := c.settled()
	leader.append(stream, batch(701_000_000, events)...)
	g := newGroup(t, leader.Client, stream, "g", prompt(nil))
	got := g.take(events)
	g.park(got.ids()...)
	g.await("10 parked", func(i *groupInfo) bool { return i.Parked == events })
	g.awaitCheckpoint(events - 1)
	g.must(http.MethodPost, map[string]string{"text": "look"}, "parked", "note?number=2")
	g.must(http.MethodPost, nil, "parked", "drop?numbers=0,1")
	gone := []int64{got.all[0].Number, got.all[1].Number}
	for i, lose := range []func(){leader.kill, func() { leader.order("/admin/node/resign") }} {
		at := 3 + i
		replayed := got.all[at].Number
		g.must(http.MethodPost, nil, "parked", fmt.Sprintf("replay?numbers=%d", at))
		lose()
		gone = append(gone, replayed)
		leader, _ = c.settled()
		g.node = leader.Client
		testkit.Eventually(t, settleLimit, func() error { _, _, err := listGroups(t.Context(), g.node); return err })
		g.await("fewer parked", func(i *groupInfo) bool { return i.Parked == int64(events-len(gone)) })
		testkit.Eventually(t, settleLimit, func() error {
			err := errors.New("the message that was replayed is not handed out")
			again := g.take(100)
			for _, m := range again.all {
				if m.Number == replayed {
					err = nil
				} else if !slices.Contains(gone[2:], m.Number) {
					// An acknowledged message may come again, if the acknowledgement was not
					// stored.
					t.Fatalf("%s is handed out, which was not replayed", m)
				}
			}
			if len(again.all) > 0 {
				g.ack(again.ids()...)
			}
			return err
		})
		if left := g.parked(); len(left) != events-len(gone) || slices.ContainsFunc(left, func(m message) bool { return slices.Contains(gone, m.Number) }) {
			t.Errorf("parked are %v", left)
		}
		if desk := string(g.must(http.MethodGet, nil, "parked?from=2&count=1").Body); !strings.Contains(desk, `"text": "look"`) || !strings.Contains(desk, fmt.Sprintf(`"total": %d`, events-len(gone))) {
			t.Errorf("the desk shows %s", desk)
		}
	}
	for _, m := range c.members {
		if m.process == nil {
			m.start()
		}
	}
	c.settled()
}

// groupsAreTheLeaders: the metrics of groups are at the node that leads alone.
func (c *cluster) groupsAreTheLeaders() {
	leader, _ := c.settled()
	for _, m := range c.members {
		testkit.Eventually(c.t, settleLimit, func() error {
			s := m.scrape()
			n, lags := s.value(c.t, "annals_subscription_groups"), len(s.named("annals_subscription_lag_events"))
			if (n > 0) != (m == leader) || lags != int(n) {
				return fmt.Errorf("%s counts %v groups, and has the lag of %d; %s leads", m, n, lags, leader)
			}
			return nil
		})
	}
}

// shutdownWithConsumers ends the leader in order while messages are out and readers ask for more.
func (c *cluster) shutdownWithConsumers() {
	t := c.t
	leader, _ := c.settled()
	leader.append("at-the-end", batch(800_000_000, 500)...)
	g := newGroup(t, leader.Client, "at-the-end", "g", prompt(settings{"maxRetryCount": 1000}))
	g.take(100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var readers sync.WaitGroup
	first := make(chan struct{}, 4)
	for range cap(first) {
		readers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				got, answer, err := takeFrom(ctx, leader.Client, testkit.Request{Path: groupPath("at-the-end", "g", "10"), Admin: true})
				if err == nil && answer.Status != http.StatusOK && answer.Status < http.StatusInternalServerError {
					t.Errorf("on its way out the leader answers %s", answer)
				}
				if err == nil && len(got.all) > 0 {
					_, err = leader.Do(ctx, testkit.Request{Method: http.MethodPost, Path: got.ackAll, Admin: true})
				}
				if n == 0 {
					first <- struct{}{}
				}
				if err != nil || len(got.all) == 0 {
					_ = pause(ctx, 10*time.Millisecond) // The loop ends with the context.
				}
			}
		})
	}
	for range cap(first) {
		<-first
	}
	p := leader.process
	leader.stop()
	cancel()
	readers.Wait()
	_, after, _ := strings.Cut(p.Output(), "stopping")
	for line := range strings.SplitSeq(after, "\n") {
		if strings.Contains(line, "[ERROR]") && !strings.Contains(line, "annals.raft:") || strings.Contains(line, "subscriptions:") || strings.Contains(line, "cut off") || strings.Contains(line, "panic") {
			t.Errorf("on its way out it logged: %s", line)
		}
	}
	leader.start()
	c.settled()
}

// noSubscriptionsWithoutLeader leaves one node alone.
func (c *cluster) noSubscriptionsWithoutLeader() {
	t := c.t
	leader, followers := c.settled()
	leader.append("alone", batch(900_000_000, 10)...)
	g := newGroup(t, leader.Client, "alone", "g", prompt(nil))
	got := g.take(3)
	g.park(got.ids()...)
	g.await("3 parked", func(i *groupInfo) bool { return i.Parked == 3 })
	c.level()
	// The leader itself, and then a follower, is who stays.
	for _, alone := range []*member{leader, followers[0]} {
		for _, m := range c.others(alone) {
			m.kill()
		}
		testkit.Eventually(t, settleLimit, func() error {
			if state, err := alone.state(); err != nil || state == "leader" || state == "follower" {
				return fmt.Errorf("%s is %s, %v", alone, state, err)
			}
			return nil
		})
		id := got.all[0].ID
		for _, r := range []struct{ method, path, body string }{
			{http.MethodGet, "/subscriptions", ""}, {http.MethodGet, "/subscriptions?offset=0&count=3", ""}, {http.MethodGet, "/subscriptions/alone", ""},
			{http.MethodGet, "/subscriptions/alone/g/info", ""}, {http.MethodGet, "/subscriptions/alone/none/info", ""},
			{http.MethodGet, "/subscriptions/alone/g", ""}, {http.MethodGet, "/subscriptions/alone/g/5", ""}, {http.MethodGet, "/subscriptions/none/g/5", ""},
			{http.MethodPut, "/subscriptions/alone/new", `{}`}, {http.MethodPut, "/subscriptions/alone/g", `{}`}, {http.MethodPost, "/subscriptions/alone/g", `{}`},
			{http.MethodDelete, "/subscriptions/alone/g", ""}, {http.MethodPost, "/subscriptions/alone/g/ack/" + id, ""}, {http.MethodPost, "/subscriptions/alone/g/ack?ids=" + id, ""},
			{http.MethodPost, "/subscriptions/alone/g/nack/" + id, ""}, {http.MethodPost, "/subscriptions/alone/g/nack?ids=" + id + "&action=park", ""},
			{http.MethodPost, "/subscriptions/alone/g/replayParked", ""}, {http.MethodPost, "/subscriptions/restart", ""},
		} {
			must(t, alone, userRequest(r.method, r.path, r.body), http.StatusServiceUnavailable)
		}
		if parked := (&group{t, alone.Client, "alone", "g"}).parked(); len(parked) != 3 || parked[0].Number != 0 || parked[2].Number != 2 {
			t.Errorf("%s, alone, shows %v as parked", alone, parked)
		}
		for _, m := range c.members {
			if m.process == nil {
				m.start()
			}
		}
		c.settled()
	}
}
