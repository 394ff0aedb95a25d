package grpcapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/annalsdb/annals/api"
	grpcapi "github.com/annalsdb/annals/grpc"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// rawCodec sends bytes as they are, and takes any answer.
type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (rawCodec) Unmarshal(mem.BufferSlice, any) error { return nil }
func (rawCodec) Name() string                         { return "proto" }

// What cannot be decoded is the caller's fault, with each kind of method.
func TestUndecodable(t *testing.T) {
	conn := dial(t, address)
	for _, method := range []string{"Delete", "Read", "Append", "BatchAppend"} {
		err := conn.Invoke(t.Context(), "/event_store.client.streams.Streams/"+method, []byte{0x0a, 0xff}, nil, grpc.ForceCodecV2(rawCodec{}))
		if code := status.Code(err); code != codes.InvalidArgument {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// TestClientsFaultsAreNotLogged: a call that its client does wrong, or leaves, does not log an
// error.
func TestClientsFaultsAreNotLogged(t *testing.T) {
	var lines strings.Builder
	o := grpcapi.Options{Node: api.Node{Logger: hclog.New(&hclog.LoggerOptions{Output: &lines})}}
	conn, server := writeConn(t, newWriteStore(written(0)), o)
	for _, method := range []string{streams.Streams_Read_FullMethodName, streams.Streams_Append_FullMethodName, streams.Streams_BatchAppend_FullMethodName, streams.Streams_Delete_FullMethodName} {
		for _, leaves := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, grpc.ForceCodecV2(rawCodec{}))
			if err != nil {
				t.Fatal(err)
			}
			if leaves {
				cancel()
			} else if err := errors.Join(stream.SendMsg([]byte("\xff")), stream.CloseSend()); err != nil {
				t.Fatal(err)
			}
			err = stream.RecvMsg(nil)
			if want := map[bool]codes.Code{false: codes.InvalidArgument, true: codes.Canceled}[leaves]; status.Code(err) != want {
				t.Errorf("%s, the client leaves %v: %v", method, leaves, err)
			}
			cancel()
		}
	}
	allEnded(t, server)
	if lines.Len() > 0 {
		t.Errorf("logged:\n%s", &lines)
	}
}

// A message of next to nothing but millions of events is not decoded.
func TestCrowdedBatch(t *testing.T) {
	message := append([]byte{0x0a, 0x02, 0x12, 0x00}, bytes.Repeat([]byte{0x1a, 0}, 8<<20)...)
	conn := dial(t, address)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := conn.Invoke(t.Context(), streams.Streams_BatchAppend_FullMethodName, message, nil, grpc.ForceCodecV2(rawCodec{}), grpc.UseCompressor(gzip.Name))
	runtime.ReadMemStats(&after)
	if code := status.Code(err); code != codes.InvalidArgument {
		t.Error(err)
	}
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 300 {
		t.Errorf("it took %d MiB", took)
	}
}

const noRoom = "ResourceExhausted: Requests take all memory that there is for them"

// What calls hold of events is bounded, and there is room again once they are answered or gone.
func TestHeldEvents(t *testing.T) {
	s := newWriteStore(written(0))
	const held = 40 << 10
	memory := api.NewMemory(held * 8 / 7)
	c := writeClient(t, s, grpcapi.Options{Node: api.Node{Memory: memory, WriteTimeout: time.Hour}})
	data := strings.Repeat("x", held/4)
	part := func(n int, final bool) *streams.BatchAppendReq {
		r := batchOf(id(n), batchOptions("s", anyVersion), data)
		r.IsFinal = final
		return r
	}
	b := openBatch(t, c)
	for i := range 20 {
		b.send(part(i, true))
		check.Equal(t, b.next(), id(i).GetString_()+" ok 0", "answer")
	}
	for range 3 {
		// A call gives back what it held when it has ended, which is after its client knows that.
		testkit.Eventually(t, 10*time.Second, func() error {
			if n := memory.Used(); n > 0 {
				return fmt.Errorf("%d bytes are held", n)
			}
			return nil
		})
		// Each call holds three quarters. The last makes known that the parts before were taken.
		b := openBatch(t, c)
		b.send(part(1, false), part(2, false), part(3, false), batchOf(id(4), batchOptions("s", anyVersion)))
		check.Equal(t, b.next(), id(4).GetString_()+" ok 0", "answer")
		if _, end, err := appendTo(t.Context(), c, appendOptions("s", anyVersion), message(newID(), "t", []byte(data)), message(newID(), "t", []byte(data))); err == nil || end != noRoom {
			t.Error(end)
		}
		check.Equal(t, one(t, c, "s", anyVersion), "ok 0", "a small one")
		b.send(part(5, false))
		check.Equal(t, b.ended(), noRoom, "end")
		_, end, _ := appendTo(t.Context(), c, appendOptions("s", anyVersion), message(newID(), "t", []byte(data)), message(newID(), "t", []byte(data)), message(newID(), "t", []byte(data)))
		check.Equal(t, end, "OK", "room")
	}
}
