package fsm_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/fsm"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/index"
)

// late returns an append to a metadata stream that is done after a tombstone, too.
func late(meta string, expected int64, ids ...int) *event.Write {
	w := appending(meta, expected, ids...)
	w.Late = true
	return w
}

// factsOf returns what is known of a stream, as text.
func factsOf(t *testing.T, l *eventlog.Log, stream string) string {
	t.Helper()
	info := check.Value(l.Reads.StreamInfo(stream)).Must(t)
	return fmt.Sprintf("%+v", info)
}

// TestLateMetadata: after a tombstone an append to the metadata stream is done once, whatever
// version it expects, and is numbered by position. Nothing of the stream changes.
func TestLateMetadata(t *testing.T) {
	for _, state := range []string{"hard-deleted", "soft-deleted, hard-deleted", "never written, hard-deleted"} {
		for _, meta := range []string{"$$s", "$$$$s"} {
			for _, expected := range []int64{-5, -4, -3, -2, -1, 0, 1, 9} {
				t.Run(fmt.Sprint(state, "/", meta, "/", expected), func(t *testing.T) {
					inState(t, state, func(t *testing.T, l *leader) {
						if expected == -5 || expected == -3 {
							expect(t, l, late(meta, expected, 90), conflict(-1))
							return
						}
						expect(t, l, appending(meta, expected, 90), gone())
						expect(t, l, late("s", expected, 90), gone())
						expect(t, l, late(meta, expected), before(0, -1))
						first := l.write(late(meta, expected, 90, 91))
						second := l.write(late(meta, expected, 92))
						if first.Last != first.Position || second.First != second.Position || second.Last != second.First || second.First <= first.Last || first.Last <= first.First {
							t.Fatalf("%+v, %+v", first, second)
						}
						again := func() {
							t.Helper()
							expect(t, l, late(meta, expected, 90, 91), before(first.First, first.Last))
							expect(t, l, late(meta, expected, 91), before(first.Last, first.Last))
							expect(t, l, late(meta, expected, 92), before(second.First, second.Last))
							expect(t, l, late(meta, expected, 92, 93), conflict(-1))
						}
						again()
						l.seal()
						again()
						third := l.write(late(meta, expected, 94))
						l.flush()
						again()
						expect(t, l, late(meta, expected, 94), before(third.First, third.First))
						expect(t, l, appending("s", -2, 95), gone())
						expect(t, l, describing("s", -2, 96, `{}`), gone())
					})
				})
			}
		}
	}
}

// TestLateMetadataSayNothing: what is known of a stream with a tombstone, its rights among it, is
// what it was before late metadata; from the cache and from the index, also when the log was opened
// again.
func TestLateMetadataSayNothing(t *testing.T) {
	for state, writes := range map[string][]*event.Write{
		"described":     {appending("s", -2, 1), describing("s", -2, 2, `{}`), describing("s", -2, 3, `{"$acl":{"$r":"x"},"$maxCount":3}`)},
		"not described": {appending("s", -2, 1)},
		"only deleted":  nil,
	} {
		t.Run(state, func(t *testing.T) {
			l := startLeader(t)
			for _, w := range append(writes, deleting(event.HardDelete, "s", -2)) {
				l.write(w)
			}
			l.flush()
			want := factsOf(t, l.log, "s")
			for n, document := range []string{`{"$acl":{"$r":"y"}}`, `{"$tb":9223372036854775807}`, `{}`} {
				w := describing("s", -2, 90+n, document)
				w.Late = true
				l.write(w)
				l.flush()
				check.MustEqual(t, factsOf(t, l.log, "s"), want)
				l.close()
				l.open()
				l.lead()
				check.MustEqual(t, factsOf(t, l.log, "s"), want, "opened again")
				check.MustEqual(t, factsOf(t, l.log, "$$s"), fmt.Sprintf("%+v", event.StreamInfo{
					Last: l.log.Tail().End - sizeOfLast(t, l), HardDeleted: true, MetaLast: -1, Metadata: event.Metadata{Retention: event.Retention{MaxCount: 1}},
				}), "metadata stream")
				if _, err := l.log.Reads.ReadEvent("$$s", event.Head, nil); err != event.ErrStreamDeleted {
					t.Fatalf("read: %v", err)
				}
			}
		})
	}
}

// sizeOfLast is how far the last record is from the log's end.
func sizeOfLast(t *testing.T, l *leader) int64 {
	t.Helper()
	all := l.all()
	return l.log.Tail().End - all[len(all)-1].Position
}

// TestLateMetadataScavenged: nodes that removed the metadata of a stream with a tombstone, and
// nodes that did not, decide the same about late ones, in whatever order they lead, and none sees a
// number that does not follow.
func TestLateMetadataScavenged(t *testing.T) {
	l := startLeader(t)
	other := openNode(t, vfs.NewMem())
	defer func() { other.close() }()
	for n := range 5 {
		l.write(describing("s", int64(n)-1, 10+n, `{}`))
	}
	l.write(deleting(event.HardDelete, "s", -2))
	given := map[int64]bool{0: true, 1: true, 2: true, 3: true, 4: true}
	for round := range 3 {
		if round > 0 {
			l.flush()
			l.write(scavengePoint(3000 + round))
			l.flush()
			scavengeStream(t, l, "$$s")
			l.close() // The facts may be cached.
			l.open()
			l.lead()
			if info, err := l.log.Reads.StreamInfo("$$s"); err != nil || info.Last != -1 {
				t.Fatalf("round %d: %+v, %v", round, info, err)
			}
		}
		l.flush()
		for _, e := range l.history[len(l.history)-len(pending(other, l)):] {
			if a := other.m.Apply(e); a != nil {
				t.Fatal(a)
			}
		}
		for n, expected := range []int64{-2, -1, 4, 0} {
			w := late("$$s", expected, 100+10*round+n)
			var answers []outcome
			for _, log := range []*eventlog.Log{l.log, other.log} {
				d := fsm.NewDecider(log.Facts, l.now)
				check.Must(t, d.Reset())
				for _, w := range []*event.Write{w, late("$$s", expected, 14), late("$$s", expected, 100), late("$$s", -3, 5)} {
					decision := d.Decide(w)
					answers = append(answers, outcomeOf(decision.Written, decision.Err))
				}
			}
			check.MustSlice(t, answers[:4], answers[4:], "round", round, "expected", expected, "scavenged ..., not scavenged")
			done := l.write(w)
			if given[done.First] {
				t.Fatalf("number %d was given twice", done.First)
			}
			given[done.First] = true
			l.flush()
			if a := other.m.Apply(l.history[len(l.history)-1]); a != nil {
				t.Fatal(a)
			}
		}
		for _, log := range []*eventlog.Log{l.log, other.log} {
			check.Must(t, log.Health.Unhealthy())
		}
	}
}

// pending returns the entries that a node has not applied.
func pending(n *node, l *leader) []int {
	return make([]int, l.index-n.log.Tail().Index)
}

// scavengeStream removes the events of a stream from the first chunk file, and from the index.
func scavengeStream(t *testing.T, l *leader, stream string) {
	t.Helper()
	ids := check.Value(l.log.Chunks.IDsFrom()).Must(t)
	removed := map[int64]bool{}
	files := check.Value(l.log.Chunks.List()).Must(t)
	for _, f := range files {
		if _, err := l.log.Chunks.Rewrite(context.Background(), eventlog.Rewrite{First: f.First, Last: f.Last, IDsFrom: ids, Keep: func(s *eventlog.Stored) bool {
			removed[s.Position] = string(s.Stream) == stream
			return !removed[s.Position]
		}}); err != nil {
			t.Fatal(err)
		}
	}
	check.Must(t, l.log.Index().Flush())
	check.Must(t, l.log.Index().Scavenge(context.Background(), index.ScavengeOptions{Keep: func(e index.Entry) (bool, error) { return !removed[e.Position], nil }}))
}
