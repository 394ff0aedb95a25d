//go:build durablelocks

package simulation

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

var (
	seeds = flag.Int("seeds", 2, "how many seeds are simulated")
	first = flag.Uint64("seed", 1, "the first seed")
	nodes = flag.Int("nodes", 0, "voters; 0 for as many as the seed says")
	kinds = flag.String("faults", "", "kinds of faults, with commas; empty: as the seed says")
	hours = flag.Float64("hours", 0.02, "how long faults strike in each, in hours of virtual time")
	limit = flag.Duration("limit", 0, "no seed begins after so much time; 0 for all seeds")
)

// TestSimulation lets clusters live, each by the plan of a seed.
func TestSimulation(t *testing.T) {
	began := time.Now()
	var all Totals
	for i := range *seeds {
		seed := *first + uint64(i)
		if *limit > 0 && time.Since(began) > *limit {
			t.Logf("the next seed would be %d", seed)
			break
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			o := Options{Seed: seed, Nodes: *nodes, Length: time.Duration(*hours * float64(time.Hour)), Progress: os.Stderr}
			if *kinds != "" {
				o.Faults = strings.Split(*kinds, ",")
			}
			r, err := all.Run(o)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(r)
			if r.Failed != "" {
				t.Fail()
			}
		})
	}
	t.Logf("%sall of it within %s", &all, time.Since(began).Round(time.Second))
}

// TestDurableLocks: time moves while a goroutine waits for a lock whose holder waits for time.
func TestDurableLocks(t *testing.T) {
	err := inBubble(func() {
		var mu sync.RWMutex
		mu.Lock()
		var waiting sync.WaitGroup
		for _, lock := range []sync.Locker{&mu, mu.RLocker()} {
			waiting.Go(func() {
				lock.Lock()
				defer lock.Unlock()
			})
		}
		<-time.After(time.Hour)
		mu.Unlock()
		waiting.Wait()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestStopWhileItOpens: a process that is asked to end before its node is open does so in order.
func TestStopWhileItOpens(t *testing.T) {
	err := inBubble(func() {
		c, err := newCluster(newPlan(Options{Seed: 1, Nodes: 1}))
		check.NoError(t, err)
		c.ended = func(_, _ int, tail string) { t.Errorf("it ended by itself:\n%s", tail) }
		check.NoError(t, c.Start(t.Context(), 0))
		check.NoError(t, c.Terminate(t.Context(), 0))
		check.NoError(t, c.Close())
	})
	check.Must(t, err)
}
