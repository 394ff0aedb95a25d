package standard_test

import (
	"fmt"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/standard"
)

// BenchmarkHandlers handles events of 1,000 streams in 10 categories, of which all
// have a correlation id, and all are the first of their stream.
func BenchmarkHandlers(b *testing.B) {
	var events [1000]handler.Event
	for i := range events {
		events[i].Record = &event.Record{
			Stream: fmt.Sprintf("category%d-%08d", i%10, i), Type: fmt.Sprintf("type%d", i%7), Flags: event.FlagJSON, Time: 1_700_000_000_000_000_000,
			Metadata: []byte(`{"user":"somebody","trace":[1,2,3],"$correlationId":"4a1e3c0e-7c6d-4a53-9d5f-0c5a7c4f8f00","$causationId":"x"}`),
		}
	}
	for _, p := range standard.All {
		b.Run(p.Name, func(b *testing.B) {
			h := check.Value(standard.New(p.Type, p.Source, true)).Must(b)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				check.Must(b, check.Err(h.Process(&events[i%len(events)])))
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
