package run

import (
	"context"
	"strconv"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
	"github.com/annalsdb/annals/projection/source"
)

// endless reads the same page again and again, n events in all.
type endless struct {
	page   []handler.Event
	at     int
	n      int64
	stream bool
}

func (f *endless) Fill(context.Context) error {
	if f.n <= 0 {
		return source.ErrEnd
	}
	f.at = 0
	return nil
}

func (f *endless) Next() (*handler.Event, bool) {
	if f.at == len(f.page) || f.n <= 0 {
		return nil, false
	}
	f.at++
	f.n--
	return &f.page[f.at-1], true
}

func (f *endless) Position() position.Position {
	if f.stream {
		return position.Position{Numbers: []position.Number{{Name: "s", Number: f.n}}}
	}
	return position.Position{Log: true, Commit: -f.n, Prepare: -f.n}
}
func (f *endless) Buffered() int     { return int(min(f.n, int64(len(f.page)-f.at))) }
func (f *endless) Passed() int64     { return -f.n }
func (f *endless) Progress() float64 { return 50 }
func (f *endless) Unread() int64     { return 0 }
func (f *endless) Done() int64       { return -f.n }
func (f *endless) Close()            {}

// BenchmarkLoop measures what the loop costs for each event, with a handler in Go that counts.
func BenchmarkLoop(b *testing.B) {
	for _, c := range []struct {
		name       string
		d          handler.Definition
		stream     bool
		partitions int
	}{
		{"log", handler.Definition{}, false, 1},
		{"stream", handler.Definition{}, true, 1},
		{"foreachStream 1000", handler.Definition{ByStreams: true}, false, 1000},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := newWorld()
			p := w.parts()
			in := &endless{n: int64(b.N), stream: c.stream}
			for i := range 1000 {
				in.page = append(in.page, handler.Event{Record: &event.Record{Stream: "s-" + strconv.Itoa(i%c.partitions), Type: "T", Data: []byte("{}")}})
			}
			p.read = func(context.Context, source.Options) (reader, error) { return in, nil }
			o := options(c.d)
			o.Mode = OneTime // ends with its input, and has checkpoints as a continuous one
			o.Checkpoints = true
			b.ReportAllocs()
			b.ResetTimer()
			r := start(b.Context(), o, p)
			<-r.Done()
			b.StopTimer()
			if f := r.Statistics(); f.Ending != Completed || f.Processed != int64(b.N) {
				b.Fatalf("%+v", f)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
