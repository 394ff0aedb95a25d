package raftdisk

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/hang"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
)

const (
	snapshotSuffix  = ".manifest" // part of the disk format, do not change
	snapshotFormat  = 1
	snapshotsKept   = 2
	maxSnapshotSize = 64 << 20 // a chunk takes about 120 bytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// snapshot is one snapshot. Snapshots are small, so they are held in memory.
type snapshot struct {
	meta    raft.SnapshotMeta
	data    []byte // what the state machine's Persist wrote
	damaged error  // the file could not be read; meta has what its name tells
}

// snapshotHeader is the first line of a snapshot file. A file is
//
//	header as one line of JSON, line feed | data | CRC-32C of all before, 4 bytes, little endian
type snapshotHeader struct {
	Format   int               `json:"format"`
	Creation string            `json:"creationId"`
	Meta     raft.SnapshotMeta `json:"meta"`
}

func (s *snapshot) encode(id Identity) ([]byte, error) {
	head, err := json.Marshal(snapshotHeader{Format: snapshotFormat, Creation: id.Creation.String(), Meta: s.meta})
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(head)+1+len(s.data)+4)
	out = append(append(append(out, head...), '\n'), s.data...)
	return binary.LittleEndian.AppendUint32(out, crc32.Checksum(out, castagnoli)), nil
}

// decodeSnapshot reads a snapshot file and returns the creation id in it.
func decodeSnapshot(file []byte) (s *snapshot, creation string, err error) {
	end := len(file) - 4
	if end < 0 || crc32.Checksum(file[:end], castagnoli) != binary.LittleEndian.Uint32(file[end:]) {
		return nil, "", errors.New("wrong checksum")
	}
	line, data, ok := bytes.Cut(file[:end], []byte{'\n'})
	var head snapshotHeader
	if !ok {
		return nil, "", errors.New("no header")
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return nil, "", fmt.Errorf("header: %w", err)
	}
	if err := knownFormat(head.Format, snapshotFormat); err != nil {
		return nil, "", err
	}
	if head.Meta.Size != int64(len(data)) {
		return nil, "", fmt.Errorf("holds %d bytes instead of %d", len(data), head.Meta.Size)
	}
	return &snapshot{meta: head.Meta, data: data}, head.Creation, nil
}

// write makes the snapshot's file durable.
func (s *snapshot) write(files vfs.FS, dir string, id Identity) error {
	data, err := s.encode(id)
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(files, filepath.Join(dir, s.meta.ID+snapshotSuffix), data)
}

// content returns what the state machine wrote.
func (s *snapshot) content() (m event.Snapshot, err error) {
	if s.damaged != nil {
		return m, s.damaged
	}
	if err := json.Unmarshal(s.data, &m); err != nil {
		return m, fmt.Errorf("content: %w", err)
	}
	return m, nil
}

func (s *snapshot) describe() string {
	return fmt.Sprintf("snapshot %s (Raft index %d, term %d)", s.meta.ID, s.meta.Index, s.meta.Term)
}

// snapshotID names a snapshot after its term and index; the rest only makes it unique.
func snapshotID(term, index uint64) string {
	return fmt.Sprintf("%016x-%016x-%s", term, index, strings.ToLower(rand.Text()[:8]))
}

// syntheticSnapshot stands for everything in a log that came without consensus state.
func syntheticSnapshot(o *Options, id Identity, tail event.Tail) (*snapshot, error) {
	data, err := json.Marshal(event.Snapshot{Tail: tail})
	if err != nil {
		return nil, err
	}
	return &snapshot{data: data, meta: raft.SnapshotMeta{
		Version: raft.SnapshotVersionMax, ID: snapshotID(tail.Term, tail.Index), Index: tail.Index, Term: tail.Term,
		Configuration: firstConfiguration(o, id), ConfigurationIndex: 1, Size: int64(len(data)),
	}}, nil
}

// Snapshots keeps snapshots. One that this node wrote counts as soon as its file is durable. One
// received from the leader counts only after the state machine restored it: raft would take it for
// this node's state at the next start.
type Snapshots struct {
	files  vfs.FS
	dir    string
	id     Identity
	logger hclog.Logger
	fail   *FailStop

	mu       sync.Mutex // guards what follows; writing a file happens outside
	list     []*snapshot
	received *snapshot // the newest
	opened   *snapshot // received, and opened last: being restored
}

var _ raft.SnapshotStore = (*Snapshots)(nil)

// openSnapshots reads all snapshots. Damaged ones are kept in the list until CheckStart knows
// whether the node can do without them.
func openSnapshots(files vfs.FS, dir string, id Identity, logger hclog.Logger, fail *FailStop) (*Snapshots, error) {
	s := &Snapshots{files: files, dir: dir, id: id, logger: logger, fail: fail}
	names, err := files.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: raft/%s is missing", ErrStateLost, snapshotsDir)
	}
	if err != nil {
		return nil, err
	}
	// A name that a sync which failed left in memory alone is believed from here on.
	if err := files.SyncDir(dir); err != nil {
		return nil, err
	}
	for _, base := range names {
		name := filepath.Join(dir, base)
		id, isSnapshot := strings.CutSuffix(base, snapshotSuffix)
		if !isSnapshot {
			if strings.HasSuffix(name, vfs.TempSuffix) {
				if err := files.Remove(name); err != nil {
					return nil, err
				}
			}
			continue
		}
		data, err := vfs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		snap, creation, err := decodeSnapshot(data)
		if errors.Is(err, errNewer) {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if err != nil {
			snap = &snapshot{damaged: err}
			snap.meta.ID = id
			if _, err := fmt.Sscanf(id, "%x-%x-", &snap.meta.Term, &snap.meta.Index); err != nil {
				return nil, fmt.Errorf("%w: %s is not the name of a snapshot", ErrStateLost, name)
			}
		} else if creation != s.id.Creation.String() {
			return nil, fmt.Errorf("%w: %s was not made together with raft/%s", ErrStateLost, name, identityFile)
		}
		s.list = append(s.list, snap)
	}
	slices.SortFunc(s.list, newestFirst)
	return s, nil
}

func newestFirst(a, b *snapshot) int {
	return cmp.Or(cmp.Compare(b.meta.Index, a.meta.Index), cmp.Compare(b.meta.Term, a.meta.Term))
}

// Create begins a snapshot.
func (s *Snapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport,
) (raft.SnapshotSink, error) {
	if err := s.fail.Check(); err != nil {
		return nil, err
	}
	if version != raft.SnapshotVersionMax {
		return nil, fmt.Errorf("snapshot version %d is not known", version)
	}
	return &snapshotSink{store: s, snap: &snapshot{meta: raft.SnapshotMeta{
		Version: version, ID: snapshotID(term, index), Index: index, Term: term,
		Configuration: configuration, ConfigurationIndex: configurationIndex,
	}}}, nil
}

// List returns the snapshots that count, the newest first.
func (s *Snapshots) List() ([]*raft.SnapshotMeta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	metas := make([]*raft.SnapshotMeta, len(s.list))
	for i, snap := range s.list {
		meta := snap.meta
		metas[i] = &meta
	}
	return metas, nil
}

// Open returns a snapshot that counts, or a received one that is to be restored.
func (s *Snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := s.received
	if snap != nil && snap.meta.ID == id {
		s.opened = snap
	} else if at := slices.IndexFunc(s.list, func(have *snapshot) bool { return have.meta.ID == id }); at >= 0 {
		snap = s.list[at]
	} else {
		return nil, nil, fmt.Errorf("no snapshot %s", id)
	}
	meta := snap.meta
	return &meta, io.NopCloser(bytes.NewReader(snap.data)), nil
}

// restoring returns the metadata of the received snapshot that was opened last, nil when there is
// none.
func (s *Snapshots) restoring() *raft.SnapshotMeta {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened == nil {
		return nil
	}
	return &s.opened.meta
}

// restored reports the outcome for the received snapshot that was opened last. A restored snapshot
// counts from now on: its file is durable when this returns, before raft deletes the entries that
// it replaces.
func (s *Snapshots) restored(ok bool) error {
	s.mu.Lock()
	snap := s.opened
	s.opened, s.received = nil, nil // raft installs one after the other
	s.mu.Unlock()
	if !ok || snap == nil {
		return nil
	}
	if err := s.publish(snap); err != nil {
		return s.fail.Fail(err)
	}
	return nil
}

// publish makes a snapshot durable and valid, and removes old ones. On a full disk nothing becomes
// of it, and all is as before.
func (s *Snapshots) publish(snap *snapshot) error {
	if err := s.fail.Check(); err != nil {
		return err
	}
	defer s.fail.Disk.End(s.fail.Disk.Begin(&hang.Op{Doing: "write snapshot", File: s.path(snap)}))
	if err := snap.write(s.files, s.dir, s.id); err != nil {
		err = fmt.Errorf("write snapshot in %s: %w", s.dir, err)
		if errors.Is(err, syscall.ENOSPC) {
			return err
		}
		return s.fail.Fail(err)
	}
	s.mu.Lock()
	s.list = append([]*snapshot{snap}, s.list...)
	slices.SortStableFunc(s.list, newestFirst)
	var old []*snapshot
	if len(s.list) > snapshotsKept {
		old = slices.Clone(s.list[snapshotsKept:])
		s.list = s.list[:snapshotsKept]
	}
	s.mu.Unlock()
	for _, snap := range old {
		if err := s.files.Remove(s.path(snap)); err != nil {
			// it does no harm, and the next start sees it
			s.logger.Warn("an old snapshot was not removed", logkey.Error, err)
		}
	}
	return nil
}

// Newest is the index of the newest snapshot and its term, 0 when there is none. All entries up to
// there are committed and applied here.
func (s *Snapshots) Newest() (index, term uint64) {
	meta := s.newest()
	return meta.Index, meta.Term
}

// newest is the metadata of the newest snapshot that counts; empty without one.
func (s *Snapshots) newest() raft.SnapshotMeta {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		return raft.SnapshotMeta{}
	}
	return s.list[0].meta
}

func (s *Snapshots) path(snap *snapshot) string {
	return filepath.Join(s.dir, snap.meta.ID+snapshotSuffix)
}

// drop removes snapshots beyond the end of the event log.
func (s *Snapshots) drop(snaps []*snapshot) error {
	for _, snap := range snaps {
		if err := s.files.Remove(s.path(snap)); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.DeleteFunc(s.list, func(have *snapshot) bool { return slices.Contains(snaps, have) })
	return s.files.SyncDir(s.dir)
}

// snapshotSink gathers one snapshot.
type snapshotSink struct {
	store *Snapshots
	snap  *snapshot
	local bool // this node writes it, rather than receives it
	done  bool
	err   error
}

var errCancelled = errors.New("snapshot was cancelled")

func (k *snapshotSink) ID() string { return k.snap.meta.ID }

func (k *snapshotSink) Write(p []byte) (int, error) {
	if k.done {
		return 0, errCancelled
	}
	if len(k.snap.data)+len(p) > maxSnapshotSize {
		return 0, fmt.Errorf("snapshot is larger than %d bytes", maxSnapshotSize)
	}
	k.snap.data = append(k.snap.data, p...)
	return len(p), nil
}

// Close ends the snapshot. The state machine's Persist and raft both call it.
func (k *snapshotSink) Close() error {
	if k.done {
		return k.err
	}
	k.done = true
	k.snap.meta.Size = int64(len(k.snap.data))
	if k.local {
		k.err = k.store.publish(k.snap)
		return k.err
	}
	k.store.mu.Lock()
	defer k.store.mu.Unlock()
	k.store.received = k.snap
	return nil
}

// Cancel drops the snapshot, unless it was closed.
func (k *snapshotSink) Cancel() error {
	if !k.done {
		k.done, k.err = true, errCancelled
	}
	return nil
}
