package fsm_test

import (
	"encoding/binary"
	"errors"
	"flag"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/fsm"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/stats"
)

func TestMain(m *testing.M) {
	// One goroutine runs the model: the race detector sees the same in each run of it. The command
	// line may say another number.
	if err := flag.Set("rapid.checks", strconv.Itoa(testkit.Fewer(20, 100))); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// failer is what helpers need of *testing.T, *testing.B and *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

var cluster = event.ID{1, 2, 3, 4}

// node is a log with its state machine, as one node of a cluster has it.
type node struct {
	t      failer
	fs     vfs.FS
	log    *eventlog.Log
	m      *fsm.Machine
	fatals []error
}

func openNode(t failer, fs vfs.FS) *node {
	t.Helper()
	n := &node{t: t, fs: fs}
	n.open()
	return n
}

func (n *node) open() {
	n.t.Helper()
	l, err := eventlog.Open(eventlog.Options{Dir: "/db", FS: n.fs, ClusterID: cluster, SkipVerify: true, Stats: new(stats.Registry)})
	if err != nil {
		n.t.Fatalf("open: %v", err)
	}
	n.log = l
	n.m = fsm.NewMachine(l, hclog.NewNullLogger(), func(err error) { n.fatals = append(n.fatals, err) })
}

// close closes the log. One that failed may say so once more.
func (n *node) close() {
	n.t.Helper()
	if err := n.log.Close(); err != nil && n.log.Failed() == nil {
		n.t.Fatalf("close: %v", err)
	}
}

// all returns every record of the log.
func (n *node) all() []event.Record {
	n.t.Helper()
	var records []event.Record
	for from := int64(0); ; {
		page, err := n.log.Reads.ReadAll(event.AllRead{From: from, Count: 1000})
		if err != nil {
			n.t.Fatalf("read all from %d: %v", from, err)
		}
		for i := range page.Events {
			records = append(records, page.Events[i].Record)
		}
		if !page.More {
			return records
		}
		from = page.Next
	}
}

// leader is a node that decides, with the part of Raft that the tests play:
// the order of entries, their indexes and their terms.
type leader struct {
	*node
	d       *fsm.Decider
	clock   int64 // of the decider; moves with each question
	index   uint64
	term    uint64
	sealed  [][]byte
	history []*raft.Log
	answers []answer // of decide, whose entries were not all applied yet
}

// answer is what a write was answered.
type answer struct {
	write *event.Write
	done  event.Written
}

func newLeader(t failer, fs vfs.FS) *leader {
	t.Helper()
	l := &leader{node: openNode(t, fs), term: 1, clock: 1000}
	l.lead()
	return l
}

// startLeader returns a leader over an empty log that is closed with the test.
func startLeader(t testing.TB) *leader {
	t.Helper()
	l := newLeader(t, vfs.NewMem())
	t.Cleanup(func() { l.close() })
	return l
}

func (l *leader) now() time.Time {
	l.clock++
	return time.Unix(0, l.clock)
}

// lead begins deciding from what is applied.
func (l *leader) lead() {
	l.t.Helper()
	l.d = fsm.NewDecider(l.log.Facts, l.now)
	l.reset()
}

func (l *leader) reset() {
	l.t.Helper()
	if err := l.d.Reset(); err != nil {
		l.t.Fatalf("reset: %v", err)
	}
	l.sealed, l.answers = nil, nil
}

// decide decides a write, sealing the entry before if that is full.
func (l *leader) decide(w *event.Write) (event.Written, error) {
	l.t.Helper()
	d := l.d.Decide(w)
	if d.Full {
		l.seal()
		d = l.d.Decide(w)
	}
	if d.Full {
		l.t.Fatalf("an empty entry has no room")
	}
	if d.Err == nil {
		l.answers = append(l.answers, answer{w, d.Written})
	}
	return d.Written, d.Err
}

// placed fails unless the position that a write was answered, whose entry is applied, is that of
// its last event.
func (l *leader) placed(a answer) {
	l.t.Helper()
	if a.write.Kind == event.Append && len(a.write.Events) == 0 {
		if a.done.Position != -1 {
			l.t.Fatalf("%s: nothing was to be written, and is said to be at %d", a.write.Stream, a.done.Position)
		}
		return
	}
	page, err := l.log.Reads.ReadAll(event.AllRead{From: a.done.Position, Count: 1})
	if err != nil || len(page.Events) != 1 {
		l.t.Fatalf("%s: %d events at position %d: %v", a.write.Stream, len(page.Events), a.done.Position, err)
	}
	rec := page.Events[0].Record
	stream, number := a.write.Stream, a.done.Last
	if m := a.write.Many; m != nil {
		last := m.Of[len(m.Of)-1]
		stream, number = m.Streams[last], a.done.Streams[last].Last
	}
	if a.write.Kind == event.SoftDelete {
		stream, number = event.MetaStreamOf(stream), rec.Number
		if metadata := event.ParseMetadata(rec.Data); !metadata.SoftDeleted() {
			l.t.Fatalf("%s: hidden by %s", a.write.Stream, rec.Data)
		}
	}
	if rec.Stream != stream || rec.Number != number || rec.Position != a.done.Position {
		l.t.Fatalf("event %d of %s is said to be at position %d, where event %d of %s is", number, stream, a.done.Position, rec.Number, rec.Stream)
	}
}

// seal puts the entry being built in flight.
func (l *leader) seal() {
	if e := l.d.Seal(); e != nil {
		l.sealed = append(l.sealed, e)
	}
}

// command returns the next entry of the Raft log.
func (l *leader) command(data []byte) *raft.Log {
	l.index++
	e := &raft.Log{Index: l.index, Term: l.term, Type: raft.LogCommand, Data: data}
	l.history = append(l.history, e)
	return e
}

// apply applies up to n entries in flight, all in one batch.
func (l *leader) apply(n int) {
	l.t.Helper()
	n = min(n, len(l.sealed))
	var batch []*raft.Log
	for _, e := range l.sealed[:n] {
		batch = append(batch, l.command(e))
	}
	l.sealed = l.sealed[n:]
	for i, answer := range l.m.ApplyBatch(batch) {
		if answer != nil {
			l.t.Fatalf("entry %d: %v", batch[i].Index, answer)
		}
		l.d.Applied()
	}
}

// flush seals and applies everything decided.
func (l *leader) flush() {
	l.t.Helper()
	l.seal()
	l.apply(len(l.sealed))
	for _, a := range l.answers {
		l.placed(a)
	}
	l.answers = nil
}

// write decides a write that must succeed.
func (l *leader) write(w *event.Write) event.Written {
	l.t.Helper()
	done, err := l.decide(w)
	if err != nil {
		l.t.Fatalf("%s: %v", w.Stream, err)
	}
	return done
}

func id(n int) event.ID {
	var id event.ID
	id[0] = 0xee
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
}

// appending returns an append of events with the given ids.
func appending(stream string, expected int64, ids ...int) *event.Write {
	w := &event.Write{Stream: stream, ExpectedVersion: expected}
	for _, n := range ids {
		w.Events = append(w.Events, event.Proposed{ID: id(n), Type: "happened", Flags: event.FlagJSON, Data: []byte(`{"n":1}`)})
	}
	return w
}

// describing returns an append of one metadata event.
func describing(stream string, expected int64, n int, document string) *event.Write {
	return &event.Write{Stream: event.MetaStreamOf(stream), ExpectedVersion: expected, Events: []event.Proposed{
		{ID: id(n), Type: event.TypeMetadata, Flags: event.FlagJSON, Data: []byte(document)},
	}}
}

func deleting(kind event.WriteKind, stream string, expected int64) *event.Write {
	return &event.Write{Kind: kind, Stream: stream, ExpectedVersion: expected}
}

// outcome is the answer to a write, in a form that tests compare.
type outcome struct {
	first, last int64
	idempotent  bool
	err         string // "", "wrong version", "deleted", "not authorized", "too large"
	current     int64  // with a wrong version
}

func wrote(first, last int64) outcome { return outcome{first: first, last: last} }

func before(first, last int64) outcome { return outcome{first: first, last: last, idempotent: true} }

func conflict(current int64) outcome { return outcome{err: "wrong version", current: current} }

func gone() outcome { return outcome{err: "deleted"} }

func outcomeOf(done event.Written, err error) outcome {
	var wrong *event.WrongExpectedVersion
	switch {
	case err == nil:
		return outcome{first: done.First, last: done.Last, idempotent: done.Idempotent}
	case errors.As(err, &wrong):
		return conflict(wrong.Current)
	case errors.Is(err, event.ErrStreamDeleted):
		return gone()
	case errors.Is(err, event.ErrNotAuthorized):
		return outcome{err: "not authorized"}
	case errors.Is(err, event.ErrTooLarge):
		return outcome{err: "too large"}
	}
	return outcome{err: err.Error()}
}

// gathered makes one write of appends and of what is to hold with it. The expected versions of
// the appends but AnyVersion are checks, too. Their events take turns.
func gathered(checks []event.Check, appends ...*event.Write) *event.Write {
	w := &event.Write{Kind: event.AppendMany, Many: &event.Many{}}
	left := true
	for i := 0; left; i++ {
		left = false
		for _, a := range appends {
			if i >= len(a.Events) {
				continue
			}
			left = true
			of := slices.Index(w.Many.Streams, a.Stream)
			if of < 0 {
				of = len(w.Many.Streams)
				w.Many.Streams = append(w.Many.Streams, a.Stream)
				if a.ExpectedVersion != event.AnyVersion {
					w.Many.Checks = append(w.Many.Checks, event.Check{Stream: a.Stream, Expected: a.ExpectedVersion})
				}
			}
			w.Many.Of, w.Events = append(w.Many.Of, int32(of)), append(w.Events, a.Events[i])
		}
	}
	w.Many.Checks = append(w.Many.Checks, checks...)
	return w
}
