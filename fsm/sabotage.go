//go:build sabotage

package fsm

import (
	"bytes"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
)

// dropEvery is how many Raft entries lie between two that are lost.
const dropEvery = 100

// Sabotage returns a machine that breaks its promises, to show that tests notice.
//
// It appends every entry wherever the log ends, whatever the entry was decided on, and once more
// when it is replayed. With drop it skips one in dropEvery, and the later ones are appended in its
// place.
func Sabotage(m *Machine, drop bool) raft.BatchingFSM { return saboteur{m, drop} }

type saboteur struct {
	*Machine
	drop bool
}

func (s saboteur) Apply(l *raft.Log) any { return s.ApplyBatch([]*raft.Log{l})[0] }

func (s saboteur) ApplyBatch(logs []*raft.Log) []any {
	answers := make([]any, len(logs))
	for i, l := range logs {
		if l.Type != raft.LogCommand {
			continue
		}
		moved, err := s.moved(l)
		if err != nil {
			answers[i] = err
		} else if moved != nil {
			answers[i] = s.Machine.Apply(moved)
		}
	}
	return answers
}

// moved returns an entry as if it had been decided on the end of the log; nil if it is dropped.
func (s saboteur) moved(l *raft.Log) (*raft.Log, error) {
	tail := s.log.Appended()
	e, err := parseEntry(l.Data)
	if err != nil || s.drop && (l.Index <= tail.Index || l.Index%dropEvery == 0) {
		return nil, err
	}
	e.end, e.chain, e.applied = tail.End, tail.Chain, 0
	if first := chunkfile.Place(tail.End, len(e.records)); first != e.first {
		if e.first, e.records = first, rebased(e.records, first); e.records == nil {
			return nil, event.ErrEntryRefused
		}
	}
	b := append(make([]byte, entryHead), e.records...)
	e.seal(b)
	return &raft.Log{Type: l.Type, Data: b, Index: max(l.Index, tail.Index+1), Term: max(l.Term, tail.Term)}, nil
}

// rebased returns a copy of records as they would lie at another position, nil if they are not
// whole.
func rebased(records []byte, first int64) []byte {
	b := bytes.Clone(records)
	for at := 0; at < len(b); {
		it, err := chunkfile.ParseItem(b[at:])
		if err != nil {
			return nil
		}
		at += len(it)
		order.PutUint64(it[8:], uint64(first)+uint64(at-len(it)))
		chunkfile.CloseItem(it[:len(it)-chunkfile.ItemFoot], 0, len(it))
	}
	return b
}
