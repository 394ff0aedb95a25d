package http1

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Bounds that all connections of HTTP/2 announce, net/http's and those of calls.
const (
	// MaxStreams is how many requests a connection has at a time: a client of gRPC has one
	// connection, and a call on it for each subscription.
	MaxStreams = 10_000
	// StreamWindow is how many bytes of a request may be on their way, in bytes.
	StreamWindow = 256 << 10

	maxBefore = 64 << 10 // bytes of a connection before its first request has a header, in bytes
	maxFrame  = 16 << 10 // payload of one frame, in bytes: we announce no more (RFC 9113, 4.2)
)

// greeting is the first frame that a server sends (RFC 9113, 3.4). Some clients send no request
// before it.
func (s *Server) greeting() []byte {
	var b bytes.Buffer
	_ = http2.NewFramer(&b, nil).WriteSettings( // A buffer takes everything.
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: MaxStreams},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: StreamWindow},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: uint32(s.others.MaxHeaderBytes)},
	)
	return b.Bytes()
}

// sorted is a connection of HTTP/2 whose first request decides who serves it. The server that gets
// it reads the connection from its first byte. net/http's first frame is left out, as the greeting
// stands for it.
type sorted struct {
	begunConn
	tls   *tls.ConnectionState // nil: without TLS
	skip  int                  // bytes of net/http's first frame that are still left out
	begun bool                 // the length of that frame is known
}

// Write leaves the first frame out. net/http writes its header in one piece.
func (c *sorted) Write(p []byte) (int, error) {
	if !c.begun {
		c.begun, c.skip = true, frameHeader+(int(p[0])<<16|int(p[1])<<8|int(p[2]))
	}
	left := min(c.skip, len(p))
	c.skip -= left
	if left == len(p) {
		return left, nil
	}
	n, err := c.Conn.Write(p[left:])
	return left + n, err
}

const frameHeader = 9

// sort greets the client of a connection of HTTP/2, and has it served by whom its first request is
// for. rest was read of it before.
func (s *Server) sort(c *sorted) {
	if !s.beginSorting(c) {
		return
	}
	defer s.endSorting(c)
	isCall, err := s.firstIsCall(c)
	if err != nil || c.Conn.SetDeadline(time.Time{}) != nil {
		_ = c.Conn.Close() // It has ended.
		return
	}
	if isCall {
		c.begun = true // Its server begins after the greeting.
		s.Calls(c.ctx, c)
		return
	}
	s.handed.give(c)
}

func (s *Server) beginSorting(c *sorted) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosing() {
		_ = c.Conn.Close()
		return false
	}
	s.sorting[c] = struct{}{}
	s.owned.Add(1)
	return true
}

func (s *Server) endSorting(c *sorted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sorting, c)
	s.owned.Done()
}

// errNotHTTP2 is why no server gets a connection whose client negotiated HTTP/2.
var errNotHTTP2 = errors.New("http1: the client does not speak HTTP/2")

// firstIsCall reads up to the header of the first request, and keeps what it read in rest.
func (s *Server) firstIsCall(c *sorted) (isCall bool, err error) {
	if err := c.Conn.SetDeadline(time.Now().Add(s.others.ReadHeaderTimeout)); err != nil {
		return false, err
	}
	p := peeked{c: c, keep: make([]byte, 0, 1<<10)}
	preface, err := p.next(len(http2.ClientPreface))
	if err != nil {
		return false, err
	}
	if string(preface) != http2.ClientPreface {
		if c.tls != nil {
			return false, errNotHTTP2
		}
		c.begun = true // There is no greeting that stands for the first frame.
		return false, p.over()
	}
	if _, err := c.Conn.Write(s.greetingFrame); err != nil {
		return false, err
	}
	// A client may open a connection ahead of need.
	if err := c.Conn.SetDeadline(time.Now().Add(s.others.IdleTimeout)); err != nil {
		return false, err
	}
	var block headerBlock
	for len(p.keep) < maxBefore {
		head, err := p.next(frameHeader)
		if err != nil {
			return false, err
		}
		length := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		kind, flags, stream := http2.FrameType(head[3]), http2.Flags(head[4]), binary.BigEndian.Uint32(head[5:])
		if length > maxFrame {
			return false, p.over() // Its server refuses it.
		}
		payload, err := p.next(length)
		if err != nil {
			return false, err
		}
		switch kind {
		case http2.FramePing:
			if flags.Has(http2.FlagPingAck) || length != 8 || stream != 0 {
				return false, p.over()
			}
			if err := http2.NewFramer(c.Conn, nil).WritePing(true, [8]byte(payload)); err != nil {
				return false, err
			}
			p.forget(frameHeader + length)
			continue
		case http2.FrameHeaders, http2.FrameContinuation:
			if more := block.add(kind, flags, payload); more {
				continue
			}
			return block.isCall, p.over()
		case http2.FrameData, http2.FrameRSTStream, http2.FramePushPromise, http2.FrameGoAway:
			return false, p.over()
		} // Others are ignored (RFC 9113, 5.5).
	}
	return false, p.over()
}

// peeked is what is read of a connection before it has its server.
type peeked struct {
	c    *sorted
	keep []byte // all of it
	at   int    // what of keep was looked at
}

// next returns the next bytes, which are valid until it is called again.
func (p *peeked) next(n int) ([]byte, error) {
	for len(p.keep)-p.at < n {
		if cap(p.keep)-len(p.keep) < 512 {
			p.keep = append(make([]byte, 0, len(p.keep)+n+4<<10), p.keep...)
		}
		m, err := p.c.Read(p.keep[len(p.keep):cap(p.keep)])
		p.keep = p.keep[:len(p.keep)+m]
		if m == 0 && err != nil {
			return nil, err
		}
	}
	p.at += n
	return p.keep[p.at-n : p.at], nil
}

// forget drops the bytes that were looked at last.
func (p *peeked) forget(n int) {
	p.keep = append(p.keep[:p.at-n], p.keep[p.at:]...)
	p.at -= n
}

// over gives back what was read, before what was read of the connection earlier.
func (p *peeked) over() error {
	p.c.rest = append(p.keep, p.c.rest...)
	return nil
}

// headerBlock is the header of a request, as far as it was received.
type headerBlock struct {
	decoder *hpack.Decoder
	isCall  bool
}

// add takes the next part and reports whether more is needed.
func (h *headerBlock) add(kind http2.FrameType, flags http2.Flags, part []byte) (more bool) {
	if kind == http2.FrameHeaders {
		h.decoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
			if f.Name == "content-type" {
				h.isCall = IsCall(f.Value)
			}
		})
		before, after := 0, 0
		if flags.Has(http2.FlagHeadersPadded) && len(part) > 0 {
			before, after = 1, int(part[0])
		}
		if flags.Has(http2.FlagHeadersPriority) {
			before += 5
		}
		if before+after > len(part) {
			return false
		}
		part = part[before : len(part)-after]
	}
	if h.decoder == nil {
		return false
	}
	if _, err := h.decoder.Write(part); err != nil {
		h.isCall = false // Its server refuses it.
		return false
	}
	return !h.isCall && !flags.Has(http2.FlagHeadersEndHeaders)
}

// IsCall reports whether a media type is that of gRPC.
func IsCall(mediaType string) bool {
	const name = "application/grpc"
	if len(mediaType) < len(name) || !strings.EqualFold(mediaType[:len(name)], name) {
		return false
	}
	rest := mediaType[len(name):]
	return rest == "" || rest[0] == '+' || rest[0] == ';'
}
