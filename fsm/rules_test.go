package fsm_test

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// An entry is appended only if the log has the end and the chain that it was decided on; otherwise
// every node refuses it alike. An entry that fits by position alone could have been decided on
// another state.
func TestRule01EntryIsACompareAndAppend(t *testing.T) {
	l, follower := startLeader(t), startNode(t, vfs.NewMem())
	lost := entriesOf(l, appending("x", -2, 1), appending("x", -2, 2))
	kept := entriesOf(l, appending("y", -2, 1))
	check.MustEqual(t, len(lost[0]), len(kept[0]), "entries of one length are needed")
	// The first of two entries never got into the Raft log, another took its place: the
	// second finds the right end, and a chain that is not the one it was decided on.
	batch := commands(1, 1, kept[0], lost[1])
	mustAnswer(t, l.m.ApplyBatch(batch), "ok refused")
	mustAnswer(t, follower.m.ApplyBatch(batch), "ok refused")
	// Whether it completes its chunk follows from the entry, and must agree.
	again := entriesOf(l, appending("z", -2, 1))
	if l.log.Tail() != follower.log.Tail() || l.log.Tail().Index != 1 {
		t.Errorf("tails %+v and %+v", l.log.Tail(), follower.log.Tail())
	}
	mustAnswer(t, l.m.ApplyBatch(commands(3, 1, again[0])), "ok")
	mustAnswer(t, follower.m.ApplyBatch(commands(3, 1, again[0])), "ok")
	check.Equal(t, l.log.Tail(), follower.log.Tail(), "tails ...")
}

// The end and the chain are taken before any fact is read, and entries in flight build on each
// other: a fact from beyond the end would let an entry through that contradicts it.
func TestRule02DecidedOnWhatWasApplied(t *testing.T) {
	l := startLeader(t)
	l.write(appending("s", -2, 1))
	l.flush()
	// Two entries in flight, the second on top of the first.
	l.write(appending("s", 0, 2))
	l.seal()
	l.write(appending("s", 1, 3))
	l.seal()
	first, second := l.command(l.sealed[0]), l.command(l.sealed[1])
	// Meanwhile another leader's entry got in before them.
	other := entriesOf(l, appending("s", 0, 9))
	mustAnswer(t, l.m.ApplyBatch([]*raft.Log{{Index: first.Index, Term: 1, Data: other[0]}}), "ok")
	first.Index, second.Index = first.Index+1, second.Index+1
	mustAnswer(t, l.m.ApplyBatch([]*raft.Log{first, second}), "refused refused")
	check.Equal(t, len(l.all()), 2, "records")
	// Decided again, on the state that is applied now, they fit, one after the other.
	redone := entriesOf(l, appending("s", 1, 2), appending("s", 2, 3))
	mustAnswer(t, l.m.ApplyBatch(commands(second.Index+1, 1, redone...)), "ok ok")
}

// The end is not taken when the entry is sealed: what was applied since the first fact was
// read, by a leader that this node does not know of yet, would be contradicted, and fit.
func TestRule02EndIsTakenBeforeFacts(t *testing.T) {
	for name, decided := range map[string]func(l *leader){
		"after a reset": func(*leader) {},
		"after an entry in flight": func(l *leader) {
			l.write(appending("s", 0, 7))
			l.seal()
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := startLeader(t)
			l.write(appending("s", -2, 1))
			l.flush()
			decided(l)
			l.write(appending("t", -1, 2)) // t has nothing
			// Another leader's entry is applied before it is sealed.
			mustAnswer(t, l.m.ApplyBatch([]*raft.Log{l.command(entriesOf(l, appending("t", -1, 9))[0])}), "ok")
			l.seal()
			var batch []*raft.Log
			for _, e := range l.sealed {
				batch = append(batch, l.command(e))
			}
			for i, answer := range l.m.ApplyBatch(batch) {
				if err, _ := answer.(error); !errors.Is(err, event.ErrEntryRefused) {
					t.Errorf("entry %d of %d: %v, expected that it is refused", i, len(batch), answer)
				}
			}
			check.Equal(t, len(l.all()), 2, "records")
		})
	}
}

// A node that is to refuse an entry of a leader which had applied more than this node
// holds has lost data, and stops: a refusal would hide the hole for ever.
func TestRule04RefusalHidesNoHole(t *testing.T) {
	l, short := startLeader(t), startNode(t, vfs.NewMem())
	l.write(appending("s", -2, 1))
	l.flush()
	l.write(appending("s", -2, 2))
	l.seal()
	mustFail(t, short, commands(2, 1, l.sealed[0]), "lost data")
}

// After a start, entries up to the last frame's index are skipped, and later ones that left no
// frame are refused again; the last one's term must match: otherwise entries of another history
// would count as applied.
func TestRule05ReplayIsSkippedByIndex(t *testing.T) {
	fs := vfs.NewMem()
	l := newLeader(t, fs)
	stale := entriesOf(l, appending("t", -2, 1))
	for i := range 3 {
		l.write(appending("s", -2, i))
		l.flush()
	}
	mustAnswer(t, l.m.ApplyBatch([]*raft.Log{l.command(stale[0])}), "refused")
	tail := l.log.Tail()
	l.close()
	n := startNode(t, fs)
	mustAnswer(t, n.m.ApplyBatch(l.history), "ok ok ok refused")
	if n.log.Tail() != tail || len(n.fatals) > 0 {
		t.Fatalf("tail %+v, expected %+v; fatal %v", n.log.Tail(), tail, n.fatals)
	}
	mustFail(t, n, []*raft.Log{{Index: tail.Index, Term: tail.Term + 1, Data: l.history[2].Data}}, "another history")
}
