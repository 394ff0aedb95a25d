package history

import (
	"math"

	"github.com/annalsdb/annals/stats"
)

// How a value comes from a metric.
type how uint8

const (
	gauge        how = iota // as it is
	milliseconds            // as it is, in seconds
	rate                    // by how much it grew in a second, of a histogram its count
	// of what was added to a histogram since the last sample, in milliseconds
	mean
)

// one is a statistic of the history. Its name is part of the wire: do not change.
type one struct {
	name         string
	metric       string
	label, value string // the metric has the label; empty: any
	how          how
}

// table are the statistics. docs/watching.md says what each is.
var table = [...]one{
	{"appendsPerSecond", "annals_replication_requests_total", "", "", rate},
	{"commitMilliseconds", "annals_replication_commit_seconds", "", "", mean},
	{"appendsWaiting", "annals_replication_queue_requests", "", "", gauge},
	{"syncMilliseconds", "eventstore_writer_flush_duration_max_seconds", "", "", milliseconds},
	{"eventsWrittenPerSecond", "eventstore_io_events", "activity", "written", rate},
	{"bytesWrittenPerSecond", "eventstore_io_bytes", "activity", "written", rate},
	{"eventsReadPerSecond", "eventstore_io_events", "activity", "read", rate},
	{"bytesReadPerSecond", "eventstore_io_bytes", "activity", "read", rate},
	{"requestsPerSecond", "eventstore_queue_processing_duration_seconds", "message_type", "HttpRequest", rate},
	{"requestMilliseconds", "eventstore_queue_processing_duration_seconds", "message_type", "HttpRequest", mean},
	{"requestsUnderWay", "annals_queue_length", "queue", "MainQueue", gauge},
	{"connections", "eventstore_kestrel_connections", "", "", gauge},
	{"cpuPercent", "eventstore_proc_cpu", "", "", gauge},
	{"machineLoad", "eventstore_sys_load_avg", "period", "1m", gauge},
	{"memoryBytes", "eventstore_proc_mem_bytes", "kind", "working-set", gauge},
	{"heapBytes", "eventstore_gc_heap_size_bytes", "", "", gauge},
	{"machineMemoryFreeBytes", "eventstore_sys_mem_bytes", "kind", "free", gauge},
	{"diskUsedBytes", "eventstore_sys_disk_bytes", "kind", "used", gauge},
	{"diskTotalBytes", "eventstore_sys_disk_bytes", "kind", "total", gauge},
	{"diskBytesWrittenPerSecond", "eventstore_disk_io_bytes", "activity", "written", rate},
}

// is reports whether a metric counts for the statistic.
func (o *one) is(s *stats.Sample) bool {
	if s.Name != o.metric || o.label == "" {
		return s.Name == o.metric
	}
	for _, l := range s.Labels {
		if l.Name == o.label {
			return l.Value == o.value
		}
	}
	return false
}

// worth is the statistic, given what its metric, the i-th, was read as now and before.
func (o *one) worth(now, before *reading, i int) float64 {
	v := now.values[i]
	switch o.how {
	case milliseconds:
		return 1000 * v
	case rate:
		grown, seconds := v-before.values[i], now.at.Sub(before.at).Seconds()
		if now.counts[i] > 0 {
			grown = now.counts[i] - before.counts[i]
		}
		if before.at.IsZero() || seconds <= 0 || grown < 0 {
			return math.NaN()
		}
		return grown / seconds
	case mean:
		count := now.counts[i] - before.counts[i]
		if before.at.IsZero() || count <= 0 {
			return math.NaN() // Nothing was done.
		}
		return 1000 * (v - before.values[i]) / count
	}
	return v
}
