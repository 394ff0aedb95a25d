package raftdisk

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/annalsdb/annals/internal/hang"
)

// StableStore holds votes and the current term. What raft stores in it is watched like entries.
type StableStore struct {
	votes
	path    string
	fail    *FailStop
	storing hang.Op

	voting uint64 // term of the vote that raft is about to store; only its own goroutine does

	rising sync.RWMutex  // held for writing while another term is stored, and by InTerm for reading
	term   atomic.Uint64 // as it is stored
}

// newStable makes the store on another that holds what there is.
func newStable(inner votes, path string, fail *FailStop) (*StableStore, error) {
	s := &StableStore{votes: inner, path: path, fail: fail, storing: hang.Op{Doing: "store vote or term", File: path}}
	term, err := inner.GetUint64(keyCurrentTerm)
	if err != nil {
		return nil, fmt.Errorf("read the term in %s: %w", path, err)
	}
	s.term.Store(term)
	return s, nil
}

// InTerm runs do if the stored term is this one, and has raft come to no other meanwhile. It
// reports whether it did. do may store the same term again.
func (s *StableStore) InTerm(term uint64, do func()) bool {
	s.rising.RLock()
	defer s.rising.RUnlock()
	if term != s.term.Load() {
		return false
	}
	do()
	return true
}

// A vote is two values for raft, the term first, and each is durable by itself. A crash between the
// two would leave a vote in the new term for the candidate of an older one: when that one asks
// again it gets the vote at once, whatever its log lacks. So the term is stored with the candidate,
// in one value, and then once more where earlier versions look for it.
const votePrefix = "\x00vote"

// vote returns what was stored last: the candidate and the term, as raft is to see them.
func (s *StableStore) vote() (candidate []byte, term uint64, err error) {
	if candidate, err = s.votes.Get(keyVoteCandidate); err != nil {
		return nil, 0, err
	}
	if term, err = s.votes.GetUint64(keyVoteTerm); err != nil && err.Error() != raftboltdb.ErrKeyNotFound.Error() {
		return nil, 0, err
	}
	rest, ok := bytes.CutPrefix(candidate, []byte(votePrefix))
	if !ok || len(rest) < 8 {
		return candidate, term, nil // of an earlier version
	}
	if own := le.Uint64(rest); own >= term {
		return rest[8:], own, nil
	}
	return []byte{}, term, nil // An earlier version was about to vote: it is not known for whom.
}

func (s *StableStore) Get(key []byte) ([]byte, error) {
	if !bytes.Equal(key, keyVoteCandidate) {
		return s.votes.Get(key)
	}
	candidate, _, err := s.vote()
	return candidate, err
}

func (s *StableStore) GetUint64(key []byte) (uint64, error) {
	if !bytes.Equal(key, keyVoteTerm) {
		return s.votes.GetUint64(key)
	}
	_, term, err := s.vote()
	return term, err
}

func (s *StableStore) Set(key, value []byte) error {
	defer s.fail.Disk.End(s.fail.Disk.Begin(&s.storing))
	if !bytes.Equal(key, keyVoteCandidate) {
		return s.write(func() error { return s.votes.Set(key, value) })
	}
	vote := append(le.AppendUint64([]byte(votePrefix), s.voting), value...)
	return s.write(func() error {
		if err := s.votes.Set(key, vote); err != nil {
			return err
		}
		return s.votes.SetUint64(keyVoteTerm, s.voting)
	})
}

// SetUint64 waits for what InTerm runs, if it changes the term.
func (s *StableStore) SetUint64(key []byte, value uint64) error {
	if bytes.Equal(key, keyVoteTerm) {
		s.voting = value // Set stores it.
		return s.fail.Check()
	}
	defer s.fail.Disk.End(s.fail.Disk.Begin(&s.storing))
	if !bytes.Equal(key, keyCurrentTerm) {
		return s.write(func() error { return s.votes.SetUint64(key, value) })
	}
	if value == s.term.Load() {
		return s.fail.Check()
	}
	s.rising.Lock()
	defer s.rising.Unlock()
	err := s.write(func() error { return s.votes.SetUint64(key, value) })
	if err == nil {
		s.term.Store(value)
	}
	return err
}

func (s *StableStore) write(do func() error) error {
	if err := s.fail.Check(); err != nil {
		return err
	}
	if err := do(); err != nil {
		return s.fail.Fail(fmt.Errorf("store vote or term in %s: %w", s.path, err))
	}
	return nil
}

func (s *StableStore) Close() error {
	if err := s.votes.Close(); err != nil {
		return fmt.Errorf("close %s: %w", s.path, err)
	}
	return nil
}
