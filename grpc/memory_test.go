package grpcapi_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/annalsdb/annals/api"
	grpcapi "github.com/annalsdb/annals/grpc"
)

const mib = 1 << 20

// zipped is a message as gzip has it; its end says that it was so many bytes, unless that is below
// 0.
func zipped(t *testing.T, message []byte, says int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(message); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	z := b.Bytes()
	if says >= 0 {
		binary.LittleEndian.PutUint32(z[len(z)-4:], uint32(says))
	}
	return z
}

// watchedBody notes the most that was claimed as it was read.
type watchedBody struct {
	io.Reader
	memory *api.Memory
	most   atomic.Int64
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.most.Store(max(b.most.Load(), b.memory.Used()))
	return b.Reader.Read(p)
}

func (b *watchedBody) Close() error { return nil }

// postCall sends the messages of a call, and returns how it ended and the most that was claimed.
func postCall(t *testing.T, server *grpcapi.Server, method string, body []byte, memory *api.Memory) (codes.Code, int64) {
	t.Helper()
	watched := &watchedBody{Reader: bytes.NewReader(body), memory: memory}
	code := byHand(t, listen(t, server), method, watched, http.Header{"Grpc-Encoding": {"gzip"}})
	allEnded(t, server)
	return code, watched.most.Load()
}

// Messages that are more when they are unpacked or decoded are refused or counted, with each kind
// of method, and nothing of them stays claimed.
func TestMessagesShareMemory(t *testing.T) {
	field := func(number protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
	}
	event := func(size int) []byte {
		b, err := proto.Marshal(message(newID(), "t", make([]byte, size)))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	options, err := proto.Marshal(appendOptions("s", anyVersion))
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 16*mib)
	for _, c := range []struct {
		name, method string
		messages     [][]byte // compressed, but for those before the last
		says         int
		code         codes.Code
	}{
		{"an event before the options", streams.Streams_Append_FullMethodName, [][]byte{event(15 * mib)}, -1, codes.ResourceExhausted},
		{"a large name", streams.Streams_Append_FullMethodName, [][]byte{field(1, field(3, zeros))}, -1, codes.ResourceExhausted},
		{"beyond the limit", streams.Streams_BatchAppend_FullMethodName, [][]byte{make([]byte, 60*mib)}, -1, codes.ResourceExhausted},
		{"more than it says", streams.Streams_BatchAppend_FullMethodName, [][]byte{zeros}, 4096, codes.InvalidArgument},
		{"less than it says", streams.Streams_BatchAppend_FullMethodName, [][]byte{zeros[:mib]}, mib + 5, codes.InvalidArgument},
		{"more than can be", streams.Streams_BatchAppend_FullMethodName, [][]byte{zeros[:100]}, 1 << 30, codes.InvalidArgument},
		{"a deletion", streams.Streams_Delete_FullMethodName, [][]byte{field(1, field(1, field(3, zeros)))}, -1, codes.ResourceExhausted},
		{"a filter", streams.Streams_Read_FullMethodName, [][]byte{field(1, field(7, field(1, bytes.Repeat([]byte{0x12, 0}, 8*mib))))}, -1, codes.ResourceExhausted},
		{"entries of a map", streams.Streams_Append_FullMethodName, [][]byte{options, field(2, bytes.Repeat([]byte{0x12, 0}, mib))}, -1, codes.InvalidArgument},
		{"empty events", streams.Streams_BatchAppend_FullMethodName, [][]byte{bytes.Repeat([]byte{0x1a, 0}, mib)}, -1, codes.InvalidArgument},
	} {
		t.Run(c.name, func(t *testing.T) {
			memory := api.NewMemory(128 * mib)
			server := grpcapi.New(grpcapi.Options{Node: api.Node{Memory: memory, Store: newWriteStore(written(0)), Access: writeAccess{}, Cluster: &writeCluster{}}})
			var body []byte
			for i, m := range c.messages {
				kind := byte(0)
				if i == len(c.messages)-1 {
					kind, m = 1, zipped(t, m, c.says)
				}
				body = append(binary.BigEndian.AppendUint32(append(body, kind), uint32(len(m))), m...)
			}
			code, most := postCall(t, server, c.method, body, memory)
			if code != c.code {
				t.Errorf("%s, want %s", code, c.code)
			}
			if most > 64*mib {
				t.Errorf("%d bytes were claimed", most)
			}
			claims(t, memory, "the call has ended", none)
		})
	}
}
