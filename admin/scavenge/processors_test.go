package scavenge

import (
	"runtime"
	"testing"
)

// TestProcessors: runs of several nodes in one process overlap.
func TestProcessors(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	expect := func(extra int) {
		t.Helper()
		if got := runtime.GOMAXPROCS(0); got != before+extra {
			t.Errorf("%d processors, want %d more than %d", got, extra, before)
		}
	}
	first := addProcessors(1)
	expect(1)
	second := addProcessors(4)
	expect(5)
	first()
	expect(4)
	second()
	expect(0)
	addProcessors(2)()
	expect(0)
	// A number that was chosen is put back, too.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(before + 1))
	before++
	release := addProcessors(1)
	expect(1)
	release()
	expect(0)
}
