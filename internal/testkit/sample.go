package testkit

import (
	"math/rand/v2"
	"os"
	"testing"
)

// Sample says which of many places a test tries that could try them all, as the operations
// before which the power is cut: every so many, from one on that differs from run to run, so
// that many runs try them all. The race detector makes each place slow and sees the same in
// each: with it they are fewer by far. ANNALS_SWEEP=1 tries all, as scripts/mutants.sh does.
func Sample(t testing.TB, every int) (step, first int) {
	t.Helper()
	if Sweep() {
		return 1, 0
	}
	step = Fewer(every*everyRace, every)
	first = rand.IntN(step)
	t.Logf("every %dth place, from %d on", step, first)
	return step, first
}

// Sweep says that a test is to try all that it otherwise takes a sample of.
func Sweep() bool { return os.Getenv("ANNALS_SWEEP") != "" }

// everyRace is how many times fewer places the race detector sees.
const everyRace = 5

// Fewer returns how often a test repeats what needs no luck: less with the race detector,
// which makes it slow.
func Fewer(race, plain int) int {
	if raceDetector {
		return race
	}
	return plain
}
