package inspect

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// onDisk writes a folder of the real file system with so many records in so many streams.
func onDisk(tb testing.TB, records, streams int) string {
	tb.Helper()
	dir := tb.TempDir()
	l := check.Value(eventlog.Open(eventlog.Options{Dir: dir, SkipVerify: true})).Must(tb)
	next := make([]int64, streams)
	e := event.Proposed{Type: "type", Data: []byte(`{"some":"data","more":"of it"}`)}
	const batch = 500
	var x uint64 = 1
	for done := 0; done < records; done += batch {
		var names []string
		size := 0
		for i := range batch {
			x = x*6364136223846793005 + 1442695040888963407
			s := int(x>>33) % streams
			name := fmt.Sprint("stream-", s)
			names = append(names, name)
			size += chunkfile.RecordSize(name, &e)
			_ = i
		}
		first := chunkfile.Place(l.Appended().End, size)
		var b []byte
		for i, name := range names {
			var s int
			check.Must(tb, check.Err(fmt.Sscanf(name, "stream-%d", &s)))
			b = chunkfile.AppendRecord(b, first+int64(len(b)), name, next[s], int64(done+i), 0, &e)
			next[s]++
		}
		check.Must(tb, l.Append(eventlog.Frame{First: first, Records: b, Index: uint64(done/batch + 1), Term: 1}))
		check.Must(tb, l.Commit())
	}
	check.Must(tb, l.Index().Flush())
	check.Must(tb, l.Close())
	return dir
}

func TestInspectMapped(t *testing.T) {
	dir := onDisk(t, 20_000, 300)
	var last Progress
	sum, err := Run(context.Background(), Options{FS: vfs.OS, Dir: dir, Progress: func(p Progress) { last = p }}, func(x Finding) {
		t.Errorf("%+v", x)
	})
	if err != nil || sum.Records != 20_000 || sum.IndexEntries != 20_000 || last.Done < sum.End || last.Records != 20_000 {
		t.Fatal(sum, last, err)
	}
}

func BenchmarkInspect(b *testing.B) {
	const records = 500_000
	dir := onDisk(b, records, 50_000)
	b.ReportAllocs()
	for b.Loop() {
		sum, err := Run(context.Background(), Options{Dir: dir}, func(x Finding) { b.Errorf("%+v", x) })
		check.Must(b, err)
		check.MustEqual(b, sum.Records, records, sum)
	}
	b.ReportMetric(float64(records)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkInspectScavenged is BenchmarkInspect where the index lacks half
// of the events, while the records are there: the log is walked through twice.
func BenchmarkInspectScavenged(b *testing.B) {
	const records = 500_000
	dir := onDisk(b, records, 5_000)
	l, err := eventlog.Open(eventlog.Options{Dir: dir, SkipVerify: true})
	check.Must(b, err)
	err = l.Index().Scavenge(b.Context(), index.ScavengeOptions{Keep: func(e index.Entry) (bool, error) { return e.Number >= 50, nil }})
	if err = errors.Join(err, l.Close(), vfs.OS.MkdirAll(dir+"/index/scavenging")); err != nil {
		b.Fatal(err)
	}
	check.Must(b, vfs.WriteFileAtomic(vfs.OS, dir+"/index/scavenging/scavenging.db", nil))
	for b.Loop() {
		sum, err := Run(context.Background(), Options{Dir: dir}, func(x Finding) { b.Errorf("%+v", x) })
		if err != nil || sum.Records != records || sum.IndexEntries > records*2/3 {
			b.Fatal(sum, err)
		}
	}
	b.ReportMetric(float64(records)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
