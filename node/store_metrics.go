package node

import (
	"runtime"
	"time"

	"github.com/annalsdb/annals/stats"
	"github.com/annalsdb/annals/stats/latency"
)

// readStatistics measure the reads of the log. Readers do not queue, so the reads in flight stand
// for the queue.
type readStatistics struct {
	stream, event, all readKind
	waiting            *stats.Queue // long polls
}

type readKind struct {
	queue   *stats.Queue
	work    *stats.Work
	latency latency.Kind
}

func (f *readStatistics) register(r *stats.Registry) {
	q := r.Queue("StorageReaderQueue #1", "StorageReaderQueue", runtime.GOMAXPROCS(0))
	f.stream = readKind{q, q.Work("ReadStreamEvents"), latency.ReaderStreamRange}
	f.event = readKind{q, q.Work("ReadEvent"), latency.ReaderReadEvent}
	f.all = readKind{q, q.Work("ReadAllEvents"), latency.ReaderAllRange}
	f.waiting = r.Queue("Subscriptions", "", 1)
}

func (k *readKind) begin() time.Time {
	k.queue.Enter(1)
	return k.work.Begin(0)
}

// read counts a read that ends.
func (s *store) read(k *readKind, begun time.Time) {
	k.work.End(begun, 1)
	s.latencies.Record(k.latency, time.Since(begun))
}
