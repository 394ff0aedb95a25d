package eventlog

import (
	"bytes"
	"fmt"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// lookup finds records by way of the index, whatever metadata hide. An entry of the index is never
// believed by itself: a record is found when its own name and number are those that were asked for.
// An entry that names another event, and not merely a stream of the same hash, is damage, and known
// as such before the caller learns of it.
type lookup struct{ *state }

// PositionOf returns the position of an ordinary event, whether or not reads of the stream
// show it; -1 when it was removed, or never was.
func (lk lookup) PositionOf(stream string, number int64) (position int64, err error) {
	position = -1
	err = lk.read(func(v view) error {
		it, at, err := lk.certainRecordOf(v, stream, number, new([]byte))
		if it != nil {
			position = at
		}
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("position of event %d of stream %q: %w", number, stream, err)
	}
	return position, nil
}

func (lk lookup) idAt(stream string, number int64) (id event.ID, ok bool, err error) {
	err = lk.read(func(v view) error {
		it, _, err := lk.certainRecordOf(v, stream, number, new([]byte))
		if ok = it != nil; ok {
			id = it.Id()
		}
		return err
	})
	return id, ok, err
}

// recordOf finds the record of an event by way of the index, nil when it is not there.
func (lk lookup) recordOf(v view, stream string, number int64, scratch *[]byte) (chunkfile.Item, int64, error) {
	var buf [4]index.Entry
	found, err := lk.index.Get(buf[:0], chunkfile.HashStream(stream), number)
	if err != nil {
		return nil, 0, err
	}
	return lk.firstOf(v, found, stream, scratch)
}

// certainRecordOf is recordOf for decisions: the index is compared with its checksums.
func (lk lookup) certainRecordOf(v view, stream string, number int64, scratch *[]byte) (chunkfile.Item, int64, error) {
	var buf [4]index.Entry
	found, err := index.GetCertain(lk.index, buf[:0], chunkfile.HashStream(stream), number)
	if err != nil {
		return nil, 0, err
	}
	return lk.firstOf(v, found, stream, scratch)
}

func (lk lookup) firstOf(v view, found []index.Entry, stream string, scratch *[]byte) (chunkfile.Item, int64, error) {
	for _, e := range found {
		it, err := lk.confirm(v, e, stream, scratch)
		if err != nil || it != nil {
			return it, e.Position, err
		}
	}
	return nil, 0, nil
}

// confirm reads the record that an index entry names. It returns nil when the
// record is not visible yet, is gone, or belongs to another stream of the same hash.
func (lk lookup) confirm(v view, e index.Entry, stream string, scratch *[]byte) (chunkfile.Item, error) {
	if e.Position >= v.tail.End {
		return nil, nil
	}
	it, err := v.itemAt(e.Position, scratch)
	if err != nil || it == nil {
		return nil, err
	}
	same := it.IsRecord() && it.Number() == e.Number
	if same && bytes.Equal(it.Stream(), []byte(stream)) {
		return it, nil
	}
	if !same || it.StreamHash() != e.Hash {
		err := &event.Corruption{File: "index", Offset: -1, Detail: fmt.Sprintf("event %d of the stream with hash %x is said to be at position %d, where there is another", e.Number, e.Hash, e.Position)}
		lk.damages.suspectIndex(err)
		return nil, err
	}
	lk.metrics.collisions.Add(1)
	return nil, nil
}
