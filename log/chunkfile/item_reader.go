package chunkfile

import (
	"fmt"

	"github.com/annalsdb/annals/internal/vfs"
)

// ReadWindow is how many bytes are read at a time where files cannot be mapped.
const ReadWindow = 1 << 20

// ItemReader reads the items of one chunk file from front to back. An item that
// it returned is good until the next call.
type ItemReader struct {
	C             *Chunk
	Offset, Limit int64  // of the next item; after the data
	window        []byte // where the file is not mapped: its bytes from base on
	base          int64
}

// Next returns the next item, checked, and its position; nil after the last one.
func (r *ItemReader) Next() (Item, int64, error) {
	if r.Offset >= r.Limit {
		return nil, 0, nil
	}
	c := r.C
	b, err := r.bytes()
	if err != nil {
		return nil, 0, err
	}
	it, err := ParseItem(b)
	if err != nil {
		return nil, 0, c.Corrupt(r.Offset, "%v", err)
	}
	position := it.Position()
	if !c.Header.Mapped {
		if it.IsStub() {
			return nil, 0, c.Corrupt(r.Offset, "a stub in a chunk as it was written")
		}
		if should := c.Start() + r.Offset - HeaderSize; position != should {
			return nil, 0, c.Corrupt(r.Offset, "a record of position %d stands where that of %d belongs", position, should)
		}
	}
	r.Offset += int64(len(it))
	return it, position, nil
}

// bytes returns what the file holds from the next item on, at least all of that item if it is
// whole.
func (r *ItemReader) bytes() ([]byte, error) {
	c := r.C
	if c.Mapped != nil {
		if r.Limit > int64(len(c.Mapped)) {
			return nil, c.Corrupt(r.Offset, "data reach beyond the file")
		}
		return c.Mapped[r.Offset:r.Limit], nil
	}
	have := r.window[min(r.Offset-r.base, int64(len(r.window))):]
	need := int64(RecordFixed)
	if len(have) >= 4 {
		need = max(need, int64(Order.Uint32(have)))
	}
	for need = min(need, r.Limit-r.Offset); int64(len(have)) < need; {
		n := min(max(need, ReadWindow), r.Limit-r.Offset)
		if int64(cap(r.window)) < n {
			r.window = make([]byte, n)
		}
		r.window, r.base = r.window[:n], r.Offset
		if err := vfs.ReadFull(c.File, r.window, r.Offset); err != nil {
			r.window = r.window[:0]
			return nil, fmt.Errorf("read %s at %d: %w", c.Name, r.Offset, err)
		}
		have = r.window
		need = min(max(need, int64(Order.Uint32(have))), r.Limit-r.Offset)
	}
	return have, nil
}
