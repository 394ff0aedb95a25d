package grpcapi

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/annalsdb/annals/event"
)

// frameHead is what stands before each message, in bytes: compressed (1) · length (4).
const frameHead = 5

// inflow counts the messages that a call has been sent and its method has not received, as their
// frames show them. A method waits for a message here, not in grpc-go, which would end the call in
// its own way if there is to be none.
type inflow struct {
	limits limits
	more   chan struct{} // capacity 1: something has come

	mu       sync.Mutex // guards the fields below
	head     [frameHead]byte
	headRead int
	last     [zipSize]byte // of what was read of the frame
	rest     int           // what the frame being read still lacks
	size     int           // what was read of it
	claimed  int           // bytes of the rest that are claimed before they come
	whole    []whole       // the messages that were read and not received
	first    int           // whole before first was received
	frames   int           // that were begun
	moved    int64         // bytes that were read, of all of them
	unread   int           // bytes of those that are whole
	due      bool          // those that are whole are to be received, though few
	news     bool          // the method may have to know
	ended    bool          // the client sends no more
	refused  *problem      // why no more is received
}

// whole is a message that was read.
type whole struct {
	size     int // on the wire
	zipped   bool
	unpacked int64 // when it is no longer compressed
}

// largeFrame is from how many bytes on a message is received as it comes, as the window of HTTP/2
// may not hold all of it.
const largeFrame = 64 << 10

// leastMessage is what a message counts at least, in bytes: it has an entry in whole.
const leastMessage = 64

// muchUnread is from how many bytes on messages are received that otherwise wait for the end of the
// call: to wake a method takes longer than to receive a message. A request that holds no more than
// that is a small one (api.SmallRequest).
const muchUnread = 12 << 10

var (
	problemBrokenOff = plain(codes.InvalidArgument, "unexpected EOF")
	problemFlag      = plain(codes.InvalidArgument, "grpc: the first byte before a message is neither 0 nor 1")
)

// refuse says why no more is received.
func (f *inflow) refuse(err error) {
	p, ok := errors.AsType[*problem](err)
	if !ok && errors.Is(err, event.ErrNoRoom) {
		p = problemNoRoom
	}
	f.mu.Lock()
	if f.refused == nil {
		f.refused = p
	}
	f.mu.Unlock()
	signal(f.more)
}

// refusal is why no more is received, nil if that is not so.
func (f *inflow) refusal() *problem {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refused
}

// isAtRest reports whether the client may take its time: it has sent whole messages.
func (f *inflow) isAtRest() (atRest bool, moved int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.limits.rests && f.headRead == 0, f.moved
}

// wait returns when the next message can be received without waiting, or none comes. Of a large one
// it returns how many bytes are still to come: that much is to be claimed.
func (f *inflow) wait(ctx context.Context) (rest int, err error) {
	for {
		rest, ready, err := f.ready()
		if ready || err != nil {
			return rest, err
		}
		select {
		case <-f.more:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (f *inflow) ready() (rest int, ready bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.refused != nil:
		return 0, false, f.refused
	case f.first < len(f.whole) && (f.ended || f.due || !f.limits.gathers):
		return 0, true, nil
	case f.ended && f.headRead > 0:
		return 0, false, problemBrokenOff
	case f.ended:
		return 0, true, nil
	case f.headRead == frameHead && f.size+f.rest > largeFrame:
		rest = f.rest - f.claimed
		f.claimed = f.rest
		return rest, true, nil
	}
	return 0, false, nil
}

// end notes that the client sends no more.
func (f *inflow) end() {
	f.mu.Lock()
	f.ended, f.news = true, true
	f.mu.Unlock()
}

// wake has the method look if there is something to look for.
func (f *inflow) wake() {
	f.mu.Lock()
	news := f.news
	f.news = false
	f.mu.Unlock()
	if news {
		signal(f.more)
	}
}

// press has the method receive what waits.
func (f *inflow) press() {
	f.mu.Lock()
	waits := f.limits.gathers && f.first < len(f.whole)
	f.due = f.due || waits
	f.mu.Unlock()
	if waits {
		signal(f.more)
	}
}

// note looks for messages in the data of a frame of HTTP/2, which takes so many bytes besides to
// hold. It returns how many bytes are not claimed yet.
func (f *inflow) note(p []byte, besides int) (unclaimed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moved += int64(len(p))
	f.size += besides
	unclaimed = besides
	for len(p) > 0 && f.refused == nil {
		if f.headRead < frameHead {
			n := copy(f.head[f.headRead:], p)
			unclaimed += n
			p, f.headRead, f.size = p[n:], f.headRead+n, f.size+n
			if f.headRead == frameHead {
				unclaimed += f.begin()
			}
			continue
		}
		n := min(f.rest, len(p))
		before := min(f.claimed, n)
		f.claimed -= before
		unclaimed += n - before
		f.keepLast(p[:n])
		p, f.rest, f.size = p[n:], f.rest-n, f.size+n
		if f.rest == 0 {
			unclaimed += f.complete()
		}
	}
	return unclaimed + len(p) // What follows a refusal is kept all the same.
}

// begin begins a message whose head is there. It returns what complete does.
func (f *inflow) begin() (besides int) {
	f.frames++
	f.rest = int(binary.BigEndian.Uint32(f.head[1:]))
	switch {
	case int64(f.rest) > f.limit():
		f.refused = largeMessage(f.limit())
	case f.head[0] > 1:
		f.refused = problemFlag
	case f.rest == 0:
		return f.complete()
	case f.size+f.rest <= largeFrame:
		return 0
	}
	f.due, f.news = true, true
	return 0
}

// complete notes that all of a message is there. It returns how many bytes it counts besides its
// own.
func (f *inflow) complete() (besides int) {
	besides = max(0, leastMessage-f.size)
	f.size += besides
	w := whole{size: f.size, zipped: f.head[0] == 1}
	if w.zipped {
		w.unpacked = unpackedSize(f.last[:], f.size)
		if w.unpacked > f.limit() {
			f.refused = largeMessage(f.limit())
		}
	}
	f.whole = append(f.whole, w)
	f.unread += w.size
	f.due = f.due || f.unread >= muchUnread
	f.news = f.news || f.due || f.refused != nil || !f.limits.gathers
	f.headRead, f.size, f.last = 0, 0, [zipSize]byte{}
	return besides
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

// next tells of the next message, after wait: whether there is one, and whether it is compressed.
func (f *inflow) next() (isThere, isZipped bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first < len(f.whole) {
		return true, f.whole[f.first].zipped
	}
	return f.headRead == frameHead, f.headRead == frameHead && f.head[0] == 1
}

// waiting is how many messages can be received at once.
func (f *inflow) waiting() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.whole) - f.first
}

// received notes that the method has the next message.
func (f *inflow) received() (w whole) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first < len(f.whole) {
		w = f.whole[f.first]
		f.first++
		f.unread -= w.size
	}
	if f.first == len(f.whole) {
		f.whole, f.first, f.due = f.whole[:0], 0, false
	}
	return w
}

// signal is for channels of capacity 1.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
