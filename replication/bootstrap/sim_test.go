package bootstrap

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// Environment variables of the simulation.
const (
	envSchedules = "ANNALS_BOOTSTRAP_SCHEDULES" // how many schedules to play
	envSeed      = "ANNALS_BOOTSTRAP_SEED"      // play this one and show every step
)

// owner is the node with an id.
func (w *world) owner(id event.ID) *simNode {
	for _, n := range w.nodes {
		if n.disk.Node == id {
			return n
		}
	}
	return nil
}

// open reports whether a proposal may still be formed, or was: its proposer's disk holds it.
func (w *world) open(p *Proposal) bool { return w.owner(p.Proposer).disk.Promise.is(p) }

// saved is called when a record has become durable. It is where promises are
// kept or broken, and where clusters form.
func (w *world) saved(n *simNode, record Record) {
	old := n.disk
	n.disk, n.boundAt = record, w.now
	w.logf("%d holds %+v %v", n.index, record.Promise, record.Formed)
	if err := record.Validate(); err != nil || record.Node != old.Node {
		w.violate("node %d saves a bad record: %v", n.index, err)
	}
	if p := old.Promise; p != nil && !p.is(record.Promise) {
		switch own := p.Proposer == old.Node; {
		case own && old.Formed:
			w.violate("node %d gives up cluster %s, which it formed", n.index, p.Cluster)
		case own:
			w.counted.gaveUp++
		case w.open(p) && w.cheat == honest:
			w.violate("node %d breaks its promise to cluster %s", n.index, p.Cluster)
		default:
			w.counted.released++
		}
	}
	if record.Formed && !old.Formed {
		w.clusterFormed(record.Promise)
	}
}

func (w *world) clusterFormed(p *Proposal) {
	for _, other := range w.formed {
		if slices.ContainsFunc(p.Members, other.has) {
			w.violate("clusters %s and %s formed from overlapping sets %s and %s", other.Cluster, p.Cluster, other.Members, p.Members)
		}
	}
	w.formed = append(w.formed, p)
	if w.cheat != honest {
		return
	}
	for _, member := range p.Members {
		if m := w.owner(member); !m.disk.Promise.is(p) {
			w.violate("cluster %s formed without the promise of node %d", p.Cluster, m.index)
		}
	}
}

// checkAnswer holds what a node says against what is on disk.
func (w *world) checkAnswer(n *simNode, a *Answer) {
	if w.cheat != honest {
		return
	}
	if err := a.Validate(); err != nil {
		w.violate("node %d gives a bad answer: %v", n.index, err)
	}
	if a.Promise != n.disk.Promise && !a.Promise.is(n.disk.Promise) {
		w.violate("node %d says that it holds %+v and holds %+v", n.index, a.Promise, n.disk.Promise)
	}
	if held := n.disk.Promise; !a.GaveUp.IsZero() && held != nil && held.Cluster == a.GaveUp {
		w.violate("node %d says that it gave up %s and holds it", n.index, a.GaveUp)
	}
	if !a.Cluster.IsZero() && !w.hasFormed(a.Cluster) {
		w.violate("node %d says that cluster %s exists", n.index, a.Cluster)
	}
}

func (w *world) hasFormed(cluster event.ID) bool {
	return slices.ContainsFunc(w.formed, func(p *Proposal) bool { return p.Cluster == cluster })
}

func (w *world) decided(n *simNode, outcome Outcome) {
	w.logf("%d decides %+v", n.index, outcome)
	n.outcome = &outcome
	switch {
	case !w.hasFormed(outcome.Cluster):
		w.violate("node %d ends in cluster %s, which was never formed", n.index, outcome.Cluster)
	case outcome.Form && (!n.disk.Formed || n.disk.Promise.Cluster != outcome.Cluster):
		w.violate("node %d forms cluster %s without a durable decision", n.index, outcome.Cluster)
	case n.disk.Formed && n.disk.Promise.Cluster != outcome.Cluster:
		w.violate("node %d formed cluster %s and ends in %s", n.index, n.disk.Promise.Cluster, outcome.Cluster)
	case !n.cluster.IsZero() && n.cluster != outcome.Cluster:
		w.violate("node %d has state of cluster %s and ends in %s", n.index, n.cluster, outcome.Cluster)
	}
	life := n.life
	w.after(w.lag(), func() { // the caller creates the node's state
		if n.life == life && n.core != nil && n.cluster.IsZero() {
			n.cluster = outcome.Cluster
			w.spread(n)
		}
	})
}

// settled reports whether every node that is left has an outcome and state, or too few are left for
// a cluster to form ever, and no node knows of one.
func (w *world) settled() bool {
	done, usable, exists := true, 0, false
	for _, n := range w.nodes {
		if n.lost {
			continue
		}
		done = done && !n.cluster.IsZero()
		exists = exists || !n.cluster.IsZero() || n.disk.Formed
		if !n.readOnly && !w.boundToLost(n) {
			usable++
		}
	}
	return done || !exists && usable < w.size
}

func (w *world) boundToLost(n *simNode) bool {
	p := n.disk.Promise
	return p != nil && w.owner(p.Proposer).lost
}

// checkEnd judges where a healed world has come to.
func (w *world) checkEnd() {
	var (
		exist   []event.ID // clusters that a remaining node knows of
		usable  int        // nodes that could still form one
		waiting []*simNode // undecided, and not bound to a lost proposer
	)
	for _, n := range w.nodes {
		if n.lost {
			continue
		}
		if !n.cluster.IsZero() {
			if !slices.Contains(exist, n.cluster) {
				exist = append(exist, n.cluster)
			}
			continue
		}
		if w.boundToLost(n) {
			w.counted.bound++
			continue
		}
		waiting = append(waiting, n)
		if !n.readOnly {
			usable++
		}
	}
	switch {
	case len(exist) > 1:
		// clusterFormed has checked that their sets are; newcomers then join neither
		w.counted.disjoint++
	case len(exist) == 1 && len(waiting) > 0:
		w.violate("cluster %s exists, and node %d has not joined it", exist[0], waiting[0].index)
	case len(exist) == 1:
		w.counted.formed++
	case usable >= w.size:
		w.violate("%d nodes could form a cluster of %d and did not", usable, w.size)
	default:
		w.counted.undecided++
	}
}

// play plays schedules until one fails, and returns its seed.
func play(first uint64, schedules int, how cheat) (uint64, counts, error) {
	var (
		mu     sync.Mutex // guards total, failed and failure
		total  counts
		failed uint64
		broken error
		next   atomic.Uint64
		stop   atomic.Bool
		wg     sync.WaitGroup
	)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			var sum counts
			for !stop.Load() {
				i := next.Add(1) - 1
				if i >= uint64(schedules) {
					break
				}
				w := newWorld(first+i, how)
				err := w.run()
				sum.add(w.counted)
				if err != nil {
					stop.Store(true)
					mu.Lock()
					if broken == nil || first+i < failed {
						failed, broken = first+i, err
					}
					mu.Unlock()
				}
			}
			mu.Lock()
			total.add(sum)
			mu.Unlock()
		})
	}
	wg.Wait()
	return failed, total, broken
}

func number(t *testing.T, env string) (uint64, bool) {
	t.Helper()
	value := os.Getenv(env)
	if value == "" {
		return 0, false
	}
	n := check.Value(strconv.ParseUint(value, 10, 64)).Must(t, env)
	return n, true
}

// TestSimulation plays random schedules. Whatever happens, clusters never form from
// overlapping sets and no promise is broken; and once everything is healed,
// a cluster forms if it can, and all that are free end in it.
func TestSimulation(t *testing.T) {
	if seed, ok := number(t, envSeed); ok {
		w := newWorld(seed, honest)
		w.trace = t.Logf
		check.Must(t, w.run())
		return
	}
	schedules, begin := 20_000, uint64(0)
	if !testkit.Sweep() { // Others in each run.
		schedules, begin = testkit.Fewer(500, 5_000), rand.Uint64N(1<<32)
	}
	if n, ok := number(t, envSchedules); ok {
		schedules = int(n)
	}
	seed, counted, err := play(begin, schedules, honest)
	t.Logf("%d schedules: %+v", schedules, counted)
	if err != nil {
		t.Fatalf("%v; replay with %s=%d", err, envSeed, seed)
	}
	for what, n := range map[string]int{
		"formed": counted.formed, "undecided": counted.undecided, "bound to a lost proposer": counted.bound,
		"crashed beside a save": counted.crashedSaves, "gave up": counted.gaveUp, "were released": counted.released,
	} {
		if n < schedules/200 {
			t.Errorf("only %d of %d: %s; the schedules do not reach what they are to test", n, schedules, what)
		}
	}
}

// TestSimulationNotices breaks one rule at a time: two clusters must then form
// from overlapping sets sooner or later, or else the simulation proves nothing.
func TestSimulationNotices(t *testing.T) {
	for name, how := range map[string]cheat{
		"a second promise": promiseTwice, "an answer before the save": answerBeforeSave, "a release by time": releaseByTime,
	} {
		t.Run(name, func(t *testing.T) {
			seed, _, err := play(0, 20_000, how)
			check.MustFail(t, err, "nothing was noticed")
			t.Logf("seed %d: %v", seed, err)
		})
	}
}

// TestSimulationRepeats plays a schedule twice: the same seed must give the same steps.
func TestSimulationRepeats(t *testing.T) {
	var traces [2][]string
	for i := range traces {
		w := newWorld(7, honest)
		w.trace = func(format string, args ...any) { traces[i] = append(traces[i], fmt.Sprintf(format, args...)) }
		check.Must(t, w.run())
	}
	if len(traces[0]) < 10 || !slices.Equal(traces[0], traces[1]) {
		t.Error("two runs of one seed differ")
	}
}
