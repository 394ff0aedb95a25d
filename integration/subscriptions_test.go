package integration_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestSubscriptions looks at groups on one node, while one of them stands still for half a minute.
func TestSubscriptions(t *testing.T) {
	t.Parallel()
	if !testing.Short() {
		s := startStall(t)
		defer s.asking.Wait()
		defer s.end()
		defer t.Run("stalled", s.check)
	}
	for _, v := range []struct {
		name string
		test func(*testing.T)
	}{
		{"rights", subscriptionRights}, {"gaps", subscriptionGaps}, {"links", subscriptionLinks}, {"metrics", subscriptionStatistics},
		{"killed", subscriptionsSurviveKill}, {"names", subscriptionNames}, {"keys", subscriptionKeys},
	} {
		t.Run(v.name, v.test)
	}
}

// subscriptionRights takes the right to read a stream away from a reader that holds messages.
func subscriptionRights(t *testing.T) {
	node := testkit.StartNode(t, t.TempDir())
	users := map[string]testkit.Request{"jane": {User: "jane", Password: "pw"}, "oscar": {User: "oscar", Password: "pw"}}
	for login, groups := range map[string]string{"jane": `[]`, "oscar": `["$ops"]`} {
		must(t, node, userRequest(http.MethodPost, "/users/", fmt.Sprintf(`{"loginName":%q,"groups":%s,"password":"pw"}`, login, groups)), http.StatusCreated)
	}
	mustAppend(t, node, "s", -1, 40)
	setMetadata(t, node.Client, "s", `{"$acl":{"$r":["jane","$ops"]}}`)
	g := newGroup(t, node.Client, "s", "g", prompt(nil))
	try := func(as, method, path string, status int) {
		t.Helper()
		r := users[as]
		r.Method, r.Path = method, path
		if strings.HasSuffix(path, "/1") {
			r.Header = map[string]string{"Accept": mediaCompeting}
		}
		must(t, node, r, status)
	}
	id := bigEvent(1).ID
	read := []struct{ method, path string }{
		{http.MethodGet, "/subscriptions/s/g/1"}, {http.MethodPost, "/subscriptions/s/g/ack/" + id}, {http.MethodPost, "/subscriptions/s/g/ack?ids=" + id},
		{http.MethodPost, "/subscriptions/s/g/nack/" + id}, {http.MethodPost, "/subscriptions/s/g/nack?ids=" + id + "&action=park"},
	}
	jane := users["jane"]
	jane.Path = "/subscriptions/s/g/10"
	got, answer, err := takeFrom(t.Context(), node.Client, jane)
	if err != nil || len(got.all) != 10 {
		t.Fatalf("jane reads %s, %v", answer, err)
	}
	setMetadata(t, node.Client, "s", `{"$acl":{"$r":"$admins"}}`)
	for _, m := range read {
		try("jane", m.method, m.path, http.StatusUnauthorized)
	}
	for _, link := range []string{got.ackAll, node.URL() + groupPath("s", "g", "ack", got.all[0].ID), node.URL() + groupPath("s", "g", "nack", got.all[1].ID)} {
		try("jane", http.MethodPost, link, http.StatusUnauthorized)
	}
	try("jane", http.MethodGet, "/subscriptions/viewparkedmessages/s/g/head/backward/1", http.StatusUnauthorized)
	if i := g.info(); i.Outstanding != 10 || i.at() != "none" {
		t.Errorf("refused answers had an effect: %+v, checkpoint %s", i, i.at())
	}
	setMetadata(t, node.Client, "s", `{"$acl":{"$r":"jane"}}`)
	try("jane", http.MethodPost, got.ackAll, http.StatusOK)
	g.awaitCheckpoint(9)
	try("oscar", http.MethodGet, "/subscriptions/s/g/1", http.StatusUnauthorized)
	// A user that is gone, with the password in the cache.
	must(t, node, userRequest(http.MethodDelete, "/users/jane", ""), http.StatusNoContent)
	if _, answer, err := takeFrom(t.Context(), node.Client, jane); err != nil || answer.Status != http.StatusUnauthorized {
		t.Errorf("who was deleted: %s, %v", answer, err)
	}
	node.Stop()
}

// subscriptionGaps takes events away in front of a group that lags.
func subscriptionGaps(t *testing.T) {
	node := testkit.StartNode(t, t.TempDir())
	for _, v := range []struct {
		name string
		gap  func(stream string)
		want []int64 // that come, besides what had been read ahead
		more int     // events that are appended after the gap, and come
	}{
		{"soft deleted", func(s string) { deleteStream(t, node.Client, s, false) }, nil, 2},
		{"soft deleted and brought back", func(s string) { deleteStream(t, node.Client, s, false); mustAppend(t, node, s, -2, 5) }, span(300, 304), 2},
		{"hard deleted", func(s string) { deleteStream(t, node.Client, s, true) }, nil, 0},
		{"truncated", func(s string) { setMetadata(t, node.Client, s, `{"$tb":280}`) }, span(280, 299), 2},
		{"truncated behind its end", func(s string) { setMetadata(t, node.Client, s, `{"$tb":1000}`) }, nil, 0},
		{"limited in number", func(s string) { setMetadata(t, node.Client, s, `{"$maxCount":5}`) }, span(295, 299), 2},
		{"limited in age", func(s string) {
			setMetadata(t, node.Client, s, `{"$maxAge":1}`)
			testkit.Eventually(t, settleLimit, func() error {
				entries, err := node.ReadStream(t.Context(), s, 0)
				if err != nil || len(entries) > 0 {
					return fmt.Errorf("%d events are not too old, %v", len(entries), err)
				}
				return nil
			})
		}, nil, 0},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			s := strings.ReplaceAll(v.name, " ", "-")
			mustAppend(t, node, s, -1, 300)
			g := newGroup(t, node.Client, s, "g", prompt(settings{"bufferSize": 21, "readBatchSize": 10}))
			got := g.take(5)
			g.ack(got.ids()...)
			g.awaitCheckpoint(4)
			v.gap(s)
			next := int64(5)
			var behind []int64
			drain := func() {
				for got := g.take(20); len(got.all) > 0; got = g.take(20) {
					for _, n := range got.numbers() {
						if len(behind) == 0 && n == next && n < 60 { // Read ahead before the gap.
							next++
							continue
						}
						behind = append(behind, n)
					}
					g.ack(got.ids()...)
				}
			}
			testkit.Eventually(t, settleLimit, func() error {
				drain()
				if i := g.info(); i.Status != "Live" || i.Outstanding > 0 {
					return fmt.Errorf("%+v", i)
				}
				return nil
			})
			check.Slice(t, behind, v.want, "after the gap come")
			if v.more == 0 {
				g.must(http.MethodDelete, nil)
				return
			}
			behind, next = nil, -1
			mustAppend(t, node, s, -2, v.more)
			testkit.Eventually(t, settleLimit, func() error {
				drain()
				if len(behind) < v.more {
					return fmt.Errorf("of events appended later come %v", behind)
				}
				return nil
			})
			g.awaitCheckpoint(behind[len(behind)-1])
			if i := g.info(); i.Status != "Live" || i.LastKnown != behind[len(behind)-1] {
				t.Errorf("at the end: %+v", i)
			}
		})
	}
}

// subscriptionLinks: links are followed, dead ones are handed out as they
// are, and what is parked can be looked at and replayed.
func subscriptionLinks(t *testing.T) {
	node := testkit.StartNode(t, t.TempDir())
	targets := mustAppend(t, node, "target", -1, 6)
	mustAppend(t, node, "dropped", -1, 1)
	var links []testkit.Event
	for n, data := range []string{"0@target", "1@target", "77@target", "0@nowhere", "2@target", "0@dropped", "5@target"} {
		links = append(links, testkit.Event{ID: bigEvent(n).ID, Type: "$>", Data: []byte(`"` + data + `"`)})
	}
	if answer, err := node.Append(t.Context(), "links", -1, false, links...); err != nil || answer.Status != http.StatusCreated {
		t.Fatalf("links: %s, %v", answer, err)
	}
	deleteStream(t, node.Client, "dropped", true)
	g := newGroup(t, node.Client, "links", "g", prompt(settings{"resolveLinktos": true, "maxRetryCount": 0}))
	bare := newGroup(t, node.Client, "links", "bare", settings{})
	got := g.takeAll()
	if !slices.Equal(got.ids(), idsOf(links)) {
		t.Fatalf("the ids to answer are %q, want those of the links", got.ids())
	}
	for i, m := range got.all {
		// A dead link shows nothing but where it leads.
		if m.Title != strings.Trim(string(links[i].Data), `"`) || m.ReadStream != "" && (m.ReadNumber != int64(i) || m.ReadStream != "links") {
			t.Errorf("message %d is %+v", i, m)
		}
	}
	alive := map[int]int{0: 0, 1: 1, 4: 2, 6: 5}
	for i, target := range alive {
		if m := got.all[i]; m.Entry.ID != targets[target].ID || m.Number != int64(target) || m.Stream != "target" {
			t.Errorf("link %d leads to %+v, want event %d", i, m, target)
		}
	}
	for i, m := range bare.takeAll().all {
		if m.Type != "$>" || m.Entry.ID != links[i].ID || m.Number != int64(i) || m.Stream != "links" {
			t.Errorf("not followed, link %d is %+v", i, m)
		}
	}

	g.park(got.ids()...)
	g.await("7 parked", func(i *groupInfo) bool { return i.Parked == 7 })
	g.awaitCheckpoint(6)
	parked := g.parked()
	check.MustEqual(t, len(parked), 7, "parked are", parked)
	stream := "%24persistentsubscription-links%3A%3Ag-parked"
	raw, _, err := node.ReadFeed(t.Context(), "/streams/"+stream+"/0/forward/20?embed=tryharder", map[string]string{"ES-ResolveLinkTos": "false"})
	if err != nil || len(raw.Entries) != 7 {
		t.Fatalf("%d parked events, %v", len(raw.Entries), err)
	}
	for i, e := range slices.Backward(raw.Entries) {
		if want := strings.Trim(string(links[6-i].Data), `"`); e.Type != "$>" || e.Data != want {
			t.Errorf("parked event %d is a %s of %s, want %s", 6-i, e.Type, e.Data, want)
		}
	}
	for i, target := range alive {
		if m := parked[i]; m.Entry.ID != targets[target].ID || m.Stream != "target" || m.ReadNumber != int64(i) {
			t.Errorf("parked message %d is shown as %+v", i, m)
		}
	}
	g.must(http.MethodPost, nil, "replayParked?stopAt=5")
	var again messages
	testkit.Eventually(t, settleLimit, func() error {
		again.all = append(again.all, g.take(20).all...)
		if len(again.all) < 5 {
			return fmt.Errorf("replayed are %v", again.all)
		}
		return nil
	})
	if i := g.info(); i.Parked != 2 || len(again.all) != 5 {
		t.Errorf("%d are parked and %d replayed", i.Parked, len(again.all))
	}
	for i, m := range again.all {
		if m.Retries != 0 || m.ID == got.all[i].ID {
			t.Errorf("replayed message %d is %+v", i, m)
		}
		if target, ok := alive[i]; ok && (m.Entry.ID != targets[target].ID || m.Number != int64(target) || m.Stream != "target") {
			t.Errorf("replayed message %d is %+v, want event %d", i, m, target)
		}
	}
	g.must(http.MethodPost, nil, "nack?ids="+strings.Join(again.ids(), ",")+"&action=retry")
	g.await("all parked again", func(i *groupInfo) bool { return i.Parked == 7 && i.Outstanding == 0 })
	if parked = g.parked(); len(parked) != 7 || parked[2].Entry.ID != targets[0].ID || parked[3].Entry.ID != targets[1].ID {
		t.Errorf("parked again: %+v", parked)
	}
	deleteStream(t, node.Client, stream, false)
	g.await("nothing parked", func(i *groupInfo) bool { return i.Parked == 0 })
	node.Stop()
}

func idsOf(events []testkit.Event) (ids []string) {
	for _, e := range events {
		ids = append(ids, e.ID)
	}
	return ids
}

// readMetrics reads the metrics of a node.
func readMetrics(t *testing.T, node *testkit.Client) *scrape {
	t.Helper()
	answer := must(t, node, testkit.Request{Path: "/metrics", Admin: true}, http.StatusOK)
	s := &scrape{text: answer.Body, help: map[string]string{}, kinds: map[string]string{}}
	for line := range strings.Lines(string(answer.Body)) {
		if line = strings.TrimSuffix(line, "\n"); strings.HasPrefix(line, "# ") {
			continue
		}
		one := check.Value(parseSeries(line)).Must(t)
		s.series = append(s.series, one)
	}
	return s
}

// subscriptionStatistics: what metrics and statistics say of groups.
func subscriptionStatistics(t *testing.T) {
	node := testkit.StartNode(t, t.TempDir())
	mustAppend(t, node, "s", -1, 100)
	g := newGroup(t, node.Client, "s", "g", prompt(settings{"maxRetryCount": 0}))
	check := func(when string, want map[string]float64) {
		t.Helper()
		s := readMetrics(t, node.Client)
		for text, value := range want {
			check.Equal(t, s.value(t, text), value, when, text)
		}
	}
	const lag, stalled, parked, replays = `annals_subscription_lag_events{group="s::g"}`, `annals_subscription_stalled{group="s::g"}`,
		`eventstore_persistent_subscriptions_messages_parked{event_stream_id="s",group_name="g"}`, `eventstore_persistent_subscriptions_replays_requested{event_stream_id="s",group_name="g"}`
	const oldest, oldestParked = `annals_subscription_oldest_unacknowledged_seconds{group="s::g"}`, `annals_subscription_oldest_parked_seconds{group="s::g"}`
	check("at first", map[string]float64{lag: 100, stalled: 0, parked: 0, replays: 0, oldest: 0, oldestParked: 0, "annals_subscription_groups": 1, "annals_subscription_delivered_total": 0})
	got := g.take(30)
	g.ack(got.ids()...)
	g.awaitCheckpoint(29)
	check("after 30", map[string]float64{lag: 70, "annals_subscription_delivered_total": 30, "annals_subscription_acknowledged_total": 30})
	got = g.takeAll()
	g.park(got.ids()[0])
	g.ack(got.ids()[1:]...)
	g.awaitCheckpoint(99)
	check("at the end", map[string]float64{lag: 0, parked: 1, stalled: 0, oldest: 0, "annals_subscription_parked_total": 1})
	testkit.Eventually(t, settleLimit, func() error {
		if s := readMetrics(t, node.Client); s.value(t, oldestParked) <= 0 {
			return fmt.Errorf("%s is 0", oldestParked)
		}
		return nil
	})
	g.must(http.MethodPost, nil, "replayParked")
	got = messages{}
	testkit.Eventually(t, settleLimit, func() error {
		if got = g.take(5); len(got.all) != 1 {
			return fmt.Errorf("replayed are %v", got.all)
		}
		return nil
	})
	check("replayed", map[string]float64{replays: 1, oldestParked: 0, lag: 0, "annals_subscription_replays_total": 1})
	if s := readMetrics(t, node.Client); s.value(t, oldest) < 0 || s.value(t, `eventstore_queue_busy_seconds{queue="PersistentSubscriptions"}`) <= 0 {
		t.Error("the queue was not busy")
	}
	answer, err := node.Do(t.Context(), testkit.Request{Path: "/stats/es/queue/PersistentSubscriptions", Admin: true, Header: map[string]string{"Accept": testkit.MediaJSON}})
	if err != nil || answer.Status != http.StatusOK || !strings.Contains(string(answer.Body), `"queueName":"PersistentSubscriptions"`) && !strings.Contains(string(answer.Body), `"queueName": "PersistentSubscriptions"`) {
		t.Errorf("statistics of the queue: %s, %v", answer, err)
	}
	g.must(http.MethodDelete, nil)
	s := readMetrics(t, node.Client)
	for _, one := range s.series {
		if one.labels["group"] == "s::g" || one.labels["group_name"] == "g" {
			t.Errorf("of a group that was deleted there is %s", &one)
		}
	}
	if text := s.value(t, "annals_subscription_groups"); text != 0 {
		t.Errorf("%v groups", text)
	}
	node.Stop()
}

// stall is a group whose readers ask and never answer.
type stall struct {
	node   *testkit.Process
	begun  time.Time
	asking sync.WaitGroup
	end    context.CancelFunc
	info   string // of the group, when it did
	// how long it took until the node said that the group stands still; 0: it did not
	said time.Duration
}

const stalledSeries = `annals_subscription_stalled{group="s::g"}`

// startStall begins to ask. What comes of it takes half a minute.
func startStall(t *testing.T) *stall {
	s := &stall{node: testkit.StartNode(t, t.TempDir()), begun: time.Now()}
	mustAppend(t, s.node, "s", -1, 100)
	newGroup(t, s.node.Client, "s", "g", settings{"messageTimeoutMilliseconds": 10_000, "maxRetryCount": 1000, "bufferSize": 21, "readBatchSize": 20})
	newGroup(t, s.node.Client, "s", "idle", settings{})
	ctx, cancel := context.WithTimeout(t.Context(), settleLimit)
	s.end = cancel
	s.asking.Go(func() {
		defer cancel()
		for pause(ctx, 250*time.Millisecond) == nil {
			if _, _, err := takeFrom(ctx, s.node.Client, testkit.Request{Path: groupPath("s", "g", "100"), Admin: true}); err != nil {
				return
			}
			answer, err := s.node.Do(ctx, testkit.Request{Path: "/metrics", Admin: true})
			if err == nil && strings.Contains(string(answer.Body), "\n"+stalledSeries+" 1\n") {
				s.said = time.Since(s.begun)
				// Now: a group that no client reads any more is not stalled.
				if answer, err := s.node.Do(ctx, testkit.Request{Path: groupPath("s", "g", "info"), Admin: true}); err == nil {
					s.info = string(answer.Body)
				}
				return
			}
		}
	})
	return s
}

// check waits until the node says that the group stands still, and answers a message.
func (s *stall) check(t *testing.T) {
	s.asking.Wait()
	if s.said < 25*time.Second {
		t.Errorf("said to stand still after %s", s.said)
	}
	t.Logf("said to stand still after %s", s.said.Round(time.Millisecond))
	if readMetrics(t, s.node.Client).value(t, `annals_subscription_stalled{group="s::idle"}`) != 0 {
		t.Error("a group that no client reads is reported as stalled")
	}
	check.Contains(t, s.info, `"stalled":`, "info said nothing of it")
	g := &group{t, s.node.Client, "s", "g"}
	g.must(http.MethodPost, nil, "nack?ids="+strings.Join(g.takeUntil(1).ids(), ",")+"&action=skip")
	testkit.Eventually(t, settleLimit, func() error {
		if readMetrics(t, s.node.Client).value(t, stalledSeries) != 0 {
			return fmt.Errorf("%s is not 0", stalledSeries)
		}
		return nil
	})
	s.node.Stop()
}

// takeUntil waits for so many messages.
func (g *group) takeUntil(count int) (all messages) {
	g.t.Helper()
	testkit.Eventually(g.t, settleLimit, func() error {
		all.all = append(all.all, g.take(100).all...)
		if len(all.all) < count {
			return fmt.Errorf("%s::%s has handed out %d messages, want %d", g.stream, g.name, len(all.all), count)
		}
		return nil
	})
	return all
}
