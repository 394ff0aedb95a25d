package node

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/output"
	"github.com/annalsdb/annals/projection/position"
)

// openStore opens a node of its own and returns the database as services see it.
func openStore(t testing.TB) *store { return openReady(t).store }

// openReady opens a node of its own that takes writes.
func openReady(t testing.TB) *Node {
	t.Helper()
	dir := t.TempDir()
	c := config.Default()
	c.Db, c.Index = dir, filepath.Join(dir, "index")
	c.NodePort = 0
	n := check.Value(Open(t.Context(), Options{Config: c, PasswordIterations: 10})).Must(t)
	t.Cleanup(func() { check.NoError(t, n.Close()) })
	testkit.Eventually(t, 30*time.Second, func() error {
		_, err := n.store.Write(context.Background(), &event.Write{Stream: "first", ExpectedVersion: event.AnyVersion,
			Events: []event.Proposed{{ID: event.ID(uuid.New()), Type: "t"}}})
		return err
	})
	return n
}

// The rules that outputs rely on are those of the real store: a projection that is
// aborted again and again emits everything once, and a reset hides it all.
func TestProjectionOutput(t *testing.T) {
	db := openStore(t)
	o := output.Options{Store: db, Streams: output.Streams{Projection: "p"}, Version: position.Version{Projection: 3, Epoch: -1}, From: position.Position{Log: true, Prepare: -1}, MaxBatch: 3, Track: true}
	const streams, events = 20, 1000
	emit := func(out *output.Output, n int) {
		for i := range n {
			at := position.Position{Log: true, Commit: int64(i), Prepare: int64(i)}
			out.Emit(at, nil, []handler.Emission{{Stream: fmt.Sprint("out-", i*i%streams), Type: "T", Data: strconv.AppendInt(nil, int64(i), 10)}})
			out.Result(at, nil, fmt.Sprint("part-", i%3), strconv.AppendInt(nil, int64(i), 10), i < 3)
		}
	}
	check := func(stream string, want func(i int) bool, first int64) {
		t.Helper()
		page, err := db.ReadStream(t.Context(), event.StreamRead{Stream: stream, Count: 4 * events})
		check.Must(t, err, stream)
		k := 0
		for i := range events {
			if !want(i) {
				continue
			}
			if k >= len(page.Events) || string(page.Events[k].Data) != strconv.Itoa(i) || page.Events[k].Number != first+int64(k) {
				t.Fatalf("%s: event %d of %d is not %d", stream, k, len(page.Events), i)
			}
			k++
		}
		check.Equal(t, k, len(page.Events), stream, "events, not")
	}
	all := func(version position.Version) {
		t.Helper()
		o.Version = version
		for _, n := range []int{events / 3, events / 2, events, events} {
			out := output.New(o)
			emit(out, n)
			if err := out.WaitBelow(t.Context(), n/4); err != nil {
				t.Fatal(err)
			}
			if n == events {
				if err := out.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			out.Close()
		}
	}
	all(position.Version{Projection: 3, Epoch: -1, Version: 1})
	for s := range streams {
		if s*s%streams == s {
			check(fmt.Sprint("out-", s), func(i int) bool { return i*i%streams == s }, 0)
		}
	}
	check("$projections-p-part-1-result", func(i int) bool { return i%3 == 1 }, 0)
	last, err := db.LastEvent(t.Context(), "out-16")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Write(t.Context(), &event.Write{Kind: event.SoftDelete, Stream: "out-0", ExpectedVersion: event.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	all(position.Version{Projection: 3, Epoch: 4, Version: 4})
	check("out-16", func(i int) bool { return i*i%streams == 16 }, last.Number+1)
	page, err := db.ReadStream(t.Context(), event.StreamRead{Stream: "$projections-p-result", Count: 4 * events})
	if err != nil || len(page.Events) != events {
		t.Errorf("%d links to results: %v", len(page.Events), err)
	}
	links, err := db.ReadStream(t.Context(), event.StreamRead{Stream: "$projections-p-emittedstreams", Count: 100})
	if err != nil || len(links.Events) != 6+5 { // six squares modulo 20, and the streams of results
		t.Errorf("%d streams are listed: %v", len(links.Events), err)
	}
}

// BenchmarkLinks emits links, one for each event, to so many streams in turn, as the
// system projections do, and waits until all are stored.
func BenchmarkLinks(b *testing.B) {
	for _, streams := range []int{1, 100, 10_000} {
		for _, writes := range []int{128, 512, 2048} {
			b.Run(fmt.Sprintf("streams=%d/writes=%d", streams, writes), func(b *testing.B) {
				benchmarkLinks(b, streams, writes)
			})
		}
	}
}

func benchmarkLinks(b *testing.B, streams, writes int) {
	db := openStore(b)
	o := output.New(output.Options{Store: db, Streams: output.Streams{Projection: "$by_category"}, Version: position.Version{Projection: 3, Epoch: -1},
		From: position.Position{Log: true, Prepare: -1}, MaxInFlight: writes})
	defer o.Close()
	names := make([]string, streams)
	for i := range names {
		names[i] = fmt.Sprint("$ce-category", i)
	}
	at := int64(0)
	emit := func(i int) {
		at += 200
		r := event.Record{Stream: "category-1", Number: int64(i), ID: event.ID{byte(i), byte(i >> 8), byte(i >> 16)}, Flags: event.FlagJSON, Metadata: []byte(`{"a":1}`)}
		data := append(strconv.AppendInt(nil, r.Number, 10), "@category-1"...)
		o.Emit(position.Position{Log: true, Commit: at, Prepare: at}, &handler.Event{Record: &r}, []handler.Emission{{
			Stream: names[i%streams], Type: event.TypeLink, Data: data, To: &handler.Target{Stream: r.Stream, Number: r.Number},
			Metadata: []handler.Field{{Name: "$o", Value: []byte(`"category-1"`)}},
		}})
		if i%512 == 0 {
			check.Must(b, o.WaitBelow(b.Context(), 5000))
		}
	}
	for i := range streams { // Each stream is looked up and gets its metadata.
		emit(i)
	}
	check.Must(b, o.Flush(b.Context()))
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		emit(i)
	}
	check.Must(b, o.Flush(b.Context()))
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "links/s")
}

// BenchmarkNewStreams emits one event to each of as many streams as there are events.
func BenchmarkNewStreams(b *testing.B) {
	db := openStore(b)
	o := output.New(output.Options{Store: db, Streams: output.Streams{Projection: "p"}, Version: position.Version{Projection: 3, Epoch: -1}, From: position.Position{Log: true, Prepare: -1}})
	defer o.Close()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		o.Emit(position.Position{Log: true, Commit: int64(i), Prepare: int64(i)}, nil, []handler.Emission{{Stream: fmt.Sprint("new-", i), Type: "t", Data: []byte("1")}})
		if i%512 == 0 {
			check.Must(b, o.WaitBelow(b.Context(), 5000))
		}
	}
	check.Must(b, o.Flush(b.Context()))
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "streams/s")
}

// BenchmarkPartitionCheckpoints saves the states of 4000 partitions and the root,
// those of other partitions each time.
func BenchmarkPartitionCheckpoints(b *testing.B) {
	db := openStore(b)
	c := output.NewCheckpoints(output.CheckpointOptions{Store: db, Name: "p", Version: position.Version{Projection: 3, Epoch: -1}})
	check.Must(b, check.Err(c.Load(b.Context())))
	const partitions = 4000
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		changed := make([]output.PartitionState, partitions)
		for i := range changed {
			changed[i] = output.PartitionState{Partition: fmt.Sprint(n%10, "-", i), State: []byte(`{"count":1}`)}
		}
		check.Must(b, c.Save(b.Context(), changed, output.Checkpoint{At: position.Position{Log: true, Commit: int64(n)}}))
	}
	b.ReportMetric(float64(b.N*partitions)/b.Elapsed().Seconds(), "partitions/s")
}

// BenchmarkAppendsWithLinks has 32 writers append events, and an output for each of the
// links that an event gets, as if system projections kept up with the writers.
func BenchmarkAppendsWithLinks(b *testing.B) {
	for _, links := range []int{0, 2} {
		b.Run(fmt.Sprintf("links=%d", links), func(b *testing.B) { benchmarkAppends(b, links) })
	}
}

func benchmarkAppends(b *testing.B, links int) {
	const writers, categories = 32, 100
	db := openStore(b)
	var emitters, work sync.WaitGroup
	feeds := make([]chan int, links)
	for k := range feeds {
		feeds[k] = make(chan int, 4096)
		emitters.Go(func() {
			o := output.New(output.Options{Store: db, Streams: output.Streams{Projection: "p"}, Version: position.Version{Projection: int64(k), Epoch: -1}, From: position.Position{Log: true, Prepare: -1}})
			defer o.Close()
			at := int64(0)
			for n := range feeds[k] {
				at++
				r := event.Record{ID: event.ID{byte(n), byte(n >> 8), byte(n >> 16)}}
				o.Emit(position.Position{Log: true, Commit: at, Prepare: at}, &handler.Event{Record: &r}, []handler.Emission{{
					Stream: fmt.Sprintf("$links%d-%d", k, n%categories), Type: event.TypeLink, Data: append(strconv.AppendInt(nil, int64(n), 10), "@category-1"...)}})
				if err := o.WaitBelow(b.Context(), 5000); err != nil {
					b.Error(err)
					return
				}
			}
			check.NoError(b, o.Flush(b.Context()))
		})
	}
	var next atomic.Int64
	b.ResetTimer()
	for w := range writers {
		work.Go(func() {
			for {
				n := int(next.Add(1))
				if n > b.N {
					return
				}
				_, err := db.Write(b.Context(), &event.Write{Stream: fmt.Sprintf("category%d-%d", n%categories, w), ExpectedVersion: event.AnyVersion,
					Events: []event.Proposed{{ID: event.ID(uuid.New()), Type: "t", Flags: event.FlagJSON, Data: []byte(`{"a":1}`)}}})
				if err != nil {
					b.Error(err)
					return
				}
				for _, feed := range feeds {
					feed <- n
				}
			}
		})
	}
	work.Wait()
	for _, feed := range feeds {
		close(feed)
	}
	emitters.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
}
