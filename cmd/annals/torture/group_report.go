package torture

import (
	"encoding/json"
	"fmt"
)

// groupStatistics are the numbers of all groups of a round.
type groupStatistics struct {
	Groups    int `json:"groups"`
	Consumers int `json:"consumers"`
	// Events counts an event once for each group.
	Events     int64 `json:"events"`
	Deliveries int64 `json:"deliveries"`
	// CalmDeliveries are those at times at which a message given to two is noticed.
	CalmDeliveries int64 `json:"calmDeliveries"`
	// Duplicates are the deliveries of an event beyond its first in a group.
	Duplicates int64 `json:"duplicates"`
	// Replies counts messages by action and outcome.
	Replies map[string]map[string]int64 `json:"replies"`
	// LeftUnanswered counts messages that a consumer let time out, or answered late; Crashes how often
	// one forgot all it had.
	LeftUnanswered int64 `json:"leftUnanswered"`
	Crashes        int64 `json:"crashes"`
	Failed         int64 `json:"readsFailed"`
	// Parked and Checkpoints are events of the log.
	Parked      int64 `json:"parked"`
	Checkpoints int64 `json:"checkpoints"`
	// Acts counts by kind what the operator did with success.
	Acts               map[string]int64 `json:"acts"`
	ReplayedDeliveries int64            `json:"replayedDeliveries"`
	// LeaderChanges is how often deliveries came of another term than before.
	LeaderChanges int `json:"leaderChanges"`
}

func (s *subscriptions) metrics() *groupStatistics {
	f := &groupStatistics{
		Groups: len(s.groups), Consumers: s.competing, Deliveries: s.count.deliveries.Load(), LeftUnanswered: s.count.left.Load(), Crashes: s.count.crashes.Load(),
		Failed: s.count.failed.Load(), Replies: map[string]map[string]int64{}, Acts: map[string]int64{},
	}
	for a := range actionLeave {
		by := map[string]int64{}
		for o := range s.count.replies[a] {
			if n := s.count.replies[a][o].Load(); n > 0 {
				by[outcome(o).String()] = n
			}
		}
		f.Replies[a.String()] = by
	}
	for _, a := range s.acts {
		if a.outcome == done {
			f.Acts[a.what]++
		}
	}
	return f
}

// leaderChanges counts the terms in which something was delivered, but for the first.
func (s *subscriptions) leaderChanges(reign func(at int64) int64) int {
	terms := map[int64]bool{}
	for _, c := range s.consumers {
		for i := range c.deliveries {
			terms[reign(c.deliveries[i].ret)] = true
		}
	}
	return max(len(terms)-1, 0)
}

func (f *groupStatistics) text() string {
	answers := ""
	for a := range actionLeave {
		by := f.Replies[a.String()]
		answers += fmt.Sprintf("%s %d", a, by[done.String()])
		if other := by[pending.String()] + by[refused.String()]; other > 0 {
			answers += fmt.Sprintf(" (and %d unconfirmed)", other)
		}
		if a < actionLeave-1 {
			answers += ", "
		}
	}
	return fmt.Sprintf("subscriptions: %d groups, %d consumers, %d events, %d deliveries, %d of them in calm times, %d again; %d readings without answer, %d crashes of consumers, %d leader changes\n"+
		"answers: %s; %d messages left to time out; %d parked, %d checkpoints; %d replays (%d deliveries), %d updates, %d restarts\n",
		f.Groups, f.Consumers, f.Events, f.Deliveries, f.CalmDeliveries, f.Duplicates, f.Failed, f.Crashes, f.LeaderChanges,
		answers, f.LeftUnanswered, f.Parked, f.Checkpoints, f.Acts[actReplay], f.ReplayedDeliveries, f.Acts[actUpdate], f.Acts[actRestart])
}

// writeMessages writes one line for each delivery, each answer and each act of the operator.
func (r *round) writeMessages(e *json.Encoder) error {
	if r.subs == nil {
		return nil
	}
	type line struct {
		What     string `json:"what"`
		Group    string `json:"group,omitempty"`
		Consumer int    `json:"consumer"`
		Node     int    `json:"node"`
		Call     int64  `json:"call"`
		Return   int64  `json:"return"`
		ID       string `json:"id,omitempty"`
		Title    string `json:"title,omitempty"`
		Retries  int    `json:"retries,omitempty"`
		Outcome  string `json:"outcome"`
	}
	name := func(i int) string {
		if i < 0 {
			return ""
		}
		return r.subs.groups[i].String()
	}
	for _, c := range r.subs.consumers {
		for _, d := range c.deliveries {
			if err := e.Encode(line{"delivery", name(d.group), d.consumer, d.node, d.call, d.ret, d.id.String(), d.title, d.retries, done.String()}); err != nil {
				return err
			}
		}
		for _, a := range c.replies {
			if err := e.Encode(line{a.action.String(), name(a.group), a.consumer, a.node, a.call, a.ret, a.id.String(), "", 0, a.outcome.String()}); err != nil {
				return err
			}
		}
	}
	for _, a := range r.subs.acts {
		if err := e.Encode(line{What: a.what, Group: name(a.group), Consumer: -1, Node: -1, Call: a.call, Return: a.ret, Outcome: a.outcome.String()}); err != nil {
			return err
		}
	}
	return nil
}
