package eventlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/log/chunkfile"
)

const catchUpBytes = 512 << 20

// openCatchUpSource makes a log of frames of 200 events with 256 bytes of data each.
func openCatchUpSource(b *testing.B) *Log {
	b.Helper()
	m := newModel()
	l := mustOpen(b, benchOptions(b))
	data := strings.Repeat("x", 256)
	for m.tail.End < catchUpBytes {
		list := make([]testEvent, 200)
		for i := range list {
			list[i] = ev(fmt.Sprint("stream-", (int(m.tail.Index)*200+i)%10_000), data)
		}
		write(b, l, m.frame(false, list...))
		m.frames = m.frames[:0]
	}
	check.Must(b, l.syncer.Sync())
	return l
}

// loopback returns both ends of a TCP connection.
func loopback(b *testing.B) (near, far net.Conn) {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.Must(b, err)
	defer listener.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := listener.Accept()
		if err != nil {
			c = nil
		}
		accepted <- c
	}()
	near, err = net.Dial("tcp", listener.Addr().String())
	check.Must(b, err)
	if far = <-accepted; far == nil {
		b.Fatal("no connection")
	}
	return near, far
}

// shipping measures sending everything of a source through a connection, and what is done with it
// there.
func shipping(b *testing.B, send func(net.Conn) error, receive func(net.Conn) error) {
	b.Helper()
	near, far := loopback(b)
	sent := make(chan error, 1)
	b.StartTimer()
	go func() {
		err := send(near)
		if e := near.Close(); err == nil {
			err = e
		}
		sent <- err
	}()
	check.Must(b, receive(far))
	b.StopTimer()
	check.Must(b, <-sent)
	check.Must(b, far.Close())
}

// BenchmarkShipBlock is the least that any copying over a network does: read
// the files, checksum, send, checksum, write, sync.
func BenchmarkShipBlock(b *testing.B) {
	l := openCatchUpSource(b)
	names := chunkFilesIn(b, l.opts.Dir)
	b.SetBytes(l.Tail().End)
	b.ResetTimer()
	b.StopTimer()
	for range b.N {
		to := b.TempDir()
		shipping(b, func(conn net.Conn) error {
			buf := make([]byte, DefaultBlockBytes)
			for _, name := range names {
				f, err := os.Open(filepath.Join(l.opts.Dir, name))
				if err != nil {
					return err
				}
				for {
					n, err := io.ReadFull(f, buf)
					var head [8]byte
					binary.LittleEndian.PutUint32(head[:], uint32(n))
					binary.LittleEndian.PutUint32(head[4:], crc32.Checksum(buf[:n], chunkfile.Castagnoli))
					if _, err := conn.Write(head[:]); err != nil {
						return err
					}
					if _, err := conn.Write(buf[:n]); err != nil {
						return err
					}
					if err != nil {
						break
					}
				}
				if err := f.Close(); err != nil {
					return err
				}
			}
			return nil
		}, func(conn net.Conn) error {
			buf := make([]byte, DefaultBlockBytes)
			for i := range names {
				f, err := os.Create(filepath.Join(to, fmt.Sprint(i)))
				if err != nil {
					return err
				}
				for n := len(buf); n == len(buf); {
					var head [8]byte
					if _, err := io.ReadFull(conn, head[:]); err != nil {
						return err
					}
					n = int(binary.LittleEndian.Uint32(head[:]))
					if _, err := io.ReadFull(conn, buf[:n]); err != nil {
						return err
					}
					if crc32.Checksum(buf[:n], chunkfile.Castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
						return event.ErrBadFrames
					}
					if _, err := f.Write(buf[:n]); err != nil {
						return err
					}
				}
				if err := f.Sync(); err != nil {
					return err
				}
				if err := f.Close(); err != nil {
					return err
				}
			}
			return nil
		})
		check.Must(b, os.RemoveAll(to))
	}
}

// BenchmarkCatchUp fetches a whole log over a network: verified, indexed, readable and durable at
// the end.
func BenchmarkCatchUp(b *testing.B) {
	l := openCatchUpSource(b)
	b.SetBytes(l.Tail().End)
	b.ReportAllocs()
	b.ResetTimer()
	b.StopTimer()
	for range b.N {
		o := benchOptions(b)
		sink := mustOpen(b, o)
		shipping(b, func(conn net.Conn) error {
			k, err := l.Transfer.Continue(0, chunkfile.GenesisChain(testCluster))
			if err != nil {
				return err
			}
			for {
				block, err := k.Next(0)
				if err == io.EOF {
					return k.Close()
				}
				if err != nil {
					return err
				}
				var head [16]byte
				binary.LittleEndian.PutUint64(head[:], uint64(block.First))
				binary.LittleEndian.PutUint64(head[8:], uint64(len(block.Raw)))
				if _, err := conn.Write(head[:]); err != nil {
					return err
				}
				if _, err := conn.Write(block.Raw); err != nil {
					return err
				}
			}
		}, func(conn net.Conn) error {
			buf := make([]byte, DefaultBlockBytes)
			for {
				var head [16]byte
				if _, err := io.ReadFull(conn, head[:]); err == io.EOF {
					return sink.syncer.Sync()
				} else if err != nil {
					return err
				}
				raw := buf[:binary.LittleEndian.Uint64(head[8:])]
				if _, err := io.ReadFull(conn, raw); err != nil {
					return err
				}
				if _, err := sink.AppendFrames(int64(binary.LittleEndian.Uint64(head[:])), raw); err != nil {
					return err
				}
			}
		})
		check.MustEqual(b, sink.Tail(), l.Tail(), "tail")
		check.Must(b, sink.Close())
		check.Must(b, os.RemoveAll(o.Dir))
	}
}

func chunkFilesIn(b *testing.B, dir string) []string {
	b.Helper()
	names := check.Value(filepath.Glob(filepath.Join(dir, "chunk-*"))).Must(b)
	for i := range names {
		names[i] = filepath.Base(names[i])
	}
	return names
}
