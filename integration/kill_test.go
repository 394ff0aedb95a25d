package integration_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/testkit"
)

// cyclesInShort is how often each variant is killed unless the test is asked for more.
const cyclesInShort = 3

// TestKillUnderLoad kills the node at random moments, also while it starts, and
// restarts it on the same folder, with writers that never change the ids of a
// write whose outcome they do not know.
func TestKillUnderLoad(t *testing.T) {
	cycles := cyclesInShort
	if text := os.Getenv("ANNALS_KILL_CYCLES"); text != "" {
		var err error
		if cycles, err = strconv.Atoi(text); err != nil {
			t.Fatalf("ANNALS_KILL_CYCLES: %v", err)
		}
	}
	base := seed(t)
	variants := []struct {
		name    string
		options []string
	}{
		{"BoltDB", []string{"--raft-log-store", "BoltDB"}},
		// Tables are written and merged all the time.
		{"Wal with small index tables", []string{"--raft-log-store", "Wal", "--max-mem-table-size", "200"}},
	}
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) { killUnderLoad(t, base, cycles, v.options) })
	}
}

func killUnderLoad(t *testing.T, seed uint64, cycles int, options []string) {
	const writers, streams = 32, 12
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(seed, 1<<32))

	node := testkit.StartNode(t, dir, options...)
	load := startLoad(t, node, seed, writers, streams)
	seen := newMirror()
	for cycle := range cycles {
		load.serve(node)
		acks := rng.IntN(800)
		load.more(t, acks)
		node.Kill()
		for rng.IntN(3) == 0 {
			killWhileStarting(t, rng, dir, options)
		}
		begun := time.Now()
		node = testkit.StartNode(t, dir, options...)
		started := time.Since(begun)

		// What was seen before stays as it was, and the mirror continues from there.
		if err := seen.advance(t.Context(), node.Client); err != nil {
			t.Fatalf("cycle %d: %v\n%s", cycle, err, node.Output())
		}
		if err := load.ledger.check(seen); err != nil {
			t.Fatalf("cycle %d: %v\n%s", cycle, err, node.Output())
		}
		// A complete reading costs more each time.
		if cycle < 5 || cycle%10 == 0 {
			again := load.ledger.checkNode(t, node)
			if len(again.places) != len(seen.places) || again.next != seen.next {
				t.Fatalf("cycle %d: %d events up to %s, read in parts %d up to %s",
					cycle, len(again.places), again.next, len(seen.places), seen.next)
			}
		}
		t.Logf("cycle %d: killed after %d more acknowledgements, started in %s, %d events",
			cycle, acks, started.Round(time.Millisecond), len(seen.places))
	}
	load.serve(node)
	load.more(t, 200)
	load.finish(t)
	counts := load.ledger.counts()
	if counts[unknown] > 0 {
		t.Errorf("%d writes are without outcome", counts[unknown])
	}
	t.Logf("%d writes acknowledged, %d refused", counts[acknowledged], counts[refused])
	load.ledger.checkNode(t, node)
	node.Stop()
	verifyClean(t, dir)
}

// killWhileStarting ends a start at a random moment.
func killWhileStarting(t *testing.T, rng *rand.Rand, dir string, options []string) {
	t.Helper()
	p := testkit.LaunchNode(t, dir, options...)
	moment := time.NewTimer(time.Duration(rng.IntN(200_000)) * time.Microsecond)
	defer moment.Stop()
	select {
	case <-moment.C:
		p.Kill()
	case <-p.Exited():
		t.Fatalf("the start ended by itself with code %d\n%s", p.Wait(time.Second), p.Output())
	}
}
