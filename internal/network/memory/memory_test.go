package memory_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/internal/network/memory"
)

// pair is a connection between hosts a and b.
type pair struct {
	net  *memory.Network
	a, b *memory.Endpoint
	l    net.Listener
	x, y tcp // the ends at a and at b
}

type tcp interface {
	net.Conn
	CloseWrite() error
	SetLinger(seconds int) error
}

const at = "b:2113"

// inBubble runs a test with a connection in a bubble.
func inBubble(t *testing.T, o memory.Options, do func(t *testing.T, p *pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pair{net: memory.New(o)}
		p.net.AddHost("a")
		p.net.AddHost("b")
		p.a, p.b = endpoint(t, p.net, "a"), endpoint(t, p.net, "b")
		l, err := p.b.Listen(t.Context(), ":2113")
		if err != nil {
			t.Fatal(err)
		}
		p.l = l
		p.connect(t)
		do(t, p)
		if err := errors.Join(p.a.Close(), p.b.Close()); err != nil {
			t.Error(err)
		}
	})
}

func endpoint(t *testing.T, n *memory.Network, host string) *memory.Endpoint {
	t.Helper()
	e, err := n.Endpoint(host)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (p *pair) connect(t *testing.T) {
	t.Helper()
	x, err := p.a.Dial(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	y, err := p.l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	p.x, p.y = x.(tcp), y.(tcp)
}

func (p *pair) link(t *testing.T, from, to string, l memory.Link) {
	t.Helper()
	if err := p.net.SetLink(from, to, l); err != nil {
		t.Fatal(err)
	}
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// receive reads so many bytes, and how long that took.
func receive(t *testing.T, c net.Conn, count int) (string, time.Duration) {
	t.Helper()
	start := time.Now()
	b := make([]byte, count)
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	return string(b), time.Since(start)
}

// fails expects an error of an operation, after some time.
func fails(t *testing.T, want error, after time.Duration, do func() error) {
	t.Helper()
	start := time.Now()
	if err := do(); !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
	if took := time.Since(start); took != after {
		t.Errorf("after %s, want %s", took, after)
	}
}

func reading(c net.Conn) func() error {
	return func() error { _, err := c.Read(make([]byte, 1)); return err }
}

func writing(c net.Conn, bytes int) func() error {
	return func() error { _, err := c.Write(make([]byte, bytes)); return err }
}

func TestBytesArriveInOrder(t *testing.T) {
	links := map[string]memory.Link{
		"good":  {},
		"slow":  {Latency: 20 * time.Millisecond, Jitter: 30 * time.Millisecond, Bandwidth: 1 << 20},
		"lossy": {Latency: time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.3},
	}
	for name, l := range links {
		t.Run(name, func(t *testing.T) {
			inBubble(t, memory.Options{Seed: 5, Buffer: 10_000}, func(t *testing.T, p *pair) {
				p.link(t, "a", "b", l)
				p.link(t, "b", "a", l)
				sent, received := sha256.New(), sha256.New()
				go func() {
					rng := rand.New(rand.NewPCG(1, 2))
					for range 300 {
						b := make([]byte, rng.IntN(5000))
						for i := range b {
							b[i] = byte(rng.Uint32())
						}
						sent.Write(b)
						if _, err := p.x.Write(b); err != nil {
							t.Error(err)
						}
					}
					if err := p.x.CloseWrite(); err != nil {
						t.Error(err)
					}
				}()
				if _, err := io.Copy(received, p.y); err != nil {
					t.Error(err)
				}
				if !bytes.Equal(sent.Sum(nil), received.Sum(nil)) {
					t.Error("other bytes arrived than were sent")
				}
				// The other direction is still open.
				send(t, p.y, "thanks")
				if got, _ := receive(t, p.x, 6); got != "thanks" {
					t.Errorf("got %q", got)
				}
			})
		})
	}
}

func TestLinksTakeTime(t *testing.T) {
	inBubble(t, memory.Options{}, func(t *testing.T, p *pair) {
		p.link(t, "a", "b", memory.Link{Latency: 40 * time.Millisecond})
		send(t, p.x, "late")
		if got, took := receive(t, p.y, 4); got != "late" || took != 40*time.Millisecond {
			t.Errorf("%q after %s", got, took)
		}
		// The way back takes none.
		send(t, p.y, "soon")
		if got, took := receive(t, p.x, 4); got != "soon" || took != 0 {
			t.Errorf("%q after %s", got, took)
		}
		p.link(t, "a", "b", memory.Link{Bandwidth: 1000})
		send(t, p.x, "0123456789")
		if _, took := receive(t, p.y, 10); took != 10*time.Millisecond {
			t.Errorf("10 bytes took %s", took)
		}
	})
}

func TestDeadlines(t *testing.T) {
	inBubble(t, memory.Options{Buffer: 100}, func(t *testing.T, p *pair) {
		if err := p.x.SetDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		fails(t, os.ErrDeadlineExceeded, time.Second, reading(p.x))
		if err := p.x.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		fails(t, os.ErrDeadlineExceeded, time.Second, writing(p.x, 101))
		// A deadline set meanwhile counts.
		time.AfterFunc(time.Second, func() { _ = p.y.SetReadDeadline(time.Now()) })
		receive(t, p.y, 100)
		fails(t, os.ErrDeadlineExceeded, time.Second, reading(p.y))
	})
}

func TestCuts(t *testing.T) {
	cut := memory.Link{Cut: true}
	t.Run("bytes are late", func(t *testing.T) {
		inBubble(t, memory.Options{}, func(t *testing.T, p *pair) {
			p.link(t, "a", "b", cut)
			send(t, p.x, "held")
			send(t, p.y, "free")
			receive(t, p.x, 4)
			time.AfterFunc(10*time.Second, func() { p.net.Heal(memory.Link{}) })
			if got, took := receive(t, p.y, 4); got != "held" || took < 10*time.Second || took > 11*time.Second {
				t.Errorf("%q after %s", got, took)
			}
		})
	})
	t.Run("what is on its way is late too", func(t *testing.T) {
		inBubble(t, memory.Options{}, func(t *testing.T, p *pair) {
			p.link(t, "a", "b", memory.Link{Latency: time.Second})
			send(t, p.x, "held")
			p.link(t, "a", "b", cut)
			time.AfterFunc(10*time.Second, func() { p.net.Heal(memory.Link{}) })
			if _, took := receive(t, p.y, 4); took < 10*time.Second {
				t.Errorf("after %s", took)
			}
		})
	})
	t.Run("the sender does not learn what was read", func(t *testing.T) {
		inBubble(t, memory.Options{Buffer: 100, Broken: time.Hour}, func(t *testing.T, p *pair) {
			p.link(t, "b", "a", cut)
			send(t, p.x, string(make([]byte, 100)))
			receive(t, p.y, 100)
			time.AfterFunc(10*time.Second, func() { p.net.Heal(memory.Link{}) })
			fails(t, nil, 10*time.Second, writing(p.x, 1))
		})
	})
	t.Run("long ones break connections", func(t *testing.T) {
		inBubble(t, memory.Options{}, func(t *testing.T, p *pair) {
			p.link(t, "a", "b", cut)
			fails(t, syscall.ETIMEDOUT, 30*time.Second, reading(p.y))
			fails(t, syscall.ETIMEDOUT, 0, writing(p.x, 1))
		})
	})
	t.Run("dials are tried again", func(t *testing.T) {
		inBubble(t, memory.Options{}, func(t *testing.T, p *pair) {
			p.link(t, "b", "a", cut)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			fails(t, context.DeadlineExceeded, 5*time.Second, func() error { _, err := p.a.Dial(ctx, at); return err })
			fails(t, syscall.ETIMEDOUT, 127*time.Second, func() error { _, err := p.a.Dial(t.Context(), at); return err })
			time.AfterFunc(2*time.Second, func() { p.net.Heal(memory.Link{}) })
			fails(t, nil, 3*time.Second, func() error { _, err := p.a.Dial(t.Context(), at); return err })
		})
	})
}

// broken breaks a share of b's connections, which must be so many.
func broken(p *pair, share float64, want int) error {
	if n := p.b.Reset(share); n != want {
		return fmt.Errorf("%d connections broke, want %d", n, want)
	}
	return nil
}

func TestEnds(t *testing.T) {
	tests := map[string]struct {
		end  func(p *pair) error
		read error // of the other end
	}{
		"close":             {func(p *pair) error { return p.y.Close() }, io.EOF},
		"close without end": {func(p *pair) error { return errors.Join(p.y.SetLinger(0), p.y.Close()) }, syscall.ECONNRESET},
		"process":           {func(p *pair) error { return p.b.Close() }, io.EOF},
		"reset":             {func(p *pair) error { return broken(p, 1, 1) }, syscall.ECONNRESET},
		"reset of none":     {func(p *pair) error { return errors.Join(broken(p, 0, 0), p.b.Close()) }, io.EOF},
		"close with data not read": {func(p *pair) error {
			_, err := p.x.Write([]byte("hello"))
			return errors.Join(err, p.y.Close())
		}, syscall.ECONNRESET},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, memory.Options{}, func(t *testing.T, p *pair) {
				if err := test.end(p); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				fails(t, test.read, 0, reading(p.x))
				if test.read != io.EOF {
					fails(t, test.read, 0, writing(p.x, 1))
					return
				}
				// No one reads what is written now: the second write knows.
				fails(t, nil, 0, writing(p.x, 1))
				synctest.Wait()
				fails(t, syscall.ECONNRESET, 0, writing(p.x, 1))
			})
		})
	}
}

func TestPowerCut(t *testing.T) {
	inBubble(t, memory.Options{}, func(t *testing.T, p *pair) {
		p.link(t, "b", "a", memory.Link{Latency: time.Second})
		send(t, p.y, "lost")
		if err := errors.Join(p.net.SetPower("b", false), p.b.Close()); err != nil {
			t.Fatal(err)
		}
		fails(t, net.ErrClosed, 0, reading(p.y))
		fails(t, nil, 0, writing(p.x, 1)) // No one tells it.
		time.AfterFunc(10*time.Second, func() { _ = p.net.SetPower("b", true) })
		start := time.Now()
		if err := reading(p.x)(); !errors.Is(err, syscall.ECONNRESET) || time.Since(start) < 10*time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		fails(t, syscall.ECONNREFUSED, time.Second, func() error { _, err := p.a.Dial(t.Context(), at); return err })
		// The next process has nothing of the last one.
		fails(t, net.ErrClosed, 0, func() error { _, err := p.b.Listen(t.Context(), ":1"); return err })
		p.b = endpoint(t, p.net, "b")
		var err error
		if p.l, err = p.b.Listen(t.Context(), ":2113"); err != nil {
			t.Fatal(err)
		}
		p.connect(t)
		send(t, p.x, "hello")
		receive(t, p.y, 5)
	})
}

func TestAddresses(t *testing.T) {
	inBubble(t, memory.Options{}, func(t *testing.T, p *pair) {
		fails(t, syscall.EADDRINUSE, 0, func() error { _, err := p.b.Listen(t.Context(), "b:2113"); return err })
		fails(t, syscall.EADDRNOTAVAIL, 0, func() error { _, err := p.b.Listen(t.Context(), "a:1"); return err })
		fails(t, syscall.ECONNREFUSED, 0, func() error { _, err := p.a.Dial(t.Context(), "b:1"); return err })
		_, err := p.a.Dial(t.Context(), "c:1")
		if dns, ok := errors.AsType[*net.DNSError](err); !ok || !dns.IsNotFound {
			t.Errorf("unknown host: %v", err)
		}
		l, err := p.b.Listen(t.Context(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		c, err := p.b.Dial(t.Context(), fmt.Sprintf("localhost:%d", l.Addr().(*net.TCPAddr).Port))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.RemoteAddr().String(); got != l.Addr().String() {
			t.Errorf("connected to %s, want %s", got, l.Addr())
		}
		time.AfterFunc(time.Second, func() { _ = l.Close() })
		if _, err := l.Accept(); err != nil {
			t.Fatal(err)
		}
		fails(t, net.ErrClosed, time.Second, func() error { _, err := l.Accept(); return err })
	})
}
