package torture

import (
	"testing"

	"github.com/annalsdb/annals/client"
)

// TestDecisions feeds the checks of writes under conditions with histories made by hand. The log
// has an event of another client at position 100, the one that is judged at 200, and one more of
// the other client at 300, all with the tag a and in the stream s; or only the first and the last.
func TestDecisions(t *testing.T) {
	a := client.Query{Items: []client.QueryItem{{Tags: []string{"none"}}, {Types: decided[:], Tags: []string{"a"}}}}
	both := client.Query{Items: []client.QueryItem{{Tags: []string{"a", "b"}, Streams: []string{scenePrefix + "s"}}}}
	conditions := func(after int64) []client.Condition {
		return []client.Condition{{Query: a, After: &after}, {Query: both}}
	}
	// by the first condition, from the beginning; -1: by none
	refusal := func(position int64, event int) *decision {
		d := &decision{broken: client.ViolationError{Position: position}, conditions: conditions(0)}
		if event >= 0 {
			// The rest of the event is filled in below.
			d.broken.Conflicts = []client.Conflict{{Number: int64(event)}}
		}
		return d
	}
	for name, c := range map[string]struct {
		outcome outcome
		there   bool
		call    int64
		d       *decision
		edit    func(found []client.Found) []client.Found
		want    []string
	}{
		"held":               {done, true, 60, &decision{told: client.Appended{Position: 200}, conditions: conditions(100)}, nil, nil},
		"held, not answered": {pending, true, 60, &decision{conditions: conditions(100)}, nil, nil},
		"failed":             {pending, true, 60, &decision{conditions: conditions(99)}, nil, []string{kindCondition}},
		"check":              {done, true, 60, &decision{told: client.Appended{Position: 200}, checks: []client.Check{{Expected: 0}}}, nil, nil},
		"failed check":       {done, true, 60, &decision{told: client.Appended{Position: 200}, checks: []client.Check{{Expected: 4}}}, nil, []string{kindCondition}},
		"position":           {done, true, 60, &decision{told: client.Appended{Position: 201}}, nil, []string{kindOrder}},
		"too much":           {done, true, 60, &decision{told: client.Appended{Position: 200}, labels: []label{{"a", 1}}}, nil, []string{kindCondition}},
		"other tags": {done, true, 60, &decision{told: client.Appended{Position: 200}, labels: []label{{"a", 0}}}, func(found []client.Found) []client.Found {
			found[1].Tags = []string{"b"}
			return found
		}, []string{kindFound}},
		"refused":                {conflict, false, 60, refusal(300, 0), nil, nil},
		"refused by a later one": {conflict, false, 60, refusal(300, 1), nil, []string{kindCondition}},
		"refused for nothing":    {conflict, false, 60, refusal(99, 0), nil, []string{kindCondition, kindStale}},
		"refused without reason": {conflict, false, 60, refusal(300, -1), nil, []string{kindCondition}},
		"refused on old grounds": {conflict, false, 600, refusal(200, 0), nil, []string{kindStale}},
		"refused and there":      {conflict, true, 60, refusal(100, 0), nil, []string{kindUnwanted, kindCondition}},
		"refused by a check": {conflict, false, 60, &decision{checks: []client.Check{{Expected: 0}, {Expected: 1}},
			broken: client.ViolationError{Position: 300, Violations: []client.Violation{{Stream: scenePrefix + "s", Actual: 1}}}}, nil, nil},
		"refused by the wrong check": {conflict, false, 60, &decision{checks: []client.Check{{Expected: 0}, {Expected: 1}},
			broken: client.ViolationError{Position: 300, Violations: []client.Violation{{Check: 1, Stream: scenePrefix + "s", Actual: 1}}}}, nil, []string{kindCondition}},
		"missing": {done, true, 60, &decision{told: client.Appended{Position: 200}}, func(found []client.Found) []client.Found { return found[:2] }, []string{kindFound}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			other, j := s.client(), s.client()
			s.ids.firstDecider, s.ids.deciders = other.client, 2
			s.book.ids = s.ids
			write := func(j *journal, o op, d *decision) ref {
				o.kind, o.decision, o.count = opDecision, d, 1
				if d.labels == nil {
					d.labels = []label{{"a", 0}}
				}
				return s.op(j, "s", o)
			}
			refs := []ref{
				write(other, op{outcome: done, call: 10, ret: 50}, &decision{told: client.Appended{Position: 100}}),
				write(j, op{outcome: c.outcome, call: c.call, ret: c.call + 10, number: 1}, c.d),
				write(other, op{outcome: done, call: 100, ret: 500, number: 2}, &decision{told: client.Appended{Position: 300}}),
			}
			if !c.there {
				refs = []ref{refs[0], refs[2]}
				s.hist.find(refs[1]).number = 1
			}
			var entries []entry
			for i, r := range refs {
				e := s.shown(r, "s", int64(i))
				e.Type = s.ids.eventType(r)
				entries = append(entries, e)
				position := int64(100 * (i + 1))
				if i == 1 && !c.there {
					position = 300
				}
				s.book.decided = append(s.book.decided, client.Found{Position: position, Stream: e.Stream, Number: e.Number, ID: e.ID, Type: e.Type, Tags: []string{"a"}})
			}
			for i := range c.d.checks {
				c.d.checks[i].Stream = scenePrefix + "s"
			}
			for i := range c.d.broken.Conflicts {
				e := s.book.decided[c.d.broken.Conflicts[i].Number]
				c.d.broken.Conflicts[i] = client.Conflict{Position: e.Position, Stream: e.Stream, Number: e.Number, ID: e.ID, Type: e.Type}
			}
			if c.edit != nil {
				s.book.decided = c.edit(s.book.decided)
			}
			s.book.decidedRead = true
			s.log("node 0", entries...)
			newLedger(s.hist, s.book).check()
			s.expect(c.want...)
		})
	}
}
