package h2_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/annalsdb/annals/internal/h2"
)

// unary answers a request with as many bytes as it has.
type unary struct {
	*h2.Stream
	data []byte
}

func (u *unary) Data(p []byte)        { u.data = append(u.data, p...) }
func (u *unary) Turn(context.Context) {}
func (u *unary) Gone()                {}

func (u *unary) End() {
	go func() {
		defer u.Done()
		if u.Write(context.Background(), answerHeader, u.data) == nil {
			_ = u.Stream.End(nil, trailers) // The client may have gone.
		}
	}()
}

// BenchmarkExchange is a request of 100 bytes and its answer, one at a time, over loopback.
func BenchmarkExchange(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }() // It was closed to a connection.
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	c := h2.New(b.Context(), server, &h2.Options{MaxStreams: 100, StreamWindow: 1 << 18, ConnWindow: 1 << 20, MaxHeaderBytes: maxHeader,
		Open: func(s *h2.Stream) h2.Receiver { return &unary{Stream: s} }})
	served := make(chan error, 1)
	go func() { served <- c.Serve() }()
	defer func() {
		_ = client.Close() // The server sees it.
		<-served
	}()
	var block, request bytes.Buffer
	if err := hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":path", Value: "/x"}); err != nil {
		b.Fatal(err)
	}
	f, r := http2.NewFramer(&request, nil), http2.NewFramer(nil, client)
	r.SetReuseFrames()
	request.WriteString(http2.ClientPreface)
	if err := f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}); err != nil {
		b.Fatal(err)
	}
	if err := f.WriteWindowUpdate(0, 1<<30); err != nil {
		b.Fatal(err)
	}
	stream, message := uint32(1), make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		// A buffer takes everything.
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true})
		_ = f.WriteData(stream, true, message)
		if _, err := io.Copy(client, &request); err != nil {
			b.Fatal(err)
		}
		for {
			frame, err := r.ReadFrame()
			if err != nil {
				b.Fatal(err)
			}
			if h, ok := frame.(*http2.HeadersFrame); ok && h.StreamEnded() {
				break
			}
		}
		stream += 2
	}
}
