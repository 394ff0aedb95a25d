package http1_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/annalsdb/annals/internal/http1"
)

// sorting is a server that tells who got a connection.
type sorting struct {
	address string
	secure  *tls.Config // nil: without TLS
	calls   chan net.Conn
}

func newSorting(t *testing.T, withTLS bool) *sorting {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &sorting{address: l.Addr().String(), calls: make(chan net.Conn, 1)}
	h := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(w, "%s %v", r.Proto, r.TLS != nil) // The client looks at it.
		}),
		ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10, Protocols: new(http.Protocols),
	}
	h.Protocols.SetHTTP1(true)
	h.Protocols.SetHTTP2(true)
	h.Protocols.SetUnencryptedHTTP2(true)
	if withTLS {
		authority := httptest.NewUnstartedServer(nil)
		authority.EnableHTTP2 = true
		authority.StartTLS()
		t.Cleanup(authority.Close)
		l = handshaken{tls.NewListener(l, authority.TLS)}
		s.secure = &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
	}
	server := http1.New(h)
	server.Calls = func(_ context.Context, c net.Conn) { s.calls <- c }
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != http.ErrServerClosed {
			t.Error(err)
		}
	})
	return s
}

// handshaken has the handshakes done.
type handshaken struct{ net.Listener }

func (l handshaken) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if err := c.(*tls.Conn).Handshake(); err != nil {
		return nil, err
	}
	return c, nil
}

func (s *sorting) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	if s.secure != nil {
		c = tls.Client(c, s.secure)
	}
	t.Cleanup(func() { _ = c.Close() }) // The server may have closed it.
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// opening is what a client sends up to the header of its first request.
func opening(t *testing.T, contentType string, split bool) []byte {
	t.Helper()
	var wire, block bytes.Buffer
	wire.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&wire, nil)
	e := hpack.NewEncoder(&block)
	for _, field := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "x"}, {":path", "/a"}, {"content-type", contentType}, {"te", "trailers"}} {
		if err := e.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
			t.Fatal(err)
		}
	}
	header := http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true, PadLength: 7, Priority: http2.PriorityParam{Weight: 3}}
	rest := []byte(nil)
	if split {
		header.BlockFragment, rest, header.EndHeaders = block.Bytes()[:5], block.Bytes()[5:], false
	}
	err := f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	if err == nil { // A frame that is not known is ignored (RFC 9113, 5.5).
		err = f.WriteRawFrame(0xbb, 0, 3, []byte("grease"))
	}
	if err == nil {
		err = f.WriteWindowUpdate(0, 1<<20)
	}
	if err == nil {
		err = f.WriteHeaders(header)
	}
	if err == nil && split {
		err = f.WriteContinuation(1, true, rest)
	}
	if err != nil {
		t.Fatal(err)
	}
	return wire.Bytes()
}

// TestFirstRequestDecides: a connection of HTTP/2 whose first request is a call goes to whom calls
// are for, from its first byte on; any other is served by net/http, which knows of its TLS. The
// client gets SETTINGS once.
func TestFirstRequestDecides(t *testing.T) {
	for _, withTLS := range []bool{false, true} {
		s := newSorting(t, withTLS)
		for _, test := range []struct {
			contentType string
			isCall      bool
		}{
			{"application/grpc", true}, {"application/grpc+proto", true}, {"Application/gRPC; x=y", true},
			{"application/grpc-web", false}, {"application/json", false}, {"", false},
		} {
			for _, piece := range []int{1, 10, 1 << 20} {
				for _, split := range []bool{false, true} {
					name := fmt.Sprintf("TLS %v, %q in pieces of %d, split %v", withTLS, test.contentType, piece, split)
					c := s.dial(t)
					sent := opening(t, test.contentType, split)
					go func() {
						for rest := sent; len(rest) > 0; {
							n, err := c.Write(rest[:min(piece, len(rest))])
							if rest = rest[n:]; err != nil {
								return // The reader sees it.
							}
						}
					}()
					if test.isCall {
						got := <-s.calls
						read := make([]byte, len(sent))
						if _, err := io.ReadFull(got, read); err != nil || !bytes.Equal(read, sent) {
							t.Errorf("%s: other bytes, %v", name, err)
						}
						if err := http2.NewFramer(got, nil).WritePing(false, [8]byte{1}); err != nil {
							t.Errorf("%s: %v", name, err)
						}
					}
					f := http2.NewFramer(io.Discard, c)
					var kinds []http2.FrameType
					body := ""
					for {
						frame, err := f.ReadFrame()
						if err != nil {
							t.Fatalf("%s: %v after %v", name, err, kinds)
						}
						if settings, ok := frame.(*http2.SettingsFrame); !ok || !settings.IsAck() {
							kinds = append(kinds, frame.Header().Type)
						}
						if data, ok := frame.(*http2.DataFrame); ok {
							body += string(data.Data())
						}
						if _, ok := frame.(*http2.PingFrame); ok || frame.Header().Flags.Has(http2.FlagDataEndStream) && frame.Header().Type == http2.FrameData {
							break
						}
					}
					settings := 0
					for _, kind := range kinds {
						if kind == http2.FrameSettings {
							settings++
						}
					}
					if kinds[0] != http2.FrameSettings || settings != 1 {
						t.Errorf("%s: frames %v", name, kinds)
					}
					if want := fmt.Sprintf("HTTP/2.0 %v", withTLS); !test.isCall && body != want {
						t.Errorf("%s: %q, want %q", name, body, want)
					}
					_ = c.Close()
				}
			}
		}
	}
}

// TestClientOpensAheadOfNeed: before its first request a client gets SETTINGS and answers to pings,
// and the end of the server ends the connection.
func TestClientOpensAheadOfNeed(t *testing.T) {
	s := newSorting(t, false)
	c := s.dial(t)
	f := http2.NewFramer(c, c)
	_, err := io.WriteString(c, http2.ClientPreface)
	if err == nil {
		err = f.WriteSettings()
	}
	if err != nil {
		t.Fatal(err)
	}
	if frame, err := f.ReadFrame(); err != nil || frame.Header().Type != http2.FrameSettings {
		t.Fatal(frame, err)
	}
	for i := range byte(3) {
		if err := f.WritePing(false, [8]byte{i}); err != nil {
			t.Fatal(err)
		}
		frame, err := f.ReadFrame()
		if ping, ok := frame.(*http2.PingFrame); err != nil || !ok || !ping.IsAck() || ping.Data[0] != i {
			t.Fatal(frame, err)
		}
	}
	if _, err := c.Write(opening(t, "application/grpc", false)[len(http2.ClientPreface):]); err != nil {
		t.Fatal(err)
	}
	(<-s.calls).Close()
	s.dial(t) // A connection without a byte ends with the server.
}

// TestOtherBytes: a connection that only begins like HTTP/2 gets its answer from the first byte on.
// Where HTTP/2 was negotiated it ends.
func TestOtherBytes(t *testing.T) {
	const request = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	for _, test := range []struct {
		withTLS bool
		sent    string
		want    string
	}{
		{false, "PRI * HTTP/2.0\r\n\r\nxx\r\n\r\n" + request, "HTTP/1.1 200 OK"},
		{true, request, ""},
	} {
		c := newSorting(t, test.withTLS).dial(t)
		if _, err := io.WriteString(c, test.sent); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c)
		if err != nil || !bytes.HasPrefix(got, []byte(test.want)) || test.want == "" && len(got) > 0 {
			t.Errorf("%q: %q, %v", test.sent, got, err)
		}
	}
}
