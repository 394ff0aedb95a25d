package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/annalsdb/annals/client"
)

const (
	scavengePath    = "/admin/scavenge"
	currentScavenge = scavengePath + "/current"
	lastScavenge    = scavengePath + "/last"

	// stopPatience is how long a run may take to stop: it ends between two records.
	stopPatience = 20 * time.Second
)

// scavengeStatus is what a node tells of a run.
type scavengeStatus struct {
	ID      string         `json:"scavengeId"`
	Result  string         `json:"scavengeResult"`
	Error   string         `json:"error"`
	Removed int            `json:"eventsRemoved"`
	Merged  int            `json:"chunksMerged"`
	Resumed bool           `json:"resumed"`
	Point   *scavengePoint `json:"point"`
}

// scavengePoint is the point of the log up to which a run scavenges, and the time that it goes by.
type scavengePoint struct {
	Number int64     `json:"number"`
	Now    time.Time `json:"effectiveNow"`
	// of any point that was met until then: a clock that is wrong for a while writes a later one
	latest time.Time
}

// scavenger is an operator who starts scavenges on any node at any time, and stops some of them.
type scavenger struct {
	worker
	// told are the runs whose end was counted.
	told map[string]bool
	// scheduled says that nodes also start runs by themselves.
	scheduled bool
	// none says that nodes keep everything in memory, where nothing can be scavenged.
	none bool
	// latest is the latest time that any run went by.
	latest time.Time
}

func newScavenger(l *load) *scavenger {
	s := &scavenger{worker: l.worker(scavenges), told: map[string]bool{}}
	l.employ(s.turn)
	return s
}

func (s *scavenger) turn(ctx context.Context) time.Duration {
	if s.none {
		return enough
	}
	t := s.wander()
	switch s.rng.IntN(8) {
	case 0, 1:
		s.stop(ctx, t)
	case 2:
		s.last(ctx, t)
	default:
		s.last(ctx, t) // What became of the one before.
		s.start(ctx, t, s.query())
	}
	return s.pause(100, 900)
}

// query chooses how to run.
func (s *scavenger) query() string {
	q := fmt.Sprintf("?threshold=%d", []int{0, 0, -1, -1, 5, 50}[s.rng.IntN(6)])
	switch s.rng.IntN(4) {
	case 0:
		return q + fmt.Sprintf("&threads=1&throttlePercent=%d", 1+s.rng.IntN(30))
	case 1:
		return q + "&syncOnly=true"
	}
	return q + fmt.Sprintf("&threads=%d", 1+s.rng.IntN(4))
}

// ask sends a request to one node. It returns nil when there is no answer, or one that faults
// explain.
func (s *scavenger) ask(ctx context.Context, t Target, method, path string, limit time.Duration) *answer {
	a, err := exchange(ctx, s.http, t, client.Request{Method: method, Path: path, Header: map[string]string{"Accept": client.MediaJSON}}, limit)
	if err != nil || a.Status >= 500 || a.Status == http.StatusRequestTimeout {
		s.count.add(ofReads, "failed", 1)
		return nil
	}
	return a
}

// start says whether a run was started, or could not be because one runs.
func (s *scavenger) start(ctx context.Context, t Target, query string) (started, runs bool) {
	a := s.ask(ctx, t, http.MethodPost, scavengePath+query, s.timeout)
	if a == nil {
		return false, false
	}
	var begun scavengeStatus
	switch {
	case a.Status == http.StatusOK && json.Unmarshal(a.Body, &begun) == nil && begun.ID != "":
		s.count.add(ofScavenges, "started", 1)
		return true, true
	case a.Status == http.StatusBadRequest && strings.Contains(string(a.Body), "already running"):
		return false, true
	case beingFetched(a):
	case a.Status == http.StatusBadRequest && strings.Contains(string(a.Body), "in-memory"):
		s.none = true
	default:
		s.find.add(kindAnswer, "POST %s%s: %s", scavengePath, query, a)
	}
	return false, false
}

// stop ends what runs. When that is answered it has ended, and another can begin.
func (s *scavenger) stop(ctx context.Context, t Target) {
	a := s.ask(ctx, t, http.MethodDelete, currentScavenge, stopPatience)
	switch {
	case a == nil, a.Status == http.StatusNotFound:
		return
	case a.Status != http.StatusOK:
		s.find.add(kindAnswer, "DELETE %s: %s", currentScavenge, a)
		return
	}
	s.count.add(ofScavenges, "stopped", 1)
	s.last(ctx, t)
	if s.rng.IntN(2) == 0 {
		return
	}
	if started, runs := s.start(ctx, t, s.query()); runs && !started && !s.scheduled {
		s.find.add(kindAnswer, "%s: no run can be started right after one was stopped: it already runs", t.Name)
	}
}

// beingFetched says whether a run was refused because chunk files come from another node just now.
func beingFetched(a *answer) bool {
	return a.Status == http.StatusBadRequest && strings.Contains(string(a.Body), "chunk switch lock")
}

// last asks for the run that was started last. It returns nil when there is no answer.
func (s *scavenger) last(ctx context.Context, t Target) *scavengeStatus {
	a := s.ask(ctx, t, http.MethodGet, lastScavenge, s.timeout)
	if a == nil {
		return nil
	}
	var status scavengeStatus
	if a.Status != http.StatusOK || json.Unmarshal(a.Body, &status) != nil || status.Result == "" {
		s.find.add(kindAnswer, "GET %s: %s", lastScavenge, a)
		return nil
	}
	if status.Point != nil && status.Point.Now.After(s.latest) {
		s.latest = status.Point.Now
	}
	if key := t.Name + status.ID; status.Result != "InProgress" && status.Result != "Unknown" && !s.told[key] {
		s.told[key] = true
		s.count.add(ofScavenges, status.Result, 1)
		s.count.add(ofScavenges, "eventsRemoved", status.Removed)
		s.count.add(ofScavenges, "chunksMerged", status.Merged)
		if status.Resumed {
			s.count.add(ofScavenges, "resumed", 1)
		}
	}
	return &status
}
