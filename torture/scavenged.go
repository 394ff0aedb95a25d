package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/clock"
)

const (
	// finalScavenge bounds how long the last runs of all nodes may take.
	finalScavenge = 60 * time.Second
	// finalTries bounds how many runs of one node end before the wanted one: a stopped run is
	// resumed first, and then the newest point is due.
	finalTries   = 6
	pointsStream = "$scavengePoints"
	mostPoints   = 1000 // of one round
	// askingLimit bounds how long the nodes may take to lead in turn.
	askingLimit = 15 * time.Second
	// questionsPerStream is how many appends are repeated.
	questionsPerStream = 9
)

// scavengeAll scavenges every node up to one point, the leader first, with all chunks executed. It
// returns nil when that failed, which it has then reported, or is not possible.
func (s *scavenger) scavengeAll(ctx context.Context, first Target, nodes []Target) *scavengePoint {
	ctx, cancel := context.WithTimeout(ctx, finalScavenge)
	defer cancel()
	if s.none {
		return nil
	}
	known, err := s.points(ctx, first)
	if err != nil {
		s.find.add(kindHeal, "%s: read %s: %v", first.Name, pointsStream, err)
		return nil
	}
	made := s.until(ctx, first, func(at *scavengeStatus) bool { return at.Point != nil && at.Point.Number > known }, "?threshold=-1&threads=2")
	if made == nil {
		return nil
	}
	p := made.Point
	whole := true
	for _, t := range nodes {
		if t.Index != first.Index {
			at := s.until(ctx, t, func(at *scavengeStatus) bool { return at.Point != nil && at.Point.Number == p.Number }, "?syncOnly=true")
			whole = whole && at != nil
		}
	}
	if !whole {
		return nil
	}
	s.count.add(ofScavenges, "finalPoints", 1)
	p.latest = s.latest
	return p
}

// points returns the number of the newest scavenge point, -1 if there is none, and takes note of
// the times of those whose runs ended between two questions.
func (s *scavenger) points(ctx context.Context, t Target) (newest int64, err error) {
	reader := finalReader{s.load, t}
	p, err := reader.page(ctx, streamHead(pointsStream, mostPoints))
	if err != nil || p == nil || len(p.Entries) == 0 {
		return -1, err
	}
	for _, e := range p.Entries {
		var point scavengePoint
		if err := json.Unmarshal([]byte(e.Metadata), &point); err == nil && point.Now.After(s.latest) {
			s.latest = point.Now
		}
	}
	return p.Entries[0].Number, nil
}

// until starts runs on a node until one has ended well that is the wanted one.
func (s *scavenger) until(ctx context.Context, t Target, is func(*scavengeStatus) bool, query string) *scavengeStatus {
	tries := 0
	last := "it was never started"
	for clock.Sleep(ctx, 20*time.Millisecond) == nil {
		at := s.last(ctx, t)
		switch {
		case at == nil:
			continue
		case at.Result == "InProgress":
			// What an operator throttled may take very long.
			if tries == 0 {
				s.stop(ctx, t)
			}
			continue
		case at.Result == "Success" && tries > 0 && is(at):
			return at
		case at.Result == "Errored" && tries > 0:
			s.find.add(kindScavenge, "%s: run %s on a calm cluster: %s", t.Name, at.ID, at.Error)
			return nil
		}
		last = fmt.Sprintf("the last run is %+v", *at)
		if tries == finalTries {
			break
		}
		if started, _ := s.start(ctx, t, query); started {
			tries++
		}
		if s.none {
			return nil
		}
	}
	s.find.add(kindScavenge, "%s: no run succeeded as it was asked for, %d tries: %s", t.Name, tries, last)
	return nil
}

// nodeLog is the log as one node shows it, up to the final point.
type nodeLog struct {
	node   Target
	events []seen
}

// compareScavenged holds the logs of all nodes against each other and against what the
// limits say, now that all were scavenged up to the same point.
func (r *round) compareScavenged(logs []nodeLog, p *scavengePoint) {
	var limits []*shed
	for _, e := range r.shedders {
		for i := range e.streams {
			limits = append(limits, &e.streams[i])
		}
	}
	var first []seen
	for i, l := range logs {
		events, found := below(l, p)
		if !found {
			r.find.add(kindLost, "%s does not show the scavenge point %d in its log", l.node.Name, p.Number)
			continue
		}
		r.asLimited(l.node, events, p, limits)
		kept := events[:0:0]
		for _, e := range events {
			if s := e.stream.shed; s == nil || s.agreed(e.number) {
				kept = append(kept, e)
			}
		}
		if i == 0 || first == nil {
			first = kept
			continue
		}
		r.sameEvents(logs[0].node, first, l.node, kept)
	}
}

// below returns the events below the final point.
func below(l nodeLog, p *scavengePoint) ([]seen, bool) {
	for i, e := range l.events {
		if e.stream.name == pointsStream && e.number == p.Number {
			return l.events[:i], true
		}
	}
	return nil, false
}

// sameEvents demands that two nodes show the same, and tells the first difference.
func (r *round) sameEvents(a Target, as []seen, b Target, bs []seen) {
	for i := range max(len(as), len(bs)) {
		switch {
		case i >= len(as):
			r.find.add(kindDivergence, "scavenged up to the same point, %s shows %d events below it, and %s also %s", a.Name, len(as), b.Name, r.load.book.say(bs[i].fact))
		case i >= len(bs):
			r.find.add(kindDivergence, "scavenged up to the same point, %s shows %d events below it, and %s also %s", b.Name, len(bs), a.Name, r.load.book.say(as[i].fact))
		case !as[i].same(bs[i].fact) || as[i].shape != bs[i].shape:
			r.find.add(kindDivergence, "scavenged up to the same point, event %d of those left is %s on %s and %s on %s",
				i, r.load.book.say(as[i].fact), a.Name, r.load.book.say(bs[i].fact), b.Name)
		default:
			continue
		}
		return
	}
}

// asLimited demands that of each limited stream exactly that is left which its limits leave.
func (r *round) asLimited(node Target, events []seen, p *scavengePoint, limits []*shed) {
	left := map[*stream]map[int64]seen{}
	for _, e := range events {
		if left[e.stream] == nil {
			left[e.stream] = map[int64]seen{}
		}
		left[e.stream][e.number] = e
	}
	say := func(s *shed, n int64) string {
		text := fmt.Sprintf("%d@%s of %d events (limits: count %d, before %d, age %s, deleted %t, for good %t; hidden once: below %d)",
			n, s.name, len(s.refs), s.maxCount, s.before, s.maxAge, s.deleted, s.hard, s.lost)
		if f := r.load.book.fluid(s.stream, n); f != nil {
			text += fmt.Sprintf(", of %s, shown by %s", f.time.Format(time.RFC3339Nano), f.by)
		}
		return text
	}
	for _, s := range limits {
		if s.unsure {
			continue
		}
		for n := range int64(len(s.refs)) {
			shown, there := left[s.stream][n]
			gone, may := n < s.discard(), n < s.lost
			if s.ages() && n < s.last() {
				f := r.load.book.fluid(s.stream, n)
				if f == nil {
					may = true // No client saw how old it is.
				} else {
					gone = gone || f.time.Before(p.Now.Add(-s.maxAge))
					may = may || f.time.Before(p.latest.Add(-s.maxAge))
				}
			}
			switch {
			case there && gone:
				r.find.add(kindRemains, "%s was scavenged up to point %d of %s and still shows %s", node.Name, p.Number, p.Now.Format(time.RFC3339Nano), say(s, n))
			case there && shown.ref != s.refs[n]:
				r.find.add(kindData, "%s shows id %s as %s", node.Name, r.load.ids.id(shown.ref), say(s, n))
			case !there && !gone && !may:
				r.find.add(kindRemoved, "%s lacks %s after it was scavenged up to point %d of %s", node.Name, say(s, n), p.Number, p.Now.Format(time.RFC3339Nano))
			}
		}
		if _, tombstone := left[s.stream][math.MaxInt64]; tombstone != s.hard {
			r.find.add(kindRemoved, "%s: a tombstone of %s is there: %t; it was deleted for good: %t", node.Name, s.name, tombstone, s.hard)
		}
	}
	r.oneMetadata(node, left, limits)
}

// oneMetadata demands that of all metadata streams the newest record is left alone, and none of
// what is deleted for good.
func (r *round) oneMetadata(node Target, left map[*stream]map[int64]seen, limits []*shed) {
	for stream, records := range left {
		if strings.HasPrefix(stream.name, "$$") && len(records) > 1 {
			r.find.add(kindRemains, "%s was scavenged and still shows %d events of %s", node.Name, len(records), stream.name)
		}
	}
	for _, s := range limits {
		want := 1
		if s.metas == 0 || s.hard {
			want = 0
		}
		if n := len(left[r.load.book.stream("$$"+s.name)]); n != want && !s.unsure {
			kind := kindRemoved
			if n > want {
				kind = kindRemains
			}
			r.find.add(kind, "%s shows %d metadata records of %s after it was scavenged, want %d", node.Name, n, s.name, want)
		}
	}
}

// lookAtLimited reads all limited streams of one node to their beginnings.
func (r *round) lookAtLimited(ctx context.Context, t Target) error {
	reader := finalReader{r.load, t}
	for _, e := range r.shedders {
		for i := range e.streams {
			s := &e.streams[i]
			if s.unsure {
				continue
			}
			a, err := reader.answer(ctx, read(streamHead(s.name, finalPage), false, 0))
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			e.judge(s, a, finalPage)
		}
	}
	return nil
}

// decisions asks every node, as the leader, questions with only one right answer: a node must
// decide about removed events as if they were there.
func (r *round) decisions(ctx context.Context, nodes []Target) error {
	ctx, cancel := context.WithTimeout(ctx, askingLimit)
	defer cancel()
	asked := map[int]bool{}
	tries := 0 // since a node was asked
	for len(asked) < r.c.Voters() {
		leader, ok := r.watch.leads(nodes)
		if ok && !asked[leader.Index] && r.interrogate(ctx, leader) {
			asked[leader.Index], tries = true, 0
		}
		if ok && len(asked) < r.c.Voters() {
			if err := r.replace(ctx, leader, asked, tries); err != nil {
				return err
			}
			tries++
		}
		if clock.Sleep(ctx, watchEvery) != nil {
			break
		}
	}
	r.load.count.add(ofScavenges, "leadersAsked", len(asked))
	r.line.add(happenedPhase, "%d of %d nodes were asked as the leader", len(asked), r.c.Voters())
	return nil
}

// replace makes the leader resign. If that did not help before, it stops as many nodes that have
// already led as a majority can do without, so that another node has to lead.
func (r *round) replace(ctx context.Context, leader Target, asked map[int]bool, tries int) (err error) {
	spare := (r.c.Voters() - 1) / 2
	for i := range r.c.Voters() {
		if tries > 0 && asked[i] && i != leader.Index && spare > 0 {
			spare--
			if err := r.c.Kill(i); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, r.c.Start(context.WithoutCancel(ctx), i)) }()
		}
	}
	_, term := r.watch.leading()
	// Without an answer it is asked again, if it still leads then.
	_, _ = exchange(ctx, r.http, leader, client.Request{Method: http.MethodPost, Path: "/admin/node/resign"}, 5*time.Second)
	for range 10 {
		if now, next := r.watch.leading(); now >= 0 && next > term || clock.Sleep(ctx, watchEvery/2) != nil {
			break
		}
	}
	return nil
}

// interrogate asks one leader everything. It reports false when it ceased to be the leader.
func (r *round) interrogate(ctx context.Context, t Target) bool {
	var ceased atomic.Bool
	var asking sync.WaitGroup
	for _, e := range r.shedders {
		asking.Go(func() {
			for i := range e.streams {
				s := &e.streams[i]
				for _, q := range e.questions(s, questionsPerStream) {
					if by, ok := e.examine(ctx, t, q); !ok || by != t.Index {
						ceased.Store(true)
						return
					}
					r.load.count.add(ofScavenges, "questions", 1)
				}
			}
		})
	}
	asking.Wait()
	return !ceased.Load()
}
