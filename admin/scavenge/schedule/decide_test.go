package schedule

import (
	"testing"
	"time"

	journal "github.com/annalsdb/annals/admin/record"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

var (
	one, two, three = event.ID{1}, event.ID{2}, event.ID{3}
	session         = event.ID{100}
	noon            = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

// ended is a turn that a node had.
func ended(node event.ID, result string) turn { return turn{Node: node, Result: result} }

func TestDecide(t *testing.T) {
	type (
		records = func(r *record)
		views   = func(v *view)
	)
	const none = ""
	// running has the round of noon, after some turns; held is the turn that a node has.
	running := func(turns ...turn) records {
		return func(r *record) {
			r.Round = &round{Due: noon, Started: noon, Touched: noon, Turns: turns, Attempts: map[event.ID]int{}}
			for i := range turns {
				r.Round.Attempts[turns[i].Node]++
			}
		}
	}
	held := func(node event.ID, attempt int) records {
		return func(r *record) {
			running()(r)
			r.Round.Turn = &turn{Node: node, Session: session, Attempt: attempt}
		}
	}
	silent := func(d time.Duration, nodes ...event.ID) views {
		return func(v *view) {
			for _, node := range nodes {
				v.nodes[node] = &peer{silent: d}
			}
		}
	}
	at := func(d time.Duration) views { return func(v *view) { v.now = noon.Add(d) } }
	answers := func(node event.ID, edit func(p *peer)) views { return func(v *view) { edit(v.nodes[node]) } }
	others := running(ended(two, "Success"), ended(three, "Errored"))
	for _, c := range []struct {
		name   string
		record records
		view   views
		want   string
	}{
		{"nothing is known", func(r *record) { r.Schedules = nil }, nil, "learn"},
		{"another schedule", nil, answers(two, func(p *peer) { p.Schedule = "@weekly" }), "learn"},
		{"a schedule that no node has any more", func(r *record) { r.Schedules["@weekly"] = noon }, nil, "learn"},
		{"a schedule that a silent node may have", func(r *record) { r.Schedules["@weekly"], r.Through = noon, noon }, silent(grace, two), none},
		{"a schedule of a time to come", func(r *record) { r.Schedules["@hourly"] = noon.Add(99 * time.Hour) }, nil, "learn"},
		{"not due yet", nil, at(-time.Minute), none},
		{"due", nil, nil, "begin"},
		{"done already", func(r *record) { r.Through = noon }, nil, none},
		{"due again", func(r *record) { r.Through = noon }, at(time.Hour), "begin"},
		{"due during the round", func(r *record) { r.Through = noon.Add(61 * time.Minute) }, at(61 * time.Minute), none},
		{"the last was of a time to come", func(r *record) { r.Through = noon.Add(99 * time.Hour) }, nil, "begin, warn"},
		{"too long ago", func(r *record) { r.Schedules = map[string]time.Time{"@yearly": {}} }, func(v *view) {
			for _, p := range v.nodes {
				p.Schedule = "@yearly"
			}
		}, none},
		{"the first turn", running(), nil, "take 2"},
		{"nodes that have just gone are waited for", running(ended(two, "Success")), silent(grace-1, three), none},
		{"nodes that are gone are not", running(ended(two, "Success")), silent(grace, three), "resign"},
		{"nodes without a schedule take no turn", running(), answers(two, func(p *peer) { p.Schedule = "" }), "take 3"},
		{"a lost turn is taken again", running(ended(two, TurnLost)), nil, "take 2"},
		{"but not for ever", running(ended(two, TurnLost), ended(two, TurnLost), ended(two, TurnLost), ended(two, TurnLost), ended(two, TurnLost)), nil, "take 3"},
		{"begins", held(two, 1), nil, none},
		{"is at work", held(two, 1), answers(two, func(p *peer) { p.Round, p.Running = noon, true }), none},
		{"is done", held(two, 1), answers(two, func(p *peer) { p.Round, p.Result = noon, "Success" }), "end 2 Success"},
		{"does not answer", held(two, 1), silent(grace-1, two), none},
		{"has not answered for long", held(two, 1), silent(grace, two), "end 2 Lost"},
		{"was restarted", held(two, 1), answers(two, func(p *peer) { p.Session = event.ID{9} }), "take 2"},
		{"was restarted too often", held(two, maxAttempts), answers(two, func(p *peer) { p.Session = event.ID{9} }), "end 2 Errored"},
		{"has no schedule any more", held(two, 1), answers(two, func(p *peer) { p.Schedule = "" }), "end 2 Withdrawn"},
		{"a turn of long ago", held(two, 1), at(99 * time.Hour), none},
		{"the leader hands over", others, nil, "resign"},
		{"the leader hands over again soon", others, func(v *view) { v.handOvers, v.pausing = 1, true }, none},
		{"the leader cannot hand over", others, func(v *view) { v.handOvers = maxHandOvers }, "take 1, warn"},
		{"the leader is alone", others, func(v *view) { v.successor = false }, "take 1"},
		{"the leader has no schedule", others, answers(one, func(p *peer) { p.Schedule = "" }), "Completed"},
		{"all are done", running(ended(two, "Success"), ended(one, "Stopped"), ended(three, TurnWithdrawn)), nil, "Completed"},
		{"a round of long ago", running(ended(two, "Success")), at(25 * time.Hour), "Abandoned"},
		{"no one takes part any more", running(ended(two, "Success")), func(v *view) {
			silent(grace, two, three)(v)
			v.nodes[one].Schedule = ""
		}, "Abandoned"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &record{Schedules: map[string]time.Time{"@hourly": noon.Add(-time.Hour)}}
			v := view{now: noon.Add(20 * time.Minute), self: one, nodes: map[event.ID]*peer{}, successor: true}
			for _, node := range []event.ID{one, two, three} {
				v.nodes[node] = &peer{Answer: Answer{Schedule: "@hourly", Session: session}, isHeard: true}
			}
			if c.record != nil {
				c.record(r)
			}
			if c.view != nil {
				c.view(&v)
			}
			before := r.clone()
			if got := outcome(before, decide(r, &v)); got != c.want {
				t.Errorf("decides to %s, expected %s", got, c.want)
			}
		})
	}
}

// outcome describes what a step does to a record.
func outcome(was *record, st step) (text string) {
	now := st.next
	switch {
	case st.resigns:
		return "resign"
	case now == nil:
		return ""
	case now.Round != nil && was.Round == nil:
		text = "begin"
	case now.Round == nil && was.Round != nil:
		text = now.Last.Result
	case now.Round != nil && now.Round.Turn != nil:
		text = "take " + string('0'+rune(now.Round.Turn.Node[0]))
	case now.Round != nil && len(now.Round.Turns) > len(was.Round.Turns):
		last := now.Round.Turns[len(now.Round.Turns)-1]
		text = "end " + string('0'+rune(last.Node[0])) + " " + last.Result
	default:
		text = "learn"
	}
	if st.say != "" && st.level.String() == "warn" && st.say != "turn to be scavenged ends" {
		text += ", warn"
	}
	return text
}

// What is stored stays as it is.
func TestRecord(t *testing.T) {
	full := record{
		Schedules: map[string]time.Time{"@daily": noon}, Through: noon,
		Round: &round{Due: noon, Schedule: "@daily", Started: noon, Touched: noon, Attempts: map[event.ID]int{one: 1},
			Turn: &turn{Node: one, Endpoint: "a:1", Session: session, Taken: noon, Attempt: 1}},
		Last: &round{Due: noon, Schedule: "@daily", Started: noon, Touched: noon, Ended: noon, Result: RoundComplete,
			Turns: []turn{{Node: two, Endpoint: "b:1", Session: session, Taken: noon, Attempt: 2, Ended: noon, Result: TurnLost, Scavenge: three, Error: "why"}}},
	}
	const at, id = `"2026-03-01T12:00:00Z"`, `-0000-0000-0000-000000000000"`
	want := `{"schedules":{"@daily":` + at + `},"through":` + at + `,"round":{"due":` + at + `,"schedule":"@daily","started":` + at + `,"touched":` + at +
		`,"turn":{"node":"01000000` + id + `,"endpoint":"a:1","session":"64000000` + id + `,"taken":` + at + `,"attempt":1},"attempts":{"01000000` + id + `:1}}` +
		`,"last":{"due":` + at + `,"schedule":"@daily","started":` + at + `,"touched":` + at + `,"ended":` + at + `,"result":"Completed"` +
		`,"turns":[{"node":"02000000` + id + `,"endpoint":"b:1","session":"64000000` + id + `,"taken":` + at + `,"attempt":2,"ended":` + at +
		`,"result":"Lost","scavengeId":"03000000` + id + `,"error":"why"}]}}`
	check.Equal(t, string(journal.Encode(full)), want)
}
