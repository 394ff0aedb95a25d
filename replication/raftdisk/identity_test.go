package raftdisk

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/powercut"
	"github.com/annalsdb/annals/internal/vfs"
)

// fixedLog is an event log that only has an end, and other ends before it.
type fixedLog struct {
	tail   event.Tail
	chains map[int64]event.Chain
}

func (l *fixedLog) Tail() event.Tail { return l.tail }

func (l *fixedLog) ChainAt(position int64) (event.Chain, bool, error) {
	chain, ok := l.chains[position]
	return chain, ok, nil
}

var restoredTail = event.Tail{End: 5000, Chain: event.Chain{5}, Index: 77, Term: 4}

func testOptions(dir string, tail event.Tail) *Options {
	o := &Options{
		Files: vfs.OS, Dir: dir, LogStore: BoltDB, ClusterID: event.ID{1}, DirectoryID: event.ID{2}, TrailingEntries: 1024,
		Log: &fixedLog{tail: tail, chains: map[int64]event.Chain{}},
	}
	return o
}

func openTestState(t *testing.T, o *Options) (*State, error) {
	t.Helper()
	return Open(o, hclog.NewNullLogger(), &FailStop{OnFatal: func(err error) { t.Error(err) }})
}

// inMemory returns an empty disk and options for consensus state on it, of a node without data.
func inMemory(t *testing.T, kind LogStore) (*vfs.Mem, *Options) {
	t.Helper()
	mem, o := vfs.NewCrashMem(), testOptions("/data", event.Tail{})
	o.Files, o.LogStore = mem, kind
	check.Must(t, vfs.MkdirAllSync(mem, o.Dir))
	return mem, o
}

// openToFail opens consensus state of a node that a failure is to stop.
func openToFail(o *Options) (*State, error) {
	return Open(o, hclog.NewNullLogger(), &FailStop{OnFatal: func(error) {}})
}

func checkFresh(t *testing.T, s *State, o *Options) {
	t.Helper()
	configuration := check.Value(s.CheckStart(o.Log)).Must(t)
	if len(configuration.Servers) != 1 || configuration.Servers[0].ID != raft.ServerID(s.ID.Node.String()) || configuration.Servers[0].Suffrage != raft.Voter {
		t.Errorf("configuration %+v", configuration)
	}
	tail := o.Log.Tail()
	if term, err := s.Stable.GetUint64(keyCurrentTerm); err != nil || term != firstTerm(tail) {
		t.Errorf("current term %d, %v", term, err)
	}
	list := check.Value(s.Snapshots.List()).Must(t)
	if tail.End == 0 {
		check.Equal(t, len(list), 0, "a snapshot of nothing")
		return
	}
	if len(list) != 1 || list[0].Index != tail.Index || list[0].Term != tail.Term || list[0].ConfigurationIndex != 1 {
		t.Errorf("snapshots %+v", list)
	}
}

func TestIdentityStays(t *testing.T) {
	t.Parallel()
	for _, o := range []*Options{testOptions(t.TempDir(), event.Tail{}), testOptions(t.TempDir(), restoredTail)} {
		first := check.Value(openTestState(t, o)).Must(t)
		checkFresh(t, first, o)
		check.Must(t, first.Close())
		second := check.Value(openTestState(t, o)).Must(t)
		if second.ID != first.ID || second.ID.Node.IsZero() || second.ID.Creation.IsZero() {
			t.Errorf("identity %+v became %+v", first.ID, second.ID)
		}
		// A node that continues from a copy has another history than the nodes it was copied from.
		if restored := o.Log.Tail().End > 0; first.ID.Incarnation.IsZero() == restored {
			t.Errorf("restored: %t, lineage %s", restored, first.ID.Incarnation)
		}
		check.Must(t, second.Close())
	}
}

// Consensus state made for restored data looks like a snapshot at the last frame, in its term, and
// is there whole or not at all: if the Raft index began at zero again, every new entry would be
// skipped.
func TestRule15CrashAnywhereInCreation(t *testing.T) {
	t.Parallel()
	for name, tail := range map[string]event.Tail{"fresh": {}, "restored": restoredTail} {
		for _, kind := range []LogStore{BoltDB, Wal} {
			for steps := range len(creation) + 1 {
				if kind == Wal && (steps < 3 || steps > 4) {
					continue // no Raft log yet, or nothing of its own any more
				}
				o := testOptions(t.TempDir(), tail)
				o.LogStore = kind
				check.Must(t, create(o, hclog.NewNullLogger(), steps)) // and then the crash
				s := check.Value(openTestState(t, o)).Must(t, name, kind, "after", steps, "steps")
				checkFresh(t, s, o)
				check.Must(t, s.Close())
				check.Equal(t, names(t, o.Dir), Dir, "folder holds")
			}
		}
	}
	t.Run("an empty folder counts as none", func(t *testing.T) {
		o := testOptions(t.TempDir(), restoredTail)
		check.Must(t, os.Mkdir(filepath.Join(o.Dir, Dir), 0o700))
		s := check.Value(openTestState(t, o)).Must(t)
		checkFresh(t, s, o)
		check.Must(t, s.Close())
	})
	t.Run("a log without Raft entries is refused", func(t *testing.T) {
		o := testOptions(t.TempDir(), event.Tail{End: 10})
		check.Fails(t, check.Err(openTestState(t, o)), "started")
	})
}

// What a node promised before it had consensus state is moved into the folder in which that is
// made. Whenever the power fails, the promise is in one of the two folders.
func TestPromiseMovesIntoADurableFolder(t *testing.T) {
	t.Parallel()
	mem, o := inMemory(t, Wal)
	check.Must(t, vfs.MkdirAllSync(mem, filepath.Join(o.Dir, Dir)))
	check.Must(t, vfs.WriteFileAtomic(mem, filepath.Join(o.Dir, Dir, PromiseFile), []byte("promised")))
	disk := powercut.New(powercut.Options[struct{}]{Mem: mem})
	o.Files = disk
	check.Must(t, check.Value(openTestState(t, o)).Must(t).Close())
	for _, cut := range disk.Cuts() {
		here := check.Value(exists(cut.FS, filepath.Join(o.Dir, Dir, PromiseFile))).Must(t)
		there := check.Value(exists(cut.FS, filepath.Join(o.Dir, Dir+newSuffix, PromiseFile))).Must(t)
		if !here && !there {
			t.Errorf("%s: the promise is lost", cut.What)
		}
	}
}

// Stable store, Raft log and snapshots belong together, to one cluster and one directory: a node
// that forgot its log and kept its votes, or the reverse, must never vote.
func TestRule14MissingOrForeignPartIsRefused(t *testing.T) {
	t.Parallel()
	part := func(o *Options, name string) string { return filepath.Join(o.Dir, Dir, name) }
	for _, name := range []string{identityFile, stableFile, boltKind.name, snapshotsDir} {
		t.Run("missing "+name, func(t *testing.T) {
			o := testOptions(t.TempDir(), restoredTail)
			makeState(t, o)
			check.Must(t, os.RemoveAll(part(o, name)))
			refused(t, o, name)
		})
		t.Run("foreign "+name, func(t *testing.T) {
			o, other := testOptions(t.TempDir(), restoredTail), testOptions(t.TempDir(), restoredTail)
			makeState(t, o)
			makeState(t, other)
			check.Must(t, os.RemoveAll(part(o, name)))
			check.Must(t, os.Rename(part(other, name), part(o, name)))
			refused(t, o, "not made together")
		})
	}
	t.Run("foreign cluster", func(t *testing.T) {
		o := testOptions(t.TempDir(), event.Tail{})
		makeState(t, o)
		o.ClusterID = event.ID{9}
		refused(t, o, "belongs to cluster")
	})
	t.Run("foreign directory", func(t *testing.T) {
		o := testOptions(t.TempDir(), event.Tail{})
		makeState(t, o)
		o.DirectoryID = event.ID{9}
		refused(t, o, "belongs to data directory")
	})
	t.Run("unreadable identity", func(t *testing.T) {
		o := testOptions(t.TempDir(), event.Tail{})
		makeState(t, o)
		check.Must(t, os.WriteFile(part(o, identityFile), []byte(`{"format":1}`), 0o600))
		refused(t, o, identityFile)
	})
}

// What a newer version wrote is not lost: a node of a cluster would set it aside, and forget what
// it had acknowledged.
func TestNewerStateIsKept(t *testing.T) {
	t.Parallel()
	for name, written := range map[string]func(s *State) (part string, data []byte, err error){
		identityFile: func(s *State) (string, []byte, error) {
			data, err := encodeIdentity(s.ID)
			return identityFile, bytes.Replace(data, []byte(`"format": 1`), []byte(`"format": 2`), 1), err
		},
		snapshotsDir: func(s *State) (string, []byte, error) {
			data, err := s.Snapshots.list[0].encode(s.ID)
			data = bytes.Replace(data[:len(data)-4], []byte(`"format":1`), []byte(`"format":2`), 1)
			data = binary.LittleEndian.AppendUint32(data, crc32.Checksum(data, castagnoli))
			return filepath.Join(snapshotsDir, s.Snapshots.list[0].meta.ID+snapshotSuffix), data, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(t.TempDir(), restoredTail)
			s := check.Value(openTestState(t, o)).Must(t)
			part, data, err := written(s)
			check.Must(t, errors.Join(err, s.Close(), os.WriteFile(filepath.Join(o.Dir, Dir, part), data, 0o600)))
			_, err = openTestState(t, o)
			check.Says(t, err, part, "is not named in")
			check.Says(t, err, "format 2, newer than 1", "is not said in")
			check.Equal(t, errors.Is(err, ErrStateLost), false, "taken for lost")
		})
	}
}

func makeState(t *testing.T, o *Options) {
	t.Helper()
	s := check.Value(openTestState(t, o)).Must(t)
	check.Must(t, s.Close())
}

// refused expects that nothing starts, that the error says why and what to do,
// and that trying left everything as it was.
func refused(t *testing.T, o *Options, why string) {
	t.Helper()
	before := names(t, filepath.Join(o.Dir, Dir))
	_, err := openTestState(t, o)
	if !errors.Is(err, ErrStateLost) || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "move ") {
		t.Errorf("error %v", err)
	}
	check.Equal(t, names(t, filepath.Join(o.Dir, Dir)), before, "folder held ..., holds")
}

func FuzzDecodeIdentity(f *testing.F) {
	data := check.Value(encodeIdentity(Identity{Node: event.ID{1}, Creation: event.ID{2}})).Must(f)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		id, err := decodeIdentity(data)
		if err != nil {
			return
		}
		again, err := encodeIdentity(id)
		check.Must(t, err)
		if back, err := decodeIdentity(again); err != nil || back != id {
			t.Errorf("%+v became %+v, %v", id, back, err)
		}
	})
}

// snapshotOf makes a snapshot that ends where the tail says.
func snapshotOf(t *testing.T, id Identity, index, term uint64, tail event.Tail) *snapshot {
	t.Helper()
	data := check.Value(json.Marshal(event.Snapshot{Tail: tail})).Must(t)
	return &snapshot{data: data, meta: raft.SnapshotMeta{
		Version: 1, ID: snapshotID(term, index), Index: index, Term: term, Size: int64(len(data)),
		Configuration: raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(id.Node.String()), Address: "a"}}}, ConfigurationIndex: 1,
	}}
}
