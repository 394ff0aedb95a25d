package h2

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/annalsdb/annals/internal/bell"
)

// deaf takes nothing in.
type deaf struct{}

func (deaf) Data([]byte)          {}
func (deaf) End()                 {}
func (deaf) Turn(context.Context) {}
func (deaf) Gone()                {}

// open returns a connection with streams, of which nothing is read, and its client's end.
func open(t *testing.T, streams ...uint32) (*Conn, []*Stream, net.Conn) {
	t.Helper()
	theirs, ours := net.Pipe()
	c := New(t.Context(), ours, &Options{MaxStreams: 10, StreamWindow: firstWindow, ConnWindow: firstWindow})
	t.Cleanup(func() {
		c.Close()
		_ = theirs.Close() // That was closed with the other end.
		c.owned.Wait()
	})
	var all []*Stream
	for _, id := range streams {
		s := newStream(c, id, nil)
		s.to, s.window, s.begun = deaf{}, firstWindow, true
		c.streams[id], c.held, c.last = s, c.held+1, id
		all = append(all, s)
	}
	return c, all, theirs
}

var header = []hpack.HeaderField{{Name: ":status", Value: "200"}}

// TestRoomIsHandedOn: a stream that has its turn to write and cannot use it leaves it to the next
// one.
func TestRoomIsHandedOn(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(*Conn, *Stream) // with mu held
	}{
		{"it has ended", (*Conn).remove},
		{"its window has shrunk", func(_ *Conn, s *Stream) { s.window = -1 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, streams, _ := open(t, 1, 3)
				c.window = 0
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				written := make(chan error, 1)
				data := make([]byte, 100)
				go func() { _ = streams[0].Write(ctx, nil, data) }() // It ends or waits.
				synctest.Wait()
				go func() { written <- streams[1].Write(ctx, nil, data) }()
				synctest.Wait()
				c.mu.Lock()
				c.window = 100
				c.wakeWaiting()
				test.do(c, streams[0])
				c.mu.Unlock()
				synctest.Wait()
				select {
				case err := <-written:
					if err != nil {
						t.Error(err)
					}
				default:
					t.Error("the next stream waits")
				}
			})
		})
	}
}

// TestEndedStreamsHaveNoTurn: one that ends while it writes what others have left is not among
// those that wait.
func TestEndedStreamsHaveNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, streams, client := open(t, 1, 3)
		c.window = 0
		data, written := make([]byte, 100), make(chan error, 2)
		for _, s := range streams {
			go func() { written <- s.Write(t.Context(), nil, data) }()
			synctest.Wait()
		}
		c.mu.Lock()
		c.appendReset(5, http2.ErrCodeCancel)
		bell.Ring(streams[0].room)
		c.mu.Unlock()
		synctest.Wait() // It writes that.
		c.mu.Lock()
		c.remove(streams[0])
		c.mu.Unlock()
		go func() { _, _ = io.Copy(io.Discard, client) }() // The connection ends.
		if err := <-written; err != net.ErrClosed {
			t.Error(err)
		}
		c.mu.Lock()
		c.window = 100
		c.wakeWaiting()
		c.mu.Unlock()
		synctest.Wait()
		select {
		case err := <-written:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("the next stream waits")
		}
	})
}

// TestManyWindowsAtTheEnd: a stream that waits to end is noted once, whatever its client sends.
func TestManyWindowsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, streams, _ := open(t, 1)
		go func() {
			_ = streams[0].Write(t.Context(), header, []byte("x")) // The connection ends.
			streams[0].Flush()
		}()
		synctest.Wait()
		c.mu.Lock()
		c.out = append(c.out, make([]byte, mostOut)...)
		c.mu.Unlock()
		go func() { _ = streams[0].End(nil, header) }() // The connection ends.
		for range 100 {
			synctest.Wait()
			if err := c.windowUpdate(&http2.WindowUpdateFrame{FrameHeader: http2.FrameHeader{StreamID: 1}, Increment: 1}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		if n := len(c.awaiting); n != 1 {
			t.Errorf("it is noted %d times", n)
		}
	})
}

// TestHeadersWait: a stream whose client reads nothing adds no header to much that waits.
func TestHeadersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, streams, _ := open(t, 1, 3, 5)
		go func() {
			_ = streams[0].Write(t.Context(), nil, []byte("x")) // The connection ends.
			streams[0].Flush()
		}()
		synctest.Wait()
		c.mu.Lock()
		c.out = append(c.out, make([]byte, mostOut)...)
		c.mu.Unlock()
		ctx, cancel := context.WithCancel(t.Context())
		for _, s := range streams[1:] {
			s.begun = false
			go func() {
				if err := s.Write(ctx, header, nil); err != context.Canceled {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		c.mu.Lock()
		if n := len(c.out); n != mostOut {
			t.Errorf("%d bytes wait", n)
		}
		c.mu.Unlock()
		cancel()
		synctest.Wait()
	})
}

// TestSilentConnections: they keep no buffers for what they write.
func TestSilentConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, streams, client := open(t, 1)
		go func() { _, _ = io.Copy(io.Discard, client) }() // The connection ends.
		for range 2 {
			c.window, streams[0].window = firstWindow, firstWindow
			if err := streams[0].Write(t.Context(), nil, make([]byte, firstWindow)); err != nil {
				t.Fatal(err)
			}
			streams[0].Flush()
			synctest.Wait()
		}
		c.Look(time.Now(), 1)
		if cap(c.out) == 0 {
			t.Error("a connection that is not silent has to begin again")
		}
		if c.Look(time.Now(), 1); cap(c.out)+cap(c.spare) > 0 {
			t.Errorf("%d bytes are kept", cap(c.out)+cap(c.spare))
		}
	})
}

// BenchmarkSettings: settings that change windows again and again change them once.
func BenchmarkSettings(b *testing.B) {
	c := New(b.Context(), nil, &Options{})
	for id := range uint32(10_000) {
		c.streams[id] = newStream(c, id, nil)
	}
	var frame bytes.Buffer
	f := http2.NewFramer(&frame, &frame)
	var all []http2.Setting
	for i := range uint32(2_000) {
		all = append(all, http2.Setting{ID: http2.SettingInitialWindowSize, Val: i})
	}
	if err := f.WriteSettings(all...); err != nil {
		b.Fatal(err)
	}
	read, err := f.ReadFrame()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := c.settings(read.(*http2.SettingsFrame)); err != nil {
			b.Fatal(err)
		}
		c.out = c.out[:0]
	}
}
