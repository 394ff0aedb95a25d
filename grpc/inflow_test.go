package grpcapi

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"

	"github.com/annalsdb/annals/api"
)

// wireFrame is a message of so many bytes on the wire.
func wireFrame(size int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size)), make([]byte, size)...)
}

// pieces gives a body of so many bytes at a time.
type pieces struct {
	*bytes.Reader
	most int
}

func (p *pieces) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(len(b), p.most)]) }
func (p *pieces) Close() error               { return nil }

// A body is read as its messages are received, and not much further.
func TestInflow(t *testing.T) {
	small, large := wireFrame(10), wireFrame(1<<20)
	many := bytes.Repeat(small, 3*maxAhead/leastFrame)
	const tooLarge = "one that is too large"
	for _, test := range []struct {
		name  string
		body  []byte
		piece int
		// how many bytes are read before the first message is received, after it, after the next
		reads []int
	}{
		{"small ones", many, 15, []int{maxAhead / leastFrame * 15, (maxAhead/leastFrame + 1) * 15, (maxAhead/leastFrame + 2) * 15}},
		{"small ones in odd pieces", many, 7, []int{maxAhead / leastFrame * 15, (maxAhead/leastFrame + 1) * 15, (maxAhead/leastFrame + 2) * 15}},
		{"a large one whose end is looked for", large, 1 << 15, []int{len(large)}},
		{"large ones", bytes.Repeat(large, 3), len(large), []int{2 * len(large), 3 * len(large), 3 * len(large)}},
		{tooLarge, wireFrame(20 << 20), 5, []int{0}},
		{"nothing", nil, 5, []int{0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newInflow(&pieces{bytes.NewReader(test.body), test.piece})
				f.begin(httptest.NewRequestWithContext(t.Context(), "POST", streams.Streams_BatchAppend_FullMethodName, nil), new(api.Claim))
				read, err := 0, error(nil)
				go func() {
					buf := make([]byte, 1<<20+frameHead)
					for err == nil {
						var n int
						n, err = f.Read(buf)
						read += n
					}
				}()
				for i, want := range test.reads {
					if i > 0 {
						f.received()
					}
					synctest.Wait()
					// A piece may reach into the next message.
					if read < want || read > want+test.piece-1 && read < len(test.body) {
						t.Fatalf("%d bytes were read with %d messages received, expected %d", read, i, want)
					}
				}
				ended := err
				if whole := read == len(test.body); whole != (ended == io.EOF) && test.name != tooLarge {
					t.Errorf("%d of %d bytes, %v", read, len(test.body), ended)
				}
				if err := f.Close(); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if ended == nil && err != io.ErrClosedPipe {
					t.Error(err)
				}
			})
		})
	}
}
