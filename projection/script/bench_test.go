package script_test

import (
	"fmt"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/projection/handler"
)

const order = `{"orderId":"0f9fad5b-d9cb-469f-a165-70867728950e","amount":42.5,"customer":"Ada Lovelace","lines":3,"note":"leave at the door"}`

// benchmarkHandler hands one event after the other to a script, as a runner does.
func benchmarkHandler(b *testing.B, source string) {
	h := compile(b, source)
	e := jsonEvent(order)
	var state []byte
	b.ReportAllocs()
	for b.Loop() {
		check.Must(b, h.Load("", state))
		out := check.Value(h.Process(e)).Must(b)
		state = out.State
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkCount(b *testing.B) {
	benchmarkHandler(b, `fromAll().when({$init: () => ({count: 0}), $any(s, e) { s.count++ }})`)
}

func BenchmarkOneField(b *testing.B) {
	benchmarkHandler(b, `fromAll().when({$init: () => ({count: 0, sum: 0}), T(s, e) { s.count++; s.sum += e.body.amount }})`)
}

func BenchmarkEmit(b *testing.B) {
	benchmarkHandler(b, `fromAll().when({T(s, e) { emit('out', 'T', {amount: e.body.amount}) }})`)
}

// BenchmarkPartitions goes through 100,000 partitions, whose states are loaded and written each
// time.
func BenchmarkPartitions(b *testing.B) {
	h := compile(b, `fromAll().partitionBy(e => e.body.customer + e.sequenceNumber).when({$init: () => ({count: 0}), $any(s, e) { s.count++ }})`)
	states := map[string][]byte{}
	events := make([]*handler.Event, 100_000)
	for i := range events {
		events[i] = jsonEvent(order)
		events[i].Number = int64(i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e := events[i%len(events)]
		p, _, err := h.PartitionOf(e)
		check.Must(b, err)
		check.Must(b, h.Load(p, states[p]))
		out, err := h.Process(e)
		check.Must(b, err)
		states[p] = out.State
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkRead(b *testing.B) {
	lines := order
	for range 30 {
		lines += "," + order
	}
	benchmarkHandler(b, `fromAll().when({T(s, e) { e.body }})`)
	h := compile(b, `fromAll().when({T(s, e) { e.body }})`)
	e := jsonEvent("[" + lines + "]")
	b.Run("4KB", func(b *testing.B) {
		b.SetBytes(int64(len(e.Data)))
		for b.Loop() {
			check.Must(b, check.Err(h.Process(e)))
		}
	})
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		compile(b, fmt.Sprintf(`fromAll().when({$init: () => ({count: %d}), T(s, e) { s.count++; s.sum += e.body.amount }})`, i)).Close()
	}
}

// BenchmarkLargeState changes a little of a state of 100 KB with each event.
func BenchmarkLargeState(b *testing.B) {
	benchmarkHandler(b, `fromAll().when({$init: () => ({count: 0, m: Array.from({length: 1000}, (_, i) =>
		({id: 'item' + i, name: 'a name of about sixty characters, which makes the state large', n: i}))}),
		$any(s, e) { s.count++; s.m[s.count % 1000].n++ }})`)
}
