package raftdisk

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
)

// LogStore names a kind of Raft log.
type LogStore string

// The kinds of Raft log. A directory made with one and started with the other
// is converted.
const (
	BoltDB LogStore = "BoltDB" // one bbolt file
	Wal    LogStore = "Wal"    // segment files: half the cost of a sync
)

// logKind says how one kind of Raft log is opened and treated.
type logKind struct {
	name   string // of the file or folder below raft/; part of the disk format, do not change
	open   func(files vfs.FS, path string, logger hclog.Logger) (Backing, error)
	create func(files vfs.FS, path string) error // makes what open needs to find
	// DeleteRange runs in slices of so many entries; 0: at once
	deleteSlice uint64
}

var (
	boltKind    = &logKind{name: "log.db", open: openBoltLog, create: createBoltLog, deleteSlice: 512}
	segmentKind = &logKind{name: "segments", open: openSegmentLog, create: createSegmentLog}
	memKind     = &logKind{name: "memory", deleteSlice: math.MaxUint64}
	allKinds    = []*logKind{boltKind, segmentKind}
)

// unreadable is the folder of a Raft log that only development versions before v0.9.0 wrote.
const unreadable = "wal"

// refuseUnreadable fails if there is a Raft log that no release reads, however an exchange of it
// ended. Another log next to it may lack its entries. A node that set its consensus state aside
// would lose them too, so this is not ErrStateLost.
func refuseUnreadable(files vfs.FS, dir string) error {
	for _, suffix := range []string{"", newSuffix, oldSuffix} {
		path := filepath.Join(dir, unreadable+suffix)
		if found, err := exists(files, path); err != nil {
			return err
		} else if found {
			return fmt.Errorf("%s is a Raft log of a development version before v0.9.0, and this version cannot read its entries: "+
				"start that version once with RaftLogStore=BoltDB, which takes them over into raft/%s, then this one", path, boltKind.name)
		}
	}
	return nil
}

func kindOf(s LogStore) *logKind {
	if s == Wal {
		return segmentKind
	}
	return boltKind
}

// OpenBacking opens the entries of a Raft log in a folder raft.
func OpenBacking(dir string, s LogStore, logger hclog.Logger) (Backing, error) {
	kind := kindOf(s)
	return kind.open(vfs.OS, filepath.Join(dir, kind.name), logger)
}

// memoryLog is the Raft log of a database in memory, and holds its votes as well.
type memoryLog struct{ *raft.InmemStore }

func (memoryLog) Close() error { return nil }

// openLogStore opens the Raft log in the folder, converting it when it is of
// the other kind, and finishing what a crash interrupted.
//
// The Raft log is exchanged (to convert or to rewrite it) in these steps, each
// durable before the next: the new one is completed as X.new; the old one is
// renamed to Y.old, if it bears the same name; X.new is renamed to X; what is
// left of the old one is removed. So X.new is complete if and only if X is
// missing and X.old is there, and of two kinds under their own names both hold
// the same entries, since raft is started only after the last step.
func openLogStore(files vfs.FS, dir string, want *logKind, id []byte, logger hclog.Logger, fail *FailStop, sizes *entrySizes) (*RaftLog, error) {
	found, err := settleExchange(files, dir)
	if err != nil {
		return nil, err
	}
	open := func(kind *logKind, path string) (Backing, error) {
		store, err := kind.open(files, path, logger)
		if event.IsCorruption(err) && !errors.Is(err, ErrStateLost) {
			err = fmt.Errorf("%w: %w", ErrStateLost, err)
		}
		if err != nil {
			return nil, err
		}
		made, err := store.Get(keyCreation)
		if err == nil && string(made) == string(id) {
			return store, nil
		}
		if err == nil || errors.Is(err, raftboltdb.ErrKeyNotFound) {
			err = fmt.Errorf("%w: %s was not made together with raft/%s", ErrStateLost, path, identityFile)
		}
		return nil, errors.Join(err, store.Close())
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: the Raft log (raft/%s or raft/%s) is missing", ErrStateLost, boltKind.name, segmentKind.name)
	}
	have, err := dropConverted(files, dir, found, want, open)
	if err != nil {
		return nil, err
	}
	if have != want {
		logger.Info("converting the raft log", logkey.From, have.name, logkey.To, want.name)
		if err := convertLog(files, dir, have, want, open, logger); err != nil {
			return nil, fmt.Errorf("convert the Raft log from %s to %s: %w", have.name, want.name, err)
		}
	}
	path := filepath.Join(dir, want.name)
	inner, err := open(want, path)
	if err != nil {
		return nil, err
	}
	s := newRaftLog(want, files, path, inner, fail, sizes)
	s.open = func(path string) (Backing, error) { return open(want, path) }
	return s, nil
}

// settleExchange finishes or undoes an exchange of the Raft log, and returns the kinds present.
func settleExchange(files vfs.FS, dir string) (found []*logKind, err error) {
	// Names that a process before left in memory alone are believed from here on.
	if err := files.SyncDir(dir); err != nil {
		return nil, err
	}
	for _, kind := range allKinds {
		path := filepath.Join(dir, kind.name)
		var there [3]bool
		for i, suffix := range []string{"", newSuffix, oldSuffix} {
			if there[i], err = exists(files, path+suffix); err != nil {
				return nil, err
			}
		}
		have, haveNew, haveOld := there[0], there[1], there[2]
		if !have && haveNew && haveOld {
			if err := files.Rename(path+newSuffix, path); err != nil {
				return nil, err
			}
			have = true
		}
		if have {
			found = append(found, kind)
		}
		if !haveNew && !haveOld {
			continue
		}
		if err := errors.Join(files.RemoveAll(path+newSuffix), files.SyncDir(dir)); err != nil {
			return nil, err
		}
		if err := errors.Join(files.RemoveAll(path+oldSuffix), files.SyncDir(dir)); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// dropTwins removes all kinds but one after a conversion that was complete but
// for the removal, and returns that one: what is wanted, if it is there.
func dropConverted(files vfs.FS, dir string, found []*logKind, want *logKind, open func(*logKind, string) (Backing, error)) (*logKind, error) {
	have, ends := found[0], make([]uint64, len(found))
	if len(found) == 1 {
		return have, nil
	}
	for i, kind := range found {
		if kind == want {
			have = kind
		}
		store, err := open(kind, filepath.Join(dir, kind.name))
		if err != nil {
			return nil, err
		}
		ends[i], err = store.LastIndex()
		if err := errors.Join(err, store.Close()); err != nil {
			return nil, err
		}
		// A conversion leaves out what lies before a gap, so only the ends must agree.
		if ends[i] != ends[0] {
			return nil, fmt.Errorf("%w: raft/ holds two Raft logs that end at different entries: %s at %d, %s at %d",
				ErrStateLost, found[0].name, ends[0], kind.name, ends[i])
		}
	}
	for _, kind := range found {
		if kind != have {
			if err := remove(files, filepath.Join(dir, kind.name)); err != nil {
				return nil, err
			}
		}
	}
	return have, nil
}

func convertLog(files vfs.FS, dir string, from, to *logKind, open func(*logKind, string) (Backing, error), logger hclog.Logger) error {
	oldPath, newPath := filepath.Join(dir, from.name), filepath.Join(dir, to.name)
	src, err := open(from, oldPath)
	if err != nil {
		return err
	}
	fresh, err := fillNew(files, to, newPath, src, 0, logger)
	if err == nil {
		err = errors.Join(fresh.Close(), files.SyncDir(dir))
	}
	if err = errors.Join(err, src.Close()); err != nil {
		return err
	}
	if err := files.Rename(newPath+newSuffix, newPath); err != nil {
		return err
	}
	if err := files.SyncDir(dir); err != nil {
		return err
	}
	return remove(files, oldPath)
}
