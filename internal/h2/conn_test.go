package h2_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/annalsdb/annals/internal/h2"
)

// TestExchange: a request reaches its owner as it comes, and the answer the client.
func TestExchange(t *testing.T) {
	run(t, h2.Options{}, func(c *client) {
		r := c.begin(1)
		c.data(1, false, 5)
		r.next(t, "5 bytes")
		c.data(1, false, 0)
		c.header(1, true, fields("trailer", "x")...)
		r.next(t, "end")
		if err := r.Write(context.Background(), answerHeader, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		go r.Flush()
		if h := c.until(http2.FrameHeaders, 1).(*http2.MetaHeadersFrame); h.StreamEnded() || !slices.Equal(h.Fields, answerHeader) {
			t.Error(h)
		}
		if d := c.until(http2.FrameData, 1).(*http2.DataFrame); string(d.Data()) != "hello" {
			t.Error(d)
		}
		go func() { _ = r.Stream.End(answerHeader, trailers) }() // Its result is looked at below.
		if h := c.until(http2.FrameHeaders, 1).(*http2.MetaHeadersFrame); !h.StreamEnded() || !slices.Equal(h.Fields, trailers) {
			t.Error(h)
		}
		r.next(t, "gone")
		if err := r.Write(context.Background(), nil, []byte("x")); err != net.ErrClosed {
			t.Error(err)
		}
		if err := r.Stream.End(nil, nil); err != net.ErrClosed || r.Sent() != 5 {
			t.Error(err, r.Sent())
		}
	})
}

// TestAnswersOfAHeaderAlone: one that ends at once is one frame. What of the request is on its way
// is not needed.
func TestAnswersOfAHeaderAlone(t *testing.T) {
	run(t, h2.Options{}, func(c *client) {
		r := c.begin(1)
		go func() { _ = r.Stream.End(answerHeader, trailers) }() // The client sees it.
		h := c.until(http2.FrameHeaders, 1).(*http2.MetaHeadersFrame)
		if want := slices.Concat(answerHeader, trailers); !h.StreamEnded() || !slices.Equal(h.Fields, want) {
			t.Error(h)
		}
		if code := c.until(http2.FrameRSTStream, 1).(*http2.RSTStreamFrame).ErrCode; code != http2.ErrCodeNo {
			t.Error(code)
		}
		c.data(1, true, 100)
		if got := c.outcome(); got != "" {
			t.Error(got)
		}
	})
	refusing := h2.Options{Open: func(s *h2.Stream) h2.Receiver {
		s.Refuse(answerHeader)
		return nil
	}}
	run(t, refusing, func(c *client) {
		for stream := uint32(1); stream < 10*maxStreams; stream += 2 {
			c.header(stream, true, fields(":path", "/x")...)
			if h := c.until(http2.FrameHeaders, stream).(*http2.MetaHeadersFrame); !h.StreamEnded() {
				t.Error(h)
			}
		}
	})
}

// TestPlacesOfStreams: a stream has its place until it has ended and its owner is done with it.
func TestPlacesOfStreams(t *testing.T) {
	run(t, h2.Options{}, func(c *client) {
		var last *receiver
		for i := range uint32(maxStreams) {
			last = c.begin(2*i + 1)
		}
		next := uint32(2*maxStreams + 1)
		refused := func(want bool) {
			t.Helper()
			c.header(next, true, fields(":path", "/kept")...)
			if got := c.outcome(); strings.HasSuffix(got, "REFUSED_STREAM") != want {
				t.Errorf("%q", got)
			}
			next += 2
		}
		refused(true)
		c.frame(http2.FrameRSTStream, 0, 2*maxStreams-1, "\x00\x00\x00\x08")
		last.next(t, "gone")
		refused(true)
		last.Done()
		last.Done()
		refused(false)
		refused(true)
	})
}

// TestWindows: data is written as far as the client takes it, and all of it.
func TestWindows(t *testing.T) {
	const size = 300 << 10
	first := func(id http2.SettingID, value uint32) http2.Setting { return http2.Setting{ID: id, Val: value} }
	for _, test := range []struct {
		name  string
		do    func(c *client)       // before the answer
		taken int                   // of it
		then  func(c *client) error // has the client take all
	}{
		{"the first one", func(*client) {}, 1<<16 - 1, nil},
		{"none", func(c *client) { c.settings(first(http2.SettingInitialWindowSize, 0)) }, 0, nil},
		{"a byte", func(c *client) { c.settings(first(http2.SettingInitialWindowSize, 1)) }, 1, nil},
		{"that of the connection", func(c *client) { c.window(1, size) }, 1<<16 - 1, nil},
		{"that of the stream", func(c *client) { c.window(0, size) }, 1<<16 - 1, nil},
		{"all", func(c *client) {
			c.window(0, size)
			c.window(1, size)
		}, size, nil},
		{"one below zero", func(*client) {}, 1<<16 - 1, func(c *client) error {
			return errors.Join(
				c.WriteSettings(first(http2.SettingInitialWindowSize, 0)), // 65,535 bytes too many.
				c.WriteWindowUpdate(0, size),
				c.WriteWindowUpdate(1, 1<<16-2),
				c.WritePing(false, [8]byte{1}), // Nothing comes before.
				c.WriteWindowUpdate(1, size-1<<16+2))
		}},
		{"large frames", func(c *client) {
			c.window(0, size)
			c.settings(first(http2.SettingInitialWindowSize, size), first(http2.SettingMaxFrameSize, 1<<20))
		}, size, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			run(t, h2.Options{}, func(c *client) {
				r := c.begin(1)
				test.do(c)
				if got := c.outcome(); got != "" {
					t.Fatal(got)
				}
				want := bytes.Repeat([]byte("0123456789abcde"), size/15+1)[:size]
				go func() {
					_ = r.Write(context.Background(), answerHeader, want) // The client sees it.
					_ = r.Stream.End(nil, trailers)
				}()
				got := []byte{}
				read := func() (end bool) {
					f, err := c.ReadFrame()
					if err != nil {
						t.Fatal(err)
					}
					switch f := f.(type) {
					case *http2.DataFrame:
						if got = append(got, f.Data()...); f.Length > 16<<10 && test.name != "large frames" {
							t.Errorf("a frame of %d bytes", f.Length)
						}
					case *http2.PingFrame:
						if len(got) != test.taken {
							t.Errorf("%d bytes came before there was a window", len(got)-test.taken)
						}
					case *http2.MetaHeadersFrame:
						return f.StreamEnded()
					}
					return false
				}
				for len(got) < test.taken {
					read()
				}
				if len(got) > test.taken {
					t.Errorf("%d bytes came, not %d", len(got), test.taken)
				}
				c.send(func() error {
					if test.then != nil {
						return test.then(c)
					}
					return errors.Join(c.WriteWindowUpdate(0, size), c.WriteWindowUpdate(1, size))
				})
				for !read() {
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%d bytes came, or other ones", len(got))
				}
			})
		})
	}
}

// TestWindowsOfTheClient: it may send as much again as was taken, padding included, and all streams
// together no more than the connection's window.
func TestWindowsOfTheClient(t *testing.T) {
	run(t, h2.Options{}, func(c *client) {
		r := c.begin(1)
		const size = 8 << 10
		sent, granted := 0, streamWindow
		for sent < 20*streamWindow {
			for sent+size <= granted {
				c.data(1, false, size/2)
				c.send(func() error { return c.WriteDataPadded(1, false, make([]byte, size/2-101), make([]byte, 100)) })
				sent += size
				r.next(t, "4096 bytes")
				r.next(t, "3995 bytes")
				go r.Grant(size/2 + size/2 - 101)
			}
			granted += int(c.until(http2.FrameWindowUpdate, 1).(*http2.WindowUpdateFrame).Increment)
			if granted > sent+streamWindow {
				t.Fatalf("the client may send %d bytes", granted-sent)
			}
		}
	})
	// What comes for streams that have ended counts for the connection, and comes back.
	run(t, h2.Options{}, func(c *client) {
		c.begin(1)
		c.frame(http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x08")
		for sent := 0; sent < 10*connWindow; {
			for range connWindow / 4 / 1024 {
				c.data(1, false, 1024)
			}
			sent += int(c.until(http2.FrameWindowUpdate, 0).(*http2.WindowUpdateFrame).Increment)
		}
	})
}

// TestLargeHeaders: they come in as many frames as they need, in both directions.
func TestLargeHeaders(t *testing.T) {
	long := strings.Repeat("~", 100_000)
	run(t, h2.Options{}, func(c *client) {
		r := c.begin(1)
		go func() { _ = r.Stream.End(answerHeader, fields("text", long)) }() // The client sees it.
		if h := c.until(http2.FrameHeaders, 1).(*http2.MetaHeadersFrame); len(h.Fields) != 2 || h.Fields[1].Value != long {
			t.Errorf("%d fields", len(h.Fields))
		}
		c.send(func() error { // One field in many frames.
			c.block.Reset()
			err := c.encoder.WriteField(hpack.HeaderField{Name: ":path", Value: "/" + long[:1000]})
			err = errors.Join(err, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, EndStream: true}))
			for c.block.Len() > 0 {
				err = errors.Join(err, c.WriteContinuation(3, false, c.block.Next(1)), c.WriteContinuation(3, false, nil))
			}
			return errors.Join(err, c.WriteContinuation(3, true, nil))
		})
		synctest.Wait()
		if got := (<-c.opened).Fields(); len(got) != 1 || got[0].Value != "/"+long[:1000] {
			t.Errorf("%d fields", len(got))
		}
	})
}

// TestHeaderTable: headers keep to the table that the client has, however it changes.
func TestHeaderTable(t *testing.T) {
	run(t, h2.Options{}, func(c *client) {
		stream := uint32(1)
		for _, size := range []uint32{4096, 0, 100, 1 << 20, 50, 4096} {
			c.settings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: size})
			c.ReadMetaHeaders.SetAllowedMaxDynamicTableSize(size)
			for range 2 {
				c.header(stream, true, fields(":path", "/echo", "x", "y")...)
				c.all(stream)
				stream += 2
			}
		}
	})
}

// TestFloods: a client that reads nothing cannot have frames pile up.
func TestFloods(t *testing.T) {
	for name, flood := range map[string]func(*client, uint32) error{
		"pings":    func(c *client, _ uint32) error { return c.WritePing(false, [8]byte{}) },
		"settings": func(c *client, _ uint32) error { return c.WriteSettings() },
		"wrong windows": func(c *client, i uint32) error {
			return c.WriteRawFrame(http2.FrameWindowUpdate, 0, 2*i+101, make([]byte, 4))
		},
		"wrong streams": func(c *client, i uint32) error {
			return c.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 101, BlockFragment: []byte("\x04\x02/x\x04\x02/x"), EndStream: true, EndHeaders: true})
		},
		"answers that are reset": func(c *client, i uint32) error {
			return errors.Join(
				c.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 101, BlockFragment: []byte("\x04\x05/echo"), EndStream: true, EndHeaders: true}),
				c.WriteRSTStream(2*i+101, http2.ErrCodeCancel))
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, h2.Options{}, func(c *client) {
				const frames = 20_000
				c.header(1, true, fields(":path", "/kept")...)
				done := make(chan error, 1)
				c.send(func() error {
					var err error
					for i := uint32(0); i < frames && err == nil; i++ {
						err = flood(c, i)
					}
					done <- err
					return err
				})
				synctest.Wait()
				select {
				case err := <-done:
					if err == nil && h2.Out(c.server) > 256<<10 {
						t.Errorf("%d bytes wait", h2.Out(c.server))
					}
				default:
					t.Error("the server reads no more")
				}
			})
		})
	}
}

// TestShutdown: the client hears of it before, and what it has begun is finished.
func TestShutdown(t *testing.T) {
	run(t, h2.Options{}, func(c *client) {
		r := c.begin(1)
		go c.server.Shutdown()
		if f := c.until(http2.FrameGoAway, 0).(*http2.GoAwayFrame); f.LastStreamID != 1<<31-1 || f.ErrCode != http2.ErrCodeNo {
			t.Error(f)
		}
		last := c.until(http2.FramePing, 0).(*http2.PingFrame).Data
		c.header(3, true, fields(":path", "/echo")...) // It was on its way.
		c.all(3)
		c.send(func() error { return c.WritePing(true, last) })
		if f := c.until(http2.FrameGoAway, 0).(*http2.GoAwayFrame); f.LastStreamID != 3 || f.ErrCode != http2.ErrCodeNo {
			t.Error(f)
		}
		c.header(5, true, fields(":path", "/echo")...)
		if got := c.outcome(); got != "RST 5 REFUSED_STREAM" {
			t.Error(got)
		}
		go func() { _ = r.Stream.End(answerHeader, trailers) }() // The client sees it.
		c.all(1)
		if _, err := c.ReadFrame(); err != nil { // RST_STREAM
			t.Error(err)
		}
		if _, err := c.ReadFrame(); err != io.EOF {
			t.Error(err)
		}
	})
	// A client that says nothing.
	run(t, h2.Options{}, func(c *client) {
		go c.server.Shutdown()
		c.until(http2.FrameGoAway, 0)
		c.until(http2.FrameGoAway, 0)
		if _, err := c.ReadFrame(); err != io.EOF {
			t.Error(err)
		}
	})
}

// TestLook: connections end that are idle, or whose client is gone or reads nothing. Others do not.
func TestLook(t *testing.T) {
	const most = 5
	o := h2.Options{IdleTimeout: 60 * time.Second, PingAfter: 10 * time.Second, PingTimeout: 5 * time.Second}
	looks := func(c *client, n int) {
		for range n {
			time.Sleep(time.Second)
			c.server.Look(time.Now(), most)
			synctest.Wait()
		}
	}
	ended := func(c *client) bool {
		synctest.Wait()
		return c.server.Context().Err() != nil
	}
	drain := func(c *client, answers bool) {
		go func() {
			for {
				f, err := c.ReadFrame()
				if err != nil {
					return
				}
				if f, ok := f.(*http2.PingFrame); ok && answers && !f.IsAck() {
					c.send(func() error { return c.WritePing(true, f.Data) })
				}
			}
		}()
	}
	run(t, o, func(c *client) {
		c.begin(1)
		drain(c, true)
		if looks(c, 200); ended(c) {
			t.Error("a client that answers")
		}
		c.frame(http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x08")
		if looks(c, 65); !ended(c) {
			t.Error("an idle client stays")
		}
	})
	run(t, o, func(c *client) {
		c.begin(1)
		drain(c, false)
		if looks(c, 14); ended(c) {
			t.Error("a silent client has ended early")
		}
		if looks(c, 3); !ended(c) {
			t.Error("a silent client stays")
		}
	})
	run(t, o, func(c *client) {
		c.begin(1)
		c.ping() // Its answer is not read.
		if looks(c, most-1); ended(c) {
			t.Error("a client that reads nothing has ended early")
		}
		if looks(c, 4); !ended(c) {
			t.Error("a client that reads nothing stays")
		}
	})
}

// TestFairness: streams that have much to write get a share of a connection each.
func TestFairness(t *testing.T) {
	run(t, h2.Options{}, func(c *client) {
		const total = 400 * 16 << 10
		much := make([]byte, total)
		ctx, cancel := context.WithCancel(context.Background())
		for i := range uint32(maxStreams) {
			r := c.begin(2*i + 1)
			c.window(2*i+1, 1<<30)
			go func() { _ = r.Write(ctx, answerHeader, much) }() // It ends with the test.
		}
		synctest.Wait()
		taken := map[uint32]int{}
		for all := 0; all < total; {
			f, err := c.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if d, ok := f.(*http2.DataFrame); ok {
				taken[d.StreamID] += len(d.Data())
				all += len(d.Data())
				c.window(0, uint32(len(d.Data())))
			}
		}
		for stream, n := range taken {
			if n < total/maxStreams/16 {
				t.Errorf("stream %d got %d bytes of %d", stream, n, total)
			}
		}
		if len(taken) != maxStreams {
			t.Errorf("%d streams got something", len(taken))
		}
		cancel()
	})
}
