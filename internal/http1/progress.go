package http1

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A body or an answer that does not move leastMove bytes in stallTime ends. Only the time counts
// in which there is something to move: the time of a Read or a Write that has not returned. So a
// live tail at rest, a long poll and a subscription without events are not stalled.
//
// Nothing is armed for a Read or a Write: the server looks at all that are in progress at each
// tick, and gives one that is stalled a deadline in the past.
const (
	leastMove  = 4 << 10
	stallTime  = 30 * time.Second
	stallTicks = int64(stallTime / lookEvery)
	// is written at once to a client that took the piece before at once; it must take all of it
	quickMove = 64 << 10
	// likewise, where a piece that takes long is cut and its rest written in small ones
	cutMove = 4 << 20
)

// mover is one direction of a connection or stream. One goroutine moves, another looks.
type mover struct {
	since  atomic.Int64 // the tick at which it began to wait, plus one; 0: it does not
	waited atomic.Int64 // ticks that it waited since leastMove bytes were moved
	moved  int
}

func (m *mover) begin(tick int64) { m.since.Store(tick + 1) }

// end notes that so many bytes were moved. It reports whether that took no time.
func (m *mover) end(tick int64, n int) (quick bool) {
	took := tick + 1 - m.since.Swap(0)
	if m.moved += n; m.moved >= leastMove {
		m.rest()
	} else if took > 0 {
		m.waited.Add(took)
	}
	return took == 0
}

// rest is for when there is nothing to move, or enough has been.
func (m *mover) rest() {
	m.moved = 0
	m.waited.Store(0)
}

func (m *mover) isStalled(tick int64) bool {
	since := m.since.Load()
	return since != 0 && m.waited.Load()+tick+1-since > stallTicks
}

// writer writes in pieces, the next of which is as large as the client is quick.
type writer struct {
	mover
	tick   *atomic.Int64
	quick  bool
	resume func() error // lets it write again after a deadline; nil: it cannot
	large  atomic.Bool  // the piece is larger than leastMove
	cut    atomic.Bool  // look has set a deadline
}

// cutTicks is how long a large piece may take where the rest of it can be written in small ones,
// by which it is seen whether the client moves.
const cutTicks = 4

// isDue reports whether a write must get a deadline at a tick.
func (m *writer) isDue(tick int64) bool {
	if since := m.since.Load(); m.resume != nil && m.large.Load() {
		return since != 0 && tick+1-since > cutTicks
	}
	return m.isStalled(tick)
}

func (m *writer) write(w io.Writer, p []byte) (written int, err error) {
	for {
		piece := p[written:]
		most := leastMove
		if m.quick && m.resume != nil {
			most = cutMove
		} else if m.quick {
			most = quickMove
		}
		piece = piece[:min(len(piece), most)]
		large := len(piece) > leastMove
		m.large.Store(large)
		m.begin(m.tick.Load())
		n, err := w.Write(piece)
		m.quick = m.end(m.tick.Load(), n)
		written += n
		if cut := m.cut.Swap(false); cut && large && m.resume != nil && isTimeout(err) {
			err = m.resume()
		}
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// watched is a request that net/http serves, over HTTP/1 or HTTP/2.
type watched struct {
	http.ResponseWriter
	control *http.ResponseController
	out     writer
	in      mover
	tick    *atomic.Int64
	began   int64
	conn    net.Conn // of HTTP/1; else nil
	cancel  context.CancelFunc
	taken   atomic.Bool // all of the body was read

	mu   sync.Mutex // guards the fields below; held while a deadline is set
	over bool
}

// watch is around the handler of net/http.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	x := &watched{ResponseWriter: w, control: http.NewResponseController(w), tick: &s.tick, began: s.tick.Load(), cancel: cancel}
	x.out.tick = &s.tick
	if c, ok := ctx.Value(connKey{}).(net.Conn); ok && r.ProtoMajor == 1 {
		x.conn = c
	}
	r = r.WithContext(ctx)
	// net/http does not see it below.
	if c, ok := ctx.Value(connKey{}).(*sorted); ok && r.TLS == nil {
		r.TLS = c.tls
	}
	if x.taken.Store(r.Body == http.NoBody); r.Body != http.NoBody {
		r.Body = &watchedBody{r.Body, x}
	}
	s.requests.add(x)
	defer s.requests.remove(x)
	s.handler.ServeHTTP(x, r)
}

func (x *watched) Write(p []byte) (int, error) { return x.out.write(x.ResponseWriter, p) }

// Unwrap lets an http.ResponseController find what net/http gave.
func (x *watched) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// Flush is FlushError for those who do not ask.
func (x *watched) Flush() { _ = x.FlushError() }

// FlushError sends the bytes written so far.
func (x *watched) FlushError() error {
	x.out.begin(x.tick.Load())
	err := x.control.Flush()
	x.out.end(x.tick.Load(), 0)
	if err == nil {
		x.out.rest() // All is sent.
	}
	return err
}

// wants reports whether there is something to do at a tick.
func (x *watched) wants(tick int64) bool {
	return x.out.isStalled(tick) || x.in.isStalled(tick) || x.conn != nil && x.taken.Load() && isLookedFor(tick-x.began)
}

// look ends stalled connections, and the request of a client that has left. net/http waits for that
// by reading, but for no more than a byte: the first of the next request hides it.
func (x *watched) look(tick int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return
	}
	if x.out.isStalled(tick) {
		_ = x.control.SetWriteDeadline(past) // It fails only where writing fails as well.
	}
	if x.in.isStalled(tick) {
		_ = x.control.SetReadDeadline(past)
	}
	if x.conn != nil && x.taken.Load() && isLookedFor(tick-x.began) && hasLeft(x.conn) {
		x.cancel()
	}
}

// isLookedFor reports whether a client is looked for that began to wait so many ticks ago.
func isLookedFor(age int64) bool { return age > 1 && age%4 == 0 }

// watchedBody is the body of a request that net/http serves.
type watchedBody struct {
	io.ReadCloser
	x *watched
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.x.in.begin(b.x.tick.Load())
	n, err := b.ReadCloser.Read(p)
	b.x.in.end(b.x.tick.Load(), n)
	if err == io.EOF {
		b.x.taken.Store(true)
	}
	return n, err
}

// ReadAtRest is Read where the client need not send more, as between two messages of a call:
// it may wait for as long as the client likes.
func (b *watchedBody) ReadAtRest(p []byte) (int, error) {
	b.x.in.rest()
	return b.ReadCloser.Read(p)
}

// requests are those that net/http serves.
type requests struct {
	mu  sync.Mutex
	all map[*watched]struct{}
}

func (r *requests) add(x *watched) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[*watched]struct{}{}
	}
	r.all[x] = struct{}{}
}

func (r *requests) remove(x *watched) {
	r.mu.Lock()
	delete(r.all, x)
	r.mu.Unlock()
	x.mu.Lock()
	x.over = true
	x.mu.Unlock()
}

// look looks at all of them. A deadline may take a lock of the connection, so none is set under
// ours.
func (r *requests) look(tick int64) {
	r.mu.Lock()
	var some []*watched
	for x := range r.all {
		if x.wants(tick) {
			some = append(some, x)
		}
	}
	r.mu.Unlock()
	for _, x := range some {
		x.look(tick)
	}
}
