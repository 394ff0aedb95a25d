package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
)

const (
	// blockBytes is how many bytes of streams a row holds at most when it is written, unless
	// they are those of one stream. With its name it is less than a quarter of a page of 16
	// KiB: SQLite puts larger rows into chains of pages.
	blockBytes = 3800

	// blockMost is how far a block grows before it is written, as several rows.
	blockMost = 16 * blockBytes
)

var errBlock = errors.New("not a list of streams")

// entry is a stream in a block: the length of its name, the name, the length of
// the rest in one byte, the rest. It shares the memory of the block.
type entry struct {
	name []byte
	data []byte // as Stream.append made it
	size int    // of all
}

// parseEntry returns the entry that b begins with.
func parseEntry(b []byte) (e entry, err error) {
	length, n := binary.Uvarint(b)
	if n <= 0 || length >= uint64(len(b)-n) {
		return e, errBlock
	}
	at := n + int(length)
	e.name = b[n:at:at]
	e.size = at + 1 + int(b[at])
	if e.size > len(b) {
		return e, errBlock
	}
	e.data = b[at+1 : e.size : e.size]
	return e, nil
}

// appendEntry encodes a stream with its name. The rest is never longer than a byte tells.
func appendEntry(dst, name []byte, s *Stream) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(name)))
	dst = append(dst, name...)
	at := len(dst)
	dst = s.append(append(dst, 0))
	dst[at] = byte(len(dst) - at - 1)
	return dst
}

// eachEntry gives f all entries of a block.
func eachEntry(b []byte, f func(e *entry) error) error {
	for len(b) > 0 {
		e, err := parseEntry(b)
		if err != nil {
			return err
		}
		if err := f(&e); err != nil {
			return err
		}
		b = b[e.size:]
	}
	return nil
}

// block is the row of a transaction under work: all streams with names from the row's key
// (included) up to the key of the row that follows (excluded). The rows thus cover all names, but
// for those before the first: they have a block of the empty key, which need not be there.
//
// A transaction that goes through streams in the order of their names loads and
// stores each row once, whatever it does to how many streams in it.
type block struct {
	loaded bool
	dirty  bool
	stored bool   // there is such a row
	key    []byte // of the row
	above  []byte // key of the row that follows
	last   bool   // none follows
	data   []byte

	// The place of a search: all entries before it have lower names than sought.
	sought []byte
	at     int
}

func (b *block) covers(name []byte) bool {
	return b.loaded && bytes.Compare(name, b.key) >= 0 && (b.last || bytes.Compare(name, b.above) < 0)
}

// find moves the place to the first entry with a name that is not lower. If that
// is the one of the name it is returned, else an entry without size.
func (b *block) find(name []byte) (entry, error) {
	if bytes.Compare(name, b.sought) < 0 {
		b.at = 0
	}
	b.sought = append(b.sought[:0], name...)
	for b.at < len(b.data) {
		e, err := parseEntry(b.data[b.at:])
		if err != nil {
			return entry{}, err
		}
		switch bytes.Compare(e.name, name) {
		case 0:
			return e, nil
		case 1:
			return entry{}, nil
		}
		b.at += e.size
	}
	return entry{}, nil
}

// replace puts something else in the place of an entry at the place of the search.
func (b *block) replace(size int, by []byte) {
	b.data = slices.Replace(b.data, b.at, b.at+size, by...)
	b.dirty = true
}

// piece returns the first part of what is to be stored, in rows of about the same size.
func piece(rest []byte) ([]byte, error) {
	rows := (len(rest) + blockBytes - 1) / blockBytes
	if rows <= 1 {
		return rest, nil
	}
	size := 0
	for share := len(rest) / rows; size < share; {
		e, err := parseEntry(rest[size:])
		if err != nil {
			return nil, err
		}
		if size > 0 && size+e.size > blockBytes {
			break
		}
		size += e.size
	}
	return rest[:size], nil
}

// enter makes the block that covers a name the one under work.
func (tx *Tx) enter(name []byte) error {
	b := &tx.d.block
	if b.covers(name) {
		return nil
	}
	if err := tx.leave(); err != nil {
		return err
	}
	st := tx.d.st.row
	b.stored, b.last, b.key, b.data = false, true, b.key[:0], b.data[:0]
	err := rows(st, func() error {
		b.stored = true
		b.key = append(b.key, st.ColumnRawBlob(0)...)
		b.data = append(b.data, st.ColumnRawBlob(1)...)
		return nil
	}, name)
	if err != nil {
		return err
	}
	next := tx.d.st.nextKey
	err = rows(next, func() error {
		b.last = false
		b.above = append(b.above[:0], next.ColumnRawBlob(0)...)
		return nil
	}, name)
	b.loaded, b.dirty, b.at, b.sought = err == nil, false, 0, b.sought[:0]
	return err
}

// leave stores the block under work, if there is one.
func (tx *Tx) leave() error {
	b := &tx.d.block
	if !b.loaded || !b.dirty {
		b.loaded = false
		return nil
	}
	b.loaded = false
	if len(b.data) == 0 {
		if !b.stored {
			return nil
		}
		return run(tx.d.st.removeRow, b.key)
	}
	key := b.key
	for rest := b.data; len(rest) > 0; {
		part, err := piece(rest)
		if err != nil {
			return tx.d.damage(err)
		}
		if err := run(tx.d.st.putRow, key, part); err != nil {
			return err
		}
		if rest = rest[len(part):]; len(rest) > 0 {
			next, err := parseEntry(rest)
			if err != nil {
				return tx.d.damage(err)
			}
			key = next.name
		}
	}
	return nil
}
