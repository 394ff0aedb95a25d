package fsm_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// stages are where the writes that made a stream what it is may stand when the
// next one is decided. All must give the same answers.
var stages = []struct {
	name string
	done func(l *leader) // after each write
}{
	{"applied", func(l *leader) { l.flush() }},
	{"in flight", func(l *leader) { l.seal() }},
	{"in the same entry", func(*leader) {}},
}

// states are what a stream can be, with the writes that make it so. Its events have the ids 1, 2,
// 3.
var states = map[string][]*event.Write{
	"never written":               nil,
	"events":                      {appending("s", -2, 1, 2, 3)},
	"only metadata":               {describing("s", -2, 90, `{"a":1}`)},
	"soft-deleted":                {appending("s", -2, 1, 2, 3), deleting(event.SoftDelete, "s", -2)},
	"soft-deleted by metadata":    {appending("s", -2, 1, 2, 3), describing("s", -2, 90, `{"$tb":9223372036854775807,"k":1}`)},
	"only metadata, soft-deleted": {describing("s", -2, 90, `{"a":1}`), deleting(event.SoftDelete, "s", -2)},
	"hard-deleted":                {appending("s", -2, 1, 2, 3), deleting(event.HardDelete, "s", -2)},
	"soft-deleted, hard-deleted":  {appending("s", -2, 1, 2, 3), deleting(event.SoftDelete, "s", -2), deleting(event.HardDelete, "s", -2)},
	"never written, hard-deleted": {deleting(event.HardDelete, "s", -2)},
}

// inState runs a check against a stream in a state, once for each stage.
func inState(t *testing.T, name string, check func(t *testing.T, l *leader)) {
	t.Helper()
	writes, ok := states[name]
	if !ok {
		t.Fatalf("no state %q", name)
	}
	for _, stage := range stages {
		t.Run(stage.name, func(t *testing.T) {
			l := startLeader(t)
			l.write(appending("other", -2, 1, 2, 3)) // the ids are there too, in another stream
			stage.done(l)
			for _, w := range writes {
				l.write(w)
				stage.done(l)
			}
			check(t, l)
			l.flush()
		})
	}
}

func expect(t *testing.T, l *leader, w *event.Write, want outcome) {
	t.Helper()
	check.MustEqual(t, outcomeOf(l.decide(w)), want, "expected version", w.ExpectedVersion)
}

func TestExpectedVersion(t *testing.T) {
	for _, state := range []struct {
		name string
		last int64             // current version in conflicts
		all  *outcome          // for every version
		ok   map[int64]outcome // for these; all others conflict
	}{
		{name: "never written", last: -1, ok: map[int64]outcome{-2: wrote(0, 0), -1: wrote(0, 0)}},
		{name: "events", last: 2, ok: map[int64]outcome{-4: wrote(3, 3), -2: wrote(3, 3), 2: wrote(3, 3)}},
		{name: "only metadata", last: -1, ok: map[int64]outcome{-4: wrote(0, 0), -2: wrote(0, 0), -1: wrote(0, 0)}},
		{name: "soft-deleted", last: 2, ok: map[int64]outcome{-4: gone(), -2: wrote(3, 3), -1: wrote(3, 3), 2: wrote(3, 3)}},
		{name: "soft-deleted by metadata", last: 2, ok: map[int64]outcome{-4: gone(), -2: wrote(3, 3), -1: wrote(3, 3), 2: wrote(3, 3)}},
		{name: "only metadata, soft-deleted", last: -1, ok: map[int64]outcome{-4: gone(), -2: wrote(0, 0), -1: wrote(0, 0)}},
		{name: "hard-deleted", all: new(gone())},
		{name: "soft-deleted, hard-deleted", all: new(gone())},
		{name: "never written, hard-deleted", all: new(gone())},
	} {
		for _, expected := range []int64{-5, -4, -3, -2, -1, 0, 1, 2, 3, math.MinInt64, math.MaxInt64} {
			want, ok := state.ok[expected]
			if !ok {
				want = conflict(state.last)
			}
			if state.all != nil {
				want = *state.all
			}
			t.Run(fmt.Sprint(state.name, "/", expected), func(t *testing.T) {
				inState(t, state.name, func(t *testing.T, l *leader) { expect(t, l, appending("s", expected, 50), want) })
			})
		}
	}
}

func TestRetries(t *testing.T) {
	for _, c := range []struct {
		name     string
		state    string
		expected int64
		ids      []int
		want     outcome
	}{
		{"any, whole", "events", -2, []int{1, 2, 3}, before(0, 2)},
		{"any, first part", "events", -2, []int{1, 2}, before(0, 1)},
		{"any, later part", "events", -2, []int{2, 3}, before(1, 2)},
		{"any, one", "events", -2, []int{2}, before(1, 1)},
		{"any, other order", "events", -2, []int{3, 1}, before(2, 0)},
		{"any, first new", "events", -2, []int{50, 1, 2}, wrote(3, 5)},
		{"any, later new", "events", -2, []int{1, 2, 3, 50}, conflict(2)},
		{"any, twice the same", "events", -2, []int{1, 1}, before(0, 0)},
		{"any, new twice in itself", "events", -2, []int{50, 50}, wrote(3, 4)},
		{"any, known in another stream only", "never written", -2, []int{1, 2, 3}, wrote(0, 2)},
		{"any, soft-deleted", "soft-deleted", -2, []int{1, 2, 3}, before(0, 2)},
		{"any, hard-deleted", "hard-deleted", -2, []int{1, 2, 3}, gone()},
		{"exists, whole", "events", -4, []int{1, 2, 3}, before(0, 2)},
		{"exists, later new", "events", -4, []int{1, 50}, conflict(2)},
		{"exists, first new", "events", -4, []int{50, 1}, wrote(3, 4)},
		{"exists, soft-deleted", "soft-deleted", -4, []int{1, 2, 3}, gone()},
		{"none, whole", "events", -1, []int{1, 2, 3}, before(0, 2)},
		{"none, first part", "events", -1, []int{1}, before(0, 0)},
		{"none, later part", "events", -1, []int{2, 3}, conflict(2)},
		{"none, longer", "events", -1, []int{1, 2, 3, 50}, conflict(2)},
		{"none, later differs", "events", -1, []int{1, 50}, conflict(2)},
		{"none, other order", "events", -1, []int{2, 1}, conflict(2)},
		{"none, soft-deleted, whole", "soft-deleted", -1, []int{1, 2, 3}, before(0, 2)},
		{"none, soft-deleted, first differs", "soft-deleted", -1, []int{50, 2, 3}, wrote(3, 5)},
		{"none, soft-deleted, later differs", "soft-deleted", -1, []int{1, 50}, conflict(2)},
		{"none, soft-deleted, longer", "soft-deleted", -1, []int{1, 2, 3, 50}, conflict(2)},
		{"version, whole", "events", 0, []int{2, 3}, before(1, 2)},
		{"version, first part", "events", 0, []int{2}, before(1, 1)},
		{"version, first differs", "events", 0, []int{50, 3}, conflict(2)},
		{"version, later differs", "events", 0, []int{2, 50}, conflict(2)},
		{"version, longer", "events", 1, []int{3, 50}, conflict(2)},
		{"version, other place", "events", 1, []int{2}, conflict(2)},
		{"version, soft-deleted, whole", "soft-deleted", 0, []int{2, 3}, before(1, 2)},
		{"version, soft-deleted, first differs", "soft-deleted", 0, []int{50}, conflict(2)},
		{"current version, ids not looked at", "events", 2, []int{1, 2}, wrote(3, 4)},
		{"above the current version", "events", 3, []int{1}, conflict(2)},
	} {
		t.Run(c.name, func(t *testing.T) {
			inState(t, c.state, func(t *testing.T, l *leader) { expect(t, l, appending("s", c.expected, c.ids...), c.want) })
		})
	}
}

// Events written one by one are recognised in a batch and the other way round,
// wherever each of them stands.
func TestRetriesAcrossEntries(t *testing.T) {
	for _, stage := range stages {
		t.Run(stage.name, func(t *testing.T) {
			l := startLeader(t)
			for i := range 100 {
				expect(t, l, appending("s", int64(i)-1, i), wrote(int64(i), int64(i)))
				if i%7 == 0 {
					stage.done(l)
				}
				if i == 50 {
					l.seal()
					l.apply(3) // the rest stays in flight
				}
			}
			ids := make([]int, 100)
			for i := range ids {
				ids[i] = i
			}
			for _, expected := range []int64{-4, -2, -1} {
				expect(t, l, appending("s", expected, ids...), before(0, 99))
			}
			expect(t, l, appending("s", 49, ids[50:]...), before(50, 99))
			expect(t, l, appending("s", 48, ids[50:]...), conflict(99))
			for i := range ids {
				expect(t, l, appending("s", int64(i)-1, i), before(int64(i), int64(i)))
				expect(t, l, appending("s", -2, i), before(int64(i), int64(i)))
			}
			// The same id again, by its true version: the newest place counts from then on.
			expect(t, l, appending("s", 99, 5), wrote(100, 100))
			stage.done(l)
			expect(t, l, appending("s", -2, 5), before(100, 100))
			expect(t, l, appending("s", 4, 5), before(5, 5))
			l.flush()
			expect(t, l, appending("s", -2, 5), before(100, 100))
		})
	}
}

func TestDelete(t *testing.T) {
	all := func(want outcome) map[int64]outcome {
		m := map[int64]outcome{}
		for _, v := range []int64{-4, -3, -2, -1, 0, 1, 2, 3} {
			m[v] = want
		}
		return m
	}
	done, tomb := wrote(2, 2), wrote(event.TombstoneNumber, event.TombstoneNumber)
	for _, c := range []struct {
		state string
		kind  event.WriteKind
		last  int64
		want  map[int64]outcome // others conflict
	}{
		{"never written", event.SoftDelete, -1, nil},
		{"never written", event.HardDelete, -1, map[int64]outcome{-2: tomb, -1: tomb}},
		{"events", event.SoftDelete, 2, map[int64]outcome{-4: done, -2: done, 2: done}},
		{"events", event.HardDelete, 2, map[int64]outcome{-4: tomb, -2: tomb, 2: tomb}},
		{"only metadata", event.SoftDelete, -1, map[int64]outcome{-4: wrote(-1, -1), -2: wrote(-1, -1), -1: wrote(-1, -1)}},
		{"only metadata", event.HardDelete, -1, map[int64]outcome{-4: tomb, -2: tomb, -1: tomb}},
		{"soft-deleted", event.SoftDelete, 2, map[int64]outcome{-4: gone(), -2: before(2, 2), -1: before(2, 2), 2: before(2, 2)}},
		{"soft-deleted", event.HardDelete, 2, map[int64]outcome{-4: gone(), -2: tomb, -1: tomb, 2: tomb}},
		{"soft-deleted by metadata", event.SoftDelete, 2, map[int64]outcome{-4: gone(), -2: before(2, 2), -1: before(2, 2), 2: before(2, 2)}},
		{"only metadata, soft-deleted", event.HardDelete, -1, map[int64]outcome{-4: gone(), -2: tomb, -1: tomb}},
		{"hard-deleted", event.SoftDelete, 2, all(gone())},
		{"hard-deleted", event.HardDelete, 2, all(gone())},
		{"soft-deleted, hard-deleted", event.SoftDelete, 2, all(gone())},
		{"never written, hard-deleted", event.HardDelete, 2, all(gone())},
	} {
		for _, expected := range []int64{-4, -3, -2, -1, 0, 1, 2, 3} {
			want, ok := c.want[expected]
			if !ok {
				want = conflict(c.last)
			}
			kind := map[event.WriteKind]string{event.SoftDelete: "soft", event.HardDelete: "hard"}[c.kind]
			t.Run(fmt.Sprint(c.state, "/", kind, "/", expected), func(t *testing.T) {
				inState(t, c.state, func(t *testing.T, l *leader) {
					expect(t, l, deleting(c.kind, "s", expected), want)
					if want == tomb {
						expect(t, l, appending("s", -2, 60), gone())
						expect(t, l, describing("s", -2, 61, `{}`), gone())
						expect(t, l, describing("$$s", -2, 62, `{}`), gone())
					}
				})
			})
		}
	}
}

func TestNobodyMay(t *testing.T) {
	refused := outcome{err: "not authorized"}
	l := startLeader(t)
	l.write(appending("s", -2, 1))
	l.write(describing("s", -2, 2, `{}`))
	for name, w := range map[string]*event.Write{
		"append to $all":                   appending("$all", -2, 1),
		"append nothing to $all":           appending("$all", -2),
		"soft-delete $all":                 deleting(event.SoftDelete, "$all", -2),
		"hard-delete $all":                 deleting(event.HardDelete, "$all", -2),
		"soft-delete a metadata stream":    deleting(event.SoftDelete, "$$s", -2),
		"hard-delete a metadata stream":    deleting(event.HardDelete, "$$s", -2),
		"hard-delete metadata of metadata": deleting(event.HardDelete, "$$$$s", -2),
	} {
		t.Run(name, func(t *testing.T) { expect(t, l, w, refused) })
	}
	t.Run("unknown kind", func(t *testing.T) {
		expect(t, l, &event.Write{Kind: 9, Stream: "s", ExpectedVersion: -2}, outcome{err: "unknown kind of write 9"})
	})
	l.flush()
	check.MustEqual(t, len(l.all()), 2, "records")
}
