package grpcapi

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/annalsdb/annals/event"
)

// mapOf is the metadata map of a recorded event.
func mapOf(r *event.Record) map[string]string {
	content := contentBytes
	if r.IsJSON() {
		content = contentJSON
	}
	return map[string]string{mapType: typeOf(r), mapCreated: strconv.FormatInt(ticksOf(r.Time), 10), mapContentType: content}
}

// recorded is what sized encodes, as the generated message.
func recorded(r *event.Record, textIDs bool) *streams.ReadResp_ReadEvent_RecordedEvent {
	return &streams.ReadResp_ReadEvent_RecordedEvent{
		Id: uuidOf(r.ID, textIDs), StreamIdentifier: streamOf(r.Stream), StreamRevision: uint64(r.Number),
		PreparePosition: uint64(r.Position), CommitPosition: uint64(r.Position), Metadata: mapOf(r), CustomMetadata: r.Metadata, Data: r.Data,
	}
}

// An event that is encoded by hand is what the generated messages make of it.
func FuzzFrame(f *testing.F) {
	f.Add("s", "t", []byte("1234567890abcdef"), int64(0), int64(0), int64(0), []byte(nil), []byte(nil), uint8(0))
	f.Add("\xfe", "\xff", []byte("1"), int64(1), int64(2), int64(-3), []byte{0xff}, []byte{0xfe}, uint8(4))
	f.Add(strings.Repeat("s", 1000), strings.Repeat("\xff\x01", 500), []byte("1234567890abcdef"), int64(-1), int64(-1), int64(math.MinInt64), make([]byte, 5000), make([]byte, 5000), uint8(3))
	f.Add("order-1", "", []byte(nil), int64(1<<40), int64(1<<63-1), int64(1_700_000_000_000_000_000), []byte("data"), []byte("{}"), uint8(0xff))
	f.Fuzz(func(t *testing.T, stream, eventType string, id []byte, position, number, time int64, data, metadata []byte, how uint8) {
		r := event.Record{Stream: stream, Type: eventType, Position: position, Number: number, Time: time, Flags: event.Flags(how & 1), Data: data, Metadata: metadata}
		copy(r.ID[:], id)
		textIDs := how&2 != 0
		e := &event.Resolved{Record: r}
		want := &streams.ReadResp_ReadEvent{Position: &streams.ReadResp_ReadEvent_CommitPosition{CommitPosition: uint64(position)}}
		switch how >> 2 & 3 {
		case 0:
			want.Event = recorded(&r, textIDs)
		case 1:
			e.Link = event.LinkDead
			want.Link = recorded(&r, textIDs)
		default:
			target := r
			target.Number, target.Data = position, metadata
			e.Link, e.Target = event.LinkResolved, &target
			want.Event, want.Link = recorded(&target, textIDs), recorded(&r, textIDs)
		}
		b := *frameOf(e, textIDs, notRetried)
		var got streams.ReadResp
		err := proto.Unmarshal(b[frameHead:], &got)
		whole := &streams.ReadResp{Content: &streams.ReadResp_Event{Event: want}}
		if err != nil || !proto.Equal(&got, whole) || len(b) != frameHead+proto.Size(whole) {
			t.Errorf("%v\n got %v\nwant %v", err, &got, whole)
		}
		if n, size, _ := together([]event.Resolved{*e}); n == 1 && size < len(b) {
			t.Errorf("%d bytes, %d were expected at most", len(b), size)
		}
	})
}

// BenchmarkFrame compares both ways to encode an event of 200 bytes.
func BenchmarkFrame(b *testing.B) {
	e := &event.Resolved{Record: event.Record{
		Stream: "account-1234", Type: "money-deposited", Flags: event.FlagJSON, ID: event.ID{1, 2, 3}, Position: 1 << 40, Number: 1 << 20,
		Time: 1_700_000_000_000_000_000, Data: make([]byte, 200),
	}}
	b.Run("by hand", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			mem.DefaultBufferPool().Put(frameOf(e, false, notRetried))
		}
	})
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m := &streams.ReadResp{Content: &streams.ReadResp_Event{Event: &streams.ReadResp_ReadEvent{
				Event: recorded(&e.Record, false), Position: &streams.ReadResp_ReadEvent_CommitPosition{CommitPosition: uint64(e.Position)},
			}}}
			if _, err := proto.Marshal(m); err != nil {
				b.Fatal(err)
			}
		}
	})
}
