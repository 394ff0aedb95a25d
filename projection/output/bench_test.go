package output_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/output"
)

// nowhere is a store that takes everything and has nothing.
type nowhere struct{ output.Store }

func (*nowhere) StreamInfo(context.Context, string) (event.StreamInfo, error) {
	return event.StreamInfo{Last: -1, MetaLast: -1}, nil
}

func (*nowhere) Write(_ context.Context, w *event.Write) (event.Written, error) {
	return event.Written{First: w.ExpectedVersion + 1, Last: w.ExpectedVersion + int64(len(w.Events))}, nil
}

// BenchmarkEmit is what a link costs besides the store: package node has the whole.
func BenchmarkEmit(b *testing.B) {
	for _, streams := range []int{1, 10_000, 100_000} { // The last are more than are remembered.
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			o := output.New(output.Options{Store: &nowhere{}, Streams: output.Streams{Projection: "p"}, Version: ours, From: at(-1)})
			defer o.Close()
			names := make([]string, streams)
			for i := range names {
				names[i] = fmt.Sprint("$ce-category", i)
			}
			r := event.Record{Stream: "category-1", ID: event.ID{1}, Flags: event.FlagJSON, Metadata: []byte(`{"a":1}`)}
			by := &handler.Event{Record: &r}
			to := &handler.Target{Stream: r.Stream}
			data, fields := []byte("0@category-1"), []handler.Field{{Name: "$o", Value: []byte(`"category-1"`)}}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				r.Number = int64(i)
				o.Emit(at(int64(i)), by, []handler.Emission{{Stream: names[i%streams], Type: event.TypeLink, Data: data, To: to, Metadata: fields}})
				if i%512 == 0 {
					check.Must(b, o.WaitBelow(b.Context(), 5000))
				}
			}
			check.Must(b, o.Flush(b.Context()))
		})
	}
}
