package grpcapi

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/bell"
)

// frameHead is what stands before each message, in bytes: compressed (1) · length (4).
const frameHead = 5

// inflow has the messages that a call has been sent and its method has not received.
type inflow struct {
	limits limits
	more   chan struct{} // capacity 1: something has come

	mu       sync.Mutex // guards the fields below
	head     [frameHead]byte
	headRead int
	rest     int     // what the message being read still lacks
	data     *[]byte // what was read of it; nil: nothing
	claimed  int     // bytes of the rest that are claimed before they come
	granted  bool    // the client may send as many bytes again, although it was not received
	whole    []whole // the messages that were read and not received
	first    int     // whole before first was received
	frames   int     // that were begun
	moved    int64   // bytes that were read, of all of them
	unread   int     // bytes of those that are whole
	due      bool    // those that are whole are to be received, though few
	news     bool    // the method may have to know
	ended    bool    // the client sends no more
	refused  *problem
}

// whole is a message that was read.
type whole struct {
	data     *[]byte // nil: it is empty
	size     int     // claimed
	granted  bool
	zipped   bool
	unpacked int64 // when it is no longer compressed
}

// wire is how many bytes it had on the wire.
func (w *whole) wire() int {
	if w.data == nil {
		return frameHead
	}
	return frameHead + len(*w.data)
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
	bell.Ring(f.more)
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

// wait returns when the next message is there or none comes. Of a large one it returns how many
// bytes are still to come: that much is to be claimed.
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
	case f.headRead == frameHead && !f.granted && f.size()+f.rest > largeFrame:
		return f.rest, true, nil
	}
	return 0, false, nil
}

// expect has the rest of the message being read come, which is claimed. It returns how many bytes
// the client may send for it, and how many have come and were claimed meanwhile.
func (f *inflow) expect(rest int) (grant, twice int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first < len(f.whole) { // All of it has come.
		return 0, rest
	}
	f.claimed, f.granted = f.rest, true
	return f.size() + f.rest, rest - f.rest
}

// size is what was read of the message, in bytes.
func (f *inflow) size() int {
	if f.data == nil {
		return f.headRead
	}
	return f.headRead + len(*f.data)
}

// end notes that the client sends no more.
func (f *inflow) end() {
	f.mu.Lock()
	f.ended, f.news = true, true
	f.mu.Unlock()
}

// hasNews reports whether the method has to look, once for each of the news.
func (f *inflow) hasNews() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	news := f.news
	f.news = false
	return news
}

// press has what waits be received. It reports whether there is something.
func (f *inflow) press() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	waits := f.limits.gathers && f.first < len(f.whole)
	f.due = f.due || waits
	return waits
}

// note takes what the client has sent next and claims it, as far as it is not claimed yet: before
// anyone can receive it and give the claim back. It returns how many bytes it has claimed.
func (f *inflow) note(p []byte, claim *api.Claim) (unclaimed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() { claim.Add(int64(unclaimed)) }()
	f.moved += int64(len(p))
	for len(p) > 0 && f.refused == nil {
		if f.headRead < frameHead {
			n := copy(f.head[f.headRead:], p)
			unclaimed += n
			p, f.headRead = p[n:], f.headRead+n
			if f.headRead == frameHead {
				unclaimed += f.begin()
			}
			continue
		}
		n := min(f.rest, len(p))
		before := min(f.claimed, n)
		f.claimed -= before
		unclaimed += n - before
		f.keep(p[:n])
		p, f.rest = p[n:], f.rest-n
		if f.rest == 0 {
			unclaimed += f.complete()
		}
	}
	return unclaimed
}

// keep keeps bytes of the message being read. It has memory for little more than has come, unless
// the rest is claimed.
func (f *inflow) keep(p []byte) {
	pool := mem.DefaultBufferPool()
	had := 0
	if f.data != nil {
		had = len(*f.data)
	}
	if needs := had + len(p); f.data == nil || needs > cap(*f.data) {
		room := had + f.rest
		if !f.granted {
			room = min(room, max(leastRoom, 2*needs))
		}
		to := pool.Get(room)
		*to = (*to)[:had]
		if f.data != nil {
			copy(*to, *f.data)
			pool.Put(f.data)
		}
		f.data = to
	}
	*f.data = append(*f.data, p...)
}

// leastRoom is how much memory a message gets at least, unless it is shorter, in bytes.
const leastRoom = 1 << 10

// begin begins a message whose head is there. It returns what complete does.
func (f *inflow) begin() (besides int) {
	f.frames++
	size := binary.BigEndian.Uint32(f.head[1:])
	f.rest, f.data, f.granted, f.claimed = int(size), nil, false, 0
	switch {
	case int64(size) > f.limit():
		f.refused = largeMessage(f.limit())
	case f.head[0] > 1:
		f.refused = problemFlag
	case size == 0:
		return f.complete()
	case frameHead+f.rest <= largeFrame:
		return 0
	}
	f.due, f.news = true, true
	return 0
}

// complete notes that all of a message is there. It returns how many bytes it counts besides its
// own.
func (f *inflow) complete() (besides int) {
	besides = max(0, leastMessage-f.size())
	w := whole{data: f.data, size: f.size() + besides, granted: f.granted, zipped: f.head[0] == 1}
	if w.zipped && w.wire() >= frameHead+zipSize {
		w.unpacked = unpackedSize(*w.data)
		if w.unpacked > f.limit() {
			f.refused = largeMessage(f.limit())
		}
	}
	if f.first > len(f.whole)/2 { // They would grow for ever if some are always left.
		f.whole, f.first = slices.Delete(f.whole, 0, f.first), 0
	}
	f.whole = append(f.whole, w)
	f.unread += w.size
	f.due = f.due || f.granted || f.unread >= muchUnread
	f.news = f.news || f.due || f.refused != nil || !f.limits.gathers
	f.headRead, f.data = 0, nil
	return besides
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

// receive takes the next message, if there is one.
func (f *inflow) receive() (w whole, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ok = f.first < len(f.whole); ok {
		w = f.whole[f.first]
		f.whole[f.first] = whole{}
		f.first++
		f.unread -= w.size
	}
	if f.first == len(f.whole) {
		f.whole, f.first, f.due = f.whole[:0], 0, false
	}
	return w, ok
}
