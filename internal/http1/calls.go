package http1

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"slices"
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
	limited := &io.LimitedReader{R: c, N: maxBefore}
	var seen bytes.Buffer
	r := io.TeeReader(limited, &seen)
	defer func() { c.rest = append(seen.Bytes(), c.rest...) }()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(r, preface); err != nil {
		return false, err
	}
	if string(preface) != http2.ClientPreface {
		if c.tls != nil {
			return false, errNotHTTP2
		}
		c.begun = true // There is no greeting that stands for the first frame.
		return false, nil
	}
	if _, err := c.Conn.Write(s.greetingFrame); err != nil {
		return false, err
	}
	// A client may open a connection ahead of need.
	if err := c.Conn.SetDeadline(time.Now().Add(s.others.IdleTimeout)); err != nil {
		return false, err
	}
	frames := http2.NewFramer(c.Conn, r)
	frames.SetMaxReadFrameSize(maxFrame)
	frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		before := seen.Len()
		frame, err := frames.ReadFrame()
		if limited.N == 0 || isWrong(err) {
			return false, nil // Its server refuses it.
		}
		if err != nil {
			return false, err
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			return slices.ContainsFunc(frame.Fields, func(f hpack.HeaderField) bool {
				return f.Name == "content-type" && IsCall(f.Value)
			}), nil
		case *http2.PingFrame:
			if frame.IsAck() {
				return false, nil
			}
			if err := frames.WritePing(true, frame.Data); err != nil {
				return false, err
			}
			seen.Truncate(before)
		case *http2.DataFrame, *http2.RSTStreamFrame, *http2.PushPromiseFrame, *http2.GoAwayFrame:
			return false, nil
		} // Others are ignored (RFC 9113, 5.5).
	}
}

// isWrong reports whether reading failed by what the client sent.
func isWrong(err error) bool {
	var ofConn http2.ConnectionError
	var ofStream http2.StreamError
	return errors.As(err, &ofConn) || errors.As(err, &ofStream) || errors.Is(err, http2.ErrFrameTooLarge)
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
