package fsm_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/fsm"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

func startNode(t *testing.T, fs vfs.FS) *node {
	t.Helper()
	n := openNode(t, fs)
	t.Cleanup(func() { n.close() })
	return n
}

// entriesOf has a fresh decider decide writes over what is applied, and returns the sealed entries,
// one a write.
func entriesOf(l *leader, writes ...*event.Write) (entries [][]byte) {
	l.t.Helper()
	d := fsm.NewDecider(l.log.Facts, l.now)
	if err := d.Reset(); err != nil {
		l.t.Fatalf("reset: %v", err)
	}
	for _, w := range writes {
		if got := d.Decide(w); got.Err != nil || got.Full {
			l.t.Fatalf("decide: %+v", got)
		}
		entries = append(entries, d.Seal())
	}
	return entries
}

func commands(index, term uint64, entries ...[]byte) (logs []*raft.Log) {
	for i, e := range entries {
		logs = append(logs, &raft.Log{Index: index + uint64(i), Term: term, Type: raft.LogCommand, Data: e})
	}
	return logs
}

// kinds says in short what a batch was answered with.
func kinds(answers []any) string {
	var b strings.Builder
	for _, a := range answers {
		err, _ := a.(error)
		switch {
		case a == nil:
			b.WriteString("ok ")
		case errors.Is(err, event.ErrEntryRefused):
			b.WriteString("refused ")
		case err != nil:
			b.WriteString("fatal ")
		default:
			b.WriteString("? ")
		}
	}
	return strings.TrimSpace(b.String())
}

func mustAnswer(t *testing.T, got []any, want string) {
	t.Helper()
	check.MustEqual(t, kinds(got), want, "answers", got)
}

func TestFence(t *testing.T) {
	l := startLeader(t)
	other := startNode(t, vfs.NewMem())
	x := entriesOf(l, appending("x", -2, 1), appending("x", -2, 2), appending("x", -2, 3))
	y := entriesOf(l, appending("y", -2, 1), appending("y", -2, 2, 3), appending("y", -2, 4))
	check.MustEqual(t, len(x[0]), len(y[0]), "the first entries are to be of one length")
	var batch []*raft.Log
	for i, e := range [][]byte{
		y[0],
		x[0], // another end
		x[1], // the right end, but on top of x[0]: another chain
		y[1],
		x[2], // neither
		y[2],
		y[2], // a second time
	} {
		batch = append(batch, &raft.Log{Index: uint64(i + 1), Term: 1, Type: raft.LogCommand, Data: e})
	}
	const want = "ok refused refused ok refused ok refused"
	mustAnswer(t, l.m.ApplyBatch(batch), want)
	// One by one, on another node, with others between: the same.
	var answers []any
	for _, e := range batch {
		other.m.ApplyBatch([]*raft.Log{{Index: e.Index, Term: 1, Type: raft.LogConfiguration, Data: []byte("c")}})
		answers = append(answers, other.m.Apply(e))
	}
	mustAnswer(t, answers, want)
	if l.log.Tail() != other.log.Tail() || l.log.Tail().Index != 6 {
		t.Fatalf("tails %+v and %+v", l.log.Tail(), other.log.Tail())
	}
	check.MustEqual(t, len(l.all()), 4, "records")
	if len(l.fatals)+len(other.fatals) > 0 {
		t.Fatal(l.fatals, other.fatals)
	}
}

func TestBatchWithOtherEntries(t *testing.T) {
	l := startLeader(t)
	e := entriesOf(l, appending("x", -2, 1), appending("x", -2, 2))
	answers := l.m.ApplyBatch([]*raft.Log{
		{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: []byte("no entry")},
		{Index: 2, Term: 1, Type: raft.LogCommand, Data: e[0]},
		{Index: 3, Term: 1, Type: raft.LogNoop},
		{Index: 4, Term: 1, Type: raft.LogBarrier},
		{Index: 5, Term: 2, Type: raft.LogCommand, Data: e[1]},
		{Index: 6, Term: 2, Type: raft.LogConfiguration},
	})
	mustAnswer(t, answers, "ok ok ok ok ok ok")
	if tail := l.log.Tail(); tail.Index != 5 || tail.Term != 2 {
		t.Fatalf("tail %+v", tail)
	}
	mustAnswer(t, l.m.ApplyBatch(nil), "")
	mustAnswer(t, l.m.ApplyBatch([]*raft.Log{{Index: 7, Term: 2, Type: raft.LogConfiguration}}), "ok")
}

func TestReplay(t *testing.T) {
	fs := vfs.NewMem()
	l := newLeader(t, fs)
	for i := range 20 {
		l.write(appending("s", -2, i))
		l.flush()
	}
	stale := entriesOf(l, appending("t", -2, 1), appending("t", -2, 2))
	l.write(appending("s", -2, 99))
	l.flush()
	// Refused entries leave no frame: after a restart their index is above that of the last frame.
	mustAnswer(t, l.m.ApplyBatch([]*raft.Log{l.command(stale[0]), l.command(stale[1])}), "refused refused")
	before := l.all()
	tail := l.log.Tail()
	l.close()
	n := startNode(t, fs)
	check.MustEqual(t, n.log.Tail(), tail, "tail")
	mustAnswer(t, n.m.ApplyBatch(l.history), strings.Repeat("ok ", 21)+"refused refused")
	if n.log.Tail() != tail || len(n.all()) != len(before) || len(n.fatals) > 0 {
		t.Fatalf("tail %+v, want %+v; fatal %v", n.log.Tail(), tail, n.fatals)
	}
}

// mustFail has a batch answered with errors only, and the owner told once; the log stays as it was.
func mustFail(t *testing.T, n *node, batch []*raft.Log, text string) {
	t.Helper()
	tail := n.log.Tail()
	answers := n.m.ApplyBatch(batch)
	for _, a := range answers {
		if err, _ := a.(error); err == nil || errors.Is(err, event.ErrEntryRefused) || !strings.Contains(err.Error(), text) {
			t.Fatalf("answers %v, want all to say %q", answers, text)
		}
	}
	check.MustEqual(t, n.log.Tail(), tail, "the log moved from ... to")
	// Whatever comes now has the same answer, and nothing is done.
	for _, kind := range []raft.LogType{raft.LogCommand, raft.LogConfiguration} {
		again := n.m.ApplyBatch([]*raft.Log{{Index: 1 << 20, Term: 1 << 20, Type: kind}})
		if err, _ := again[0].(error); err == nil || !strings.Contains(err.Error(), text) {
			t.Fatalf("then %v, want %q", again[0], text)
		}
	}
	check.MustFail(t, check.Err(n.m.Snapshot()), "a snapshot of a failed machine")
	check.MustSay(t, n.m.Restore(source(`{}`)), text, "restore")
	check.MustEqual(t, n.log.Tail(), tail, "the log moved from ... to")
	if len(n.fatals) != 1 || !strings.Contains(n.fatals[0].Error(), text) {
		t.Fatalf("fatal %v, want %q once", n.fatals, text)
	}
}

func TestFatalEntries(t *testing.T) {
	for _, c := range []struct {
		name string
		text string
		// bad spoils the entry that the log would take next.
		bad func(e []byte) []byte
	}{
		{"empty", "too short", func([]byte) []byte { return nil }},
		{"head only", "too short", func(e []byte) []byte { return e[:fsm.EntryHead] }},
		{"newer version", "version 2", func(e []byte) []byte { e[0] = 2; return e }},
		{"unknown flag", "flags", func(e []byte) []byte { e[1] |= 2; return e }},
		{"reserved bytes", "flags", func(e []byte) []byte { e[3] = 1; return e }},
		{"damaged head", "checksum of the entry's head", func(e []byte) []byte { e[20]++; return e }},
		{"damaged record", "record at byte 0", func(e []byte) []byte { e[len(e)-20]++; return e }},
		{"cut record", "record at byte 0", func(e []byte) []byte { return e[:len(e)-1] }},
		{"record longer than the entry", "record at byte 0", func(e []byte) []byte { e[fsm.EntryHead]++; return e }},
		{"trailing byte", "record at byte", func(e []byte) []byte { return append(e, 0) }},
		{"record of another position", "not a record of this position", func(e []byte) []byte {
			return remake(e, func(e *fsm.Entry) { e.Records = append(e.Records, e.Records...) })
		}},
		{"another first position", "does not follow a log that ends at", func(e []byte) []byte { return remake(e, func(e *fsm.Entry) { e.First++ }) }},
		{"negative end", "does not follow a log that ends at", func(e []byte) []byte { return remake(e, func(e *fsm.Entry) { e.End, e.First = -1, -1 }) }},
		{"completes its chunk without a scavenge point", "completes its chunk", func(e []byte) []byte {
			return remake(e, func(e *fsm.Entry) { e.Completes = true })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := startLeader(t)
			l.write(appending("s", -2, 1))
			l.flush()
			e := entriesOf(l, appending("s", -2, 2), appending("s", -2, 3), appending("s", -2, 4))
			e[1] = c.bad(e[1])
			mustFail(t, l.node, commands(2, 1, e...), c.text)
		})
	}
}

// remake changes an entry and gives it a head that fits.
func remake(b []byte, change func(*fsm.Entry)) []byte {
	e, err := fsm.ParseEntry(b)
	if err != nil {
		panic(err)
	}
	change(&e)
	return e.Bytes()
}

// A flipped bit anywhere in an entry is found.
func TestDamageIsFound(t *testing.T) {
	l := startLeader(t)
	w := appending("s", -2, 1, 2)
	l.write(w)
	l.seal()
	e := l.sealed[0]
	for i := range e {
		for bit := range 8 {
			b := append([]byte(nil), e...)
			b[i] ^= 1 << bit
			failed := false
			m := fsm.NewMachine(l.log, hclog.NewNullLogger(), func(error) { failed = true })
			if i >= fsm.EntryHead {
				if bit != i%8 {
					continue // Each of these ends a log: one bit a byte will do.
				}
				n := openNode(t, vfs.NewMem())
				m = fsm.NewMachine(n.log, hclog.NewNullLogger(), func(error) { failed = true })
				defer n.close()
			}
			if a := m.Apply(&raft.Log{Index: 1, Term: 1, Data: b}); a == nil || !failed {
				t.Fatalf("byte %d, bit %d: %v", i, bit, a)
			}
		}
	}
	if l.log.Tail().End != 0 {
		t.Fatalf("tail %+v", l.log.Tail())
	}
	l.flush()
}

func TestFatalHistories(t *testing.T) {
	t.Run("entry of the last index with another term", func(t *testing.T) {
		l := startLeader(t)
		e := entriesOf(l, appending("s", -2, 1))
		mustAnswer(t, l.m.ApplyBatch(commands(5, 2, e...)), "ok")
		mustAnswer(t, l.m.ApplyBatch(commands(4, 1, e...)), "ok") // below: replayed, not looked at
		mustAnswer(t, l.m.ApplyBatch(commands(5, 2, e...)), "ok")
		mustFail(t, l.node, commands(5, 3, e...), "another history")
	})
	t.Run("term below that of the last frame", func(t *testing.T) {
		l := startLeader(t)
		e := entriesOf(l, appending("s", -2, 1), appending("s", -2, 2))
		mustAnswer(t, l.m.ApplyBatch(commands(5, 2, e[0])), "ok")
		mustFail(t, l.node, commands(6, 1, e[1]), "cannot follow")
	})
	t.Run("lost data", func(t *testing.T) {
		l := startLeader(t)
		l.write(appending("s", -2, 1))
		l.flush()
		short := startNode(t, vfs.NewMem())
		mustAnswer(t, short.m.ApplyBatch(l.history), "ok")
		l.write(appending("s", -2, 2))
		l.flush()
		l.write(appending("s", -2, 3))
		l.seal()
		mustFail(t, short, commands(7, 1, l.sealed[0]), "lost data")
	})
	t.Run("a refusal that hides no hole", func(t *testing.T) {
		l := startLeader(t)
		l.write(appending("s", -2, 1))
		l.seal()
		l.write(appending("s", -2, 2))
		l.seal()
		// The second was decided on top of the first, but nothing was applied then.
		mustAnswer(t, l.m.ApplyBatch(commands(1, 1, l.sealed[1], l.sealed[0])), "refused ok")
	})
}

func TestFaultyDisk(t *testing.T) {
	for _, c := range []struct {
		name string
		kind vfs.Kind
	}{
		{"write", vfs.OpWrite},
		{"create", vfs.OpCreate}, // of the next chunk
	} {
		t.Run(c.name, func(t *testing.T) {
			broken := errors.New("the disk is on fire")
			var armed atomic.Bool // the log reads in the background too
			fs := vfs.NewFaulty(vfs.NewMem(), func(op vfs.Op) error {
				if armed.Load() && op.Kind == c.kind && strings.Contains(op.Name, "chunk-") {
					return broken
				}
				return nil
			})
			l := startLeader(t)
			n := openNode(t, fs)
			l.write(appending("s", -2, 1))
			l.flush()
			mustAnswer(t, n.m.ApplyBatch(l.history), "ok")
			l.write(scavengePoint(9))
			l.seal()
			l.write(appending("s", -2, 2))
			l.seal()
			armed.Store(true)
			mustFail(t, n, commands(2, 1, l.sealed...), broken.Error())
			n.close()
		})
	}
}

func scavengePoint(n int) *event.Write {
	w := appending(event.ScavengePointsStream, -2, n)
	w.Events[0].Type = event.TypeScavengePoint
	return w
}

// Every entry that comes passes through the queue, whatever becomes of it.
func TestChaserQueueStatistics(t *testing.T) {
	l := startLeader(t)
	entries := entriesOf(l, appending("s", -2, 1), appending("s", -2, 2), appending("s", -2, 3))
	mustAnswer(t, l.m.ApplyBatch(commands(1, 1, entries[0], entries[2])), "ok refused")
	mustAnswer(t, l.m.ApplyBatch(commands(1, 1, entries[0])), "ok")
	var found []string
	for _, q := range l.log.Stats().Queues() {
		f := q.Statistics()
		if found = append(found, f.Name); f.Name == "Storage Chaser" && (f.Items != 3 || f.Length != 0 || f.LifetimePeakLength != 2 || f.Done != "ApplyEntries" || f.Doing != "" || f.Group != "") {
			t.Errorf("%+v", f)
		}
	}
	if !slices.Contains(found, "Storage Chaser") || !slices.Contains(found, "Index Committer") {
		t.Errorf("queues %q", found)
	}
}
