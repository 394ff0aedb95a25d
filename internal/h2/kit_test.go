package h2_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/annalsdb/annals/internal/h2"
)

// Bounds of the connections of these tests.
const (
	maxStreams   = 4
	streamWindow = 32 << 10
	connWindow   = 128 << 10
	maxHeader    = 8 << 10
)

// receiver is a stream as its owner sees it. What it is sent comes as texts.
type receiver struct {
	*h2.Stream
	got  chan string
	echo bool // it answers what it was sent
	data []byte
	turn func(context.Context)
}

func (r *receiver) Data(p []byte) {
	r.data = append(r.data, p...)
	if !r.echo {
		r.got <- fmt.Sprintf("%d bytes", len(p))
	}
}

func (r *receiver) End() {
	if !r.echo {
		r.got <- "end"
		return
	}
	go func() {
		defer r.Done()
		if r.Write(context.Background(), answerHeader, r.data) == nil {
			_ = r.Stream.End(nil, trailers) // It may have been reset.
		}
	}()
}

func (r *receiver) Turn(ctx context.Context) {
	if r.turn != nil {
		r.turn(ctx)
	}
}

func (r *receiver) Gone() {
	if !r.echo {
		r.got <- "gone"
	}
}

// next is what the stream was sent next.
func (r *receiver) next(t testing.TB, want string) {
	t.Helper()
	synctest.Wait()
	select {
	case got := <-r.got:
		if got != want {
			t.Fatalf("%s came, not %s", got, want)
		}
	default:
		t.Fatalf("nothing came, not %s", want)
	}
}

var (
	answerHeader = []hpack.HeaderField{{Name: ":status", Value: "200"}}
	trailers     = []hpack.HeaderField{{Name: "a-status", Value: "0"}}
)

// client speaks HTTP/2 by hand. What it sends is sent by a goroutine, as the server may read
// nothing.
type client struct {
	*http2.Framer
	net.Conn
	t       testing.TB
	server  *h2.Conn
	served  chan error
	opened  chan *receiver
	sending chan func() error
	block   bytes.Buffer
	encoder *hpack.Encoder
}

// run runs a test in a bubble, over a connection that is at rest.
func run(t *testing.T, o h2.Options, test func(*client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, o)
		c.send(func() error {
			_, err := io.WriteString(c.Conn, http2.ClientPreface)
			return err
		})
		c.send(func() error { return c.WriteSettings() })
		c.until(http2.FrameSettings, 0)
		test(c)
		c.close()
	})
}

// connect connects a client to a server that keeps what it is sent, or echoes what is sent to
// /echo.
func connect(t testing.TB, o h2.Options) *client {
	ours, theirs := net.Pipe()
	c := &client{Framer: http2.NewFramer(ours, ours), Conn: ours, t: t, served: make(chan error, 1),
		opened: make(chan *receiver, 2*maxStreams), sending: make(chan func() error, 1000)}
	c.AllowIllegalWrites = true
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.encoder = hpack.NewEncoder(&c.block)
	o.MaxStreams, o.StreamWindow, o.ConnWindow, o.MaxHeaderBytes = maxStreams, streamWindow, connWindow, maxHeader
	if o.Open == nil {
		o.Open = func(s *h2.Stream) h2.Receiver {
			r := &receiver{Stream: s, got: make(chan string, 1000), echo: s.Fields()[0].Value == "/echo"}
			if !r.echo {
				c.opened <- r
			}
			return r
		}
	}
	c.server = h2.New(context.Background(), theirs, &o)
	go func() { c.served <- c.server.Serve() }()
	go func() {
		for send := range c.sending {
			_ = send() // The server may have closed.
		}
	}()
	return c
}

// close ends the connection, and waits for the server.
func (c *client) close() {
	_ = c.Conn.Close() // The server may have closed it.
	close(c.sending)
	<-c.served
}

// send sends what a function writes.
func (c *client) send(write func() error) { c.sending <- write }

// fields are header fields: name, value, name, value.
func fields(pairs ...string) (all []hpack.HeaderField) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return all
}

// header sends a header, in frames of its own if it is large.
func (c *client) header(stream uint32, end bool, all ...hpack.HeaderField) {
	c.send(func() error {
		c.block.Reset()
		for _, f := range all {
			if err := c.encoder.WriteField(f); err != nil {
				return err
			}
		}
		const most = 16 << 10
		first := c.block.Next(most)
		err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndStream: end, EndHeaders: c.block.Len() == 0})
		for c.block.Len() > 0 && err == nil {
			part := c.block.Next(most)
			err = c.WriteContinuation(stream, c.block.Len() == 0, part)
		}
		return err
	})
}

// begin begins a request that the server keeps.
func (c *client) begin(stream uint32) *receiver {
	c.t.Helper()
	c.header(stream, false, fields(":path", "/kept")...)
	synctest.Wait()
	select {
	case r := <-c.opened:
		return r
	default:
		c.t.Fatal("the server did not open a stream")
		return nil
	}
}

func (c *client) data(stream uint32, end bool, size int) {
	c.send(func() error { return c.WriteData(stream, end, make([]byte, size)) })
}

// frame sends a frame as it stands.
func (c *client) frame(kind http2.FrameType, flags http2.Flags, stream uint32, payload string) {
	c.send(func() error { return c.WriteRawFrame(kind, flags, stream, []byte(payload)) })
}

func (c *client) window(stream, more uint32) {
	c.send(func() error { return c.WriteWindowUpdate(stream, more) })
}

func (c *client) settings(all ...http2.Setting) {
	c.send(func() error { return c.WriteSettings(all...) })
}

func (c *client) ping() { c.frame(http2.FramePing, 0, 0, "pingpong") }

// until reads frames up to one of a kind on a stream.
func (c *client) until(kind http2.FrameType, stream uint32) http2.Frame {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		if err != nil {
			c.t.Fatalf("waiting for %v: %v", kind, err)
		}
		if h := f.Header(); h.Type == kind && h.StreamID == stream {
			return f
		}
	}
}

// all reads data of a stream up to its end, and returns how much there was.
func (c *client) all(stream uint32) (size int) {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		if err != nil {
			c.t.Fatal(err)
		}
		if f.Header().StreamID != stream {
			continue
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			size += len(f.Data())
		case *http2.MetaHeadersFrame:
			if f.StreamEnded() {
				return size
			}
		}
	}
}

// outcome is what the server says next, before it answers a ping: that the connection ends, a
// stream is reset, or nothing.
func (c *client) outcome() string {
	c.ping()
	said := ""
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return strings.TrimSpace(said + " closed")
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			said += "GOAWAY " + f.ErrCode.String()
		case *http2.RSTStreamFrame:
			said += fmt.Sprintf("RST %d %v", f.StreamID, f.ErrCode)
		case *http2.PingFrame:
			if f.IsAck() && string(f.Data[:]) == "pingpong" {
				return said
			}
		}
	}
}
