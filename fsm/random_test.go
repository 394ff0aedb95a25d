package fsm_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/fsm"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// random plays a leader, its rivals and the machine below them against the model.
type random struct {
	t       *rapid.T
	mem     *vfs.Mem
	l       *leader
	applied *model   // what the log holds
	decided *model   // and what the leader decided on top of it
	sealed  []*model // after each entry in flight
	past    []*event.Write
	manies  []*event.Write
	events  int
	answers []bool // whether the entry of history at that place went in
}

var randomStreams = []string{"a", "a", "a", "b", "b", "c", "d", "$$a", "$$a", "$$b", "$$c", "$$$$a", "$$$$$$a", "$scavengePoints"}

var randomDocuments = []string{
	`{}`, `{"$maxCount":3}`, `{"$tb":1}`, `{"k":1,"$tb":0}`, softDeleted, softDeleted, `{"k":"v","$tb":9223372036854775807}`, `no JSON`, ``,
}

// write draws a write: a new one, or one that resembles an earlier one.
func (r *random) write(m *model) *event.Write {
	t := r.t
	if len(r.past) > 0 && rapid.IntRange(0, 3).Draw(t, "again") == 0 {
		w := *rapid.SampledFrom(r.past).Draw(t, "past")
		if n := len(w.Events); n > 1 && rapid.Bool().Draw(t, "part") {
			from := rapid.IntRange(0, n-1).Draw(t, "from")
			w.Events = w.Events[from:rapid.IntRange(from+1, n).Draw(t, "to")]
		}
		if rapid.IntRange(0, 2).Draw(t, "other version") == 0 {
			w.ExpectedVersion = r.version(m, w.Stream)
		}
		return &w
	}
	w := &event.Write{Stream: rapid.SampledFrom(randomStreams).Draw(t, "stream")}
	w.ExpectedVersion = r.version(m, w.Stream)
	if kind := rapid.IntRange(0, 30).Draw(t, "kind"); !event.IsMetaStream(w.Stream) && kind < 4 {
		w.Kind = event.SoftDelete
		if kind == 0 {
			w.Kind = event.HardDelete
		}
		return w
	}
	count := rapid.SampledFrom([]int{0, 1, 1, 1, 1, 2, 3, 40}).Draw(t, "count")
	for range count {
		r.events++
		e := event.Proposed{ID: id(r.events), Type: "t", Data: fmt.Appendf(nil, `{"n":%d}`, r.events)}
		if rapid.IntRange(0, 9).Draw(t, "known id") == 0 {
			e.ID = id(rapid.IntRange(1, r.events).Draw(t, "id"))
		}
		if event.IsMetaStream(w.Stream) {
			e.Data = []byte(rapid.SampledFrom(randomDocuments).Draw(t, "document"))
		}
		if w.Stream == event.ScavengePointsStream {
			e.Type = event.TypeScavengePoint
			if rapid.IntRange(0, 3).Draw(t, "no point") > 0 {
				e.Type = "t"
			}
		}
		w.Events = append(w.Events, e)
	}
	if rapid.IntRange(0, 60).Draw(t, "large") == 0 && count > 0 && !event.IsMetaStream(w.Stream) {
		w.Events[0].Data = make([]byte, 700_000)
	}
	w.Late = event.IsMetaStream(w.Stream) && rapid.Bool().Draw(t, "late")
	r.past = append(r.past, w)
	return w
}

func (r *random) version(m *model, stream string) int64 {
	last := m.last(stream)
	return rapid.SampledFrom([]int64{-2, -2, -2, last, last, last, last, -1, -1, -4, -4, -3, last - 1, last - 3, last + 1, 0}).Draw(r.t, "version")
}

// decide has a decider and a model decide the same, and reports whether the entry had room.
func (r *random) decide(d *fsm.Decider, m *model, w *event.Write) bool {
	got := d.Decide(w)
	if got.Full {
		return false
	}
	if got, want := outcomeOf(got.Written, got.Err), m.write(w, got.Written); got != want {
		r.t.Fatalf("%d of %s, %d events, expected version %d: got %+v, want %+v", w.Kind, w.Stream, len(w.Events), w.ExpectedVersion, got, want)
	}
	if got.Err == nil {
		if err := m.placed(w, got.Written); err != nil {
			r.t.Fatalf("%d of %s, expected version %d: %v", w.Kind, w.Stream, w.ExpectedVersion, err)
		}
	}
	return true
}

func (r *random) Decide(*rapid.T) {
	for range rapid.IntRange(1, 8).Draw(r.t, "writes") {
		w := r.write(r.decided)
		if !r.decide(r.l.d, r.decided, w) {
			r.Seal(nil)
			if !r.decide(r.l.d, r.decided, w) {
				r.t.Fatalf("an empty entry has no room")
			}
		}
	}
}

// Many has a write to several streams decided.
func (r *random) Many(*rapid.T) {
	t, m := r.t, r.decided
	var appends []*event.Write
	var checks []event.Check
	named := map[string]bool{}
	version := func(stream string) int64 {
		last := m.last(stream)
		return rapid.SampledFrom([]int64{last, last, last, -1, -4, -5, -6, max(last-1, 0), last + 1, 0}).Draw(t, "version")
	}
	for range rapid.IntRange(1, 4).Draw(t, "streams") {
		w := r.write(m)
		if w.Kind != event.Append || len(w.Events) == 0 || len(w.Events) > 30 || named[w.Stream] || w.Stream == event.ScavengePointsStream {
			continue
		}
		w = &event.Write{Stream: w.Stream, ExpectedVersion: event.AnyVersion, Events: w.Events}
		if rapid.Bool().Draw(t, "checked") {
			w.ExpectedVersion = version(w.Stream)
		}
		named[w.Stream] = true
		appends = append(appends, w)
	}
	for range rapid.IntRange(0, 2).Draw(t, "checks") {
		if s := rapid.SampledFrom(randomStreams).Draw(t, "stream"); !named[s] {
			named[s] = true
			checks = append(checks, event.Check{Stream: s, Expected: version(s)})
		}
	}
	if len(appends) == 0 {
		return
	}
	w := gathered(checks, appends...)
	if len(r.manies) > 0 && rapid.IntRange(0, 2).Draw(t, "again") == 0 {
		w = rapid.SampledFrom(r.manies).Draw(t, "past")
	}
	r.manies = append(r.manies, w)
	got := r.l.d.Decide(w)
	if got.Full {
		r.Seal(nil)
		got = r.l.d.Decide(w)
	}
	done, repeated, violations := m.writeMany(w)
	if violations != nil {
		refusal, ok := errors.AsType[*event.Violations](got.Err)
		if !ok || !reflect.DeepEqual(refusal.Checks, violations) {
			t.Fatalf("%+v of %d events: %+v %v, want %+v", w.Many, len(w.Events), got.Written, got.Err, violations)
		}
		return
	}
	if got.Err != nil || got.Written.Idempotent != repeated || !reflect.DeepEqual(got.Written.Streams, done) {
		t.Fatalf("%+v of %d events: %+v %v, want %+v repeated: %t", w.Many, len(w.Events), got.Written, got.Err, done, repeated)
	}
	of := w.Many.Of[len(w.Many.Of)-1]
	last := &event.Write{Stream: w.Many.Streams[of], Events: w.Events}
	check.Must(t, m.placed(last, event.Written{Last: done[of].Last, Position: got.Written.Position}))
}

func (r *random) Seal(*rapid.T) {
	if e := r.l.d.Seal(); e != nil {
		r.l.sealed = append(r.l.sealed, e)
		r.sealed = append(r.sealed, r.decided.clone())
	}
}

// Apply applies entries in flight, in batches, among entries that are not for the log.
func (r *random) Apply(*rapid.T) {
	n := rapid.IntRange(0, len(r.sealed)).Draw(r.t, "entries")
	if n == 0 {
		return
	}
	if rapid.Bool().Draw(r.t, "configuration") {
		r.l.index++
		c := &raft.Log{Index: r.l.index, Term: r.l.term, Type: raft.LogConfiguration}
		if a := r.l.m.ApplyBatch([]*raft.Log{c}); a[0] != nil {
			r.t.Fatalf("configuration: %v", a[0])
		}
	}
	r.l.index += rapid.Uint64Range(0, 2).Draw(r.t, "no-ops")
	r.l.apply(n)
	for range n {
		r.answers = append(r.answers, true)
	}
	r.applied = r.sealed[n-1]
	r.sealed = r.sealed[n:]
}

// Rival has another decider, as a leader of another term has, write first. What
// is in flight is refused then, and all of it is decided again.
func (r *random) Rival(*rapid.T) {
	d := fsm.NewDecider(r.l.log.Facts, r.l.now)
	check.Must(r.t, d.Reset(), "reset")
	m := r.applied.clone()
	for range rapid.IntRange(1, 3).Draw(r.t, "writes") {
		r.decide(d, m, r.write(m))
	}
	e := d.Seal()
	if e == nil {
		return
	}
	r.Seal(nil)
	batch := []*raft.Log{r.l.command(e)}
	for _, e := range r.l.sealed {
		batch = append(batch, r.l.command(e))
	}
	for i, a := range r.l.m.ApplyBatch(batch) {
		if err, _ := a.(error); i == 0 && a != nil || i > 0 && !errors.Is(err, event.ErrEntryRefused) {
			r.t.Fatalf("entry %d of the batch: %v", i, a)
		}
		r.answers = append(r.answers, i == 0)
	}
	r.applied = m
	r.begin()
	if rapid.Bool().Draw(r.t, "takes over") {
		r.l.term++
		r.l.lead()
	} else {
		r.l.reset()
	}
}

// begin forgets what was decided and not applied.
func (r *random) begin() {
	r.sealed = nil
	r.decided = r.applied.clone()
}

// Restart stops the node, perhaps by a power cut, and replays the whole Raft log.
func (r *random) Restart(*rapid.T) {
	tail := r.l.log.Tail()
	power := rapid.Bool().Draw(r.t, "power cut")
	after := r.mem
	if power {
		after = r.mem.CrashClone(vfs.CrashOptions{})
	}
	r.l.close()
	r.mem, r.l.fs = after, after
	r.l.open()
	if power {
		r.replay(r.l.m)
	} else {
		r.mustStand(tail)
		r.replay(r.l.m)
	}
	r.mustStand(tail)
	r.begin()
	r.l.term++
	r.l.lead()
}

func (r *random) mustStand(tail event.Tail) {
	check.MustEqual(r.t, r.l.log.Tail(), tail, "the log ends at")
}

// replay applies the whole Raft log again, in batches.
func (r *random) replay(m *fsm.Machine) {
	rest, answers := r.l.history, r.answers
	for len(rest) > 0 {
		n := rapid.IntRange(1, len(rest)).Draw(r.t, "batch")
		for i, a := range m.ApplyBatch(rest[:n]) {
			if err, _ := a.(error); a != nil && (answers[i] || !errors.Is(err, event.ErrEntryRefused)) {
				r.t.Fatalf("replay of entry %d: %v", rest[i].Index, a)
			}
		}
		rest, answers = rest[n:], answers[n:]
	}
}

func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &random{t: t, mem: vfs.NewCrashMem(), applied: newModel()}
		r.l = newLeader(t, r.mem)
		r.begin()
		defer func() { r.l.close() }()
		t.Repeat(map[string]func(*rapid.T){
			"decide": r.Decide, "decide more": r.Decide, "many": r.Many, "seal": r.Seal, "seal more": r.Seal, "apply": r.Apply, "rival": r.Rival, "restart": r.Restart,
		})
		r.Seal(nil)
		n := len(r.sealed)
		r.l.apply(n)
		for range n {
			r.answers = append(r.answers, true)
		}
		check.Must(t, r.decided.verify(r.l.node))
		// A node that only follows comes to the same end.
		follower := openNode(t, vfs.NewMem())
		defer follower.close()
		r.replay(follower.m)
		if got, want := follower.log.Tail(), r.l.log.Tail(); got != want {
			t.Fatalf("the follower ends at %+v, the leader at %+v", got, want)
		}
		check.Must(t, r.decided.verify(follower), "follower")
		if len(r.l.fatals)+len(follower.fatals) > 0 {
			t.Fatalf("fatal: %v %v", r.l.fatals, follower.fatals)
		}
	})
}
