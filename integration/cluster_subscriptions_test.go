package integration_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/testkit"
)

// TestLongClusterSubscriptions consumes through followers, and while leaders come and go.
func TestLongClusterSubscriptions(t *testing.T) {
	t.Parallel()
	base := seed(t)
	c, leader, redirecting, relaying := startForwarding(t)
	t.Run("followers", func(t *testing.T) {
		c.in(t)
		c.subscribeThroughFollowers(leader, redirecting, relaying)
	})
	for n, v := range []struct {
		name  string
		lose  func(leader *member) (back func())
		links bool
	}{
		{"leader killed", func(m *member) func() { m.kill(); return m.start }, false},
		{"leader resigned", func(m *member) func() { m.order("/admin/node/resign"); return func() {} }, false},
		{"leader isolated", func(m *member) func() {
			for _, other := range c.others(m) { // Clients reach it all the time.
				if err := errors.Join(c.lab.Link(m.host, other.host).Cut(), c.lab.Link(other.host, m.host).Cut()); err != nil {
					c.t.Fatal(err)
				}
			}
			return func() {
				if err := c.lab.HealAll(); err != nil {
					c.t.Fatal(err)
				}
			}
		}, true},
	} {
		t.Run(v.name, func(t *testing.T) {
			if v.links && c.lab.NoLinks() != nil {
				t.Skip(c.lab.NoLinks())
			}
			c.in(t)
			c.consumeWhile(base+uint64(n)*100, strings.ReplaceAll(v.name, " ", "-"), v.lose)
		})
	}
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
	t.Run("shutdown of the leader", func(t *testing.T) {
		c.in(t)
		c.shutdownWithConsumers(base)
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
			if answer, err := m.ask(jane); err != nil || answer.Status != http.StatusUnauthorized {
				t.Errorf("%s, jane deletes %s: %s, %v", m, jane.Path, answer, err)
			}
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

// consumeWhile lets readers compete at all nodes while a writer appends and the leader is lost.
// Everything is acknowledged in the end, and no reader gets the answer that a group does not
// exist.
func (c *cluster) consumeWhile(base uint64, stream string, lose func(*member) (back func())) {
	t := c.t
	const events = 600
	rng := rand.New(rand.NewPCG(base, 0))
	leader, _ := c.settled()
	all := c.running()
	leader.append(stream, batch(int(base%1_000_000)*1000, 1)...)
	g := newGroup(t, leader.Client, stream, "g", settings{
		"minCheckPointCount": 1, "maxCheckPointCount": 10 + rng.IntN(30), "checkPointAfterMilliseconds": 200, "messageTimeoutMilliseconds": 1500, "maxRetryCount": 1000,
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := newReaders()
	for i := range 4 {
		r.owned.Go(func() {
			own := rand.New(rand.NewPCG(base, uint64(i+1)))
			for ctx.Err() == nil {
				r.round(ctx, own, stream, "g", all[own.IntN(len(all))].Client)
			}
		})
	}
	written := make(chan struct{})
	r.owned.Go(func() {
		defer close(written)
		next := 1
		at := all[0].Client
		for own := rand.New(rand.NewPCG(base, 99)); next < events && ctx.Err() == nil; {
			count := min(1+own.IntN(5), events-next)
			some := batch(int(base%1_000_000)*1000+next, count)
			for ctx.Err() == nil {
				short, done := context.WithTimeout(ctx, time.Second)
				answer, err := at.Append(short, stream, int64(next-1), false, some...)
				done()
				if err == nil && answer.Status == http.StatusCreated {
					next += count
					break
				}
				at = all[own.IntN(len(all))].Client
			}
			_ = pause(ctx, 5*time.Millisecond) // The end of the context ends the loop as well.
		}
	})
	testkit.Eventually(t, settleLimit, func() error {
		if n := r.count(); n < events/6 {
			return fmt.Errorf("%d acknowledged", n)
		}
		return nil
	})
	// What exists for a moment only must be there as well.
	late := newGroup(t, leader.Client, stream, "late", settings{})
	lost := time.Now()
	back := lose(leader)
	watch := c.watchGroups(ctx, lost, stream, leader)
	within(t, settleLimit, "all events written", written)
	now := c.leader(c.others(leader)...)
	t.Logf("%s leads after %s", now, leader)
	watch.await(t)
	r.complete(t, span(0, events-1))
	back()
	cancel()
	watch.owned.Wait()
	r.owned.Wait()
	c.settled()
	t.Log(r.told())
	t.Log(watch.told())
	g.node, late.node = now.Client, now.Client
	testkit.Eventually(t, settleLimit, func() error { _, _, err := listGroups(t.Context(), now.Client); return err })
	g.drain()
	g.await("end", func(i *groupInfo) bool {
		return i.at() == fmt.Sprint(events-1) && i.Outstanding+i.Retried == 0 && i.Status == "Live"
	})
	if i := g.info(); i.Parked > 0 {
		t.Errorf("%d are parked", i.Parked)
	}
	for _, m := range c.members {
		testkit.Eventually(t, settleLimit, func() error {
			s := m.scrape()
			want, have := 0.0, len(s.named("annals_subscription_lag_events"))
			if m == now {
				want = 2
			}
			if n := s.value(t, "annals_subscription_groups"); n != want || have != int(want) {
				return fmt.Errorf("%s counts %v groups, and has the lag of %d; %s leads", m, n, have, now)
			}
			return nil
		})
	}
	if lag := now.scrape().value(t, `annals_subscription_lag_events{group="`+stream+`::g"}`); lag != 0 {
		t.Errorf("the lag is %v", lag)
	}
	g.must(http.MethodDelete, nil)
	late.must(http.MethodDelete, nil)
}

// groupWatch asks all nodes for groups that are there.
type groupWatch struct {
	owned sync.WaitGroup

	mu       sync.Mutex
	since    time.Time
	statuses map[string]int
	// first time that a node other than the lost one answered 200, after the last time that it did
	// not
	back  map[string]time.Duration
	wrong []string
	want  int
}

func (c *cluster) watchGroups(ctx context.Context, since time.Time, stream string, lost *member) *groupWatch {
	w := &groupWatch{since: since, statuses: map[string]int{}, back: map[string]time.Duration{}}
	others := c.others(lost)
	w.want = 3 * len(others)
	for _, m := range c.members {
		for _, path := range []string{"/subscriptions", groupPath(stream, "g", "info"), groupPath(stream, "late", "info")} {
			w.owned.Go(func() {
				for ctx.Err() == nil {
					short, done := context.WithTimeout(ctx, settleLimit)
					begun := time.Since(since)
					answer, err := m.Do(short, testkit.Request{Path: path, Admin: true, Header: map[string]string{"Accept": testkit.MediaJSON}})
					done()
					if ctx.Err() != nil {
						return
					}
					key := fmt.Sprintf("%s %s", m, path)
					ok := err == nil && answer.Status == http.StatusOK
					if path == "/subscriptions" && ok && (!strings.Contains(string(answer.Body), `"g"`) || !strings.Contains(string(answer.Body), `"late"`)) {
						ok, answer.Status = false, http.StatusNotFound
					}
					w.mu.Lock()
					switch {
					case err != nil && slices.Contains(others, m):
						w.wrong = append(w.wrong, fmt.Sprintf("%s, asked %s after the loss: no answer: %v", key, begun, err))
						fallthrough
					case err != nil:
						w.statuses["lost"]++
					default:
						w.statuses[fmt.Sprint(answer.Status)]++
					}
					if err == nil && answer.Status == http.StatusNotFound {
						w.wrong = append(w.wrong, fmt.Sprintf("%s, asked %s after the loss: %s", key, begun, answer))
					}
					if _, known := w.back[key]; ok && !known && slices.Contains(others, m) {
						w.back[key] = begun
					} else if !ok {
						delete(w.back, key)
					}
					w.mu.Unlock()
					// The end of the context ends the loop as well.
					_ = pause(ctx, 10*time.Millisecond)
				}
			})
		}
	}
	return w
}

// await waits until all other nodes answer for the groups.
func (w *groupWatch) await(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, settleLimit, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.back) < w.want {
			return fmt.Errorf("of %d questions these are answered: %v; %v", w.want, w.back, w.statuses)
		}
		return nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.wrong) > 0 {
		t.Errorf("%d wrong answers about groups that are there: %s", len(w.wrong), strings.Join(w.wrong[:min(5, len(w.wrong))], "\n"))
	}
}

func (w *groupWatch) told() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var worst time.Duration
	for _, took := range w.back {
		worst = max(worst, took)
	}
	return fmt.Sprintf("lists and infos are answered for good %s after the loss; answers %v", worst.Round(time.Millisecond), w.statuses)
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

// shutdownWithConsumers ends the leader in order while messages are out and readers ask for more.
func (c *cluster) shutdownWithConsumers(base uint64) {
	t := c.t
	leader, _ := c.settled()
	leader.append("at-the-end", batch(800_000_000, 500)...)
	g := newGroup(t, leader.Client, "at-the-end", "g", prompt(settings{"maxRetryCount": 1000}))
	g.take(100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := newReaders()
	for i := range 4 {
		r.owned.Go(func() {
			own := rand.New(rand.NewPCG(base, uint64(1000+i)))
			for ctx.Err() == nil {
				r.round(ctx, own, "at-the-end", "g", leader.Client)
			}
		})
	}
	testkit.Eventually(t, settleLimit, func() error {
		if r.count() < 100 {
			return fmt.Errorf("%d acknowledged", r.count())
		}
		return nil
	})
	p := leader.process
	leader.stop()
	cancel()
	r.owned.Wait()
	_, after, _ := strings.Cut(p.Output(), "stopping")
	for line := range strings.SplitSeq(after, "\n") {
		if strings.Contains(line, "[ERROR]") && !strings.Contains(line, "annals.raft:") || strings.Contains(line, "subscriptions:") || strings.Contains(line, "cut off") || strings.Contains(line, "panic") {
			t.Errorf("on its way out it logged: %s", line)
		}
	}
	if len(r.wrong) > 0 {
		t.Errorf("wrong answers: %s", strings.Join(r.wrong[:min(5, len(r.wrong))], "\n"))
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
			answer, err := alone.ask(userRequest(r.method, r.path, r.body))
			if err != nil || answer.Status != http.StatusServiceUnavailable {
				t.Errorf("%s, %s, alone, %s %s: %s, %v", alone, alone.options, r.method, r.path, answer, err)
			}
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
