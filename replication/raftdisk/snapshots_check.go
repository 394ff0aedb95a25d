package raftdisk

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

// CheckStart makes sure that event log, snapshots and Raft log fit together, before raft runs on
// them, and returns the configuration that raft will begin with.
//
// The snapshot that raft begins with must name a position and chain of the event log. Snapshots
// beyond the log's end promise data that are not there; they are dropped if an older one fits and
// the Raft log can replay everything from there. Otherwise the node refuses to start.
func (s *State) CheckStart(log Log) (raft.Configuration, error) {
	first, last, err := ends(s.Logs)
	if err != nil {
		return raft.Configuration{}, err
	}
	tail := log.Tail()
	base, beyond, why, err := s.chooseSnapshot(log, tail)
	if err != nil {
		return raft.Configuration{}, err
	}
	if len(beyond) > 0 {
		if first == 0 || first > base.meta.Index+1 || last < beyond[0].meta.Index {
			kind := ErrStateLost
			if end := snapshotsEnd(beyond); end > tail.End {
				kind = &BehindError{End: end}
			}
			return raft.Configuration{}, fmt.Errorf("%w: %s cannot be used (%w), and the Raft log, which holds entries %d to %d, "+
				"does not replace it", kind, beyond[0].describe(), why, first, last)
		}
		s.Snapshots.logger.Warn("snapshots beyond the end of the event log are dropped, the Raft log replays the rest",
			logkey.Dropped, len(beyond), logkey.Index, base.meta.Index, logkey.Error, why)
	}
	switch {
	case last > 0 && base.meta.Index > last:
		// A snapshot was installed and the entries it replaced were not deleted yet. Segments would
		// refuse to append after the gap for ever.
		if err := s.Logs.DeleteRange(first, last); err != nil {
			return raft.Configuration{}, err
		}
		first, last = 0, 0
	case first > 0 && first <= base.meta.Index && base.meta.Index <= last:
		var entry raft.Log
		switch err := s.Logs.read(base.meta.Index, &entry); {
		case errors.Is(err, raft.ErrLogNotFound) && base.meta.Index < last:
			// A gap up to the snapshot, as earlier versions left in bbolt. Only the entries after
			// it count, and they are read below.
			if err := s.Logs.DeleteRange(first, base.meta.Index); err != nil {
				return raft.Configuration{}, err
			}
			first = base.meta.Index + 1
		case err != nil:
			return raft.Configuration{}, unreadableEntry(base.meta.Index, err)
		case entry.Term != base.meta.Term:
			// A snapshot was installed over entries of a deposed leader: they are of another
			// history. raft would continue after the last of them for ever.
			if err := s.Logs.DeleteRange(first, last); err != nil {
				return raft.Configuration{}, err
			}
			first, last = 0, 0
		}
	case last == 0 && base.meta.Index == 0 && s.Joining():
		// Nothing was received yet.
	case last == 0 && base.meta.Index == 0:
		return raft.Configuration{}, fmt.Errorf("%w: there is neither a snapshot nor an entry in the Raft log", ErrStateLost)
	case last > 0 && first > base.meta.Index+1:
		return raft.Configuration{}, fmt.Errorf("%w: the Raft log begins at entry %d, the newest snapshot ends at %d",
			ErrStateLost, first, base.meta.Index)
	}
	if err := s.checkTail(tail, base, first, last); err != nil {
		return raft.Configuration{}, err
	}
	configuration, err := s.scan(base, last)
	if err != nil {
		return raft.Configuration{}, err
	}
	if len(beyond) > 0 {
		return configuration, s.Snapshots.drop(beyond)
	}
	return configuration, nil
}

// BehindError says that a node's event log lacks data which the node has
// promised to hold: they have to be fetched from other nodes before raft may start.
type BehindError struct{ End int64 }

func (e *BehindError) Error() string {
	return fmt.Sprintf("the event log must reach %d before this node can take part again", e.End)
}

func (e *BehindError) Is(target error) bool { return target == ErrStateLost }

// snapshotsEnd is the highest end of the snapshots that can be read.
func snapshotsEnd(snaps []*snapshot) (end int64) {
	for _, snap := range snaps {
		if m, err := snap.content(); err == nil {
			end = max(end, m.Tail.End)
		}
	}
	return end
}

// chooseSnapshot returns the newest snapshot that fits the event log (an empty one when there is
// none), those beyond the log's end, and what is wrong with the newest.
func (s *State) chooseSnapshot(log Log, tail event.Tail) (base *snapshot, beyond []*snapshot, why, err error) {
	for _, snap := range s.Snapshots.list {
		content, err := snap.content()
		at := content.Tail.End
		switch {
		case err != nil:
			err = fmt.Errorf("it is damaged: %w", err)
		case at > tail.End:
			err = fmt.Errorf("it needs the event log up to %d, which ends at %d: acknowledged writes are missing", at, tail.End)
		case at == 0:
			return snap, beyond, why, nil
		default:
			chain, ok := tail.Chain, true
			if at != tail.End {
				if chain, ok, err = log.ChainAt(at); err != nil {
					return nil, nil, nil, fmt.Errorf("compare %s with the event log: %w", snap.describe(), err)
				}
			}
			if ok && chain == content.Tail.Chain {
				return snap, beyond, why, nil
			}
			if !ok {
				return nil, nil, nil, fmt.Errorf("%w: %s ends at %d, where the event log has no end of a frame: it is another history",
					ErrStateLost, snap.describe(), at)
			}
			return nil, nil, nil, fmt.Errorf("%w: %s has the chain %s at %d, the event log %s: it is another history",
				ErrStateLost, snap.describe(), content.Tail.Chain, at, chain)
		}
		if beyond = append(beyond, snap); why == nil {
			why = err
		}
	}
	return &snapshot{}, beyond, why, nil
}

// SettlePulled forgets that data was fetched once the Raft log has caught up with
// it. Nothing may be fetched meanwhile.
func (s *State) SettlePulled(tail event.Tail) error {
	last, err := s.Logs.LastIndex()
	if err != nil {
		return err
	}
	if newest, _ := s.Snapshots.Newest(); tail.Index > newest {
		var entry raft.Log
		if tail.Index > last {
			return nil
		}
		switch err := s.Logs.read(tail.Index, &entry); {
		case err != nil && !errors.Is(err, raft.ErrLogNotFound):
			return err
		case err == nil && entry.Term != tail.Term: // of a deposed leader
			return nil
		}
	}
	return s.Unmark(PulledFile)
}

// checkTail refuses a Raft log that is older than the event log: entries appended to it would be
// skipped as already applied.
func (s *State) checkTail(tail event.Tail, base *snapshot, first, last uint64) error {
	pulled, err := s.pulled()
	if err != nil {
		return err
	}
	if end := max(last, base.meta.Index); tail.Index > end && !pulled {
		return fmt.Errorf("%w: the event log holds Raft entries up to %d, raft/ knows them up to %d only", ErrStateLost, tail.Index, end)
	}
	known := base.meta.Term
	if !pulled {
		known = max(known, tail.Term)
	}
	if current, err := s.Stable.GetUint64(keyCurrentTerm); err != nil || current < known {
		return errors.Join(err, fmt.Errorf("%w: the current term in raft/%s is %d, the event log has term %d",
			ErrStateLost, stableFile, current, known))
	}
	term := tail.Term
	switch {
	case tail.Index == 0:
	case tail.Index == base.meta.Index:
		term = base.meta.Term
	case first <= tail.Index && tail.Index <= last:
		var entry raft.Log
		err := s.Logs.read(tail.Index, &entry)
		if err != nil && !errors.Is(err, raft.ErrLogNotFound) {
			return err
		}
		// Entries of a deposed leader may be there while data are pulled. raft replaces them.
		if err == nil && !pulled {
			term = entry.Term
		}
	}
	if term != tail.Term {
		return fmt.Errorf("%w: the last frame of the event log is Raft entry %d of term %d, in raft/ that entry is of term %d",
			ErrStateLost, tail.Index, tail.Term, term)
	}
	return nil
}

// unreadableEntry is the error for an entry that a node needs. A read that fails loses nothing.
func unreadableEntry(index uint64, err error) error {
	err = fmt.Errorf("entry %d of the Raft log: %w", index, err)
	if errors.As(err, new(*fs.PathError)) {
		return fmt.Errorf("%w; if the disk refuses it at each start, and other nodes have the data, move %s/ away: the node joins again", err, Dir)
	}
	return fmt.Errorf("%w: %w", ErrStateLost, err)
}

// scan reads the entries that raft will replay, so that a missing one is an
// error rather than raft's panic, and returns the latest configuration.
func (s *State) scan(base *snapshot, last uint64) (raft.Configuration, error) {
	configuration := base.meta.Configuration
	var entry raft.Log
	for index := base.meta.Index + 1; index <= last; index++ {
		if err := s.Logs.read(index, &entry); err != nil {
			return configuration, unreadableEntry(index, err)
		}
		if entry.Type == raft.LogConfiguration {
			configuration = raft.DecodeConfiguration(entry.Data)
		}
	}
	return configuration, nil
}
