package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Totals are what the simulations of many seeds came to. The zero value is ready to use.
type Totals struct {
	lived        map[int]time.Duration
	used         map[int]time.Duration // processor time, as lived by the number of nodes
	faults       map[string]int
	violations   map[string]int
	seeds        int
	acknowledged int64 // events
	leaders      int   // changes
	crashes      int64
	failed       []uint64 // seeds
}

// Run simulates one cluster and adds it. A seed that could not be run counts as failed.
func (t *Totals) Run(o Options) (Result, error) {
	before := processorTime()
	r, err := Run(o)
	t.seeds++
	if err != nil || r.Failed != "" {
		t.failed = append(t.failed, o.Seed)
	}
	if r.Summary != nil {
		t.add(r, processorTime()-before)
	}
	return r, err
}

// add adds what came of one seed, and how long a processor worked for it.
func (t *Totals) add(r Result, used time.Duration) {
	if t.lived == nil {
		t.lived, t.used, t.faults, t.violations = map[int]time.Duration{}, map[int]time.Duration{}, map[string]int{}, map[string]int{}
	}
	s := r.Summary
	t.lived[s.Nodes] += r.Virtual
	t.used[s.Nodes] += used
	for _, o := range s.Outages {
		t.faults[o.Fault] += o.Times
	}
	for kind, n := range s.Counts {
		t.violations[kind] += n
	}
	t.acknowledged += s.Writes["eventsAcknowledged"] + s.Transfers["eventsAcknowledged"]
	t.leaders += s.LeaderChanges
	t.crashes += r.Crashes
}

// processorTime is what this process has used, user and system; 0 when it is not known.
func processorTime() time.Duration {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// String is for people, in some lines.
func (t *Totals) String() string {
	var b strings.Builder
	var all time.Duration
	for _, d := range t.lived {
		all += d
	}
	fmt.Fprintf(&b, "%d seeds lived %.1f hours\n", t.seeds, all.Hours())
	for _, n := range slices.Sorted(maps.Keys(t.lived)) {
		hours := t.lived[n].Hours()
		fmt.Fprintf(&b, "nodes %d: %.1f hours, %.1f seconds of a processor for each\n", n, hours, t.used[n].Seconds()/hours)
	}
	fmt.Fprintf(&b, "%d events acknowledged, %d leader changes, %d power cuts\n", t.acknowledged, t.leaders, t.crashes)
	b.WriteString(counted("faults", t.faults))
	b.WriteString(counted("violations", t.violations))
	if len(t.failed) > 0 {
		fmt.Fprintf(&b, "seeds that failed: %v\n", t.failed)
	}
	return b.String()
}

// counted is a line with a sum and its parts.
func counted(of string, parts map[string]int) string {
	sum, list := 0, []string{}
	for _, kind := range slices.Sorted(maps.Keys(parts)) {
		sum += parts[kind]
		list = append(list, fmt.Sprintf("%d %s", parts[kind], kind))
	}
	if sum == 0 {
		return "no " + of + "\n"
	}
	return fmt.Sprintf("%d %s: %s\n", sum, of, strings.Join(list, ", "))
}
