package grpcapi_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/event"
)

// endlessStore has a stream without end, of which it makes each page at once.
type endlessStore struct {
	restingStore
	page []event.Resolved
}

func newEndlessStore() *endlessStore {
	s := &endlessStore{page: make([]event.Resolved, 500)}
	for i := range s.page {
		s.page[i].Record = event.Record{
			Stream: "account-1234", Type: "money-deposited", Flags: event.FlagJSON, ID: event.ID{1, 2, 3, byte(i)},
			Time: 1_700_000_000_000_000_000, Data: []byte(strings.Repeat("x", 200)), Position: 1 << 40,
		}
	}
	return s
}

func (s *endlessStore) StreamInfo(context.Context, string) (event.StreamInfo, error) {
	return event.StreamInfo{Last: 1 << 60, MetaLast: -1}, nil
}

func (s *endlessStore) ReadStream(_ context.Context, r event.StreamRead) (event.StreamPage, error) {
	return event.StreamPage{Last: 1 << 60, Events: s.page[:r.Count], Next: r.From + int64(r.Count)}, nil
}

// raw is a codec that leaves what it receives as it is, so that what is measured is the server.
type raw struct{ encoding.CodecV2 }

func (r raw) Unmarshal(mem.BufferSlice, any) error { return nil }

// BenchmarkLongRead reads events of 200 bytes over loopback. The client is in the same process, but
// decodes nothing.
func BenchmarkLongRead(b *testing.B) {
	_, conn := host(b, newEndlessStore(), &changingCluster{leads: true})
	b.ReportAllocs()
	b.ResetTimer()
	stream, err := streams.NewStreamsClient(conn).Read(b.Context(), read(ofStream("s", start), count(uint64(b.N))),
		grpc.ForceCodecV2(raw{encoding.GetCodecV2(proto.Name)}))
	if err != nil {
		b.Fatal(err)
	}
	m := new(streams.ReadResp)
	for range b.N {
		if err := stream.RecvMsg(m); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkSubscriptionsAtRest tells what a subscription costs at rest, client and server in one
// process.
func BenchmarkSubscriptionsAtRest(b *testing.B) {
	const all, conns = 5000, 5
	address := nodeOf(b, func(c *config.Config) { c.MaxLiveConnections = 2 * all })
	for b.Loop() {
		var clients []*grpc.ClientConn
		for range conns {
			clients = append(clients, dial(b, address))
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		goroutines := runtime.NumGoroutine()
		readers := make([]*reader, all)
		for i := range readers {
			ctx, cancel := context.WithCancel(b.Context())
			stream, err := streams.NewStreamsClient(clients[i%conns]).Read(ctx, read(ofStream(fmt.Sprintf("rest-%d", i), end), subscribed))
			if err != nil {
				b.Fatal(err)
			}
			readers[i] = &reader{b, stream, cancel}
			readers[i].expect("confirmed", "caught-up")
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapInuse+after.StackInuse-before.HeapInuse-before.StackInuse)/all, "B/subscription")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/all, "goroutines/subscription")
		for _, r := range readers {
			r.leave()
		}
	}
}
