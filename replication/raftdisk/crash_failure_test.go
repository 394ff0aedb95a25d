package raftdisk

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/testkit/powercut"
	"github.com/annalsdb/annals/internal/vfs"
)

// cutsAfterFailure is before how many changes after a failure the power is cut.
const cutsAfterFailure = 40

// One change of the disk fails with EIO. The process ends, and the next one does the step again and
// continues. Whatever the power leaves before each of the changes that follow, a start finds the
// same node, no consensus state that is lost, the acknowledged entries and the term.
func TestFailureAndPowerCuts(t *testing.T) {
	for name, steps := range map[string][]failureStep{
		"wal": {
			storeTo(6), cutTo(3), nextTerm, storeTo(7), snapshotAndKeep(2), storeTo(9), rewriteLog, storeTo(11),
			restartWith(Wal), cutTo(10), storeTo(11),
		},
		"boltdb": {
			restartWith(BoltDB), storeTo(6), cutTo(3), nextTerm, storeTo(7), snapshotAndKeep(2), storeTo(9), rewriteLog,
			storeTo(11), restartWith(BoltDB), storeTo(12),
		},
		"conversions": {
			storeTo(6), restartWith(BoltDB), storeTo(9), nextTerm, restartWith(Wal), storeTo(12), snapshotAndKeep(1),
			restartWith(BoltDB), storeTo(13), restartWith(Wal), cutTo(12), restartWith(BoltDB), storeTo(14),
		},
		"received snapshots": {
			storeTo(6), nextTerm, installAt(16), storeTo(19), restartWith(Wal), cutTo(17), installAt(27),
			restartWith(BoltDB), storeTo(30), installAt(40), restartWith(Wal), storeTo(43),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			every, first := testkit.Sample(t, 32)
			for fail := first + 1; ; fail += every {
				if runWithFailure(t, steps, fail) < fail {
					return // So many changes are not made.
				}
			}
		})
	}
}

// promises are what a node acknowledged, and what its event log holds.
type promises struct {
	node    event.ID          // zero until the first start is done
	term    uint64            // the current one
	last    uint64            // last entry
	tail    uint64            // last entry in the event log
	terms   map[uint64]uint64 // of the entries
	failure string
}

// failureRun takes one node through the steps, on a disk that fails once.
type failureRun struct {
	t     *testing.T
	o     *Options
	state *State // nil while no process runs
	disk  *powercut.Disk[promises]
	fail  int // which change fails

	mu      sync.Mutex // The next segment is prepared in parallel.
	changes int
	cuts    int // since the failure
	now     promises
}

// runWithFailure returns how many changes it made, and fails the test if a cut leaves less than was
// promised.
func runWithFailure(t *testing.T, steps []failureStep, fail int) (changes int) {
	mem, o := inMemory(t, Wal)
	r := &failureRun{t: t, o: o, fail: fail, now: promises{terms: map[uint64]uint64{}}}
	r.disk = powercut.New(powercut.Options[promises]{Mem: mem, Off: true, More: 1, Seed: uint64(fail), Note: r.promised})
	o.Files = vfs.NewFaulty(mem, r.before)
	for i, step := range steps {
		for tries := 1; ; tries++ {
			err := r.start()
			if err == nil {
				err = step(r)
			}
			if err == nil {
				break
			}
			r.end()
			if tries > 3 || !errors.Is(err, syscall.EIO) {
				t.Fatalf("%s; step %d: %v", r.now.failure, i, err)
			}
		}
	}
	r.end()
	for i, cut := range r.disk.Cuts() {
		kind := []LogStore{Wal, BoltDB}[i/2%2] // It may be converted at that start, too.
		if err := judge(t, cut.FS, kind, &cut.Note); err != nil {
			t.Errorf("change %d, %s; %s; opened as %s: %v; promised term %d and entries to %d, the event log ends at %d",
				fail, cut.Note.failure, cut.What, kind, err, cut.Note.term, cut.Note.last, cut.Note.tail)
			break
		}
	}
	return r.changes
}

// before sees each change of the disk.
func (r *failureRun) before(op vfs.Op) error {
	if !op.Kind.Mutates() || op.Kind == vfs.OpWrite && op.Len == 1<<20 { // Zeros of a segment.
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
	if r.changes == r.fail {
		r.now.failure = fmt.Sprintf("%s of %s failed", op.Kind, op.Name)
		return syscall.EIO
	}
	if r.changes > r.fail && r.cuts < cutsAfterFailure {
		r.cuts++
		r.disk.Cut(fmt.Sprintf("before %s of %s", op.Kind, op.Name))
	}
	return nil
}

// promised is called with mu held.
func (r *failureRun) promised() promises {
	now := r.now
	now.terms = maps.Clone(now.terms)
	return now
}

func (r *failureRun) promise(change func(now *promises)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.now)
}

// start begins a process unless one runs.
func (r *failureRun) start() (err error) {
	if r.state != nil {
		return nil
	}
	r.o.Log = r.now.log()
	if r.state, err = openToFail(r.o); err != nil {
		r.state = nil
		return err
	}
	if _, err = r.state.CheckStart(r.o.Log); err != nil {
		return err
	}
	if err = r.state.SettlePulled(r.o.Log.Tail()); err == nil && r.now.node.IsZero() {
		r.promise(func(now *promises) {
			now.node, now.term, now.last = r.state.ID.Node, 1, 1
			now.terms[1] = 1 // It names this node as the only voter.
		})
	}
	return err
}

// end ends the process.
func (r *failureRun) end() {
	if r.state != nil {
		_ = r.state.Close() // Its disk may have failed, and killed processes close nothing.
		r.state = nil
	}
}

// log is the event log of a node.
func (p *promises) log() *fixedLog {
	l := &fixedLog{}
	if p.tail > 1 {
		l.tail = event.Tail{End: 1, Index: p.tail, Term: p.terms[p.tail]}
	}
	return l
}

// judge starts a node on what a power cut left.
func judge(t *testing.T, left *vfs.Mem, kind LogStore, p *promises) (err error) {
	if p.node.IsZero() {
		return nil
	}
	o := testOptions("/data", event.Tail{})
	o.Files, o.LogStore, o.Log = left, kind, p.log()
	s, err := openTestState(t, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if s.ID.Node != p.node {
		return errors.New("it is another node")
	}
	if _, err := s.CheckStart(o.Log); err != nil {
		return err
	}
	if term, err := s.Stable.GetUint64(keyCurrentTerm); err != nil || term < p.term {
		return fmt.Errorf("the term is %d, %v", term, err)
	}
	newest, _ := s.Snapshots.Newest()
	for index := newest + 1; index <= p.last; index++ {
		var entry raft.Log
		if err := s.Logs.GetLog(index, &entry); err != nil || entry.Term != p.terms[index] {
			return fmt.Errorf("entry %d after the snapshot at %d has term %d, %v", index, newest, entry.Term, err)
		}
	}
	return nil
}

// failureStep is something that a node does. It can be done again after it failed halfway.
type failureStep func(r *failureRun) error

// restartWith ends the process. The next one has that kind of Raft log.
func restartWith(kind LogStore) failureStep {
	return func(r *failureRun) error {
		r.end()
		r.o.LogStore = kind
		return nil
	}
}

// storeTo stores entries. All but the last of them are committed.
func storeTo(last uint64) failureStep {
	return func(r *failureRun) error {
		from, term := r.now.last+1, r.now.term
		if err := r.deleteAfter(r.now.last); err != nil { // What a failed try left there.
			return err
		}
		var logs []*raft.Log
		for i := from; i <= last; i++ {
			logs = append(logs, &raft.Log{Index: i, Term: term, Data: make([]byte, 300)})
		}
		if err := r.state.Logs.StoreLogs(logs); err != nil {
			return err
		}
		r.promise(func(now *promises) {
			for i := from; i <= last; i++ {
				now.terms[i] = term
			}
			now.last, now.tail = last, last-1
		})
		return nil
	}
}

func (r *failureRun) deleteAfter(index uint64) error {
	last, err := r.state.Logs.LastIndex()
	if err != nil || last <= index {
		return err
	}
	return r.state.Logs.DeleteRange(index+1, last)
}

// cutTo deletes the end of the Raft log, which was never committed.
func cutTo(last uint64) failureStep {
	return func(r *failureRun) error {
		r.promise(func(now *promises) { now.last, now.tail = last, min(now.tail, last) })
		return r.deleteAfter(last)
	}
}

func nextTerm(r *failureRun) error {
	term := r.now.term + 1
	if err := r.state.Stable.SetUint64(keyCurrentTerm, term); err != nil {
		return err
	}
	r.promise(func(now *promises) { now.term = term })
	return nil
}

// snapshotAndKeep takes a snapshot and deletes the entries in it but for some.
func snapshotAndKeep(entries uint64) failureStep {
	return func(r *failureRun) error {
		tail := r.now.tail
		if err := r.publish(tail, r.now.terms[tail]); err != nil {
			return err
		}
		return r.state.Logs.DeleteRange(1, tail-entries)
	}
}

// publish makes a snapshot unless a try before did.
func (r *failureRun) publish(index, term uint64) error {
	if newest, _ := r.state.Snapshots.Newest(); newest >= index {
		return nil
	}
	return r.state.Snapshots.publish(snapshotOf(r.t, r.state.ID, index, term, event.Tail{}))
}

// rewriteLog rewrites the Raft log without the entries in the snapshot.
func rewriteLog(r *failureRun) error {
	newest, _ := r.state.Snapshots.Newest()
	return rewritten(r.state.Logs, newest)
}

// installAt fetches data and installs a snapshot of the leader, which ends after all entries.
func installAt(index uint64) failureStep {
	return func(r *failureRun) error {
		if err := r.state.Mark(PulledFile); err != nil {
			return err
		}
		r.promise(func(now *promises) { now.tail, now.terms[index] = index, now.term })
		if err := r.publish(index, r.now.term); err != nil {
			return err
		}
		r.promise(func(now *promises) { now.last = index })
		first, last, err := ends(r.state.Logs)
		if err != nil || last == 0 {
			return err
		}
		return r.state.Logs.DeleteRange(first, last)
	}
}
