package fsm

import (
	"bytes"
	"hash/crc32"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/sabotage"
	eventlog "github.com/annalsdb/annals/log"
)

// dropEvery is how many Raft entries lie between two that sabotage.Drop loses.
const dropEvery = 500

// Where fields of a record stand that change with its position (the log's format).
const (
	recordPosition = 8
	recordFoot     = 8 // checksum and length behind the content
)

// applyAnywhere is apply with its promises broken; only a build for tests of tests gets here.
//
// Without the fence every entry is appended wherever the log ends, whatever it was decided on,
// and once more when it is replayed. With entries dropped one in dropEvery is passed over, and those
// behind it are appended where it would have been.
func (m *Machine) applyAnywhere(l *raft.Log) error {
	tail := m.log.Appended()
	e, err := parseEntry(l.Data)
	if err != nil {
		return err
	}
	if sabotage.On(sabotage.Drop) && (l.Index <= tail.Index || l.Index%dropEvery == 0) {
		return nil
	}
	f := eventlog.Frame{
		First: eventlog.Place(tail.End, len(e.records)), Records: e.records, Completes: e.completes,
		Index: max(l.Index, tail.Index+1), Term: max(l.Term, tail.Term),
	}
	if f.First != e.first {
		if f.Records = rebased(e.records, f.First); f.Records == nil {
			return event.ErrEntryRefused
		}
	}
	return m.log.Append(f)
}

// rebased returns a copy of records as they would lie at another position, nil if they are not whole.
func rebased(records []byte, first int64) []byte {
	b := bytes.Clone(records)
	for at := 0; at < len(b); {
		if len(b)-at < recordHead+recordFoot {
			return nil
		}
		size := int(order.Uint32(b[at:]))
		if size < recordHead+recordFoot || size > len(b)-at {
			return nil
		}
		r := b[at : at+size]
		order.PutUint64(r[recordPosition:], uint64(first)+uint64(at))
		order.PutUint32(r[size-recordFoot:], crc32.Checksum(r[:size-recordFoot], castagnoli))
		at += size
	}
	return b
}
