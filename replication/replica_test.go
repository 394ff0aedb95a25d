package replication_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/replication/pipeline"
	"github.com/annalsdb/annals/replication/raftdisk"
	"github.com/annalsdb/annals/stats"
)

func toyOptions(y *toy, dir string, kind raftdisk.LogStore) replication.Options {
	return replication.Options{
		Options:  raftdisk.Options{Dir: dir, LogStore: kind, ClusterID: event.ID{1}, DirectoryID: event.ID{2}, Log: y},
		InMemory: dir == "", FSM: y, Decider: y, OnFatal: func(err error) { panic(err) },
		LoneElectionTimeout: 10 * time.Millisecond,
	}
}

func open(t testing.TB, o replication.Options) *replication.Replica {
	t.Helper()
	r := check.Value(replication.Open(o)).Must(t)
	awaitLeader(t, r)
	return r
}

func awaitLeader(t testing.TB, r *replication.Replica) {
	t.Helper()
	late := time.After(patience)
	for {
		l, changed := r.Pipeline().Leadership()
		if l.Leading {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatal("no leader")
		}
	}
}

func closeReplica(t testing.TB, r *replication.Replica) {
	t.Helper()
	check.NoError(t, r.Close())
}

func write(t testing.TB, r *replication.Replica, stream string, expected, want int64) {
	t.Helper()
	written, err := r.Pipeline().Submit(t.Context(), &event.Write{Stream: stream, ExpectedVersion: expected})
	check.Must(t, err)
	check.MustEqual(t, written.Last, want, "write to", stream, written)
}

// copyDir makes a copy of a running node's folder, as a power cut would leave it.
func copyDir(t testing.TB, from string) (to string) {
	t.Helper()
	walk(t, from, func() fs.WalkDirFunc {
		to = t.TempDir()
		return func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			target := filepath.Join(to, strings.TrimPrefix(path, from))
			if d.IsDir() {
				return os.MkdirAll(target, 0o700)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(target, data, 0o600)
		}
	})
	return to
}

// walk visits a directory, and begins again when a file has another name by then: a running node
// renames its files.
func walk(t testing.TB, dir string, begin func() fs.WalkDirFunc) {
	t.Helper()
	err := fs.ErrNotExist
	for errors.Is(err, fs.ErrNotExist) {
		check.Must(t, check.Err(os.Stat(dir)))
		err = filepath.WalkDir(dir, begin())
	}
	check.Must(t, err)
}

func TestSingleNode(t *testing.T) {
	t.Parallel()
	for _, kind := range []raftdisk.LogStore{raftdisk.BoltDB, raftdisk.Wal} {
		t.Run(string(kind), func(t *testing.T) {
			y, dir := newToy(), t.TempDir()
			o := toyOptions(y, dir, kind)
			o.LoneElectionTimeout = 0 // the default
			r := open(t, o)
			for i := range int64(20) {
				write(t, r, "a", i-1, i)
			}
			var conflict *event.WrongExpectedVersion
			if _, err := r.Pipeline().Submit(t.Context(), &event.Write{Stream: "a", ExpectedVersion: 3}); !errors.As(err, &conflict) || conflict.Current != 19 {
				t.Errorf("conflict: %v", err)
			}
			check.NoError(t, r.Pipeline().Confirm(t.Context()))
			if c, _, err := r.Configuration(); err != nil || len(c.Servers) != 1 || c.Servers[0].Suffrage != raft.Voter {
				t.Errorf("configuration %+v, %v", c, err)
			}
			id := r.Identity()
			closeReplica(t, r)
			closeReplica(t, r)
			if _, err := r.Pipeline().Submit(t.Context(), &event.Write{Stream: "a"}); !errors.Is(err, event.ErrClosed) {
				t.Errorf("write after Close: %v", err)
			}

			// Closed cleanly: the snapshot covers everything, nothing is replayed.
			r = open(t, toyOptions(y, dir, kind))
			if r.Identity() != id || y.skipped != 0 {
				t.Errorf("identity %+v became %+v, %d entries replayed", id, r.Identity(), y.skipped)
			}
			write(t, r, "a", 19, 20)
			write(t, r, "b", event.NoStream, 0)
			write(t, r, "b", event.AnyVersion, 1)

			// Killed, with all, one, or none of the frames since the snapshot on disk.
			for _, written := range []int{9, 1, 0} {
				crashed := y.crashed(written)
				again := open(t, toyOptions(crashed, copyDir(t, dir), kind))
				if got, want := crashed.Tail().End, y.Tail().End; got != want {
					t.Errorf("log ends at %d after the start, expected %d", got, want)
				}
				if want := min(written, 3); crashed.skipped != want || crashed.refused != 0 {
					t.Errorf("%d entries skipped, %d refused; %d were there", crashed.skipped, crashed.refused, want)
				}
				write(t, again, "b", 1, 2)
				closeReplica(t, again)
			}
			closeReplica(t, r)
		})
	}
}

// A restored log without consensus state continues after its last frame, with a new node id: new
// entries must not look like old ones.
// TestReadErrorsAtTheStart: a start ends with an error, whichever read of the Raft log fails.
func TestReadErrorsAtTheStart(t *testing.T) {
	y, dir := newToy(), t.TempDir()
	o := toyOptions(y, dir, raftdisk.Wal)
	r := open(t, o)
	for i := range int64(3) {
		write(t, r, "a", event.AnyVersion, i)
	}
	o.Dir = copyDir(t, dir) // Without the snapshot that an orderly end makes.
	closeReplica(t, r)
	boom := errors.New("boom")
	for fails := 1; ; fails++ {
		reads := 0
		o.Files = vfs.NewFaulty(vfs.OS, func(op vfs.Op) error {
			if op.Kind != vfs.OpRead || !strings.HasSuffix(op.Name, ".segment") {
				return nil
			}
			if reads++; reads == fails {
				return boom
			}
			return nil
		})
		r, err := replication.Open(o)
		if err == nil {
			closeReplica(t, r)
		}
		if reads < fails {
			return
		}
		check.Fails(t, err, "read", fails)
	}
}

func TestRule15RestoredDirectory(t *testing.T) {
	t.Parallel()
	y, dir := newToy(), t.TempDir()
	r := open(t, toyOptions(y, dir, raftdisk.BoltDB))
	for i := range int64(5) {
		write(t, r, "a", i-1, i)
	}
	old := r.Identity()
	closeReplica(t, r)
	before := y.Tail()

	for _, kind := range []raftdisk.LogStore{raftdisk.BoltDB, raftdisk.Wal} {
		copied := y.crashed(100)
		r = open(t, toyOptions(copied, t.TempDir(), kind)) // the log without its raft/
		if r.Identity().Node == old.Node {
			t.Error("a restored node has its old name")
		}
		write(t, r, "a", 4, 5)
		if tail := copied.Tail(); tail.Index <= before.Index || tail.Term <= before.Term || copied.skipped+copied.refused > 0 {
			t.Errorf("log went on from %+v to %+v", before, tail)
		}
		closeReplica(t, r)
	}
}

func TestLogOfAnotherHistoryIsRefused(t *testing.T) {
	t.Parallel()
	y, dir := newToy(), t.TempDir()
	r := open(t, toyOptions(y, dir, raftdisk.BoltDB))
	write(t, r, "a", -1, 0)
	write(t, r, "a", 0, 1)
	closeReplica(t, r)
	other := newToy()
	r = open(t, toyOptions(other, t.TempDir(), raftdisk.BoltDB))
	write(t, r, "x", -1, 0)
	write(t, r, "y", -1, 0)
	closeReplica(t, r)
	for name, log := range map[string]*toy{"other": other, "longer": func() *toy {
		longer := y.crashed(9)
		longer.append([]byte{1, 'z'}, 1000, 9)
		return longer
	}()} {
		if r, err := replication.Open(toyOptions(log, dir, raftdisk.BoltDB)); !errors.Is(err, raftdisk.ErrStateLost) {
			t.Errorf("%s: error %v", name, err)
			if err == nil {
				closeReplica(t, r)
			}
		}
	}
	// Without its raft folder the node was never anything else.
	check.Must(t, os.RemoveAll(filepath.Join(dir, "raft")))
	r = open(t, toyOptions(other, dir, raftdisk.BoltDB))
	closeReplica(t, r)
}

func TestSwitchingTheLogStore(t *testing.T) {
	t.Parallel()
	y, dir := newToy(), t.TempDir()
	n := int64(0)
	for _, kind := range []raftdisk.LogStore{raftdisk.BoltDB, raftdisk.Wal, raftdisk.Wal, raftdisk.BoltDB} {
		r := open(t, toyOptions(y, dir, kind))
		for range 3 {
			write(t, r, "a", n-1, n)
			n++
		}
		// Killed, so that the Raft log has to replay what another kind stored.
		y, dir = y.crashed(0), copyDir(t, dir)
		closeReplica(t, r)
	}
}

// Snapshots are written as the Raft log grows, and cut it: otherwise it would grow for ever.
func TestRule10SnapshotsFollowTheLog(t *testing.T) {
	t.Parallel()
	for _, kind := range []raftdisk.LogStore{raftdisk.BoltDB, raftdisk.Wal} {
		t.Run(string(kind), func(t *testing.T) {
			y, dir := newToy(), t.TempDir()
			o := toyOptions(y, dir, kind)
			o.SnapshotEntries, o.TrailingEntries = 20, 10
			r := open(t, o)
			records := int64(0)
			for ; records < 80 || replication.SnapshotsWritten(r) < 2; records++ {
				if write(t, r, "a", records-1, records); records > 100_000 {
					t.Fatalf("%d snapshots", replication.SnapshotsWritten(r))
				}
			}
			replication.StopSnapshots(r)
			crashed := y.crashed(0)
			again := open(t, toyOptions(crashed, copyDir(t, dir), kind))
			write(t, again, "a", records-1, records)
			closeReplica(t, again)
			closeReplica(t, r)
			found, err := filepath.Glob(filepath.Join(dir, "raft", "snapshots", "*"))
			check.Must(t, err)
			check.Equal(t, len(found), 2, "snapshots", found)
		})
	}
}

// raft counts entries, which are of any size: snapshots are triggered by bytes too.
func TestRule10SnapshotsFollowBytes(t *testing.T) {
	t.Parallel()
	y := newToy()
	o := toyOptions(y, "", raftdisk.BoltDB)
	o.SnapshotEntries, o.SnapshotBytes = 1<<40, 1_000
	r := open(t, o)
	stream := strings.Repeat("s", 200)
	for i := range int64(10) {
		write(t, r, stream, i-1, i)
	}
	eventually(t, "a snapshot for 2,000 bytes", func() bool { return replication.SnapshotsWritten(r) > 0 })
	closeReplica(t, r)
}

// After erasing, nothing that is applied is left in any file of the Raft log: what was
// erased from the event log must not live on there.
func TestRule21EraseLog(t *testing.T) {
	t.Parallel()
	for _, kind := range []raftdisk.LogStore{raftdisk.BoltDB, raftdisk.Wal} {
		t.Run(string(kind), func(t *testing.T) {
			y, dir := newToy(), t.TempDir()
			r := open(t, toyOptions(y, dir, kind))
			write(t, r, "to-be-forgotten", -1, 0)
			closeReplica(t, r)
			r = open(t, toyOptions(y, dir, kind)) // nothing was applied since the start
			check.Must(t, r.EraseLog(t.Context(), y.Tail().End))
			err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				data, err := os.ReadFile(path)
				if strings.Contains(string(data), "to-be-forgotten") {
					t.Errorf("%s still holds it", path)
				}
				return err
			})
			check.Must(t, err)
			write(t, r, "a", -1, 0)
			crashed := y.crashed(0)
			again := open(t, toyOptions(crashed, copyDir(t, dir), kind))
			write(t, again, "a", 0, 1)
			closeReplica(t, again)
			closeReplica(t, r)
		})
	}
}

func TestInMemory(t *testing.T) {
	t.Parallel()
	y := newToy()
	o := toyOptions(y, "", "")
	o.ClusterID, o.DirectoryID = event.ID{}, event.ID{}
	o.SnapshotEntries, o.TrailingEntries = 20, 5
	r := open(t, o)
	for i := range int64(100) {
		write(t, r, "a", i-1, i)
	}
	check.NoError(t, r.EraseLog(t.Context(), y.Tail().End))
	write(t, r, "a", 99, 100)
	closeReplica(t, r)
	r = open(t, toyOptions(y, "", "")) // a log that is there already is taken as restored
	write(t, r, "a", 100, 101)
	closeReplica(t, r)
}

func TestConcurrentWriters(t *testing.T) {
	t.Parallel()
	y := newToy()
	y.limit = 200
	o := toyOptions(y, t.TempDir(), raftdisk.Wal)
	o.Stats = new(stats.Registry)
	r := open(t, o)
	const writers, writes = 16, 25
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			stream := fmt.Sprint("s", w)
			for i := range int64(writes) {
				if _, err := r.Pipeline().Submit(context.Background(), &event.Write{Stream: stream, ExpectedVersion: i - 1}); err != nil {
					t.Errorf("%s %d: %v", stream, i, err)
					return
				}
				y.mu.Lock()
				n := y.streams[stream]
				y.mu.Unlock()
				check.Equal(t, n, i+1, stream, "wrote ..., reads")
			}
		})
	}
	wg.Wait()
	if s := samples(o.Stats); s["annals_replication_entry_bytes"] >= writers*writes || s["annals_replication_queue_requests"] != 0 || s["annals_replication_requests_total"] != writers*writes {
		t.Errorf("metrics %+v", s)
	}
	closeReplica(t, r)
}

func TestReadOnlyReplica(t *testing.T) {
	t.Parallel()
	y := newToy()
	r := open(t, toyOptions(y, "", ""))
	defer closeReplica(t, r)
	r.Pipeline().SetReadOnly(event.ErrDiskFull)
	if _, err := r.Pipeline().Submit(t.Context(), &event.Write{Stream: "a"}); !errors.Is(err, event.ErrDiskFull) {
		t.Errorf("error %v", err)
	}
	check.NoError(t, r.Pipeline().Confirm(t.Context()))
	r.Pipeline().SetReadOnly(nil)
	write(t, r, "a", -1, 0)
}

// hangingFSM blocks in Apply until released.
type hangingFSM struct {
	*toy
	entered, release chan struct{}
}

func (h *hangingFSM) ApplyBatch(logs []*raft.Log) []any {
	for _, log := range logs {
		if log.Type == raft.LogCommand {
			h.entered <- struct{}{}
			<-h.release
		}
	}
	return h.toy.ApplyBatch(logs)
}

func TestCloseReturnsThoughApplyHangs(t *testing.T) {
	t.Parallel()
	y := newToy()
	h := &hangingFSM{toy: y, entered: make(chan struct{}, 1), release: make(chan struct{})}
	o := toyOptions(y, "", "")
	o.FSM, o.DrainTimeout, o.CloseTimeout = h, 20*time.Millisecond, 200*time.Millisecond
	r := open(t, o)
	answered := make(chan error, 1)
	go func() {
		_, err := r.Pipeline().Submit(context.Background(), &event.Write{Stream: "a", ExpectedVersion: event.AnyVersion})
		answered <- err
	}()
	<-h.entered
	check.Fails(t, r.Close(), "closed although the state machine hangs")
	check.Is(t, <-answered, event.ErrOutcomeUnknown, "answered")
	close(h.release)
	closeReplica(t, r)
}

func TestOptionsAreValidated(t *testing.T) {
	t.Parallel()
	y := newToy()
	for name, spoil := range map[string]func(*replication.Options){
		"no fsm":        func(o *replication.Options) { o.FSM = nil },
		"no folder":     func(o *replication.Options) { o.Dir = "" },
		"no cluster":    func(o *replication.Options) { o.ClusterID = event.ID{} },
		"unknown store": func(o *replication.Options) { o.LogStore = "Paper" },
		"short timeout": func(o *replication.Options) { o.ElectionTimeout = 1 },
		"empty queue":   func(o *replication.Options) { o.QueueRequests = -1 },
		"no snapshots":  func(o *replication.Options) { o.TrailingEntries = -1 },
	} {
		o := toyOptions(y, t.TempDir(), raftdisk.BoltDB)
		spoil(&o)
		check.Fails(t, check.Err(replication.Open(o)), name, "started")
	}
}

// What lies between two goroutines of raft when it ends is resolved by none of them.
func TestCloseEndsWhatRaftNeverResolves(t *testing.T) {
	y := newToy()
	r := open(t, toyOptions(y, "", raftdisk.Wal))
	entered, release := make(chan struct{}, 64), make(chan struct{})
	hold := func() { entered <- struct{}{}; <-release }
	y.applying.Store(&hold)
	var futures []pipeline.Future
	for i := range 20 { // raft takes each up with one chance in two
		committed := replication.Raft(r).CommitIndex()
		futures = append(futures, replication.Propose(r, make([]byte, 24)))
		if i == 0 {
			<-entered
		}
		eventually(t, "commit", func() bool { return replication.Raft(r).CommitIndex() > committed })
	}
	replication.Abandon(r) // no snapshot, which would wait for the state machine
	closed := make(chan error, 1)
	go func() { closed <- r.Close() }()
	eventually(t, "shutdown", func() bool { return replication.Raft(r).State() == raft.Shutdown })
	close(release)
	ended := make(chan int)
	go func() {
		lost := 0
		for _, f := range futures {
			if errors.Is(f.Error(), raft.ErrRaftShutdown) {
				lost++
			}
		}
		ended <- lost
	}()
	select {
	case lost := <-ended:
		if lost == 0 {
			t.Error("raft resolved all of them: this tests nothing")
		}
	case <-time.After(patience):
		t.Error("futures of a raft that has ended do not end")
	}
	check.NoError(t, <-closed)
}
