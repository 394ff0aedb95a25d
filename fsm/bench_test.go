package fsm_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
)

// spread returns an id that is as evenly spread as a random one.
func spread(n int) (id event.ID) {
	for i := range 2 {
		x := uint64(2*n+i) * 0x9e3779b97f4a7c15
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		binary.LittleEndian.PutUint64(id[8*i:], x^x>>31)
	}
	return id
}

// BenchmarkDecide measures the leader's part of a write: deciding, sealing and
// forgetting, with one entry in flight. Applying is left out.
func BenchmarkDecide(b *testing.B) {
	const streams = 10_000
	for _, bench := range []struct {
		name     string
		events   int
		streams  int
		expected int64 // AnyVersion, or 0: the true one
	}{
		{"single/version", 1, streams, 0},
		{"single/any", 1, streams, event.AnyVersion},
		{"single/one_stream", 1, 1, event.AnyVersion},
		{"batch100/version", 100, streams, 0},
		{"batch100/any", 100, streams, event.AnyVersion},
		{"batch100/one_stream", 100, 1, event.AnyVersion},
	} {
		b.Run(bench.name, func(b *testing.B) {
			l := startLeader(b)
			last := make([]int64, bench.streams)
			writes := make([]*event.Write, bench.streams)
			ids := 0
			for i := range writes {
				w := appending(fmt.Sprint("order-", i), event.AnyVersion, make([]int, bench.events)...)
				for j := range w.Events {
					w.Events[j].Data = make([]byte, 256)
				}
				writes[i] = w
				w.Events[0].ID = id(1 << 40)
				w.Events = w.Events[:1]
				l.write(w)
				w.Events = w.Events[:bench.events]
			}
			l.flush()
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				s := i % bench.streams
				w := writes[s]
				w.ExpectedVersion = bench.expected
				if bench.expected == 0 {
					w.ExpectedVersion = last[s]
				}
				for j := range w.Events {
					ids++
					w.Events[j].ID = spread(ids)
				}
				d := l.d.Decide(w)
				if d.Full {
					e := l.d.Seal()
					b.StopTimer()
					for _, before := range l.sealed { // at most one is in flight
						if a := l.m.Apply(l.command(before)); a != nil {
							b.Fatal(a)
						}
					}
					applied := len(l.sealed)
					l.sealed, l.history = append(l.sealed[:0], e), nil
					b.StartTimer()
					if applied > 0 {
						l.d.Applied()
					}
					d = l.d.Decide(w)
				}
				if d.Err != nil || d.Full || d.Written.Idempotent {
					b.Fatal(d)
				}
				last[s] = d.Written.Last
			}
			b.StopTimer()
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*bench.events), "ns/event")
			l.flush()
		})
	}
}

// BenchmarkApply applies batches of one entry with one event each.
func BenchmarkApply(b *testing.B) {
	l := startLeader(b)
	const batch = 1000
	var entries []*raft.Log
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%batch == 0 {
			b.StopTimer()
			entries = entries[:0]
			for j := range batch {
				w := appending("s", event.AnyVersion, i+j+1)
				w.Events[0].ID = spread(i + j + 1)
				if d := l.d.Decide(w); d.Err != nil || d.Full {
					b.Fatal(d)
				}
				entries = append(entries, l.command(l.d.Seal()))
			}
			b.StartTimer()
		}
		if a := l.m.ApplyBatch(entries[i%batch : i%batch+1]); a[0] != nil {
			b.Fatal(a[0])
		}
		l.d.Applied()
	}
}

// BenchmarkMany measures a write of 100 events to one stream and to 100 of 10,000 streams, and what
// 20 checks of such streams add. The leader decides and applies; "decide" leaves applying out.
func BenchmarkMany(b *testing.B) {
	const streams, events = 10_000, 100
	for _, bench := range []struct {
		name    string
		streams int // of one write; 0: it is an append to one stream
		checks  int
		apply   bool
	}{
		{"decide/append", 0, 0, false},
		{"decide/to_1", 1, 0, false},
		{"decide/to_100", 100, 0, false},
		{"decide/to_1_20_checks", 1, 20, false},
		{"decide/to_100_20_checks", 100, 20, false},
		{"apply/append", 0, 0, true},
		{"apply/to_100", 100, 0, true},
	} {
		b.Run(bench.name, func(b *testing.B) {
			l := startLeader(b)
			names := make([]string, streams)
			for i := range names {
				names[i] = fmt.Sprint("order-", i)
				l.write(appending(names[i], event.AnyVersion, i))
			}
			l.flush()
			w := appending(names[0], event.AnyVersion, make([]int, events)...)
			for i := range w.Events {
				w.Events[i].Data = make([]byte, 256)
			}
			if bench.streams > 0 {
				w.Kind, w.Stream, w.Many = event.AppendMany, "", &event.Many{Of: make([]int32, events), Checks: make([]event.Check, bench.checks)}
				for i := range w.Many.Of {
					w.Many.Of[i] = int32(i % bench.streams)
				}
			}
			ids := streams
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				for j := range w.Events {
					ids++
					w.Events[j].ID = spread(ids)
				}
				first := i * events % streams
				if m := w.Many; m != nil {
					m.Streams = names[first : first+bench.streams]
					for j := range m.Checks {
						m.Checks[j] = event.Check{Stream: names[(first+streams/2+j)%streams], Expected: event.StreamExists}
					}
				} else {
					w.Stream = names[first]
				}
				d := l.d.Decide(w)
				if d.Full {
					e := l.d.Seal()
					if !bench.apply {
						b.StopTimer()
					}
					if a := l.m.Apply(l.command(e)); a != nil {
						b.Fatal(a)
					}
					b.StartTimer()
					l.d.Applied()
					d = l.d.Decide(w)
				}
				if d.Err != nil || d.Full || d.Written.Idempotent {
					b.Fatal(d)
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*events), "ns/event")
			l.flush()
		})
	}
}
