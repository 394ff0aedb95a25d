package eventlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/index"
)

// benchFrames makes frames of many events of about 350 bytes.
func benchFrames(m *model, frames, events int) []testFrame {
	from := len(m.frames)
	data := strings.Repeat("x", 240)
	for range frames {
		list := make([]testEvent, events)
		for i := range list {
			list[i] = ev(fmt.Sprint("stream-", i%64), data)
		}
		m.frame(false, list...)
	}
	return m.frames[from:]
}

func benchOptions(b *testing.B) Options {
	o := testOptions(vfs.OS)
	o.Dir = b.TempDir()
	o.Index.ExistenceFilterMax = 0
	return o
}

func benchLog(b *testing.B, frames int) (*Log, *model) {
	m := newModel()
	l := mustOpen(b, benchOptions(b))
	write(b, l, benchFrames(m, frames, 256)...)
	check.Must(b, l.syncer.Sync())
	b.ReportAllocs()
	return l, m
}

func perEvent(b *testing.B, events int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(events), "ns/event")
}

// BenchmarkAppendCommit appends and commits frames of 256 events of 350 bytes.
func BenchmarkAppendCommit(b *testing.B) {
	m := newModel()
	l := mustOpen(b, benchOptions(b))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		b.StopTimer()
		m.frames = m.frames[:0]
		f := benchFrames(m, 1, 256)
		b.StartTimer()
		write(b, l, f...)
		n += 256
	}
	perEvent(b, n)
}

func BenchmarkReadPage(b *testing.B) {
	l, _ := benchLog(b, 200)
	for i := 0; b.Loop(); i++ {
		page, err := l.Reads.ReadStream(event.StreamRead{Stream: "stream-7", From: int64(i % 700), Count: 20})
		check.Must(b, err)
		check.MustEqual(b, len(page.Events), 20)
	}
}

func BenchmarkReadEvent(b *testing.B) {
	l, _ := benchLog(b, 200)
	for i := 0; b.Loop(); i++ {
		check.Must(b, check.Err(l.Reads.ReadEvent("stream-7", int64(i%700), event.EveryLink)))
	}
}

// BenchmarkReadWholeLog reads the whole log in pages of 512 events.
func BenchmarkReadWholeLog(b *testing.B) {
	l, _ := benchLog(b, 200)
	n := 0
	for b.Loop() {
		for from := int64(0); ; {
			page := check.Value(l.Reads.ReadAll(event.AllRead{From: from, Count: 512})).Must(b)
			n += len(page.Events)
			if from = page.Next; !page.More {
				break
			}
		}
	}
	perEvent(b, n)
}

func BenchmarkIndexRebuild(b *testing.B) {
	l, _ := benchLog(b, 400)
	n := 0
	for b.Loop() {
		check.Must(b, errors.Join(l.index.Close(), index.Void(l.opts.FS, l.opts.IndexDir), l.openIndex()))
		n += 400 * 256
	}
	perEvent(b, n)
}

// BenchmarkOpen opens and closes a log with 100,000 events in its active chunk.
func BenchmarkOpen(b *testing.B) {
	l, _ := benchLog(b, 400)
	closeLog(b, l)
	for b.Loop() {
		closeLog(b, mustOpen(b, l.opts))
	}
}

// BenchmarkReadEventParallel reads from one stream a processor, as many clients do.
func BenchmarkReadEventParallel(b *testing.B) {
	l, _ := benchLog(b, 200)
	var next atomic.Int64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		stream := fmt.Sprint("stream-", next.Add(1)%64)
		for i := 0; pb.Next(); i++ {
			if _, err := l.Reads.ReadEvent(stream, int64(i%700), event.EveryLink); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkStreamInfo(b *testing.B) {
	l, _ := benchLog(b, 20)
	for b.Loop() {
		if info, err := l.Reads.StreamInfo("stream-7"); err != nil || !info.Exists() {
			b.Fatal(info, err)
		}
	}
}

// What it costs to remember an event's id with the table of ids and without, and to make the table.
func BenchmarkRecentIDs(b *testing.B) {
	full := func() *recentIDs {
		r := newRecentIDs(recentIDsDefault)
		r.load(nil, nil, nil)
		for i := range recentIDsDefault {
			r.add([]recentID{{id: event.ID{0: byte(i), 1: byte(i >> 8), 2: byte(i >> 16)}, number: int64(i)}})
		}
		return r
	}
	for name, unasked := range map[string]int{"asked": math.MaxInt, "unasked": 0} {
		b.Run(name, func(b *testing.B) {
			r := full()
			if r.build(); unasked == 0 {
				r.table = nil
			}
			r.unasked = unasked
			batch := make([]recentID, 100)
			n := uint64(0)
			for b.Loop() {
				for i := range batch {
					n++
					binary.LittleEndian.PutUint64(batch[i].id[8:], n)
				}
				r.add(batch)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/event")
		})
	}
	b.Run("build", func(b *testing.B) {
		r := full()
		for b.Loop() {
			r.build()
		}
	})
}
