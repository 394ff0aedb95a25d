package grpcapi

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	v2 "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/streams/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/annalsdb/annals/internal/http1"
)

var benchData = []byte(strings.Repeat("x", 200))

func benchAppend() []*streams.AppendReq {
	return []*streams.AppendReq{
		{Content: &streams.AppendReq_Options_{Options: &streams.AppendReq_Options{
			StreamIdentifier: fuzzStream, ExpectedStreamRevision: &streams.AppendReq_Options_Any{Any: &shared.Empty{}},
		}}},
		{Content: &streams.AppendReq_ProposedMessage_{ProposedMessage: &streams.AppendReq_ProposedMessage{Id: fuzzID, Metadata: fuzzMap, Data: benchData}}},
	}
}

func benchBatch() *streams.BatchAppendReq {
	return &streams.BatchAppendReq{
		CorrelationId: fuzzID, IsFinal: true,
		Options:          &streams.BatchAppendReq_Options{StreamIdentifier: fuzzStream, ExpectedStreamPosition: &streams.BatchAppendReq_Options_Any{Any: &emptypb.Empty{}}},
		ProposedMessages: []*streams.BatchAppendReq_ProposedMessage{{Id: fuzzID, Metadata: fuzzMap, Data: benchData}},
	}
}

// rawOf is messages as they come.
func rawOf[M proto.Message](b *testing.B, all ...M) (raw [][]byte) {
	for _, m := range all {
		one, err := proto.Marshal(m)
		if err != nil {
			b.Fatal(err)
		}
		raw = append(raw, one)
	}
	return raw
}

// BenchmarkAppendAlone is a call of one event without transport and store.
func BenchmarkAppendAlone(b *testing.B) {
	v, messages := soundService(b), rawOf(b, benchAppend()...)
	at := 0
	c := newFakeCall[streams.AppendReq](func() ([]byte, error) {
		if at == len(messages) {
			at = 0
			return nil, io.EOF
		}
		at++
		return messages[at-1], nil
	}, func(*streams.AppendResp) {})
	b.ReportAllocs()
	for b.Loop() {
		if err := v.Append(c); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBatchAlone is a write in one long call without transport and store.
func BenchmarkBatchAlone(b *testing.B) {
	v, r := soundService(b), rawOf(b, benchBatch())[0]
	begun, answers := 0, 0
	b.ReportAllocs()
	err := v.BatchAppend(newFakeCall[streams.BatchAppendReq](func() ([]byte, error) {
		if begun == b.N {
			return nil, io.EOF
		}
		begun++
		return r, nil
	}, func(*streams.BatchAppendResp) { answers++ }))
	if err != nil || answers != b.N {
		b.Fatal(answers, err)
	}
}

func benchClient(b *testing.B) streams.StreamsClient { return streams.NewStreamsClient(benchConn(b)) }

func benchConn(b *testing.B) *grpc.ClientConn {
	s := soundService(b).s
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	others := &http.Server{Protocols: new(http.Protocols), ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: DefaultMaxHeaderBytes}
	others.Protocols.SetUnencryptedHTTP2(true)
	h := http1.New(others)
	h.Calls = s.Serve
	go func() { _ = h.Serve(l) }() // It ends with Close.
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = conn.Close()
		_ = h.Close()
	})
	return conn
}

// benchRecords is a request with events for so many streams, as an official client sends it.
func benchRecords(n int) *v2.AppendRecordsRequest {
	r := &v2.AppendRecordsRequest{}
	for i := range n {
		r.Records = append(r.Records, &v2.AppendRecord{
			Stream: fmt.Sprint("s", i), RecordId: new("0f9fad5b-d9cb-469f-a165-70867728950e"), Data: benchData, Schema: &v2.SchemaInfo{Format: 1, Name: "t"},
			Properties: map[string]*structpb.Value{"by": structpb.NewStringValue("ann")},
		})
	}
	return r
}

// BenchmarkAppendRecords is a call of an event each for some streams, client included.
func BenchmarkAppendRecords(b *testing.B) {
	for _, n := range []int{1, 2, 100} {
		b.Run(fmt.Sprintf("callers=32/streams=%d", n), func(b *testing.B) {
			c, r := v2.NewStreamsServiceClient(benchConn(b)), benchRecords(n)
			split(b, 32, func(n int) error {
				for range n {
					if _, err := c.AppendRecords(context.Background(), r); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// BenchmarkAppend is a call of one event over a connection, client included.
func BenchmarkAppend(b *testing.B) {
	for _, callers := range []int{1, 32} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			c, messages := benchClient(b), benchAppend()
			split(b, callers, func(n int) error {
				for range n {
					call, err := c.Append(context.Background())
					if err != nil {
						return err
					}
					for _, m := range messages {
						if err := call.Send(m); err != nil {
							return err
						}
					}
					if _, err := call.CloseAndRecv(); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// BenchmarkBatchAppend is a write in one of several calls, client included.
func BenchmarkBatchAppend(b *testing.B) {
	for _, calls := range []int{1, 8} {
		b.Run(fmt.Sprintf("calls=%d", calls), func(b *testing.B) {
			c, r := benchClient(b), benchBatch()
			split(b, calls, func(n int) error {
				call, err := c.BatchAppend(context.Background())
				if err != nil {
					return err
				}
				sent := make(chan error, 1)
				go func() {
					for range n {
						if err := call.Send(r); err != nil {
							sent <- err
							return
						}
					}
					sent <- call.CloseSend()
				}()
				for {
					if _, err := call.Recv(); err == io.EOF {
						return <-sent
					} else if err != nil {
						return err
					}
				}
			})
		})
	}
}

// split shares b.N among workers.
func split(b *testing.B, workers int, work func(n int) error) {
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range workers {
		n := b.N / workers
		if i < b.N%workers {
			n++
		}
		wg.Go(func() {
			if err := work(n); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
}
