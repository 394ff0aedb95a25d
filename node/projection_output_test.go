package node

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/event"
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
	n, err := Open(t.Context(), Options{Config: c, PasswordIterations: 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	testkit.Eventually(t, 30*time.Second, func() error {
		_, err := n.store.Write(context.Background(), &event.Write{Stream: "first", ExpectedVersion: event.AnyVersion,
			Events: []event.Proposed{{ID: event.ID(uuid.New()), Type: "t"}}})
		return err
	})
	return n
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
	o := output.New(output.Options{Store: db, Name: "$by_category", Version: position.Version{Projection: 3, Epoch: -1},
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
			if err := o.WaitBelow(b.Context(), 5000); err != nil {
				b.Fatal(err)
			}
		}
	}
	for i := range streams { // Each stream is looked up and gets its metadata.
		emit(i)
	}
	if err := o.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		emit(i)
	}
	if err := o.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "links/s")
}
