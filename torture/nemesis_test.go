package torture

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// fakeCluster notes what is done to it and can tell when that is not allowed.
type fakeCluster struct {
	able  Abilities
	nodes int

	mu     sync.Mutex
	runs   map[int]bool
	paused map[int]bool
	full   map[int]bool
	frozen map[int]bool
	broken map[int]bool
	skewed map[int]time.Duration
	shaped map[cut]Shape
	struck map[string]int
}

func newFake(nodes int) *fakeCluster {
	f := &fakeCluster{
		nodes: nodes, able: Abilities{Processes: true, Network: true, Disk: true, Hang: true, Errors: true, Resets: true},
		runs: map[int]bool{}, paused: map[int]bool{}, full: map[int]bool{}, frozen: map[int]bool{}, broken: map[int]bool{}, skewed: map[int]time.Duration{}, shaped: map[cut]Shape{}, struck: map[string]int{},
	}
	for i := range nodes {
		f.runs[i] = true
	}
	return f
}

func (f *fakeCluster) note(what string) func() {
	f.mu.Lock()
	f.struck[what]++
	return f.mu.Unlock
}

func (f *fakeCluster) Targets() []Target {
	defer f.note("targets")()
	var list []Target
	for i := range f.nodes + 1 {
		if i < f.nodes || f.runs[i] {
			list = append(list, Target{Name: nodeName(i), Base: "http://unused.invalid", Index: i})
		}
	}
	return list
}
func (f *fakeCluster) Certificates() *Certificates        { return nil }
func (f *fakeCluster) Certify(int, Trust) (string, error) { return "", errors.ErrUnsupported }
func (f *fakeCluster) Move(int) error                     { return errors.ErrUnsupported }
func (f *fakeCluster) Grow(bool)                          {}
func (f *fakeCluster) Voters() int                        { return f.nodes }
func (f *fakeCluster) Can() Abilities                     { return f.able }
func (f *fakeCluster) Start(_ context.Context, i int) error {
	defer f.note("start")()
	f.runs[i] = true
	return nil
}
func (f *fakeCluster) Kill(i int) error {
	defer f.note("kill")()
	f.runs[i], f.paused[i] = false, false
	return f.frees(i)
}
func (f *fakeCluster) Terminate(_ context.Context, i int) error {
	defer f.note("terminate")()
	f.runs[i], f.paused[i] = false, false
	return f.frees(i)
}

// frees fails for a process that the kernel would not let go, or for who writes to its disk.
func (f *fakeCluster) frees(i int) error {
	if f.frozen[i] {
		return fmt.Errorf("%s hangs and can neither stop nor end", nodeName(i))
	}
	return nil
}
func (f *fakeCluster) Pause(i int) error {
	defer f.note("pause")()
	f.paused[i] = f.runs[i]
	return f.frees(i)
}
func (f *fakeCluster) Resume(i int) error {
	defer f.note("resume")()
	f.paused[i] = false
	return nil
}
func (f *fakeCluster) Running(i int) bool {
	defer f.note("running")()
	return f.runs[i]
}
func (f *fakeCluster) Wipe(i int, onlyRaft bool) error {
	defer f.note(fmt.Sprintf("wipe raft only %t", onlyRaft))()
	if f.runs[i] {
		return fmt.Errorf("%s runs and is wiped", nodeName(i))
	}
	return nil
}
func (f *fakeCluster) Shape(from, to int, s Shape) error {
	defer f.note("shape")()
	if from == to {
		return fmt.Errorf("link from %d to itself", from)
	}
	f.shaped[cut{from, to}] = s
	return nil
}
func (f *fakeCluster) HealNetwork() error {
	defer f.note("heal")()
	clear(f.shaped)
	return nil
}
func (f *fakeCluster) FillDisk(i int, _ int64) error {
	defer f.note("fill")()
	f.full[i] = true
	return f.frees(i)
}
func (f *fakeCluster) FreeDisk(i int) error {
	defer f.note("free")()
	f.full[i] = false
	return f.frees(i)
}
func (f *fakeCluster) FreezeDisk(i int) error {
	defer f.note("freeze")()
	f.frozen[i] = true
	return nil
}
func (f *fakeCluster) ThawDisk(i int) error {
	defer f.note("thaw")()
	f.frozen[i] = false
	return nil
}
func (f *fakeCluster) BreakDisk(i int, share float64) error {
	defer f.note("break")()
	f.broken[i] = share > 0
	return f.frees(i)
}
func (f *fakeCluster) Reset(int, float64) (int, error) {
	defer f.note("reset")()
	return 1, nil
}
func (f *fakeCluster) SetClock(i int, offset time.Duration) error {
	defer f.note("clock")()
	f.skewed[i] = offset
	return nil
}
func (f *fakeCluster) Verify(context.Context, int) error   { return nil }
func (f *fakeCluster) Disk(int) (vfs.FS, string)           { return vfs.NewMem(), "" }
func (f *fakeCluster) Check(context.Context, string) error { return nil }
func (f *fakeCluster) Serve(context.Context, string) (Target, func() error, error) {
	return Target{}, nil, errNotNow
}
func (f *fakeCluster) LogTail(int) string { return "" }
func (f *fakeCluster) Close() error       { return nil }

// TestNemesis lets all faults strike for hours of a time that is not real. Whatever
// was broken must be whole in the end, and no second disk may be destroyed while one is.
func TestNemesis(t *testing.T) {
	for _, nodes := range []int{1, 3, 5} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				c := newFake(nodes)
				line := &timeline{start: time.Now()}
				// No wire: no node ever catches up, and requests to resign go nowhere.
				w := newWatch(newHTTP(noWire{}), c.Targets, s.find, line)
				w.leader, w.term = 0, 2
				n := newNemesis(c, w, line, s.find, 7, allFaults(), func() {})
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
				defer cancel()
				n.run(ctx)
				check.Must(t, n.heal(t.Context()))
				for i := range nodes {
					check.Equal(t, c.skewed[i], 0, "node", i, "its clock is wrong by")
					if !c.runs[i] || c.paused[i] || c.full[i] || c.frozen[i] || c.broken[i] {
						t.Errorf("node %d: runs %t, paused %t, disk full %t, frozen %t, broken %t", i, c.runs[i], c.paused[i], c.full[i], c.frozen[i], c.broken[i])
					}
				}
				if len(c.shaped) > 0 {
					t.Errorf("links are not healed: %v", c.shaped)
				}
				if wipes := c.struck["wipe raft only true"] + c.struck["wipe raft only false"]; nodes > 1 && wipes != 1 || nodes == 1 && wipes != 0 {
					t.Errorf("%d disks were destroyed though none was rebuilt", wipes)
				}
				kinds := map[string]bool{}
				for _, h := range line.list() {
					if h.Kind == happenedFault {
						kinds[h.Fault] = true
						if h.Until < h.At || h.What == "" {
							t.Errorf("%+v", h)
						}
					}
				}
				for _, f := range allFaults() {
					if f.fits(c) && !f.destroys && !kinds[f.name] {
						t.Errorf("%s never struck", f.name)
					}
				}
				s.expect()
			})
		})
	}
}

// noWire loses every request.
type noWire struct{}

func (noWire) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("no wire")
}

// TestScheduleFollowsSeed: the same seed breaks the same things.
func TestScheduleFollowsSeed(t *testing.T) {
	schedule := func(seed uint64) (list []happening) {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			c := newFake(3)
			line := &timeline{start: time.Now()}
			w := newWatch(newHTTP(noWire{}), c.Targets, s.find, line)
			w.leader, w.term = 1, 2
			n := newNemesis(c, w, line, s.find, seed, allFaults(), func() {})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			n.run(ctx)
			list = line.list()
		})
		return list
	}
	one, again, other := schedule(1), schedule(1), schedule(2)
	if len(one) < 20 || !reflect.DeepEqual(one, again) {
		t.Errorf("%d and %d happenings of one seed", len(one), len(again))
	}
	if reflect.DeepEqual(one, other) {
		t.Error("two seeds gave one schedule")
	}
}

// TestDestroyedIsCuredLast: a node that must catch up needs the others.
func TestDestroyedIsCuredLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		line := &timeline{start: time.Now()}
		c := newFake(3)
		n := newNemesis(c, newWatch(nil, c.Targets, s.find, line), line, s.find, 1, nil, func() {})
		for range 20 {
			var cured []string
			active := func(name string, destroys, outer bool) *stroke {
				return &stroke{fault: &fault{name: name, destroys: destroys, outer: outer}, cure: func(context.Context) error {
					cured = append(cured, name)
					return nil
				}}
			}
			n.endure(t.Context(), []*stroke{active("wipe", true, false), nil, active("halves", false, false), active("pause", false, false)})
			check.Equal(t, len(cured), 3, cured)
			check.Equal(t, cured[2], "wipe", cured)
			n.endure(t.Context(), []*stroke{active("expire", false, true), active("kill", false, false)})
			check.Slice(t, cured[3:], []string{"kill", "expire"})
		}
	})
}

// TestNotTogether: of faults that undo or await each other, one is active at a time.
func TestNotTogether(t *testing.T) {
	c := newFake(3)
	n := newNemesis(c, nil, nil, nil, 1, nil, func() {})
	cases := []struct {
		name          string
		active, other fault
		fits          bool
	}{
		{"nothing in common", fault{outer: true, tls: true}, fault{ends: true}, true},
		{"networks", fault{network: true}, fault{network: true}, false},
		{"certificates", fault{outer: true, tls: true}, fault{tls: true}, false},
		{"outer comes late", fault{ends: true}, fault{outer: true}, false},
	}
	for _, one := range cases {
		t.Run(one.name, func(t *testing.T) {
			one.active.name, one.other.name, one.other.weight = "active", "other", 1
			n.faults = []fault{one.other}
			check.Equal(t, n.choose([]*stroke{{fault: &one.active}}) != nil, one.fits, "it strikes")
		})
	}
}

func TestDied(t *testing.T) {
	s := newScene(t)
	line := &timeline{start: time.Now()}
	c := newFake(3)
	n := newNemesis(c, newWatch(nil, c.Targets, s.find, line), line, s.find, 1, nil, func() {})
	_, free, err := strikeDiskFull(t.Context(), n)
	check.Must(t, err)
	_, mend, err := strikeDiskErrors(t.Context(), n)
	check.Must(t, err)
	check.Must(t, mend(t.Context()))
	n.ended(1, 1, "no space left on device")
	s.expect() // One fault of the disk is over, the other is not.
	check.Must(t, free(t.Context()))
	n.expiring.Store(&[]int{1})
	n.ended(1, 1, "error node.crt: expired on Monday")
	s.expect()
	for _, one := range []struct {
		node int
		tail string
	}{{1, "panic: something"}, {2, "error node.crt: expired on Monday"}} {
		before := s.find.total()
		n.ended(one.node, 2, one.tail)
		check.Equal(t, s.find.total(), before+1, "found after", one.tail)
	}
	n.expiring.Store(nil)
	n.ended(1, 1, "error node.crt: expired on Monday")
	s.expect(kindDied)
	check.Equal(t, s.find.total(), 3, "found in all")
}

func TestOutages(t *testing.T) {
	at := func(ms int64) int64 { return ms * int64(time.Millisecond) }
	all := []happening{
		{At: at(1000), Until: at(2000), Kind: happenedFault, Fault: "kill"},
		{At: at(1500), Kind: happenedLeader},
		{At: at(5000), Until: at(6000), Kind: happenedFault, Fault: "pause"},
		{At: at(6500), Until: at(7000), Kind: happenedFault, Fault: "kill"},
	}
	gaps := []gap{{at(900), at(1800)}, {at(2500), at(3000)}, {at(4500), at(5300)}, {at(6600), at(9000)}}
	want := []outage{
		{Fault: "kill", Times: 2, LongestGap: 2.4, MeanGap: 1.6},
		{Fault: "pause", Times: 1, LongestGap: 0.3, MeanGap: 0.3},
	}
	check.Deep(t, outages(all, gaps, at(2000)), want)
}

func TestChooseFaults(t *testing.T) {
	if got, err := chooseFaults(nil); err != nil || len(got) != len(allFaults()) {
		t.Errorf("%d faults, %v", len(got), err)
	}
	if got, err := chooseFaults([]string{"none"}); err != nil || len(got) != 0 {
		t.Errorf("%d faults, %v", len(got), err)
	}
	if got, err := chooseFaults([]string{"kill", "wipe"}); err != nil || len(got) != 2 || got[1].name != "wipe" {
		t.Errorf("%v", err)
	}
	check.Fails(t, check.Err(chooseFaults([]string{"kil"})), "an unknown fault was accepted")
}
