package integration_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// subscriptionsSurviveKill kills a node with groups in all conditions: messages that were not
// acknowledged come again, and changes of groups stay.
func subscriptionsSurviveKill(t *testing.T) {
	dir := t.TempDir()
	node := testkit.StartNode(t, dir)
	mustAppend(t, node, "s", -1, 50)
	timed := prompt(settings{"maxCheckPointCount": 500, "checkPointAfterMilliseconds": 100})
	used := newGroup(t, node.Client, "s", "used", timed)
	fresh := newGroup(t, node.Client, "s", "fresh", settings{"startFrom": -1})
	changed := newGroup(t, node.Client, "s", "changed", timed)
	gone := newGroup(t, node.Client, "s", "gone", prompt(nil))
	future := newGroup(t, node.Client, "not-yet", "future", settings{"startFrom": -1})
	mustAppend(t, node, "s", 49, 3)
	mustAppend(t, node, "not-yet", -1, 2)

	got := used.take(20)
	used.ack(got.ids()[:10]...)
	used.ack(got.ids()[15:]...)
	used.park(got.ids()[10:12]...)
	used.awaitCheckpoint(11)
	used.await("2 parked", func(i *groupInfo) bool { return i.Parked == 2 })
	ten := changed.take(10)
	changed.ack(ten.ids()...)
	changed.awaitCheckpoint(9)
	changed.must(http.MethodPost, prompt(settings{"maxRetryCount": 3, "startFrom": 30, "messageTimeoutMilliseconds": 1234}))
	ten = gone.take(10)
	gone.park(ten.ids()[0])
	gone.ack(ten.ids()[1:]...)
	gone.awaitCheckpoint(9)
	gone.must(http.MethodDelete, nil)
	// Too little for a checkpoint, and yet there are parked messages.
	few := newGroup(t, node.Client, "s", "few", settings{"startFrom": 7})
	few.park(few.take(3).ids()...)
	few.await("3 parked", func(i *groupInfo) bool { return i.Parked == 3 })
	// Nothing is done with these between the answer and the end.
	newGroup(t, node.Client, "s", "last", settings{"namedConsumerStrategy": "Pinned", "startFrom": 51})
	node.Kill()

	node = testkit.StartNode(t, dir)
	for _, g := range []*group{used, fresh, changed, gone, future, few} {
		g.node = node.Client
	}
	names := []string{"not-yet::future", "s::used", "s::fresh", "s::changed", "s::few", "s::last"}
	t.Logf("the groups are there %s after the start", awaitGroups(t, node.Client, names...).Round(time.Millisecond))
	if i := used.info(); i.Parked != 2 || i.at() != "11" || i.Outstanding != 0 || i.Status != "Live" && !strings.HasPrefix(i.Status, "Behind") {
		t.Errorf("of the group in use: %+v, checkpoint %s", i, i.at())
	}
	if parked := used.parked(); len(parked) != 2 || parked[0].Number != 10 || parked[1].Number != 11 {
		t.Errorf("parked are %v", parked)
	}
	got = used.takeAll()
	wantNumbers(t, "not acknowledged before the end", got, span(12, 52))
	wantNumbers(t, "nothing that existed", fresh.takeAll(), span(50, 52))
	wantNumbers(t, "a stream that did not exist", future.takeAll(), span(0, 1))
	wantNumbers(t, "after a checkpoint, and not where the update begins", changed.takeAll(), span(10, 52))
	if i := few.info(); i.Parked != 3 || i.at() != "none" || len(few.parked()) != 3 {
		t.Errorf("parked without a checkpoint: %+v, checkpoint %s", i, i.at())
	}
	wantNumbers(t, "without a checkpoint", few.takeAll(), span(7, 52))
	last := &group{t, node.Client, "s", "last"}
	wantNumbers(t, "created at last", last.takeAll(), span(51, 52))
	for g, want := range map[*group]settings{
		changed: {"maxRetryCount": 3.0, "startFrom": 30.0, "messageTimeoutMilliseconds": 1234.0, "minCheckPointCount": 1.0},
		fresh:   {"startFrom": -1.0, "maxRetryCount": 10.0, "messageTimeoutMilliseconds": 10000.0},
		last:    {"namedConsumerStrategy": "Pinned", "startFrom": 51.0},
	} {
		config := g.info().Config
		for key, value := range want {
			check.Equal(t, config[key], value, key, "of", g.name)
		}
	}
	if answer := gone.do(http.MethodGet, nil, "info"); answer.Status != http.StatusNotFound {
		t.Errorf("a group that was deleted: %s", answer)
	}
	if parked := gone.parked(); len(parked) != 0 {
		t.Errorf("of a deleted group there are still parked %v", parked)
	}
	gone.must(http.MethodPut, prompt(nil))
	wantNumbers(t, "of the name of a deleted group", gone.takeAll(), span(0, 52))
	if i := gone.info(); i.Parked != 0 || i.at() != "none" {
		t.Errorf("of the name of a deleted group: %+v, checkpoint %s", i, i.at())
	}

	// What is parked is handed out again, and if the node ends over it once more.
	used.ack(got.ids()...)
	used.awaitCheckpoint(52)
	used.must(http.MethodPost, nil, "replayParked")
	used.await("replay", func(i *groupInfo) bool { return i.Parked == 0 && i.Retried == 2 })
	wantNumbers(t, "replayed", used.take(1), []int64{10})
	node.Kill()
	node = testkit.StartNode(t, dir)
	used.node = node.Client
	awaitGroups(t, node.Client, append(names, "s::gone")...)
	again := used.takeAll()
	wantNumbers(t, "replayed, and not answered before the end", again, []int64{10, 11})
	used.ack(again.ids()...)
	used.await("end of the replay", func(i *groupInfo) bool { return i.Outstanding+i.Retried == 0 && i.Parked == 0 })
	node.Stop()
	verifyClean(t, dir)
}

// subscriptionNames: groups of all kinds of names keep to themselves, and come back.
func subscriptionNames(t *testing.T) {
	dir := t.TempDir()
	node := testkit.StartNode(t, dir)
	streams := []string{"plain", "with space", "a/b", "ä€😀", "100%25", "?&=#+", "restart", "viewparkedmessages", "\"quoted\"\\", "s-parked"}
	names := []string{"g", "info", "ack", "replayParked", "a/b c", "ä€😀", "%2F", "g-checkpoint"}
	var groups []*group
	for _, s := range streams {
		mustAppend(t, node, s, -1, 6)
		for _, name := range names {
			groups = append(groups, newGroup(t, node.Client, s, name, prompt(nil)))
		}
	}
	use := func(want []int64) {
		t.Helper()
		for i, g := range groups {
			got := g.take(2)
			wantNumbers(t, g.stream+"::"+g.name, got, want)
			if i%2 == 0 && len(got.all) > 0 {
				g.park(got.ids()...)
			} else {
				g.ack(got.ids()...)
			}
		}
		for i, g := range groups {
			g.awaitCheckpoint(want[1])
			if i%2 == 0 {
				g.await(fmt.Sprintf("%d parked", want[1]+1), func(i *groupInfo) bool { return i.Parked == want[1]+1 })
				if parked := g.parked(); len(parked) != int(want[1])+1 || parked[0].Stream != g.stream {
					t.Errorf("parked of %s::%s are %+v", g.stream, g.name, parked)
				}
			}
			if i := g.info(); i.Stream != g.stream || i.Name != g.name {
				t.Errorf("%s::%s is called %s::%s", g.stream, g.name, i.Stream, i.Name)
			}
		}
	}
	use(span(0, 1))
	for i, end := range []func(){node.Kill, func() { node.Stop() }} {
		end()
		node = testkit.StartNode(t, dir)
		for _, g := range groups {
			g.node = node.Client
		}
		testkit.Eventually(t, settleLimit, func() error { _, _, err := listGroups(t.Context(), node.Client); return err })
		use(span(2*int64(i)+2, 2*int64(i)+3))
	}
	for _, g := range groups {
		g.must(http.MethodDelete, nil)
	}
	awaitGroups(t, node.Client)
	node.Stop()
}

// subscriptionKeys: of two groups whose streams and names make the same key
// the second one takes nothing away from the first.
func subscriptionKeys(t *testing.T) {
	node := testkit.StartNode(t, t.TempDir())
	mustAppend(t, node, "a", -1, 10)
	mustAppend(t, node, "a::b", -1, 10)
	first := newGroup(t, node.Client, "a", "b::c", prompt(nil))
	got := first.take(6)
	first.park(got.ids()[:3]...)
	first.ack(got.ids()[3:]...)
	first.awaitCheckpoint(5)
	first.await("3 parked", func(i *groupInfo) bool { return i.Parked == 3 })
	second := &group{t, node.Client, "a::b", "c"}
	if answer := second.do(http.MethodPut, prompt(nil)); answer.Status == http.StatusOK {
		got = second.take(2)
		second.ack(got.ids()...)
		second.awaitCheckpoint(1)
		second.must(http.MethodDelete, nil)
	} else if answer.Status != http.StatusConflict {
		t.Errorf("the second one: %s", answer)
	}
	if parked := first.parked(); len(parked) != 3 || first.info().Parked != 3 {
		t.Errorf("of the 3 parked messages of %s::%s there are %d, and %d are counted", first.stream, first.name, len(parked), first.info().Parked)
	}
	order(t, node, "/subscriptions/restart", http.StatusOK)
	testkit.Eventually(t, settleLimit, func() error { _, _, err := listGroups(t.Context(), node.Client); return err })
	if at := first.info().at(); at != "5" {
		t.Errorf("the checkpoint of %s::%s is %s, and was 5", first.stream, first.name, at)
	}
	readMetrics(t, node.Client).value(t, `annals_subscription_lag_events{group="a::b::c"}`)
	node.Stop()
}
