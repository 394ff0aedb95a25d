package schedule

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/internal/testkit"
)

var (
	simulations = flag.Int("simulations", testkit.Fewer(1, 5), "how many random clusters TestSimulation tries")
	oneSeed     = flag.Uint64("seed", 0, "the only seed TestSimulation tries")
)

// TestSimulation lets clusters live through random trouble, and then in peace.
func TestSimulation(t *testing.T) {
	seeds := []uint64{*oneSeed}
	if *oneSeed == 0 {
		seeds = nil
		first := rand.Uint64() >> 16
		for i := range *simulations {
			seeds = append(seeds, first+uint64(i))
		}
	}
	for i, seed := range seeds {
		size := []int{1, 3, 5}[seed%3]
		if !t.Run(fmt.Sprintf("%d nodes, seed %d", size, seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { simulate(t, seed, size) })
		}) && i < len(seeds)-1 {
			t.Fatalf("seed %d failed", seed)
		}
	}
}

func simulate(t *testing.T, seed uint64, size int) {
	w := newWorld(t, seed, size, int(seed/3%2))
	defer w.close()
	r := rand.New(rand.NewPCG(seed, 2))
	w.handsOver = []float64{0, 0.5, 1, 1}[r.IntN(4)]
	w.flaky = []float64{0, 0, 0.05, 0.3}[r.IntN(4)]
	const expression = "0 */6 * * *"
	for _, n := range w.nodes {
		n.expression = expression
		if size > 1 && r.IntN(8) == 0 {
			n.expression = ""
		}
	}
	w.startAll()
	trouble := time.Now().Add(20 * time.Hour)
	for time.Now().Before(trouble) {
		w.pass(time.Duration(r.IntN(60)+1) * time.Minute / time.Duration(r.IntN(3)+1))
		n := w.nodes[r.IntN(len(w.nodes))]
		switch r.IntN(9) {
		case 0, 1: // Restart, quickly or not.
			n.stop()
			if r.IntN(3) > 0 {
				w.pass(time.Duration(r.IntN(600)) * time.Second)
				n.start()
			}
		case 2:
			n.start()
		case 3:
			n.cutOff(true)
		case 4:
			n.cutOff(false)
		case 5: // The leader changes.
			w.mu.Lock()
			if w.leader != nil {
				w.lead(w.candidate(w.leader))
			}
			w.mu.Unlock()
		case 6: // An operator scavenges.
			w.mu.Lock()
			if n.up {
				_, _ = n.begin(false)
			}
			w.mu.Unlock()
		case 7: // All of them restart.
			if r.IntN(3) == 0 {
				for _, n := range w.nodes {
					n.stop()
				}
				w.pass(time.Duration(r.IntN(300)) * time.Minute)
				w.startAll()
			}
		case 8:
			w.pass(time.Duration(r.IntN(90)) * time.Second)
		}
	}
	for _, n := range w.nodes {
		n.cutOff(false)
		n.start()
	}
	w.mu.Lock()
	w.notef("peace")
	w.mu.Unlock()
	peace := time.Now()
	w.pass(19 * time.Hour)
	w.verify(peace, 6*time.Hour)
}

// verify looks at the whole history.
func (w *world) verify(peace time.Time, period time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rounds := w.rounds()
	calm, scheduled := 0, 0
	for _, n := range w.nodes {
		if n.expression != "" {
			scheduled++
		}
	}
	for i, r := range rounds {
		if i > 0 && !r.Due.After(rounds[i-1].Due) {
			w.errorf("a round due at %v follows one due at %v", r.Due, rounds[i-1].Due)
		}
		if r.Ended.IsZero() && (i < len(rounds)-1 || time.Since(r.Touched) > 2*time.Hour) {
			w.errorf("the round due at %v does not end", r.Due)
		}
		if r.Ended.IsZero() {
			continue
		}
		turns := 0
		for _, n := range w.nodes {
			had, lost := 0, 0
			for j := range r.Turns {
				switch {
				case r.Turns[j].Node != n.id:
				case r.Turns[j].Result == TurnLost:
					lost++
				default:
					had++
				}
			}
			turns += had
			switch steady := n.steadyThrough(r.Started, r.Ended); {
			case had > 1:
				w.errorf("%s had %d turns in the round due at %v", n.name, had, r.Due)
			case n.expression == "" && had+lost > 0:
				w.errorf("%s has no schedule and had a turn in the round due at %v", n.name, r.Due)
			case n.expression != "" && steady && had+lost != 1:
				w.errorf("%s had %d turns and lost %d in the round due at %v, though it was there", n.name, had, lost, r.Due)
			case steady && lost > 0:
				w.errorf("%s lost its turn in the round due at %v, though it was there", n.name, r.Due)
			}
		}
		if r.Started.After(peace.Add(period)) {
			calm++
			if turns != scheduled || r.Result != RoundComplete {
				w.errorf("%d of %d turns in the round due at %v, which is %s", turns, scheduled, r.Due, r.Result)
			}
		}
	}
	if want := int((19*time.Hour - period) / period); scheduled > 0 && calm < want-1 {
		w.errorf("%d rounds in peace, expected %d or so", calm, want)
	}
}

// steadyThrough reports whether a node was connected from a while before a time to another.
func (n *node) steadyThrough(from, to time.Time) bool {
	from = from.Add(-10 * time.Minute)
	connected := false
	for _, c := range n.changes {
		switch {
		case !c.at.After(from):
			connected = c.connected
		case !c.at.After(to):
			return false
		}
	}
	return connected
}
