package h2

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"golang.org/x/net/http2"

	"github.com/annalsdb/annals/internal/bell"
)

// Sizes of the buffer that a connection is read into, in bytes. One that a read fills grows.
const (
	leastBuffer = 4 << 10
	mostBuffer  = 32 << 10
)

// source reads the connection, and tells it before it waits.
type source struct {
	c        *Conn
	buf      []byte
	from, to int // what of buf is there and was not read
}

func (s *source) Read(p []byte) (int, error) {
	if s.from == s.to {
		s.c.rest()
		if s.to == len(s.buf) && len(s.buf) < mostBuffer {
			s.buf = make([]byte, max(leastBuffer, 2*len(s.buf)))
		}
		n, err := s.c.nc.Read(s.buf)
		s.from, s.to = 0, n
		if n == 0 {
			return 0, cmp.Or(err, io.ErrNoProgress)
		}
		s.c.hasRead.Store(true)
	}
	n := copy(p, s.buf[s.from:s.to])
	s.from += n
	return n, nil
}

// rest is called when all that has come was handed on.
func (c *Conn) rest() {
	c.turnTo(nil)
	c.mu.Lock()
	c.acknowledge()
	c.writeSoon()
	c.mu.Unlock()
}

// turnTo gives the stream its turn that was sent something last, if that is another one.
func (c *Conn) turnTo(s *Stream) {
	if before := c.turn; before != s && before != nil {
		c.turn = nil
		before.to.Turn(c.ctx)
	}
	c.turn = s
}

// read reads frames until the connection ends. The error is never nil.
func (c *Conn) read() error {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c.in, preface); err != nil {
		return fmt.Errorf("read the preface: %w", err)
	}
	if string(preface) != http2.ClientPreface {
		return errors.New("h2: the client does not speak HTTP/2")
	}
	c.mu.Lock()
	c.unacked = c.o.ConnWindow - firstWindow
	c.mu.Unlock()
	isFirst := true
	for {
		f, err := c.framer.ReadFrame()
		if _, ok := f.(*http2.SettingsFrame); isFirst && err == nil && !ok {
			err = http2.ConnectionError(http2.ErrCodeProtocol) // RFC 9113, 3.4.
		}
		isFirst = false
		if err == nil {
			err = c.take(f)
		}
		if stream, ok := errors.AsType[http2.StreamError](err); ok {
			c.refuse(stream)
			err = nil
		}
		if err != nil {
			return c.leave(err)
		}
		c.mu.Lock()
		floods := c.control > maxControl
		c.mu.Unlock()
		if floods {
			return errUnread
		}
	}
}

// leave tells the client why the connection ends, if it has made a mistake. It does not wait long
// for that.
func (c *Conn) leave(err error) error {
	code := http2.ErrCodeNo
	if mistake, ok := errors.AsType[http2.ConnectionError](err); ok {
		code = http2.ErrCode(mistake)
	} else if errors.Is(err, http2.ErrFrameTooLarge) {
		code = http2.ErrCodeFrameSize
	}
	if code == http2.ErrCodeNo {
		return err
	}
	c.turnTo(nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.appendGoAway(c.last, code)
	if c.nc.SetWriteDeadline(time.Now().Add(patience)) != nil {
		return err
	}
	c.write()
	for c.writing { // Another goroutine writes it.
		written := make(chan struct{})
		c.written = written
		c.mu.Unlock()
		<-written
		c.mu.Lock()
	}
	return err
}

// refuse resets a stream of which a frame was wrong.
func (c *Conn) refuse(e http2.StreamError) {
	c.mu.Lock()
	s := c.streams[e.StreamID]
	if s == nil {
		// The header of a new stream was wrong, or the stream has ended.
		c.last = max(c.last, e.StreamID)
		c.appendReset(e.StreamID, e.Code)
	}
	c.mu.Unlock()
	if s != nil {
		s.Reset(e.Code)
	}
}

// take takes a frame. http2.Framer has checked its form.
func (c *Conn) take(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.DataFrame:
		return c.data(f)
	case *http2.MetaHeadersFrame:
		return c.header(f)
	case *http2.RSTStreamFrame:
		return c.reset(f)
	case *http2.SettingsFrame:
		return c.settings(f)
	case *http2.PingFrame:
		return c.ping(f)
	case *http2.WindowUpdateFrame:
		return c.windowUpdate(f)
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case *http2.GoAwayFrame:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.leaving != isLast {
			c.leaving = isLast
			c.closeIfOver()
		}
	} // Others are ignored (RFC 9113, 5.5).
	return nil
}

// data takes data of a stream. What comes for one that has ended counts for the connection alone.
func (c *Conn) data(f *http2.DataFrame) error {
	size, data := int(f.Header().Length), f.Data()
	c.mu.Lock()
	s := c.streams[f.StreamID]
	isIdle := c.isIdle(f.StreamID)
	ended := s == nil || s.received
	c.unacked += size
	tooMuch := c.unacked > c.o.ConnWindow
	c.mu.Unlock()
	switch {
	case tooMuch:
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	case isIdle:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case ended && s != nil:
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeStreamClosed}
	case ended:
		return nil
	}
	c.turnTo(s)
	if s.credit.Add(-int64(size)) < 0 {
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeFlowControl}
	}
	s.Grant(size - len(data)) // Padding is not kept.
	if len(data) > 0 {
		s.to.Data(data)
	}
	if f.StreamEnded() {
		c.ended(s)
	}
	return nil
}

// isIdle reports whether a stream was not begun. Those with even numbers would be ours.
func (c *Conn) isIdle(stream uint32) bool { return stream > c.last || stream%2 == 0 }

// ended notes that the client sends no more on a stream.
func (c *Conn) ended(s *Stream) {
	c.mu.Lock()
	s.received = true
	c.mu.Unlock()
	s.to.End()
}

// header takes the header of a new stream, or the trailers of one.
func (c *Conn) header(f *http2.MetaHeadersFrame) error {
	id := f.StreamID
	c.mu.Lock()
	s, isNew, isTrailers := c.streams[id], id > c.last, len(f.PseudoFields()) == 0
	if isNew {
		c.last = id
	}
	refused := isNew && (c.held >= c.o.MaxStreams || c.leaving == isLast)
	c.mu.Unlock()
	switch {
	case id%2 == 0:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case !isNew && s == nil && isTrailers: // Of a stream that has ended.
		return nil
	case !isNew && s == nil:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case !isNew && s.received:
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeStreamClosed}
	case !isNew && !(f.StreamEnded() && isTrailers):
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol}
	case !isNew:
		c.turnTo(s)
		c.ended(s)
		return nil
	case refused:
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeRefusedStream}
	case f.Truncated:
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeFrameSize}
	}
	return c.open(f)
}

// open begins a stream.
func (c *Conn) open(f *http2.MetaHeadersFrame) error {
	s := newStream(c, f.StreamID, f.Fields)
	s.received = f.StreamEnded()
	if s.to = c.o.Open(s); s.to == nil {
		return nil
	}
	c.mu.Lock()
	err := c.err
	if err == nil {
		s.window = c.initial
		c.streams[s.id] = s
		c.held++
	}
	c.mu.Unlock()
	if err != nil {
		s.to.Gone()
		return err
	}
	c.turnTo(s)
	if f.StreamEnded() {
		s.to.End()
	}
	return nil
}

func (c *Conn) reset(f *http2.RSTStreamFrame) error {
	c.mu.Lock()
	if c.isIdle(f.StreamID) {
		c.mu.Unlock()
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	s := c.streams[f.StreamID]
	if s != nil {
		c.remove(s)
	}
	c.mu.Unlock()
	if s != nil {
		s.to.Gone()
	}
	return nil
}

func (c *Conn) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	initial := c.initial
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		switch s.ID {
		case http2.SettingHeaderTableSize:
			c.encoder.SetMaxDynamicTableSize(min(s.Val, tableSize))
		case http2.SettingMaxFrameSize:
			c.maxFrame = int(min(s.Val, maxOut))
		case http2.SettingInitialWindowSize:
			initial = int64(s.Val)
		}
		return nil
	})
	if err = cmp.Or(err, c.resize(initial)); err != nil {
		return err
	}
	c.appendFrame(http2.FrameSettings, http2.FlagSettingsAck, 0, nil)
	return nil
}

// resize changes the windows of all streams (RFC 9113, 6.9.2).
func (c *Conn) resize(initial int64) error {
	more := initial - c.initial
	if more == 0 {
		return nil
	}
	c.initial = initial
	for _, s := range c.streams {
		if s.window += more; s.window > math.MaxInt32 {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		bell.Ring(s.room)
	}
	return nil
}

func (c *Conn) ping(f *http2.PingFrame) error {
	if !f.IsAck() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.appendFrame(http2.FramePing, http2.FlagPingAck, 0, f.Data[:])
		return nil
	}
	if f.Data == lastPing {
		c.lastCall()
	}
	return nil
}

func (c *Conn) windowUpdate(f *http2.WindowUpdateFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.StreamID == 0 {
		if c.window += int64(f.Increment); c.window > math.MaxInt32 {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		c.wakeWaiting()
		return nil
	}
	s := c.streams[f.StreamID]
	switch {
	case c.isIdle(f.StreamID):
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case s == nil:
		return nil
	}
	if s.window += int64(f.Increment); s.window > math.MaxInt32 {
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeFlowControl}
	}
	bell.Ring(s.room)
	return nil
}

// acknowledge lets the client send as much again as was received, once that is much.
func (c *Conn) acknowledge() {
	if c.unacked < c.o.ConnWindow/4 {
		return
	}
	c.appendFrame(http2.FrameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, uint32(c.unacked)))
	c.unacked = 0
}
