package grpcapi

import (
	"encoding/binary"
	"errors"
	"sync"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
)

// frameHead is what stands before each message, in bytes: compressed (1) · length (4).
const frameHead = 5

// inflow counts the messages that a call has been sent and its method has not received, as their
// frames show them.
type inflow struct {
	mu       sync.Mutex // guards the fields below
	limits   limits
	head     [frameHead]byte
	headRead int
	last     [zipSize]byte // of what was read of the frame
	rest     int           // what the frame being read still lacks
	size     int           // what was read of it
	whole    []whole       // the messages that were read and not received
	first    int           // whole before first was received
	frames   int           // that were begun
	moved    int64         // bytes that were read, of all of them
	refused  *problem      // why no more is received
}

// whole is a message that was read.
type whole struct {
	size     int   // on the wire
	unpacked int64 // when it is no longer compressed; 0: it is not compressed
}

// refuse says why no more is received.
func (f *inflow) refuse(err error) error {
	p, ok := errors.AsType[*problem](err)
	if !ok && errors.Is(err, event.ErrNoRoom) {
		p = problemNoRoom
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refused == nil {
		f.refused = p
	}
	return err
}

// refusal is why a message was not read, nil if that is not so.
func (f *inflow) refusal() *problem {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refused
}

// isAtRest reports whether the client may take its time: it has sent whole messages, all of which
// were received.
func (f *inflow) isAtRest() (atRest bool, moved int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.limits.rests && f.headRead == 0 && f.size == 0, f.moved
}

// note looks for messages in the data of a frame of HTTP/2, which takes so many bytes besides to
// hold. It returns how many bytes the compressed ones among those that are whole now will be.
func (f *inflow) note(p []byte, besides int) (unpacked int64, refused error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moved += int64(len(p))
	f.size += besides
	for len(p) > 0 {
		if f.headRead < frameHead {
			n := copy(f.head[f.headRead:], p)
			p, f.headRead, f.size = p[n:], f.headRead+n, f.size+n
			if f.headRead < frameHead {
				return unpacked, nil
			}
			f.rest = int(binary.BigEndian.Uint32(f.head[1:]))
			if f.frames++; int64(f.rest) > f.limit() {
				return 0, largeMessage(f.limit())
			}
		}
		n := min(f.rest, len(p))
		f.keepLast(p[:n])
		p, f.rest, f.size = p[n:], f.rest-n, f.size+n
		if f.rest > 0 {
			continue
		}
		w := whole{size: f.size}
		if f.head[0] != 0 {
			w.unpacked = unpackedSize(f.last[:], f.size)
			if w.unpacked > f.limit() {
				return 0, largeMessage(f.limit())
			}
		}
		f.whole = append(f.whole, w)
		unpacked += w.unpacked
		f.headRead, f.size = 0, 0
	}
	return unpacked, nil
}

// keepLast keeps the last bytes of a frame, of which p are the next.
func (f *inflow) keepLast(p []byte) {
	if len(p) < zipSize {
		copy(f.last[:], f.last[len(p):])
	}
	copy(f.last[max(0, zipSize-len(p)):], p[max(0, len(p)-zipSize):])
}

// limit is how many bytes the message being read may have.
func (f *inflow) limit() int64 {
	if f.frames == 1 {
		return f.limits.first
	}
	return f.limits.more
}

// received notes that the method has the next message, and gives back what it claimed.
func (f *inflow) received(claim *api.Claim) {
	f.mu.Lock()
	if f.first < len(f.whole) {
		w := f.whole[f.first]
		claim.Shrink(int64(w.size) + w.unpacked)
		f.first++
	}
	if f.first == len(f.whole) {
		f.whole, f.first = f.whole[:0], 0
	}
	f.mu.Unlock()
}

// signal is for channels of capacity 1.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
