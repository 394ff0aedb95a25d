package grpcapi

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
)

// Bounds, in bytes, of data that a call has read from its client and its method has not received.
const (
	maxAhead   = 256 << 10 // beyond one message
	frameHead  = 5         // compressed (1) · length (4), before each message
	leastFrame = 64        // what a message counts at least
)

// inflow is the body of a call. It is read only as far as the method receives, so that HTTP/2 slows
// the client down: grpc-go above net/http reads whatever comes and keeps it.
//
// Messages are counted as their frames show them. The bytes that are read are claimed of the memory
// of all requests. So is the unpacked size of a compressed message, before grpc-go sees its end.
type inflow struct {
	io.ReadCloser
	more   chan struct{} // capacity 1: a message was received
	closed chan struct{}
	once   sync.Once

	mu       sync.Mutex // guards the fields below
	head     [frameHead]byte
	headRead int
	last     [zipSize]byte // of what was read of the frame
	rest     int           // what the frame being read still lacks
	size     int           // what was read of it
	whole    []whole       // the messages that were read and not received
	first    int           // whole before first was received
	bytes    int           // of all of these
	frames   int           // that were begun
	refused  *problem      // why no more is read

	// Of begin.
	ctx    context.Context
	limits limits
	claim  *api.Claim
}

// whole is a message that was read.
type whole struct {
	size     int   // on the wire
	unpacked int64 // when it is no longer compressed; 0: it is not compressed
}

func newInflow(body io.ReadCloser) *inflow {
	return &inflow{ReadCloser: body, more: make(chan struct{}, 1), closed: make(chan struct{})}
}

// begin says of which call it is the body.
func (f *inflow) begin(r *http.Request, claim *api.Claim) {
	f.ctx, f.limits, f.claim = r.Context(), limitsOf(r.URL.Path), claim
}

// Read waits while too much was read ahead.
func (f *inflow) Read(p []byte) (int, error) {
	if err := f.claim.Settle(f.ctx); err != nil {
		return 0, f.refuse(err)
	}
	for !f.admits() {
		select {
		case <-f.more:
		case <-f.closed:
			return 0, io.ErrClosedPipe
		}
	}
	n, err := f.read(p)
	f.claim.Add(int64(n))
	unpacked, refused := f.note(p[:n])
	if refused != nil {
		return 0, f.refuse(refused)
	}
	if err := f.claim.Grow(f.ctx, unpacked); err != nil {
		return 0, f.refuse(err)
	}
	return n, err
}

// read reads the body. Between two messages the client may rest, but not within an append.
func (f *inflow) read(p []byte) (int, error) {
	if body, ok := f.ReadCloser.(restful); ok && f.isAtRest() {
		return body.ReadAtRest(p)
	}
	return f.ReadCloser.Read(p)
}

func (f *inflow) isAtRest() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.limits.rests && f.headRead == 0
}

// refuse ends the reading for the client to know why.
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

// Close ends a Read that waits.
func (f *inflow) Close() error {
	f.once.Do(func() { close(f.closed) })
	return f.ReadCloser.Close()
}

// admits reports whether more may be read. The next message is always read, and so is the end of
// the body that follows it. A message that is too long is refused as soon as its head is there.
func (f *inflow) admits() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch len(f.whole) - f.first {
	case 0:
		return f.rest <= maxMessage
	case 1:
		return f.size == 0 || f.bytes+f.size < maxAhead
	}
	return f.bytes+f.size < maxAhead
}

// note looks for frames in the bytes that were read. It returns how many bytes the compressed ones
// among those that are whole now will be.
func (f *inflow) note(p []byte) (unpacked int64, refused error) {
	f.mu.Lock()
	defer f.mu.Unlock()
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
		w := whole{size: max(f.size, leastFrame)}
		if f.head[0] != 0 {
			w.unpacked = unpackedSize(f.last[:], f.size)
			if w.unpacked > f.limit() {
				return 0, largeMessage(f.limit())
			}
		}
		f.whole = append(f.whole, w)
		f.bytes += w.size
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

// received notes that the method has the next message.
func (f *inflow) received() {
	f.mu.Lock()
	if f.first < len(f.whole) {
		w := f.whole[f.first]
		f.bytes -= w.size
		f.claim.Shrink(int64(w.size) + w.unpacked)
		f.first++
	}
	if f.first == len(f.whole) {
		f.whole, f.first = f.whole[:0], 0
	}
	f.mu.Unlock()
	signal(f.more)
}

// signal is for channels of capacity 1.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
