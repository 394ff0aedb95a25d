package grpcapi

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// Bounds of what a call has read of its client and its method has not received, in bytes.
const (
	maxAhead   = 256 << 10 // beyond one message
	frameHead  = 5         // compressed (1) · length (4), before each message
	leastFrame = 64        // what a message counts at least
)

// inflow is the body of a call. What its method does not receive it does not read, so that
// HTTP/2 slows the client down: grpc-go behind net/http reads whatever comes and keeps it.
//
// Messages are counted as their frames show them, compressed or not.
type inflow struct {
	io.ReadCloser
	more   chan struct{} // capacity 1: a message was received
	closed chan struct{}
	once   sync.Once

	mu       sync.Mutex // guards what follows
	head     [frameHead]byte
	headRead int
	rest     int   // what the frame being read still lacks
	size     int   // what was read of it
	whole    []int // sizes of the messages that were read and not received
	first    int   // whole before first was received
	bytes    int   // of all of these
}

func newInflow(body io.ReadCloser) *inflow {
	return &inflow{ReadCloser: body, more: make(chan struct{}, 1), closed: make(chan struct{})}
}

// Read waits while too much was read ahead.
func (f *inflow) Read(p []byte) (int, error) {
	for !f.admits() {
		select {
		case <-f.more:
		case <-f.closed:
			return 0, io.ErrClosedPipe
		}
	}
	n, err := f.ReadCloser.Read(p)
	f.note(p[:n])
	return n, err
}

// Close ends a Read that waits.
func (f *inflow) Close() error {
	f.once.Do(func() { close(f.closed) })
	return f.ReadCloser.Close()
}

// admits reports whether more may be read. The message that is received next is always read, and the end
// of the body behind it is always found; one that is too long is refused as soon as its head is there.
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

// note looks for the frames in what was read.
func (f *inflow) note(p []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(p) > 0 {
		if f.headRead < frameHead {
			n := copy(f.head[f.headRead:], p)
			p, f.headRead, f.size = p[n:], f.headRead+n, f.size+n
			if f.headRead < frameHead {
				return
			}
			f.rest = int(binary.BigEndian.Uint32(f.head[1:]))
		}
		n := min(f.rest, len(p))
		p, f.rest, f.size = p[n:], f.rest-n, f.size+n
		if f.rest == 0 {
			size := max(f.size, leastFrame)
			f.whole = append(f.whole, size)
			f.bytes += size
			f.headRead, f.size = 0, 0
		}
	}
}

// received notes that the method has the next message.
func (f *inflow) received() {
	f.mu.Lock()
	if f.first < len(f.whole) {
		f.bytes -= f.whole[f.first]
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

// receiver is a stream that notes what its method receives.
type receiver struct {
	grpc.ServerStream
	call *call
}

func (r *receiver) RecvMsg(m any) error {
	err := r.ServerStream.RecvMsg(m)
	switch {
	case err == nil:
		r.call.in.received()
	case status.Code(err) == codes.Internal:
		r.call.unread.Store(true)
	}
	return err
}

// Bounds that a message of a batch is held to before it is decoded: empty events would take sixty times the
// memory that they have on the wire, and compressed they have next to none.
const (
	fewBytes   = 64 << 10 // are decoded whatever they are
	leastEvent = 32       // bytes of an event that has all it must have
)

var errCrowded = errors.New("it has more events than can be in so few bytes")

// Unmarshal decodes a message.
func (c framing) Unmarshal(data mem.BufferSlice, v any) error {
	if _, ok := v.(*streams.BatchAppendReq); ok && data.Len() > fewBytes {
		whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer whole.Free()
		if isCrowded(whole.ReadOnlyData()) {
			return errCrowded
		}
		data = mem.BufferSlice{whole}
	}
	return c.CodecV2.Unmarshal(data, v)
}

// isCrowded reports whether a message of a batch has more events than can be real. What is not well formed is found when
// it is decoded.
func isCrowded(message []byte) bool {
	events := 0
	for rest := message; len(rest) > 0; {
		field, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			return false
		}
		if field == fieldProposed {
			events++
		}
		rest = rest[n:]
	}
	return events*leastEvent > len(message)
}

// fieldProposed is the number of a batch's events. It is part of the wire contract: do not change.
const fieldProposed = 3
