package h2

import (
	"encoding/binary"
	"runtime"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/annalsdb/annals/internal/bell"
)

// frameHeader is the length of what stands before the payload of a frame, in bytes (RFC 9113, 4.1).
const frameHeader = 9

// littleOut is below how many bytes a write lets others add to it first.
const littleOut = 1 << 10

// The functions below are called with mu held.

func (c *Conn) appendHead(kind http2.FrameType, flags http2.Flags, stream uint32, length int) {
	c.out = append(c.out, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags))
	c.out = binary.BigEndian.AppendUint32(c.out, stream)
}

// appendFrame appends a frame that no stream waits for.
func (c *Conn) appendFrame(kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) {
	c.appendHead(kind, flags, stream, len(payload))
	c.out = append(c.out, payload...)
	c.control += frameHeader + len(payload)
}

func (c *Conn) appendReset(stream uint32, code http2.ErrCode) {
	c.appendFrame(http2.FrameRSTStream, 0, stream, binary.BigEndian.AppendUint32(nil, uint32(code)))
}

func (c *Conn) appendGoAway(last uint32, code http2.ErrCode) {
	payload := binary.BigEndian.AppendUint32(nil, last)
	c.appendFrame(http2.FrameGoAway, 0, 0, binary.BigEndian.AppendUint32(payload, uint32(code)))
}

// appendHeader appends a header, in as many frames as it needs.
func (c *Conn) appendHeader(stream uint32, flags http2.Flags, fields []hpack.HeaderField) {
	c.block.Reset()
	for _, f := range fields {
		_ = c.encoder.WriteField(f) // A buffer takes everything.
	}
	kind := http2.FrameHeaders
	for {
		part := c.block.Next(c.maxFrame)
		if c.block.Len() == 0 {
			flags |= http2.FlagHeadersEndHeaders
		}
		c.appendHead(kind, flags, stream, len(part))
		c.out = append(c.out, part...)
		if c.block.Len() == 0 {
			return
		}
		kind, flags = http2.FrameContinuation, 0
	}
}

// write writes what there is, unless another goroutine does: it takes this along. It unlocks mu
// meanwhile. If there is more then, a goroutine of its own writes that.
func (c *Conn) write() {
	if c.writing || len(c.out) == 0 || c.isClosed {
		return
	}
	c.writing = true
	if c.held > 1 && len(c.out) < littleOut { // Other answers may be about to come.
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	c.writeOnce()
	c.continueWriting()
}

// writeSoon has a goroutine write what there is. The reader of the connection must not wait for a
// client that waits for it.
func (c *Conn) writeSoon() {
	if c.writing || len(c.out) == 0 || c.isClosed {
		return
	}
	c.writing = true
	c.continueWriting()
}

func (c *Conn) continueWriting() {
	if len(c.out) == 0 || c.isClosed {
		c.stopWriting()
		return
	}
	c.owned.Go(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for len(c.out) > 0 && !c.isClosed {
			c.writeOnce()
		}
		c.stopWriting()
	})
}

func (c *Conn) stopWriting() {
	c.writing = false
	if c.written != nil {
		close(c.written)
		c.written = nil
	}
}

// writeOnce writes what there is.
func (c *Conn) writeOnce() {
	b := c.out
	c.out, c.spare, c.control = c.spare[:0], nil, 0
	c.mu.Unlock()
	_, err := c.nc.Write(b)
	if err != nil {
		c.end(err)
	}
	c.mu.Lock()
	c.writes++
	if cap(b) <= 2*maxOut {
		c.spare = b[:0]
	}
	for _, s := range c.awaiting {
		s.awaits = false
		bell.Ring(s.room)
	}
	c.awaiting = nil
	c.wakeWaiting()
}

// wakeWaiting wakes the stream that waits longest for the connection, if that takes something.
func (c *Conn) wakeWaiting() {
	if c.next != nil || len(c.waiting) == 0 || c.room() <= 0 {
		return
	}
	c.next, c.waiting[0] = c.waiting[0], nil
	c.waiting = c.waiting[1:]
	c.next.waits = false
	bell.Ring(c.next.room)
}

// room is how many bytes of data the connection takes at the moment.
func (c *Conn) room() int { return int(min(c.window, int64(maxOut-len(c.out)))) }
