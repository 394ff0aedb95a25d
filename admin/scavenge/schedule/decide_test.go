package schedule

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/annalsdb/annals/admin/cron"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

var (
	one, two, three = event.ID{1}, event.ID{2}, event.ID{3}
	session         = event.ID{100}
	noon            = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

// recordOf makes an event of a kind, one minute after the other from noon on.
func recordOf(t *testing.T, number int64, kind string, n note) *event.Record {
	t.Helper()
	data := check.Value(json.Marshal(n)).Must(t)
	return &event.Record{Number: number, Type: kind, Data: data, Time: noon.Add(time.Duration(number) * time.Minute).UnixNano()}
}

// history makes a state of events, all about the round of noon.
func history(t *testing.T, events ...proposal) *state {
	t.Helper()
	s := newState()
	for i, e := range events {
		if e.kind != TypeJoined && e.kind != TypeLeft && e.note.Round.IsZero() {
			e.note.Round = noon
		}
		if e.note.Schedule == "" {
			e.note.Schedule = "@hourly"
		}
		if !s.apply(recordOf(t, int64(i), e.kind, e.note)) {
			t.Fatalf("event %d, %s, means nothing", i, e.kind)
		}
	}
	return s
}

func joins(node event.ID) proposal {
	return proposal{TypeJoined, note{Node: node, Endpoint: "here", Since: noon.Add(-time.Hour)}}
}
func takes(node event.ID) proposal {
	return proposal{TypeTaken, note{Node: node, Session: session}}
}
func ends(node event.ID, result string) proposal {
	return proposal{TypeTurnEnded, note{Node: node, Result: result}}
}
func begins() proposal { return proposal{TypeStarted, note{Node: one}} }
func over() proposal {
	return proposal{TypeRoundEnded, note{Node: one, Result: RoundComplete, Through: noon.Add(10 * time.Minute)}}
}

func TestDecide(t *testing.T) {
	all := []proposal{joins(one), joins(two), joins(three), begins()}
	with := func(more ...proposal) []proposal { return append(all[:len(all):len(all)], more...) }
	const none = "wait"
	cases := []struct {
		name    string
		history []proposal
		view    func(*view)
		want    string
	}{
		{"nothing is known", nil, nil, TypeJoined},
		{"no schedule", nil, func(v *view) { v.schedule = cron.Schedule{} }, none},
		{"no schedule any more", []proposal{joins(one)}, func(v *view) { v.schedule = cron.Schedule{} }, TypeLeft},
		{"another endpoint", []proposal{joins(one)}, func(v *view) { v.endpoint = "there" }, TypeJoined},
		{"joined long ago", []proposal{joins(one)}, func(v *view) { v.now = noon.Add(-time.Minute) }, none},
		{"due", []proposal{joins(one)}, nil, TypeStarted},
		{"done already", with(takes(one), ends(one, "Success"), over()), nil, none},
		{"due again", with(takes(one), ends(one, "Success"), over()), func(v *view) { v.now = noon.Add(time.Hour) }, TypeStarted},
		{"due during the round", with(proposal{TypeRoundEnded, note{Node: one, Through: noon.Add(61 * time.Minute)}}),
			func(v *view) { v.now = noon.Add(62 * time.Minute) }, none},
		{"a follower's turn", all, nil, TypeTaken},
		{"another node's turn", with(takes(two)), nil, none},
		{"the turn of a node that has just died", with(takes(two)), func(v *view) { v.away[two] = grace - 1 }, none},
		{"the turn of a dead node", with(takes(two)), func(v *view) { v.away[two] = grace }, TypeTurnEnded},
		{"own turn", with(takes(one)), nil, "start"},
		{"own turn, at work", with(takes(one)), func(v *view) { v.work = work{number: 4, running: true} }, none},
		{"own turn, done", with(takes(one)), func(v *view) { v.work = work{number: 4} }, TypeTurnEnded},
		{"own turn, of the process before", with(takes(one)), func(v *view) { v.session = event.ID{101} }, TypeTaken},
		{"own turn, taken too often", with(takes(one), takes(one), takes(one), takes(one), takes(one)),
			func(v *view) { v.session = event.ID{101} }, TypeTurnEnded},
		{"own turn, taken often by this process", with(takes(one), takes(one), takes(one), takes(one), takes(one)), nil, "start"},
		{"own turn was lost while at work", with(takes(one), ends(one, TurnLost), takes(two)),
			func(v *view) { v.work = work{number: 4, running: true} }, "stop"},
		{"own turn was lost and taken again", with(takes(one), ends(one, TurnLost), takes(one)),
			func(v *view) { v.work = work{number: 4, running: true} }, "stop"},
		{"own turn was lost", with(takes(one), ends(one, TurnLost)), nil, TypeTaken},
		{"own turn was lost too often", with(takes(one), ends(one, TurnLost), takes(one), ends(one, TurnLost), takes(one), ends(one, TurnLost),
			takes(one), ends(one, TurnLost), takes(one), ends(one, TurnLost)), nil, none},
		{"the leader waits", with(takes(two), ends(two, "Success")), func(v *view) { v.leading = true }, none},
		{"the leader waits no more", with(takes(two), ends(two, "Success")),
			func(v *view) { v.leading, v.successor, v.quiet = true, true, grace }, "resign"},
		{"the leader does not wait for the dead", with(takes(two), ends(two, "Success")),
			func(v *view) { v.leading, v.successor, v.away[three] = true, true, grace }, "resign"},
		{"the leader hands over", with(takes(two), ends(two, "Success"), takes(three), ends(three, "Errored")),
			func(v *view) { v.leading, v.successor = true, true }, "resign"},
		{"the leader hands over again soon", with(takes(two), ends(two, "Success"), takes(three), ends(three, "Errored")),
			func(v *view) { v.leading, v.successor, v.pausing, v.handOvers = true, true, true, 1 }, none},
		{"the leader cannot hand over", with(takes(two), ends(two, "Success"), takes(three), ends(three, "Stopped")),
			func(v *view) { v.leading, v.successor, v.handOvers = true, true, maxHandOvers }, TypeTaken},
		{"the leader is alone", []proposal{joins(one), begins()}, func(v *view) { v.leading = true }, TypeTaken},
		{"done, others are not", with(takes(one), ends(one, "Success")), nil, none},
		{"done, others do not come", with(takes(one), ends(one, "Success")), func(v *view) { v.quiet = patienceToEnd * grace }, TypeRoundEnded},
		{"done, others are dead", with(takes(one), ends(one, "Success")),
			func(v *view) { v.away[two], v.away[three] = grace, grace }, TypeRoundEnded},
		{"done, others are restarting", with(takes(one), ends(one, "Success")),
			func(v *view) { v.away[two], v.away[three] = grace, grace-1 }, none},
		{"all are done", with(takes(one), ends(one, "Success"), takes(two), ends(two, TurnWithdrawn), takes(three), ends(three, "Success")), nil, TypeRoundEnded},
		{"no schedule, others take part", []proposal{joins(two), begins()}, func(v *view) { v.schedule = cron.Schedule{} }, none},
		{"no schedule, no other takes part", []proposal{joins(two), begins()},
			func(v *view) { v.schedule, v.away[two] = cron.Schedule{}, grace }, TypeRoundEnded},
		{"a round of long ago", with(takes(one), ends(one, "Success")), func(v *view) { v.now, v.quiet = noon.Add(25*time.Hour), patienceStale*grace }, TypeRoundEnded},
		{"a round of long ago, seen just now", with(takes(one), ends(one, "Success")), func(v *view) { v.now = noon.Add(25 * time.Hour) }, none},
		{"a turn of long ago", with(takes(one)), func(v *view) { v.now = noon.Add(99 * time.Hour) }, "start"},
	}
	hourly := check.Value(cron.Parse("@hourly")).Must(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			v := view{
				now: noon.Add(20 * time.Minute), self: one, endpoint: "here", session: session, schedule: hourly,
				away: map[event.ID]time.Duration{},
			}
			if c.view != nil {
				c.view(&v)
			}
			s := history(t, c.history...)
			next := decide(s, &v)
			got := map[action]string{wait: none, start: "start", stop: "stop", resign: "resign"}[next.do]
			if next.do == propose {
				got = next.event.kind
				// What a node proposes must mean something, else it would propose it for ever.
				if !s.apply(recordOf(t, s.version+1, next.event.kind, next.event.note)) {
					t.Errorf("%s means nothing", got)
				}
			}
			check.Equal(t, got, c.want, "decides to")
		})
	}
}

func TestApplyLeavesOut(t *testing.T) {
	later := note{Round: noon.Add(time.Hour), Node: two, Result: "Success"}
	cases := []struct {
		name    string
		history []proposal
		event   proposal
	}{
		{"turn without a round", nil, takes(one)},
		{"turn of another round", []proposal{begins()}, proposal{TypeTaken, later}},
		{"turn that is another's", []proposal{begins(), takes(one)}, takes(two)},
		{"turn that was had", []proposal{begins(), takes(one), ends(one, "Success")}, takes(one)},
		{"end of another's turn", []proposal{begins(), takes(one)}, ends(two, "Success")},
		{"end without a turn", []proposal{begins()}, ends(one, "Success")},
		{"round in a round", []proposal{begins()}, proposal{TypeStarted, later}},
		{"same round again", []proposal{begins(), over()}, begins()},
		{"end of a round in a turn", []proposal{begins(), takes(one)}, over()},
		{"end of another round", []proposal{begins()}, proposal{TypeRoundEnded, later}},
		{"no node", nil, proposal{TypeJoined, note{}}},
		{"unknown type", []proposal{begins()}, proposal{"$unknown", note{Round: noon, Node: one}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := history(t, c.history...)
			before := fmt.Sprintf("%+v %+v", s.round, s.last)
			n := c.event.note
			if n.Round.IsZero() && c.event.kind != TypeJoined {
				n.Round = noon
			}
			if s.apply(recordOf(t, s.version+1, c.event.kind, n)) {
				t.Error("it means something")
			}
			if after := fmt.Sprintf("%+v %+v", s.round, s.last); after != before || s.version != int64(len(c.history)) {
				t.Errorf("the state is\n%s at %d, and was\n%s", after, s.version, before)
			}
		})
	}
}
