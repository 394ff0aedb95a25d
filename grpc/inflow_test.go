package grpcapi

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"golang.org/x/net/http2"

	"github.com/annalsdb/annals/api"
)

// wireFrame is a message of so many bytes on the wire.
func wireFrame(size int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size)), make([]byte, size)...)
}

// piecesConn gives bytes, so many at a time.
type piecesConn struct {
	net.Conn
	*bytes.Reader
	most int
}

func (p *piecesConn) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(len(b), p.most)]) }

// TestConnLooksAlong: what the frames of HTTP/2 carry for a call is counted and claimed, whatever
// pieces they come in, and given back as messages are received. Messages beyond the limit of their
// method end the call before they are there.
func TestConnLooksAlong(t *testing.T) {
	small, large := wireFrame(10), wireFrame(200<<10)
	for _, test := range []struct {
		name     string
		messages [][]byte
		pad      int // bytes
		data     int // bytes in one frame of HTTP/2
		whole    int // messages that are whole at the end
		held     int // bytes that are claimed then
		refused  bool
	}{
		{name: "nothing"},
		{name: "small ones", messages: [][]byte{small, small, small}, data: 1000, whole: 3, held: leastData},
		{name: "small ones in small frames", messages: [][]byte{small, small}, data: 5, whole: 2, held: 6 * leastData},
		{name: "a large one", messages: [][]byte{large}, data: 16 << 10, whole: 1, held: len(large)},
		{name: "padded", messages: [][]byte{large, small}, pad: 100, data: 10_000, whole: 2, held: len(large) + len(small)},
		{name: "padded bytes", messages: [][]byte{small, small}, pad: 250, data: 1, whole: 2, held: 30 * 250},
		{name: "empty ones", messages: slices.Repeat([][]byte{wireFrame(0)}, 1000), data: 5000, whole: 1000, held: 1000 * leastMessage},
		{name: "half of one", messages: [][]byte{large[:1000]}, data: 500, held: 1000},
		{name: "too large", messages: [][]byte{wireFrame(20 << 20)[:100]}, data: 100, held: leastData, refused: true},
		{name: "more after one too large", messages: [][]byte{wireFrame(20 << 20)[:10_000]}, data: 1000, held: 10_000, refused: true},
	} {
		for _, piece := range []int{1, 7, 9, 4096, 1 << 20} {
			var wire bytes.Buffer
			wire.WriteString(http2.ClientPreface)
			framer := http2.NewFramer(&wire, nil)
			all := bytes.Join(test.messages, nil)
			other := wireFrame(50)
			for _, err := range []error{
				framer.WriteSettings(), framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 5, BlockFragment: []byte{0x82}, EndHeaders: true}),
				framer.WriteData(3, false, other), // of a call that has ended
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			for part := range chunksOf(all, test.data) {
				pad := []byte(nil)
				if test.pad > 0 {
					pad = make([]byte, test.pad)
				}
				if err := framer.WriteDataPadded(5, false, part, pad); err != nil {
					t.Fatal(err)
				}
			}
			s := &Server{metrics: newMetrics(nil)}
			c := newConn(t.Context(), &piecesConn{Reader: bytes.NewReader(wire.Bytes()), most: piece}, s)
			memory := api.NewMemory(64 << 20)
			one := &call{in: inflow{more: make(chan struct{}, 1)}}
			one.ended, one.cancel = context.WithCancel(t.Context())
			one.in.limits = limitsOf(streams.Streams_BatchAppend_FullMethodName)
			one.claim.Use(memory)
			// As grpc-go reads: the preface, then each head and its payload.
			read := bytes.Buffer{}
			if _, err := io.CopyN(&read, c, int64(len(http2.ClientPreface))); err != nil {
				t.Fatal(err)
			}
			for {
				head := make([]byte, frameHeader)
				if _, err := io.ReadFull(c, head); err == io.EOF {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				read.Write(head)
				payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
				if _, err := io.ReadFull(c, payload); err != nil {
					t.Fatal(err)
				}
				read.Write(payload)
				if http2.FrameType(head[3]) == http2.FrameHeaders {
					c.open(one)
				}
			}
			if !bytes.Equal(read.Bytes(), wire.Bytes()) {
				t.Errorf("%s in pieces of %d: other bytes were handed out", test.name, piece)
			}
			whole, held := len(one.in.whole), one.claim.Held()
			if refused := one.in.refusal() != nil; whole != test.whole || held < int64(test.held) || refused != test.refused {
				t.Errorf("%s in pieces of %d: %d messages, %d bytes claimed, refused %v", test.name, piece, whole, held, refused)
			}
			for range whole {
				one.claim.Shrink(int64(one.in.received().size))
			}
			if left := one.claim.Held(); test.whole == len(test.messages) && left != 0 {
				t.Errorf("%s in pieces of %d: %d bytes are claimed when all were received", test.name, piece, left)
			}
			c.over(one)
			c.gone(5)
			if memory.Used() != 0 {
				t.Errorf("%s: %d bytes are claimed when the call has ended", test.name, memory.Used())
			}
			one.cancel()
		}
	}
}

func chunksOf(b []byte, size int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			n := min(size, len(b))
			if !yield(b[:n]) {
				return
			}
			b = b[n:]
		}
	}
}

// TestAppendsAreReceivedTogether: small messages of an append wait for its end, or until there are
// many, a large one follows, or they have waited long. Those of other calls do not.
func TestAppendsAreReceivedTogether(t *testing.T) {
	for _, test := range []struct {
		name   string
		method string
		then   func(f *inflow)
		ready  bool
	}{
		{"a small one", streams.Streams_Append_FullMethodName, func(*inflow) {}, false},
		{"of a batch", streams.Streams_BatchAppend_FullMethodName, func(*inflow) {}, true},
		{"the end", streams.Streams_Append_FullMethodName, func(f *inflow) { f.end() }, true},
		{"another small one", streams.Streams_Append_FullMethodName, func(f *inflow) { f.note(wireFrame(100), 0) }, false},
		{"many", streams.Streams_Append_FullMethodName, func(f *inflow) { f.note(wireFrame(muchUnread), 0) }, true},
		{"the head of a large one", streams.Streams_Append_FullMethodName, func(f *inflow) { f.note(wireFrame(largeFrame)[:frameHead], 0) }, true},
		{"some time", streams.Streams_Append_FullMethodName, func(f *inflow) { f.press() }, true},
		{"those before were received", streams.Streams_Append_FullMethodName, func(f *inflow) {
			f.press()
			f.received()
			f.note(wireFrame(100), 0)
		}, false},
	} {
		f := &inflow{limits: limitsOf(test.method), more: make(chan struct{}, 1)}
		f.note(wireFrame(100), 0)
		f.wake()
		test.then(f)
		f.wake()
		if _, ready, err := f.ready(); ready != test.ready || err != nil {
			t.Errorf("%s: ready %v, %v", test.name, ready, err)
		}
		if woken := len(f.more) == 1; test.ready && !woken {
			t.Errorf("%s: the method is not woken", test.name)
		}
	}
}
