package raftdisk

import (
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/stats"
)

// FlushMeter measures what a write waits for on each node: storing entries in the
// Raft log, with the sync. Raft stores from one goroutine.
type FlushMeter struct {
	count, bytes, nanos  atomic.Int64
	lastBytes, lastNanos atomic.Int64
	maxBytes, maxNanos   atomic.Int64

	size  *stats.Max
	delay *stats.Max
	took  *stats.Histogram
	Told  func(took time.Duration) // may be nil
}

func NewFlushMeter(r *stats.Registry) *FlushMeter {
	return &FlushMeter{
		size:  r.Max("eventstore_writer_flush_size_max", "Greatest number of bytes stored in the Raft log with one sync, of late."),
		delay: r.Max("eventstore_writer_flush_duration_max_seconds", "Longest time to store entries in the Raft log with its sync, of late."),
		took:  r.Histogram("annals_raft_log_store_seconds", "Time taken to store entries in the Raft log, with its sync.", stats.DurationBounds),
	}
}

// note takes note of stored entries. A nil meter does nothing.
func (f *FlushMeter) note(bytes int, took time.Duration) {
	if f == nil {
		return
	}
	f.count.Add(1)
	f.bytes.Add(int64(bytes))
	f.nanos.Add(int64(took))
	f.lastBytes.Store(int64(bytes))
	f.lastNanos.Store(int64(took))
	f.maxBytes.Store(max(f.maxBytes.Load(), int64(bytes)))
	f.maxNanos.Store(max(f.maxNanos.Load(), int64(took)))
	f.size.Observe(float64(bytes))
	f.delay.Observe(took.Seconds())
	f.took.Observe(took.Seconds())
	if f.Told != nil {
		f.Told(took)
	}
}

// Flushes are metrics of storing entries in the Raft log, which is what a write
// waits for, since raft was started. Sizes are bytes of entries.
type Flushes struct {
	Count                       int64
	LastSize, MeanSize, MaxSize int64
	LastTime, MeanTime, MaxTime time.Duration
	Queued                      int // writes not yet answered
}

func (f *FlushMeter) Flushes() Flushes {
	n := f.count.Load()
	each := max(n, 1)
	return Flushes{
		Count: n, LastSize: f.lastBytes.Load(), MeanSize: f.bytes.Load() / each, MaxSize: f.maxBytes.Load(),
		LastTime: time.Duration(f.lastNanos.Load()), MeanTime: time.Duration(f.nanos.Load() / each), MaxTime: time.Duration(f.maxNanos.Load()),
	}
}
