package raftdisk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
)

// ErrStateLost says that the consensus state of a node is incomplete, or was
// not made together, or does not fit the event log. Such a node must not vote.
var ErrStateLost = errors.New("consensus state is lost")

// errNewer says that a later version wrote a file. Then nothing is lost, and the node does not
// start.
var errNewer = errors.New("a newer version wrote it")

// knownFormat refuses the format of a file that is not the one known here.
func knownFormat(format, known int) error {
	switch {
	case format == known:
		return nil
	case format > known:
		return fmt.Errorf("%w: it has format %d, newer than %d, the newest known to this program", errNewer, format, known)
	}
	return fmt.Errorf("format %d is not known, only %d", format, known)
}

// Names on disk: do not change.
const (
	Dir          = "raft"
	identityFile = "identity"
	// what the node promised before there was a cluster; may be there before anything else
	PromiseFile = "bootstrap"
	JoiningFile = "joining" // there until the cluster admitted the node
	// data was fetched from other nodes: the event log may be ahead of the Raft log
	PulledFile    = "pulled"
	stableFile    = "stable.db"
	snapshotsDir  = "snapshots"
	identityBuild = 1 // format of the identity file
)

// Keys in the stable store. All but the first are raft's own.
var (
	keyCreation      = []byte("CreationID")
	keyCurrentTerm   = []byte("CurrentTerm")
	keyVoteTerm      = []byte("LastVoteTerm")
	keyVoteCandidate = []byte("LastVoteCand")
)

// Identity says who a node is. It is made once per data directory.
type Identity struct {
	Creation  event.ID `json:"creationId"` // ties stable store, Raft log and snapshots together
	Node      event.ID `json:"nodeId"`
	Cluster   event.ID `json:"clusterId"`
	Directory event.ID `json:"directoryId"`
	// which history of the cluster; zero: the one that began with it
	Incarnation event.ID `json:"lineageId,omitzero"`
}

// identityDoc is an identity as it lies on disk: do not change without changing the format.
type identityDoc struct {
	Format int `json:"format"`
	Identity
}

func encodeIdentity(id Identity) ([]byte, error) {
	return json.MarshalIndent(identityDoc{identityBuild, id}, "", "  ")
}

func decodeIdentity(data []byte) (Identity, error) {
	var doc identityDoc
	if err := json.Unmarshal(data, &doc); err != nil {
		return Identity{}, err
	}
	switch err := knownFormat(doc.Format, identityBuild); {
	case err != nil:
		return Identity{}, err
	case doc.Creation.IsZero() || doc.Node.IsZero():
		return Identity{}, errors.New("it lacks an id")
	}
	return doc.Identity, nil
}

func newIdentity(o *Options) Identity {
	node := o.Node
	if node.IsZero() {
		node = event.ID(uuid.New())
	}
	id := Identity{Creation: event.ID(uuid.New()), Node: node, Cluster: o.ClusterID, Directory: o.DirectoryID, Incarnation: o.Incarnation}
	if o.Log.Tail().End > 0 && !o.Joining {
		// It continues from a copy, and the original may continue as well.
		id.Incarnation = event.ID(uuid.New())
	}
	return id
}

// State is a node's consensus state, open.
type State struct {
	files     vfs.FS
	dir       string
	ID        Identity
	Stable    *StableStore
	Logs      *RaftLog
	Snapshots *Snapshots
}

func (s *State) Close() error { return errors.Join(s.Logs.Close(), s.Stable.Close()) }

// Open opens the consensus state of a data directory, making it when there is none.
func Open(o *Options, logger hclog.Logger, fail *FailStop) (*State, error) {
	dir := filepath.Join(o.Dir, Dir)
	made, err := SettleCreation(o.Files, o.Dir)
	if err != nil {
		return nil, err
	}
	if !made {
		if err := create(o, logger, len(creation)); err != nil {
			return nil, fmt.Errorf("create %s: %w", dir, err)
		}
	}
	s, err := openExisting(o, dir, logger, fail)
	if errors.Is(err, ErrStateLost) && !errors.As(err, new(*RotError)) {
		return nil, fmt.Errorf("%w; a node must not vote without all of its consensus state: "+
			"restore the missing parts, or move %s away: this single node then starts again from its event log", err, dir)
	}
	return s, err
}

// SettleCreation finishes or throws away a creation that a crash ended, and
// reports whether the directory has consensus state.
func SettleCreation(files vfs.FS, dir string) (made bool, err error) {
	final := filepath.Join(dir, Dir)
	begun := final + newSuffix
	// The promise moves into the new folder when that is complete, in the last step but one.
	complete, err := exists(files, filepath.Join(begun, PromiseFile))
	if err != nil {
		return false, err
	}
	if complete {
		err = errors.Join(files.RemoveAll(final), files.Rename(begun, final))
	} else {
		err = files.RemoveAll(begun)
	}
	if err != nil {
		return false, err
	}
	names, err := files.List(final)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	made = slices.ContainsFunc(names, func(name string) bool { return name != PromiseFile && name != PromiseFile+vfs.TempSuffix })
	if !made {
		return false, nil
	}
	// The process before may have been killed when the folder had its name, which was not durable.
	return true, files.SyncDir(dir)
}

// Why consensus state is set aside: a part of the name it gets.
const (
	AsideLost      = "lost"
	AsideTakenOver = "taken-over" // its entries are in the event log
	asideRestore   = "before-restore"
)

// SetAside takes consensus state out of use, all at once. It is never removed: what it holds may be
// nowhere else. It returns the folder that it lies in from now on, empty if there was none.
func SetAside(files vfs.FS, dir, why string) (aside string, err error) {
	if made, err := SettleCreation(files, dir); err != nil || !made {
		return "", err
	}
	aside = filepath.Join(dir, Dir+"."+why+"-"+time.Now().UTC().Format("20060102T150405.000Z"))
	return aside, errors.Join(files.Rename(filepath.Join(dir, Dir), aside), files.SyncDir(dir))
}

// Restored sets the consensus state of a data directory aside before its event log is cut, because
// its files come from a copy. The node's votes and entries are of a later life: raft would replay
// what the restore is to take back, and a majority that this node counts for could miss what it had
// acknowledged. It has no vote then, and joins by its data.
func Restored(files vfs.FS, dir string, logger hclog.Logger) error {
	aside, err := SetAside(files, dir, asideRestore)
	if err != nil {
		return fmt.Errorf("set consensus state aside: %w", err)
	}
	if aside != "" {
		logger.Warn("the data were restored: consensus state was set aside, this node joins with its data", logkey.Folder, aside)
	}
	return nil
}

// Asides are the folders of consensus state that was set aside.
func Asides(o *Options) (found []string, err error) {
	names, err := o.Files.List(o.Dir)
	for _, name := range names {
		for _, why := range []string{AsideLost, AsideTakenOver, asideRestore} {
			if strings.HasPrefix(name, Dir+"."+why+"-") {
				found = append(found, filepath.Join(o.Dir, name))
			}
		}
	}
	return found, err
}

func openExisting(o *Options, dir string, logger hclog.Logger, fail *FailStop) (_ *State, err error) {
	if err := refuseUnreadable(o.Files, dir); err != nil {
		return nil, err
	}
	id, err := ReadIdentity(o.Files, dir)
	if err != nil {
		return nil, err
	}
	if id.Cluster != o.ClusterID {
		return nil, fmt.Errorf("%w: raft/ belongs to cluster %s, the event log to cluster %s", ErrStateLost, id.Cluster, o.ClusterID)
	}
	if id.Directory != o.DirectoryID {
		return nil, fmt.Errorf("%w: raft/ belongs to data directory %s, this is %s", ErrStateLost, id.Directory, o.DirectoryID)
	}
	s := &State{files: o.Files, dir: dir, ID: id}
	if s.Stable, err = openStable(o, dir, id, fail); err != nil {
		return nil, err
	}
	defer vfs.Undo(&err, s.Stable.Close)
	if s.Snapshots, err = openSnapshots(o.Files, filepath.Join(dir, snapshotsDir), id, logger, fail); err != nil {
		return nil, err
	}
	if sizes := newEntrySizes(o.TrailingEntries); o.Memory != nil {
		s.Logs = newRaftLog(memKind, o.Files, memKind.name, memoryLog{o.Memory}, fail, sizes)
	} else {
		s.Logs, err = openLogStore(o.Files, dir, kindOf(o.LogStore), id.Creation[:], logger, fail, sizes)
	}
	return s, err
}

// ReadIdentity reads who the node of a folder raft is.
func ReadIdentity(files vfs.FS, dir string) (Identity, error) {
	data, err := vfs.ReadFile(files, filepath.Join(dir, identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, fmt.Errorf("%w: raft/%s is missing", ErrStateLost, identityFile)
	}
	if err != nil {
		return Identity{}, err
	}
	id, err := decodeIdentity(data)
	if errors.Is(err, errNewer) {
		return Identity{}, fmt.Errorf("raft/%s: %w", identityFile, err)
	}
	if err != nil {
		return Identity{}, fmt.Errorf("%w: raft/%s: %w", ErrStateLost, identityFile, err)
	}
	return id, nil
}

// votes is what holds votes and the current term, with the creation id.
type votes interface {
	raft.StableStore
	Close() error
}

// openVotes opens them, on disk with a function.
func (o *Options) openVotes(path string, open func(files vfs.FS, path string, mmap int) (boltStore, error)) (votes, error) {
	if o.Memory != nil {
		return memoryLog{o.Memory}, nil
	}
	return open(o.Files, path, 0)
}

func openStable(o *Options, dir string, id Identity, fail *FailStop) (*StableStore, error) {
	path := filepath.Join(dir, stableFile)
	store, err := o.openVotes(path, openExistingBolt)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: raft/%s is missing", ErrStateLost, stableFile)
	}
	if err != nil {
		return nil, err
	}
	if have, err := store.Get(keyCreation); err != nil || string(have) != string(id.Creation[:]) {
		err = fmt.Errorf("%w: raft/%s was not made together with raft/%s", ErrStateLost, stableFile, identityFile)
		return nil, errors.Join(err, store.Close())
	}
	stable, err := newStable(store, path, fail)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return stable, nil
}

// making is a creation of consensus state in progress, in the folder raft.new.
type making struct {
	o      *Options
	dir    string // being made
	final  string
	id     Identity
	tail   event.Tail
	logger hclog.Logger
}

// creation are the steps in which consensus state comes to be. Each is durable
// before the next. A crash before the last leaves raft.new, which the next start
// throws away: until the folder has its final name no raft ran on it, so that no
// vote and no entry is lost with it. The last step makes it real at once and whole.
//
// A data directory with an empty log becomes a new cluster with this node as
// the only voter. One with a log and no raft/ was restored from a copy: its state
// is made to look as if a snapshot had been taken at the end of the log in the
// term of the last frame, since a Raft index that began at 0 again would have
// every new entry skipped as applied before.
var creation = []func(*making) error{
	(*making).makeStable, (*making).makeSnapshot, (*making).makeLog, (*making).makeIdentity, (*making).makeReal,
}

// create runs the first so many steps.
func create(o *Options, logger hclog.Logger, steps int) error {
	final := filepath.Join(o.Dir, Dir)
	m := &making{o: o, dir: final + newSuffix, final: final, id: newIdentity(o), tail: o.Log.Tail(), logger: logger}
	if m.restored() && (m.tail.Index == 0 || m.tail.Term == 0) {
		return fmt.Errorf("the event log ends at %d, but its last frame names no Raft entry", m.tail.End)
	}
	if err := o.Files.MkdirAll(m.dir); err != nil {
		return err
	}
	if err := o.Files.SyncDir(o.Dir); err != nil { // The promise moves into the new folder.
		return err
	}
	for _, step := range creation[:steps] {
		if err := step(m); err != nil {
			return err
		}
	}
	return nil
}

func (m *making) restored() bool { return m.tail.End > 0 }

func (m *making) makeStable() (err error) {
	store, err := m.o.openVotes(filepath.Join(m.dir, stableFile), openBolt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.Set(keyCreation, m.id.Creation[:]); err != nil {
		return err
	}
	return store.SetUint64(keyCurrentTerm, firstTerm(m.tail))
}

// firstTerm is the term that a new consensus state begins with.
func firstTerm(tail event.Tail) uint64 { return max(tail.Term, 1) }

func (m *making) makeSnapshot() error {
	dir := filepath.Join(m.dir, snapshotsDir)
	if err := m.o.Files.MkdirAll(dir); err != nil {
		return err
	}
	if !m.restored() {
		return nil
	}
	snap, err := syntheticSnapshot(m.o, m.id, m.tail)
	if err != nil {
		return err
	}
	return snap.write(m.o.Files, dir, m.id)
}

// makeLog makes the Raft log: empty after a snapshot, else with the one entry that names this node
// as the only voter, as raft's own bootstrap does.
func (m *making) makeLog() (err error) {
	var store Backing = memoryLog{m.o.Memory}
	if m.o.Memory == nil {
		kind := kindOf(m.o.LogStore)
		path := filepath.Join(m.dir, kind.name)
		if err := kind.create(m.o.Files, path); err != nil {
			return err
		}
		if store, err = kind.open(m.o.Files, path, m.logger); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.Set(keyCreation, m.id.Creation[:]); err != nil {
		return err
	}
	if m.restored() || m.o.Joining {
		return nil
	}
	return store.StoreLog(firstEntry(m.o, m.id))
}

func (m *making) makeIdentity() error {
	data, err := encodeIdentity(m.id)
	if err != nil {
		return err
	}
	if m.o.Joining {
		// Fetched data keep coming in while this is made.
		if err := errors.Join(vfs.WriteFileAtomic(m.o.Files, filepath.Join(m.dir, JoiningFile), nil), vfs.WriteFileAtomic(m.o.Files, filepath.Join(m.dir, PulledFile), nil)); err != nil {
			return err
		}
	}
	return vfs.WriteFileAtomic(m.o.Files, filepath.Join(m.dir, identityFile), data)
}

func (m *making) makeReal() error {
	if promised, err := exists(m.o.Files, filepath.Join(m.final, PromiseFile)); err != nil {
		return err
	} else if promised {
		if err := m.o.Files.Rename(filepath.Join(m.final, PromiseFile), filepath.Join(m.dir, PromiseFile)); err != nil {
			return err
		}
		if err := errors.Join(m.o.Files.SyncDir(m.dir), m.o.Files.SyncDir(m.final)); err != nil {
			return err
		}
	}
	if err := m.o.Files.RemoveAll(m.final); err != nil { // It holds nothing any more.
		return err
	}
	if err := m.o.Files.Rename(m.dir, m.final); err != nil {
		return err
	}
	if err := m.o.Files.SyncDir(m.o.Dir); err != nil {
		return err
	}
	switch {
	case m.o.Joining:
		m.logger.Debug("consensus state of a node that is to join", logkey.Node, m.id.Node.String(), "cluster", m.id.Cluster.String(), logkey.End, m.tail.End)
	case m.restored():
		m.logger.Warn("the data directory has a log and no consensus state: starting from the end of the log as a single node",
			logkey.Node, m.id.Node.String(), logkey.End, m.tail.End, logkey.Index, m.tail.Index, logkey.Term, m.tail.Term)
	case m.o.Others > 0:
		m.logger.Info("this node founds the cluster, and the others are about to join", "others", m.o.Others, "cluster", m.id.Cluster.String())
	default:
		m.logger.Info("new cluster of one node", logkey.Node, m.id.Node.String(), "cluster", m.id.Cluster.String())
	}
	return nil
}

// firstConfiguration has this node as the only voter. A node that is to join begins with an empty
// configuration, so that it does not stand for election before it was admitted.
func firstConfiguration(o *Options, id Identity) raft.Configuration {
	if o.Joining {
		return raft.Configuration{}
	}
	node := raft.ServerID(id.Node.String())
	address := raft.ServerAddress(node)
	if o.Address != "" {
		address = o.Address
	}
	return raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: node, Address: address}}}
}

func firstEntry(o *Options, id Identity) *raft.Log {
	return &raft.Log{
		Index: 1, Term: 1, Type: raft.LogConfiguration,
		Data: raft.EncodeConfiguration(firstConfiguration(o, id)),
	}
}
