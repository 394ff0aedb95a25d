package raftdisk

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/check"
)

// brittleVotes take so many writes more.
type brittleVotes struct {
	votes
	left int
}

var errBrittle = errors.New("the power is gone")

func (b *brittleVotes) Set(key, value []byte) error {
	if b.left--; b.left < 0 {
		return errBrittle
	}
	return b.votes.Set(key, value)
}

func (b *brittleVotes) SetUint64(key []byte, value uint64) error {
	if b.left--; b.left < 0 {
		return errBrittle
	}
	return b.votes.SetUint64(key, value)
}

// A vote is stored whole or not at all: a new term with the candidate of an older vote would be a
// vote that was never given, and raft gives it without a look at the candidate's log.
func TestVoteIsStoredWhole(t *testing.T) {
	stored := func(s raft.StableStore) (vote string, term uint64) {
		t.Helper()
		term, err := s.GetUint64(keyVoteTerm)
		if err != nil && err.Error() != "not found" {
			t.Fatal(err)
		}
		candidate, err := s.Get(keyVoteCandidate)
		if err != nil && err.Error() != "not found" {
			t.Fatal(err)
		}
		return string(candidate), term
	}
	give := func(s raft.StableStore, candidate string, term uint64) error { // as raft does
		if err := s.SetUint64(keyVoteTerm, term); err != nil {
			return err
		}
		return s.Set(keyVoteCandidate, []byte(candidate))
	}
	for _, c := range []struct {
		name   string
		before func(raft.StableStore) error // done by an earlier version
		writes int                          // that the disk takes of the next vote, "b" in term 7
		vote   string
		term   uint64
	}{
		{"first, none", nil, 0, "", 0},
		{"first, one write", nil, 1, "b", 7},
		{"first, all", nil, 2, "b", 7},
		{"after an old one, none", func(s raft.StableStore) error { return give(s, "a", 5) }, 0, "a", 5},
		{"after an old one, one write", func(s raft.StableStore) error { return give(s, "a", 5) }, 1, "b", 7},
		{"after an old one, all", func(s raft.StableStore) error { return give(s, "a", 5) }, 2, "b", 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			inner := &brittleVotes{votes: memoryLog{raft.NewInmemStore()}, left: 100}
			if c.before != nil {
				check.Must(t, c.before(inner))
			}
			inner.left = c.writes
			fail := &FailStop{OnFatal: func(error) {}}
			s := check.Value(newStable(inner, "memory", fail)).Must(t)
			if err := give(s, "b", 7); (err == nil) != (c.writes == 2) {
				t.Errorf("with %d writes: %v", c.writes, err)
			}
			again := check.Value(newStable(inner, "memory", fail)).Must(t)
			if vote, term := stored(again); vote != c.vote || term != c.term {
				t.Errorf("the vote is %q in term %d, want %q in %d", vote, term, c.vote, c.term)
			}
		})
	}

	// An earlier version ran in between, and its disk took the term of its next vote alone.
	inner := memoryLog{raft.NewInmemStore()}
	s := check.Value(newStable(inner, "memory", &FailStop{OnFatal: func(error) {}})).Must(t)
	check.Must(t, give(s, "b", 7))
	check.Must(t, inner.SetUint64(keyVoteTerm, 9))
	if candidate, err := s.Get(keyVoteCandidate); err != nil || candidate == nil || len(candidate) > 0 {
		t.Errorf("candidate %q, %v: no candidate may get a vote in that term", candidate, err)
	}
	if _, term := stored(s); term != 9 {
		t.Errorf("term %d", term)
	}
}
