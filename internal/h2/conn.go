package h2

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Options are how connections are served. They must not change.
type Options struct {
	// MaxStreams is how many streams a connection may have at a time, those included that have
	// ended and whose owner is not done. Our SETTINGS say so.
	MaxStreams int
	// StreamWindow is how many bytes of a stream the client may send ahead, as our SETTINGS say,
	// and ConnWindow those of the connection, of which Serve lets it know.
	StreamWindow, ConnWindow int
	// MaxHeaderBytes bounds the header of a request, as RFC 9113 counts it (6.5.2).
	MaxHeaderBytes int

	// IdleTimeout is after how long without a stream a connection ends. A client that has sent
	// nothing for PingAfter is pinged, and is gone if it sends nothing for PingTimeout after that.
	// 0: none of it happens.
	IdleTimeout, PingAfter, PingTimeout time.Duration

	// Open is called for each request, by the goroutine that reads the connection. It returns who
	// gets what follows, or nil after Refuse.
	Open func(*Stream) Receiver
}

// Receiver gets what a stream is sent. The goroutine that reads the connection calls it: a method
// that waits, waits for all streams.
type Receiver interface {
	// Data is called with the next bytes, which it must not keep.
	Data(p []byte)
	// End is called when the client will send no more.
	End()
	// Turn is called when nothing more has come for the moment, before the connection is read
	// again. It may wait for room until the context ends.
	Turn(ctx context.Context)
	// Gone is called once, when nothing more will come or be written.
	Gone()
}

// Bounds of bytes to be written.
const (
	// maxOut is from when on streams wait before they add data. A write has up to as much.
	maxOut = 64 << 10
	// mostOut is from when on headers wait, too: data never keeps them from being written.
	mostOut = 2 * maxOut
	// maxControl is how much frames that answer the client's may take: it has sent many of those
	// and read nothing.
	maxControl = 64 << 10
)

// errUnread is why a connection ends whose client reads nothing.
var errUnread = errors.New("h2: the client does not read the answers to its frames")

// Conn is a connection.
type Conn struct {
	o      *Options
	nc     net.Conn
	ctx    context.Context
	cancel context.CancelFunc
	owned  sync.WaitGroup // goroutines that write

	in     *source
	framer *http2.Framer // that reads
	turn   *Stream       // which was sent something, and has not had its turn
	// bytes that were received, and that the client does not know we have taken
	unacked int

	hasRead atomic.Bool // something, since Look was last called

	mu      sync.Mutex // guards the fields below, and the state of streams
	streams map[uint32]*Stream
	held    int    // streams whose owner is not done, or that are not gone
	last    uint32 // the highest stream that was begun
	leaving int    // how far the end of the connection is
	err     error  // why the connection has ended; nil: it has not

	out, spare []byte        // to be written; written and to be filled again
	control    int           // bytes of out that no stream waited to add
	writing    bool          // a goroutine writes
	writes     uint64        // that are complete
	written    chan struct{} // is closed when no goroutine writes; nil: none waits for that
	waiting    []*Stream     // until the connection takes data
	next       *Stream       // which was woken and has not looked; nil: there is none
	awaiting   []*Stream     // until out has room for a header

	window   int64 // bytes of data that the client takes at the moment
	initial  int64 // that a new stream may send
	maxFrame int   // bytes of payload that the client takes in one frame
	encoder  *hpack.Encoder
	block    bytes.Buffer // of the header being encoded

	// Of Look alone.
	seen     time.Time // when something was last read
	pinged   time.Time // zero: no ping is on its way
	idle     time.Time // since when it has had no stream; zero: it has one
	seenAt   uint64    // writes, as of the look before
	stalled  int       // looks in which no write was complete, though one was running
	isClosed bool
}

// How far the end of a connection is.
const (
	isServing = iota
	isWarned  // the client knows that the connection will end, and may have begun streams before
	isLast    // no new stream is taken
)

// New returns a connection that was accepted, and whose first bytes are the client's preface. Our
// SETTINGS have been sent on it.
func New(ctx context.Context, nc net.Conn, o *Options) *Conn {
	c := &Conn{o: o, nc: nc, streams: map[uint32]*Stream{}, window: firstWindow, initial: firstWindow, maxFrame: firstFrame}
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.in = &source{c: c}
	c.framer = http2.NewFramer(nil, c.in)
	c.framer.SetReuseFrames()
	c.framer.MaxHeaderListSize = uint32(o.MaxHeaderBytes)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(tableSize, nil)
	c.framer.SetMaxReadFrameSize(firstFrame)
	c.encoder = hpack.NewEncoder(&c.block)
	return c
}

// What holds before SETTINGS say otherwise (RFC 9113, 6.5.2), in bytes.
const (
	firstWindow = 64<<10 - 1
	firstFrame  = 16 << 10
	tableSize   = 4096
)

// Context ends with the connection.
func (c *Conn) Context() context.Context { return c.ctx }

// RemoteAddr is the client's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// Serve reads the connection until it ends. It returns why, and always closes it.
func (c *Conn) Serve() error {
	err := c.read()
	c.end(err)
	c.owned.Wait()
	return err
}

// Close ends the connection at once, and with it all streams.
func (c *Conn) Close() { c.end(net.ErrClosed) }

// end ends the connection. err is not nil.
func (c *Conn) end(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.cancel()
	if !c.isClosed {
		c.isClosed = true
		_ = c.nc.Close() // It ends either way.
	}
	all := make([]*Stream, 0, len(c.streams))
	for _, s := range c.streams {
		all = append(all, s)
		c.remove(s)
	}
	c.mu.Unlock()
	for _, s := range all {
		s.to.Gone()
	}
}

// Each calls f for the receivers of all streams.
func (c *Conn) Each(f func(Receiver)) {
	c.mu.Lock()
	all := make([]Receiver, 0, len(c.streams))
	for _, s := range c.streams {
		all = append(all, s.to)
	}
	c.mu.Unlock()
	for _, to := range all {
		f(to)
	}
}

// Shutdown has the client begin no more streams, and ends the connection after those that it has.
func (c *Conn) Shutdown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving != isServing || c.err != nil {
		return
	}
	c.leaving = isWarned
	// The client may have begun streams that are on their way: it gets time to hear of it.
	c.appendGoAway(1<<31-1, http2.ErrCodeNo)
	c.appendFrame(http2.FramePing, 0, 0, lastPing[:])
	c.writeSoon()
	time.AfterFunc(patience, c.lastCall)
}

// lastPing is what the ping carries after which no stream is taken.
var lastPing = [8]byte{'l', 'a', 's', 't'}

// patience is how long a client has to answer that ping, and to close the connection itself.
const patience = time.Second

// lastCall takes no more streams.
func (c *Conn) lastCall() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving != isWarned || c.err != nil {
		return
	}
	c.leaving = isLast
	c.appendGoAway(c.last, http2.ErrCodeNo)
	c.writeSoon()
	c.closeIfOver()
}

// closeIfOver ends a connection that takes no more streams and has none. The client has a while to
// close it: if we did, what it has not read could be lost.
func (c *Conn) closeIfOver() {
	if c.leaving == isLast && len(c.streams) == 0 && c.err == nil {
		time.AfterFunc(patience, c.Close)
	}
}

// Look ends the connection if its client does not answer, or if no write was complete in so many
// looks, and lets it go if it is idle. It is to be called again and again.
func (c *Conn) Look(now time.Time, most int) {
	c.mu.Lock()
	read := c.hasRead.Swap(false)
	if read || c.seen.IsZero() {
		c.seen, c.pinged = now, time.Time{}
	}
	if !c.writing && c.writes == c.seenAt && len(c.out) == 0 {
		c.out, c.spare = nil, nil // It may stay silent.
	}
	if !c.writing || c.writes != c.seenAt {
		c.seenAt, c.stalled = c.writes, 0
	} else {
		c.stalled++
	}
	switch {
	case len(c.streams) > 0:
		c.idle = time.Time{}
	case c.idle.IsZero():
		c.idle = now
	}
	isIdle := c.o.IdleTimeout > 0 && !c.idle.IsZero() && now.Sub(c.idle) >= c.o.IdleTimeout
	isGone := c.stalled > most
	if c.o.PingAfter > 0 && c.err == nil {
		switch {
		case !c.pinged.IsZero():
			isGone = isGone || now.Sub(c.pinged) >= c.o.PingTimeout
		case now.Sub(c.seen) >= c.o.PingAfter:
			c.pinged = now
			c.appendFrame(http2.FramePing, 0, 0, make([]byte, len(lastPing)))
			c.writeSoon()
		}
	}
	c.mu.Unlock()
	switch {
	case isGone:
		c.Close()
	case isIdle:
		c.Shutdown()
	}
}
