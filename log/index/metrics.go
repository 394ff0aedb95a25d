package index

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/annalsdb/annals/stats"
)

// workBounds are buckets for the time taken by flushes and merges, in seconds.
var workBounds = []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 1800}

// metrics are those of an index.
type metrics struct {
	queue        *stats.Queue
	flushes      *stats.Work // of that queue
	merges       *stats.Work
	scavenges    *stats.Work
	flushTime    *stats.Histogram
	mergeTime    *stats.Histogram
	flushed      *stats.Counter
	mergeRead    *stats.Counter
	mergeWritten *stats.Counter
	merging      *stats.Gauge

	scavengeTime    *stats.Histogram
	scavengeRead    *stats.Counter
	scavengeDropped *stats.Counter
	scavenging      *stats.Gauge

	lookups lookups
	spared  atomic.Uint64 // lookups of streams that the existence filter said are not there
	// last entries that a filter let be looked for in a table, and that were there
	filterFound   atomic.Uint64
	filterMistook atomic.Uint64 // ... and that were not
}

// answered is where a lookup found what it was for.
type answered int

const (
	nowhere  answered = iota
	inMemory          // all of it
	inTables          // some of it
)

// lookups counts by where they were answered. The counts are spread, so that
// processors that look up different streams do not wait for each other.
type lookups [16]struct {
	counts [3]atomic.Uint64
	_      [40]byte // the rest of a cache line
}

func (l *lookups) count(hash uint64, where answered) { l[hash>>60].counts[where].Add(1) }

// found counts a lookup that gave so many entries.
func (m *metrics) found(hash uint64, entries int, tabled bool) {
	where := inMemory
	switch {
	case entries == 0:
		where = nowhere
	case tabled:
		where = inTables
	}
	m.lookups.count(hash, where)
}

func (l *lookups) sum(where answered) (n uint64) {
	for i := range l {
		n += l[i].counts[where].Load()
	}
	return n
}

func newMetrics(r *stats.Registry, name string) *metrics {
	prefix := "annals_" + name + "_"
	queue := r.Queue(strings.ToUpper(name[:1])+name[1:]+" Committer", "", 2)
	return &metrics{
		queue: queue, flushes: queue.Work("FlushMemTable"), merges: queue.Work("MergeTables"), scavenges: queue.Work("ScavengeTable"),
		flushTime:    r.Histogram(prefix+"flush_seconds", "Time taken to write entries in memory to a table.", workBounds),
		mergeTime:    r.Histogram(prefix+"merge_seconds", "Time taken to merge tables.", workBounds),
		flushed:      r.Counter(prefix+"flushed_entries_total", "Entries written from memory to tables."),
		mergeRead:    r.Counter(prefix+"merge_read_entries_total", "Entries read by merges of tables."),
		mergeWritten: r.Counter(prefix+"merge_written_entries_total", "Entries written by merges of tables."),
		merging:      r.Gauge(prefix+"merges_under_way", "Merges of tables that are running."),

		scavengeTime:    r.Histogram(prefix+"scavenge_seconds", "Time taken to scavenge a table, pauses included.", workBounds),
		scavengeRead:    r.Counter(prefix+"scavenge_read_entries_total", "Entries of tables that were scavenged."),
		scavengeDropped: r.Counter(named(name, "scavenge_dropped_total", "scavenge_dropped_entries_total"), "Entries that scavenges have removed from tables."),
		scavenging:      r.Gauge(prefix+"scavenges_under_way", "Scavenges of the index that are running."),
	}
}

// named is the name of a metric of an index. That of streams keeps a name it was released with.
func named(index, metric, released string) string {
	if index == DefaultName {
		metric = released
	}
	return "annals_" + index + "_" + metric
}

// levelsShown are the levels of tables with a metric of their own; the last one stands for all
// above.
const levelsShown = 8

// watch registers the metrics that are computed when they are read.
func (rd *reading) watch(name string, r *stats.Registry) {
	label := func(name, value string) stats.Label { return stats.Label{Name: name, Value: value} }
	count := func(n *atomic.Uint64) func() float64 { return func() float64 { return float64(n.Load()) } }
	m, prefix := rd.metrics, "annals_"+name+"_"
	const lookedUpHelp = "Lookups, by where the entries were: in memory alone, in tables as well, or nowhere."
	lookedUp := prefix + "lookups_total"
	for where, name := range map[answered]string{nowhere: "nowhere", inMemory: "memory", inTables: "tables"} {
		r.CounterFunc(lookedUp, lookedUpHelp, func() float64 { return float64(m.lookups.sum(where)) }, label("answered", name))
	}
	const passedHelp = "Lookups of last entries that the filter of a table let through, by whether the entry was there."
	passed := prefix + "filter_passes_total"
	r.CounterFunc(passed, passedHelp, count(&m.filterFound), label("result", "found"))
	r.CounterFunc(passed, passedHelp, count(&m.filterMistook), label("result", "false-positive"))
	r.CounterFunc(prefix+"existence_filter_spared_total", "Lookups avoided because the stream-existence filter knew that there is no entry.", count(&m.spared))

	r.GaugeFunc(prefix+"memory_entries", "Entries in memory that are in no table yet.", func() (n float64) {
		rd.read(func(s *state) {
			for _, mem := range s.mems {
				n += float64(mem.shown.Load())
			}
		})
		return n
	})
	r.GaugeFunc(prefix+"memory_bytes", "Memory of the entries that are in no table yet.", func() float64 { return float64(rd.MemoryBytes()) })
	overTables := func(f func(*table) int64) func() float64 {
		return func() (n float64) {
			rd.read(func(s *state) {
				for _, t := range s.tables {
					n += float64(f(t))
				}
			})
			return n
		}
	}
	r.GaugeFunc(prefix+"table_entries", "Entries in tables.", overTables(func(t *table) int64 { return t.count }))
	r.GaugeFunc(named(name, "bytes", "table_bytes"), "Size of the tables, without their filters.", overTables(func(t *table) int64 { return t.bytes }))
	for level := range levelsShown {
		name := fmt.Sprint(level)
		if level == levelsShown-1 {
			name += "+"
		}
		r.GaugeFunc(prefix+"tables", "Tables, by their level.", overTables(func(t *table) int64 {
			if min(t.level, levelsShown-1) == level {
				return 1
			}
			return 0
		}), label("level", name))
	}

	const bytes, bytesHelp = "eventstore_cache_resources_bytes", "Memory that caches take, and may take."
	resource := func(cache, kind string, f func() float64) {
		r.GaugeFunc(bytes, bytesHelp, f, label("cache", cache), label("kind", kind))
	}
	existence := "stream-existence-filter"
	if name != DefaultName {
		existence = name + "-existence-filter"
	}
	resource(name+"-bloom-filters", "size", overTables(func(t *table) int64 {
		if t.filter == nil {
			return 0
		}
		return int64(len(t.filter.data))
	}))
	resource(name+"-samples", "size", overTables((*table).listBytes))
	resource(existence, "size", func() float64 {
		if f := rd.existence.filter.Load(); f != nil {
			return float64(f.bytes())
		}
		return 0
	})
	resource(existence, "capacity", func() float64 {
		if f := rd.existence.filter.Load(); f != nil {
			return float64(f.max)
		}
		return 0
	})
}

// MemoryBytes is the memory of the entries that are in no table yet.
func (r *reading) MemoryBytes() (n int64) {
	r.read(func(s *state) {
		for _, mem := range s.mems {
			n += mem.bytes()
		}
	})
	return n
}

// Merging reports whether tables are being merged.
func (x *Index) Merging() bool { return x.metrics.merging.Value() > 0 }

// Scavenging reports whether a Scavenge is running.
func (x *Index) Scavenging() bool { return x.metrics.scavenging.Value() > 0 }
