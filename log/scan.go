package eventlog

import (
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
)

// scanResult is what scanFrames found valid in a chunk.
type scanResult struct {
	tail          event.Tail // End is behind the last valid frame
	size          int64      // bytes of valid data
	frames        int
	records       int
	first         uint64 // Raft index of the first frame
	epoch         int64  // where the newest term begins, -1 when not here
	lastCompletes bool
	cut           bool // ended by truncate.chk, not by what the data are
	why           error
}

// errStubInFrame: frames are as they were written, or are no frames.
var errStubInFrame = errors.New("a stub stands in a frame")

// scanFrames reads frames from data, which lies at the position start, for as
// long as they are valid and follow what is before them. No frame behind limit is taken, if limit is not negative.
// told is called with the bytes read so far, once in a while.
func scanFrames(data []byte, start int64, before event.Tail, limit int64, told func(read int64)) scanResult {
	r := scanResult{tail: before, epoch: -1}
	frame, records, tell := 0, 0, 0
	for at := 0; ; {
		if at >= tell {
			told(int64(at))
			tell = at + 1<<20
		}
		it, err := parseItem(data[at:])
		if err == nil && it.position() != start+int64(at) {
			err = fmt.Errorf("position %d stands where %d belongs", it.position(), start+int64(at))
		}
		if err == nil && it.isStub() {
			err = errStubInFrame
		}
		if err != nil {
			r.why = err
			return r
		}
		at += len(it)
		if it.isRecord() {
			records++
			continue
		}
		t := it.trailer()
		body := data[frame : at-trailerSize]
		switch {
		case t.length != len(body) || t.length == 0:
			err = errors.New("length of the frame does not match")
		case t.index <= r.tail.Index || t.term < r.tail.Term || t.time < r.tail.Time:
			err = fmt.Errorf("index %d or term %d does not follow %d and %d", t.index, t.term, r.tail.Index, r.tail.Term)
		case t.chain != NextChain(r.tail.Chain, t.first, body):
			err = errors.New("chain does not match")
		}
		if err != nil {
			r.why = err
			return r
		}
		if limit >= 0 && t.end() > limit {
			r.cut = true
			return r
		}
		if t.term > r.tail.Term {
			r.epoch = t.first
		}
		if r.first == 0 {
			r.first = t.index
		}
		r.tail = event.Tail{End: t.end(), Chain: t.chain, Index: t.index, Term: t.term, Time: t.time}
		r.size, r.lastCompletes = int64(at), t.completes
		r.frames++
		r.records += records
		frame, records = at, 0
		if t.completes {
			return r
		}
	}
}

// wholeFile returns the first size bytes of a file, mapped if that can be.
func wholeFile(f vfs.File, size int64) (data []byte, release func() error, err error) {
	m, err := f.Map(size)
	if err == nil {
		return m.Bytes(), m.Close, nil
	}
	if !errors.Is(err, vfs.ErrNotMappable) {
		return nil, nil, err
	}
	data = make([]byte, size)
	if err := readFull(f, data, 0); err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return data, func() error { return nil }, nil
}

func hashFile(sum *xxh3.Hasher, file vfs.File, size int64) error {
	buf := make([]byte, 1<<20)
	for at := int64(0); at < size; {
		n := min(int64(len(buf)), size-at)
		if err := readFull(file, buf[:n], at); err != nil {
			return err
		}
		if _, err := sum.Write(buf[:n]); err != nil {
			return err
		}
		at += n
	}
	return nil
}
