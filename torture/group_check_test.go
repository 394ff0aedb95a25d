package torture

import (
	"testing"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// groupScene is one event in one group, which times out after two seconds.
type groupScene struct {
	*scene
	id   event.ID
	subs *subscriptions
	c    *consumer
}

func newGroupScene(t *testing.T) *groupScene {
	t.Helper()
	s := &groupScene{scene: newScene(t)}
	g := &group{scenePrefix + queueStream, "g", groupSettings{Timeout: 2000, MaxRetries: 1}}
	s.subs = &subscriptions{worker: worker{load: &load{}}, groups: []*group{g}}
	s.c = &consumer{group: g}
	s.subs.consumers = []*consumer{s.c}
	r := s.wrote(s.client(), queueStream, anyVersion, 0, 0, 1)
	s.id = s.ids.id(r)
	s.log("node 0", s.shown(r, queueStream, 0))
	return s
}

// given is a delivery, in milliseconds.
func (s *groupScene) given(call, ret int64) {
	s.c.steps = append(s.c.steps, step{What: delivered, Group: s.c.group, ID: s.id, Title: "0@" + s.c.group.stream, Call: ms(call), Return: ms(ret)})
}

func (s *groupScene) said(what string, o outcome, call, ret int64) {
	s.c.steps = append(s.c.steps, step{What: what, Group: s.c.group, ID: s.id, Outcome: o, Call: ms(call), Return: ms(ret)})
}

func (s *groupScene) did(what string, g *group, o outcome, call, ret int64) {
	s.subs.acts = append(s.subs.acts, step{What: what, Group: g, Outcome: o, Call: ms(call), Return: ms(ret)})
}

// retried is a demand for a retry with a delay in milliseconds.
func (s *groupScene) retried(delay, call, ret int64) {
	s.said(actionRetry, done, call, ret)
	s.c.steps[len(s.c.steps)-1].Delay = new(time.Duration(ms(delay)))
}

func ms(n int64) int64 { return n * int64(time.Millisecond) }

// TestHandedTwice: a message may come again when something has put it back, and not before.
func TestHandedTwice(t *testing.T) {
	cases := []struct {
		name string
		play func(s *groupScene)
		want []string
	}{
		{"at once", func(s *groupScene) { s.given(100_000, 100_010); s.given(100_020, 100_030) }, []string{kindTwice}},
		{"shortly before its deadline", func(s *groupScene) { s.given(100_000, 100_010); s.given(101_900, 101_990) }, []string{kindTwice}},
		{"in answers that overtake each other", func(s *groupScene) { s.given(100_000, 100_900); s.given(100_100, 100_200) }, []string{kindTwice}},
		{"perhaps after its deadline", func(s *groupScene) { s.given(100_000, 100_010); s.given(101_900, 102_010) }, nil},
		{"after its deadline", func(s *groupScene) { s.given(100_000, 100_010); s.given(102_900, 102_910) }, nil},
		{"after an acknowledgement", func(s *groupScene) {
			s.given(100_000, 100_010)
			s.said(actionAck, done, 100_020, 100_030)
			s.given(100_040, 100_050)
		}, []string{kindTwice}},
		{"after a demand to retry", func(s *groupScene) {
			s.given(100_000, 100_010)
			s.said(actionRetry, done, 100_020, 100_030)
			s.given(100_040, 100_050)
		}, nil},
		{"before the delay of a demand", func(s *groupScene) {
			s.given(100_000, 100_010)
			s.retried(500, 100_020, 100_030)
			s.given(100_400, 100_519)
		}, []string{kindEarly}},
		{"after the delay of a demand", func(s *groupScene) {
			s.given(100_000, 100_010)
			s.retried(500, 100_020, 100_030)
			s.given(100_400, 100_520)
		}, nil},
		{"at the deadline, with a demand that is long delayed", func(s *groupScene) {
			s.given(100_000, 100_010)
			s.retried(5000, 100_020, 100_030)
			s.given(101_900, 102_010)
		}, nil}, // The demand may have come too late.
		{"at the deadline, and the group has a delay", func(s *groupScene) {
			s.c.group.settings.RetryDelay = 1000
			s.given(100_000, 100_010)
			s.given(102_500, 102_990)
		}, []string{kindTwice}},
		{"after the deadline and the delay of the group", func(s *groupScene) {
			s.c.group.settings.RetryDelay = 1000
			s.given(100_000, 100_010)
			s.given(102_500, 103_000)
		}, nil},
		{"after a pause", func(s *groupScene) {
			s.given(100_000, 100_010)
			s.did(actPause, s.c.group, done, 100_011, 100_012)
			s.did(actResume, s.c.group, done, 100_013, 100_014)
			s.given(100_020, 100_030)
		}, []string{kindTwice}},
		{"after a demand to park that did not come to that", func(s *groupScene) {
			s.given(100_000, 100_010)
			s.said(actionPark, done, 100_020, 100_030)
			s.given(100_040, 100_050)
		}, nil},
		{"after a demand that certainly did not arrive", func(s *groupScene) {
			s.given(100_000, 100_010)
			s.said(actionRetry, refused, 100_020, 100_030)
			s.given(100_040, 100_050)
		}, []string{kindTwice}},
		{"after a demand that lay somewhere", func(s *groupScene) {
			s.said(actionRetry, pending, 90_000, 93_000)
			s.given(100_000, 100_010)
			s.given(100_040, 100_050)
		}, nil},
		{"long after a demand to retry", func(s *groupScene) {
			s.said(actionRetry, done, 90_000, 90_010)
			s.given(100_000, 100_010)
			s.given(100_040, 100_050)
		}, []string{kindTwice}},
		{"after a restart", func(s *groupScene) {
			s.given(100_000, 100_010)
			s.did(actRestart, nil, done, 100_011, 100_012)
			s.given(100_020, 100_030)
		}, nil},
		{"after an update", func(s *groupScene) {
			s.given(100_000, 100_010)
			s.did(actUpdate, s.c.group, done, 100_011, 100_012)
			s.given(100_020, 100_030)
		}, nil},
		{"after an update of another group", func(s *groupScene) {
			s.given(100_000, 100_010)
			s.did(actUpdate, &group{}, done, 100_011, 100_012)
			s.given(100_020, 100_030)
		}, []string{kindTwice}},
		{"after a replay", func(s *groupScene) {
			s.given(100_000, 100_010)
			s.did(actReplay, s.c.group, done, 100_011, 100_012)
			s.given(100_020, 100_030)
		}, []string{kindTwice}},
		{"near a change of leader", func(s *groupScene) { s.given(200_000, 200_010); s.given(200_020, 200_030) }, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newGroupScene(t)
			c.play(s)
			s.said(actionAck, done, 300_000, 300_001)
			w := newWatch(nil, nil, s.find, &timeline{})
			w.calms = []calm{{from: ms(1000), to: ms(201_000)}, {from: ms(202_000), to: ms(400_000)}}
			checkGroups(newLedger(s.hist, s.book), s.subs, w.wasCalm)
			s.expect(c.want...)
		})
	}
}

// TestPaused: from the answer to a pause until its end is asked for nothing is given.
func TestPaused(t *testing.T) {
	for _, c := range []struct {
		name string
		play func(s *groupScene)
		want []string
	}{
		{"before it was answered", func(s *groupScene) { s.did(actPause, s.c.group, done, 50, 105) }, nil},
		{"after it was answered", func(s *groupScene) { s.did(actPause, s.c.group, done, 50, 60) }, []string{kindPaused}},
		{"after one of another group", func(s *groupScene) { s.did(actPause, &group{}, done, 50, 60) }, nil},
		{"after one of which nothing is known", func(s *groupScene) { s.did(actPause, s.c.group, pending, 50, 60) }, nil},
		{"as its end is asked for", func(s *groupScene) {
			s.did(actPause, s.c.group, done, 50, 60)
			s.did(actResume, s.c.group, pending, 105, 200)
		}, nil},
		{"after its end was refused", func(s *groupScene) {
			s.did(actPause, s.c.group, done, 50, 60)
			s.did(actResume, s.c.group, refused, 70, 80)
			s.did(actResume, s.c.group, done, 200, 210)
		}, []string{kindPaused}},
		{"as the end of an earlier pause lies somewhere", func(s *groupScene) {
			s.did(actResume, s.c.group, pending, 10, 20)
			s.did(actPause, s.c.group, done, 50, 60)
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newGroupScene(t)
			s.given(100, 110)
			s.said(actionAck, done, 300_000, 300_001)
			c.play(s)
			checkGroups(newLedger(s.hist, s.book), s.subs, func(int64, int64) bool { return true })
			s.expect(c.want...)
		})
	}
}

// TestPassed: a message that is delayed for certain holds back those after it, where there is an
// order.
func TestPassed(t *testing.T) {
	for _, c := range []struct {
		name string
		play func(s *groupScene)
		want []string
	}{
		{"while it is delayed", func(s *groupScene) { s.retried(500, 100_020, 100_030) }, []string{kindPassed}},
		{"with the delay of the group", func(s *groupScene) {
			s.c.group.settings.RetryDelay = 500
			s.said(actionRetry, done, 100_020, 100_030)
		}, []string{kindPassed}},
		{"no order", func(s *groupScene) {
			s.c.group.settings.Strategy = ""
			s.retried(500, 100_020, 100_030)
		}, nil},
		{"when it is due", func(s *groupScene) { s.retried(189, 100_020, 100_030) }, nil},
		{"as the demand is not answered", func(s *groupScene) { s.retried(500, 100_020, 100_150) }, nil},
		{"as nothing is known of the demand", func(s *groupScene) {
			s.retried(500, 100_020, 100_030)
			s.c.steps[len(s.c.steps)-1].Outcome = pending
		}, nil},
		{"as it may be acknowledged", func(s *groupScene) {
			s.said(actionAck, pending, 99_000, 100_005)
			s.retried(500, 100_020, 100_030)
		}, nil},
		{"as its time may be over", func(s *groupScene) { s.retried(3000, 100_020, 102_000) }, nil},
		{"as it may be parked", func(s *groupScene) {
			s.c.steps[0].Retries = 1
			s.retried(500, 100_020, 100_030)
		}, nil},
		{"as the group may be loaded again", func(s *groupScene) {
			s.retried(500, 100_020, 100_030)
			s.did(actUpdate, s.c.group, done, 100_050, 100_060)
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newGroupScene(t)
			s.c.group.settings.Strategy = client.Pinned
			r := s.wrote(s.client(), queueStream, anyVersion, 1, 1, 2)
			s.book.logForward(place{node: "node 0", at: 0}, 1, []entry{s.shown(r, queueStream, 1)}, 2*eventSize, true)
			s.given(100_000, 100_010)
			c.play(s)
			s.c.steps = append(s.c.steps, step{What: delivered, Group: s.c.group, ID: s.ids.id(r), Title: "1@" + s.c.group.stream, Call: ms(100_100), Return: ms(100_210)})
			s.said(actionAck, done, 300_000, 300_001)
			s.c.steps = append(s.c.steps, step{What: actionAck, Group: s.c.group, ID: s.ids.id(r), Call: ms(300_000), Return: ms(300_001)})
			checkGroups(newLedger(s.hist, s.book), s.subs, func(int64, int64) bool { return true })
			s.expect(c.want...)
		})
	}
}

// TestCheckpointInTime: a checkpoint over an event is right only once a consumer has sent an answer
// that takes the event out of the group.
func TestCheckpointInTime(t *testing.T) {
	cases := []struct {
		name string
		play func(s *groupScene)
		want []string
	}{
		{"after the answer was sent", func(s *groupScene) { s.said(actionAck, pending, 80, 500) }, nil},
		{"before the answer", func(s *groupScene) { s.said(actionAck, done, 120, 130) }, []string{kindAhead}},
		{"after an answer that did not arrive", func(s *groupScene) {
			s.said(actionAck, refused, 80, 90)
			s.said(actionAck, done, 120, 130)
		}, []string{kindAhead}},
		{"after a demand to retry", func(s *groupScene) {
			s.said(actionRetry, done, 80, 90)
			s.said(actionAck, done, 120, 130)
		}, []string{kindAhead}},
		{"after a demand to park that nothing came of", func(s *groupScene) { s.said(actionPark, done, 80, 90) }, []string{kindForgotten}},
		{"no answer", func(*groupScene) {}, []string{kindAhead, kindForgotten}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newGroupScene(t)
			s.given(10, 20)
			c.play(s)
			s.book.logForward(place{node: "node 0", at: ms(100)}, 1, []entry{
				{ID: "c", Type: "SubscriptionCheckpoint", Stream: s.c.group.checkpointStream(), Data: `"0"`},
			}, 2*eventSize, true)
			checkGroups(newLedger(s.hist, s.book), s.subs, func(int64, int64) bool { return true })
			s.expect(c.want...)
		})
	}
}

func TestUnfinished(t *testing.T) {
	three, seven := "3", "7"
	cases := []struct {
		name     string
		info     groupInfo
		settings groupSettings
		last     int64
		finished bool
	}{
		{"empty", groupInfo{Status: "Live"}, groupSettings{MinCheckpoint: 1}, -1, true},
		{"at the end", groupInfo{Status: "Live", Checkpoint: &three}, groupSettings{MinCheckpoint: 1}, 3, true},
		{"one before the end", groupInfo{Status: "Live", Checkpoint: &three}, groupSettings{MinCheckpoint: 1}, 4, false},
		{"nine before the end", groupInfo{Status: "Live", Checkpoint: &three}, groupSettings{}, 12, true},
		{"ten before the end", groupInfo{Status: "Live", Checkpoint: &three}, groupSettings{}, 13, false},
		{"behind the end", groupInfo{Status: "Live", Checkpoint: &seven}, groupSettings{}, 3, false},
		{"none", groupInfo{Status: "Live"}, groupSettings{MinCheckpoint: 1}, 0, false},
		{"behind", groupInfo{Status: "Behind", Checkpoint: &three}, groupSettings{}, 3, false},
		{"outstanding", groupInfo{Status: "Live", Checkpoint: &three, Outstanding: 1}, groupSettings{}, 3, false},
		{"to be retried", groupInfo{Status: "Live", Checkpoint: &three, RetryBuffer: 1}, groupSettings{}, 3, false},
		{"read ahead", groupInfo{Status: "Live", Checkpoint: &three, ReadBuffer: 1}, groupSettings{}, 3, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := c.info.unfinished(&c.settings, c.last); (got == "") != c.finished {
				t.Errorf("%q", got)
			}
		})
	}
}

// TestCalm: a look at which a node is silent or says something else ends the calm.
func TestCalm(t *testing.T) {
	s := newScene(t)
	w := newWatch(nil, nil, s.find, &timeline{start: time.Now()})
	follows, leads := view{state: "Follower", term: 2}, view{state: "Leader", term: 2}
	look := func(begun int64, views ...view) {
		claims := map[int64][]int{}
		leader, term := -1, int64(-1)
		for i, v := range views {
			if v.leads() {
				claims[v.term] = append(claims[v.term], i)
				if v.term > term {
					leader, term = i, v.term
				}
			}
		}
		w.calm(begun, views, claims, leader, term)
	}
	far := int64(time.Hour) // The first look of a calm time ends at the true time.
	for i, views := range [][]view{
		{leads, follows}, {leads, follows},
		{leads, {}},
		{leads, follows}, {leads, follows},
		{leads, {state: "Leader", term: 3}},
		{follows, {state: "Leader", term: 3}}, {follows, {state: "Leader", term: 3}},
		{follows, {state: "Leader", term: 4}}, {follows, {state: "Leader", term: 4}},
		{follows, follows},
	} {
		look(far*int64(i+1), views...)
	}
	type span struct {
		to     int64
		leader int
		term   int64
	}
	var got []span
	for _, c := range w.calms {
		got = append(got, span{c.to / far, c.leader, c.term})
	}
	want := []span{{2, 0, 2}, {5, 0, 2}, {8, 1, 3}, {10, 1, 4}}
	check.Slice(t, got, want)
}
