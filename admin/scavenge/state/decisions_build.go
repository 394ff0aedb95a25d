package state

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/annalsdb/annals/internal/vfs"
)

// The parts of building decisions. Pairs of hash and place are spread by the
// highest bits of the hash; full blocks of a part go to a second temporary file.
const (
	decisionMagic = "annals decisions 1\n\x00\x00\x00\x00\x00"
	parts         = 256
	blockPairs    = 2048
	pairSize      = 16
	writeBuffer   = 256 << 10
)

type pair struct {
	hash  uint64
	place int64
}

// spill is the second temporary file.
type spill struct {
	fs     vfs.FS
	path   string
	file   vfs.File // nil until the first block is written
	size   int64
	blocks [parts][]int64 // where the blocks of each part begin
	rest   [parts][]pair  // of each part, what fills no block yet
	buffer []byte
}

func (s *spill) add(p pair) error {
	i := p.hash / (1 << 64 / parts)
	if s.rest[i] == nil {
		s.rest[i] = make([]pair, 0, 16)
	}
	s.rest[i] = append(s.rest[i], p)
	if len(s.rest[i]) < blockPairs {
		return nil
	}
	if s.file == nil {
		var err error
		if s.file, err = s.fs.Create(s.path); err != nil {
			return err
		}
		s.buffer = make([]byte, blockPairs*pairSize)
	}
	for j, p := range s.rest[i] {
		binary.LittleEndian.PutUint64(s.buffer[j*pairSize:], p.hash)
		binary.LittleEndian.PutUint64(s.buffer[j*pairSize+8:], uint64(p.place))
	}
	if _, err := s.file.WriteAt(s.buffer, s.size); err != nil {
		return err
	}
	s.blocks[i] = append(s.blocks[i], s.size)
	s.size += int64(len(s.buffer))
	s.rest[i] = s.rest[i][:0]
	return nil
}

// part returns the pairs of a part by rising hash, in dst if that is large enough.
func (s *spill) part(dst []pair, i int) ([]pair, error) {
	dst = append(slices.Grow(dst[:0], len(s.blocks[i])*blockPairs+len(s.rest[i])), s.rest[i]...)
	s.rest[i] = nil
	for _, at := range s.blocks[i] {
		if n, err := s.file.ReadAt(s.buffer, at); n < len(s.buffer) {
			return nil, fmt.Errorf("read %s: %w", s.path, err)
		}
		for j := range blockPairs {
			dst = append(dst, pair{
				hash:  binary.LittleEndian.Uint64(s.buffer[j*pairSize:]),
				place: int64(binary.LittleEndian.Uint64(s.buffer[j*pairSize+8:])),
			})
		}
	}
	slices.SortFunc(dst, func(a, b pair) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.place, b.place)) })
	return dst, nil
}

func (s *spill) close() error {
	if s.file == nil {
		return nil
	}
	return errors.Join(s.file.Close(), s.fs.Remove(s.path))
}

// Decisions writes down what has to go of which stream, as it is at this moment,
// in a temporary file that Decisions.Close removes: there is one at a time. Its memory does
// not grow with the number of streams, but for 1/128 of what it is on the disk.
func (d *DB) Decisions(ctx context.Context) (t *Decisions, err error) {
	err = d.query(ctx, "decisions", func() error {
		t, err = buildDecisions(ctx, d.o.FS, filepath.Join(d.o.Dir, "decisions"), d.hash, d.decided)
		return err
	})
	return t, err
}

// decided gives put all decisions.
func (d *DB) decided(put func(name []byte, decision Decision) error) error {
	meta := []byte("$$")
	var s Stream
	return d.walk(nil, func(e *entry) error {
		if err := s.decode(e.data); err != nil {
			return d.damage(err)
		}
		if s.Discard > 0 || s.Maybe > 0 {
			if err := put(e.name, Decision{Discard: max(s.Discard, 0), Maybe: max(s.Maybe, 0), Cutoff: s.Cutoff}); err != nil {
				return err
			}
		}
		if s.MetaDiscard > 0 {
			meta = append(meta[:2], e.name...)
			return put(meta, Decision{Discard: s.MetaDiscard})
		}
		return nil
	})
}

// buildDecisions builds decisions in the file base + tempSuffix. each gives them
// to put, which does not keep the name.
func buildDecisions(ctx context.Context, fsys vfs.FS, base string, hash func([]byte) uint64,
	each func(put func([]byte, Decision) error) error,
) (built *Decisions, err error) {
	t := &Decisions{hash: hash, fs: fsys, path: base + tempSuffix}
	f, err := t.fs.Create(t.path)
	if err != nil {
		return nil, err
	}
	pairs := &spill{fs: t.fs, path: base + "-hashes" + tempSuffix}
	defer func() {
		err = errors.Join(err, pairs.close(), f.Close())
		if err != nil {
			built, err = nil, errors.Join(err, t.Close())
		}
	}()
	out := bufio.NewWriterSize(io.NewOffsetWriter(f, 0), writeBuffer)
	size, err := t.writeRecords(out, pairs, each)
	if err != nil {
		return nil, err
	}
	if err := t.writeTable(ctx, out, size, pairs); err != nil {
		return nil, err
	}
	if err := out.Flush(); err != nil {
		return nil, err
	}
	if err := t.load(f); err != nil {
		return nil, err
	}
	return t, nil
}

// writeRecords writes the records in the order in which they come, collects where they are, and
// returns the bytes written.
func (t *Decisions) writeRecords(out *bufio.Writer, pairs *spill, each func(put func([]byte, Decision) error) error) (int64, error) {
	size, err := out.WriteString(decisionMagic)
	if err != nil {
		return 0, err
	}
	at := int64(size)
	var record []byte
	err = each(func(name []byte, decision Decision) error {
		record = appendRecord(record[:0], name, decision)
		if at+int64(len(record)) > placeMask {
			return fmt.Errorf("decisions of more than %d bytes", int64(placeMask))
		}
		if _, err := out.Write(record); err != nil {
			return err
		}
		t.n++
		place := at
		at += int64(len(record))
		return pairs.add(pair{hash: t.hash(name), place: place})
	})
	return at, err
}

// writeTable writes the slots after the records: twice as many as records, each record in the first
// free slot from its home on. As they come in the order of their hashes, the slots are written in
// order. After the last home come the overflow slots, and a free one at which any search ends.
func (t *Decisions) writeTable(ctx context.Context, out *bufio.Writer, size int64, pairs *spill) error {
	// A slot lies in one line of the cache.
	for ; size%64 != 0; size++ {
		if err := out.WriteByte(0); err != nil {
			return err
		}
	}
	t.records = size
	t.home = uint64(max(2*t.n, 1))
	var slot [slotSize]byte
	free := uint64(0) // slots before it are written
	put := func(v uint64) error {
		binary.LittleEndian.PutUint64(slot[:], v)
		_, err := out.Write(slot[:])
		free++
		return err
	}
	var part []pair
	for i := range parts {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if part, err = pairs.part(part, i); err != nil {
			return err
		}
		for _, p := range part {
			for home := slotOf(p.hash, t.home); free < home; {
				if err := put(0); err != nil {
					return err
				}
			}
			if err := put(slotFor(p.hash, p.place)); err != nil {
				return err
			}
		}
	}
	for last := max(free+1, t.home); free < last; {
		if err := put(0); err != nil {
			return err
		}
	}
	return nil
}

// load maps the file, or reads it where that is not possible.
func (t *Decisions) load(f vfs.File) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	t.mapping, err = f.Map(size)
	switch {
	case err == nil:
		t.data = t.mapping.Bytes()
	case errors.Is(err, vfs.ErrNotMappable):
		t.mapping = nil
		t.data = make([]byte, size)
		if n, err := f.ReadAt(t.data, 0); int64(n) < size {
			return errors.Join(err, io.ErrUnexpectedEOF)
		}
	default:
		return err
	}
	t.table = t.data[t.records:]
	return nil
}
