package h2

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"sync/atomic"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/annalsdb/annals/internal/bell"
)

// Stream is a request and its answer.
type Stream struct {
	conn   *Conn
	id     uint32
	fields []hpack.HeaderField
	to     Receiver
	room   chan struct{} // capacity 1: more may be written
	sent   atomic.Int64

	credit  atomic.Int64 // bytes that the client may send
	granted atomic.Int64 // that it does not know of

	// Guarded by mu of the connection.
	window   int64 // bytes that the client takes at the moment
	received bool  // the client sends no more
	begun    bool  // the header of the answer is on its way
	ended    bool  // nothing more is written
	done     bool  // the owner is done
	waits    bool  // it is among those that wait for the connection
	took     int   // bytes, since it last let the others go first
	awaits   bool  // it is among those that wait for room in out
}

func newStream(c *Conn, id uint32, fields []hpack.HeaderField) *Stream {
	s := &Stream{conn: c, id: id, fields: slices.Clone(fields), room: make(chan struct{}, 1)}
	s.credit.Store(int64(c.o.StreamWindow))
	return s
}

// Fields is the header of the request.
func (s *Stream) Fields() []hpack.HeaderField { return s.fields }

// Sent is how many bytes of data were written.
func (s *Stream) Sent() int64 { return s.sent.Load() }

// grantAt is how many bytes a WINDOW_UPDATE grants at least.
const grantAt = 64 << 10

// Grant lets the client send so many bytes more, as so many were taken. Of a message that is larger
// than the window they may be granted before.
func (s *Stream) Grant(bytes int) {
	if bytes <= 0 {
		return
	}
	if s.granted.Add(int64(bytes)) < int64(min(grantAt, s.conn.o.StreamWindow/4)) {
		return
	}
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	granted := s.granted.Swap(0)
	if s.received || s.ended || granted == 0 {
		return
	}
	s.credit.Add(granted)
	c.appendFrame(http2.FrameWindowUpdate, 0, s.id, binary.BigEndian.AppendUint32(nil, uint32(granted)))
	c.writeSoon()
}

// Write has data written, after the header of the answer if it is the first. It returns when all of
// it is on its way, which may take until the client takes some of it. Flush or End follows. The
// error is that of the context, or net.ErrClosed when the stream has ended.
func (s *Stream) Write(ctx context.Context, header []hpack.HeaderField, p []byte) error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.begun {
		if err := s.await(ctx); err != nil {
			return err
		}
		s.begun = true
		c.appendHeader(s.id, 0, header)
	}
	for len(p) > 0 {
		n := min(len(p), int(s.window), c.room())
		if n <= 0 || !s.isNext() {
			if err := s.wait(ctx); err != nil {
				return err
			}
			continue
		}
		if s.ended {
			return net.ErrClosed
		}
		s.window -= int64(n)
		c.window -= int64(n)
		for part := range slices.Chunk(p[:n], c.maxFrame) {
			c.appendHead(http2.FrameData, 0, s.id, len(part))
			c.out = append(c.out, part...)
		}
		s.sent.Add(int64(n))
		s.took += n
		p = p[n:]
		s.pass()
	}
	if s.ended {
		return net.ErrClosed
	}
	return nil
}

// isNext reports whether it is the stream's turn to take what the connection takes. Those that wait
// take turns.
func (s *Stream) isNext() bool {
	return s.conn.next == s || s.conn.next == nil && len(s.conn.waiting) == 0
}

// pass has the next stream take its turn, if this one had it.
func (s *Stream) pass() {
	if s.conn.next == s {
		s.conn.next = nil
	}
	s.conn.wakeWaiting()
}

// share is how many bytes a stream may take before it lets the others go first: the connection may
// take few at a time.
const share = 16 << 10

// wait waits until more may be written, with mu held before and after. What is there is written
// first.
func (s *Stream) wait(ctx context.Context) error {
	c := s.conn
	s.pass() // It could not use it.
	c.write()
	switch {
	case s.ended:
		s.leave()
		return net.ErrClosed
	case s.window > 0 && c.room() > 0 && s.isNext():
		return nil
	case s.window > 0 && !s.waits:
		s.waits = true
		if s.took > 0 && s.took < share {
			c.waiting = slices.Insert(c.waiting, 0, s)
		} else {
			s.took = 0
			c.waiting = append(c.waiting, s)
		}
		c.wakeWaiting()
	}
	c.mu.Unlock()
	var err error
	select {
	case <-s.room:
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.mu.Lock()
	if err != nil || s.ended {
		s.leave()
	}
	return err
}

// leave has the stream wait no more, and the next one take its turn.
func (s *Stream) leave() {
	if s.waits {
		s.waits = false
		s.conn.waiting = slices.DeleteFunc(s.conn.waiting, func(one *Stream) bool { return one == s })
	}
	s.pass()
}

// Flush has what was written go out now.
func (s *Stream) Flush() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.conn.write()
}

// End ends the answer: with a header alone if nothing was written, else with trailers. It waits
// while much is to be written on the connection. The error is net.ErrClosed if the stream has ended
// before.
func (s *Stream) End(header, trailers []hpack.HeaderField) error {
	c := s.conn
	c.mu.Lock()
	if err := s.await(context.Background()); err != nil {
		c.mu.Unlock()
		return err
	}
	if !s.begun {
		s.begun = true
		trailers = append(slices.Clip(header), trailers...)
	}
	c.appendHeader(s.id, http2.FlagHeadersEndStream, trailers)
	if !s.received { // The rest of the request is not needed (RFC 9113, 8.1).
		c.appendReset(s.id, http2.ErrCodeNo)
	}
	c.remove(s)
	c.write()
	c.mu.Unlock()
	s.to.Gone()
	return nil
}

// await waits until out has room for a header, with mu held before and after. The errors are those
// of Write.
func (s *Stream) await(ctx context.Context) error {
	c := s.conn
	for !s.ended && len(c.out) >= mostOut {
		if c.write(); len(c.out) < mostOut {
			continue
		}
		if !s.awaits {
			s.awaits = true
			c.awaiting = append(c.awaiting, s)
		}
		c.mu.Unlock()
		select {
		case <-s.room:
			c.mu.Lock()
		case <-ctx.Done():
			c.mu.Lock()
			return ctx.Err()
		}
	}
	if s.ended {
		return net.ErrClosed
	}
	return nil
}

// Refuse answers with a header alone. It is for Open, and does not wait.
func (s *Stream) Refuse(header []hpack.HeaderField) {
	c := s.conn
	c.mu.Lock()
	before := len(c.out)
	c.appendHeader(s.id, http2.FlagHeadersEndStream, header)
	if !s.received {
		c.appendReset(s.id, http2.ErrCodeNo)
	}
	c.control += len(c.out) - before
	c.mu.Unlock()
}

// Reset ends the stream at once.
func (s *Stream) Reset(code http2.ErrCode) {
	c := s.conn
	c.mu.Lock()
	if s.ended {
		c.mu.Unlock()
		return
	}
	c.appendReset(s.id, code)
	c.remove(s)
	c.writeSoon()
	c.mu.Unlock()
	s.to.Gone()
}

// Done notes that the owner is done with the stream: another may take its place when it has ended.
func (s *Stream) Done() {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.done {
		s.done = true
		if s.ended {
			c.held--
		}
	}
}

// remove ends a stream, with mu held. Gone of its receiver follows without it.
func (c *Conn) remove(s *Stream) {
	s.ended = true
	delete(c.streams, s.id)
	if s.done {
		c.held--
	}
	bell.Ring(s.room)
	c.closeIfOver()
}
