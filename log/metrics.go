package eventlog

import (
	"sync/atomic"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/stats"
)

// syncBounds are buckets for the time that a sync takes, in seconds.
var syncBounds = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}

// Buckets for the time that a look takes, in seconds, and for the postings that it reads.
var (
	lookBounds    = []float64{0.00001, 0.0001, 0.001, 0.01, 0.1, 0.5, 1, 5}
	postingBounds = []float64{0, 1, 10, 100, 1000, 10_000, 100_000, 1_000_000}
)

// metrics are those of a log, from when it was opened.
type metrics struct {
	reads      reads
	collisions atomic.Uint64 // index hits that belonged to another stream

	writtenBytes  *stats.Counter
	writtenEvents *stats.Counter
	commits       *stats.Counter
	syncs         *stats.Histogram
	verified      *stats.Counter // bytes
	verifying     *stats.Gauge   // 1 while it runs
	verifyAt      *stats.Gauge   // position after the chunk verified last
	damaged       *stats.Counter
	renumbered    *stats.Counter

	falseHits, hiddenHits, deniedHits *stats.Counter // of queries
	// reads of postings
	queried, indexed, filtered, conditioned *stats.Counter
	malformedTags                           *stats.Counter

	wide      *stats.Counter   // conditions that could not be judged
	looks     *stats.Histogram // how long the looks for the conditions of a write took
	lookedFor *stats.Histogram // postings that a look for one condition read
}

// reads counts what readers were given: one update for a page of records. It is
// spread, so that processors that read different streams do not wait for each other.
type reads [16]struct {
	events, bytes atomic.Uint64
	_             [48]byte // the rest of a cache line
}

// page counts records that were read.
func (r *reads) page(records []event.Resolved) {
	if len(records) == 0 {
		return
	}
	bytes := int64(0)
	for i := range records {
		bytes += records[i].Next - records[i].Position
	}
	r.add(uint64(records[len(records)-1].Position)>>6, len(records), bytes)
}

func (r *reads) add(by uint64, events int, bytes int64) {
	c := &r[by%uint64(len(r))]
	c.events.Add(uint64(events))
	c.bytes.Add(uint64(bytes))
}

// count returns the events alone.
func (r *reads) count() (events uint64) {
	for i := range r {
		events += r[i].events.Load()
	}
	return events
}

func (r *reads) sum() (events, bytes uint64) {
	for i := range r {
		events += r[i].events.Load()
		bytes += r[i].bytes.Load()
	}
	return events, bytes
}

func labelled(name, value string) stats.Label { return stats.Label{Name: name, Value: value} }

// Metrics whose values come from several packages, or that have several labels.
const (
	ioBytes, ioBytesHelp             = "eventstore_io_bytes", "Bytes of records read from the log and written to it."
	ioEvents, ioEventsHelp           = "eventstore_io_events", "Records read from the log and written to it."
	positions, positionsHelp         = "eventstore_checkpoints", "Positions of the log that a part of the node has reached."
	hitsMisses, hitsMissesHelp       = "eventstore_cache_hits_misses", "Lookups in a cache that found, or did not find, what they were for."
	cacheBytes, cacheBytesHelp       = "eventstore_cache_resources_bytes", "Memory that caches take, and may take."
	postingsReads, postingsReadsHelp = "annals_postings_reads_total", "Reads of postings, by whether they find pages of queries, of index streams, or of the log with a filter, or judge conditions of writes."
	// also of package fsm
	Conditions, ConditionsHelp = "annals_conditions_total", "Conditions of writes that were judged, by what became of them."
	cacheCount, cacheCountHelp = "eventstore_cache_resources_entries", "Entries of caches, and how many there may be."
)

func newMetrics(r *stats.Registry) metrics {
	return metrics{
		writtenBytes:  r.Counter(ioBytes, ioBytesHelp, labelled("activity", "written")),
		writtenEvents: r.Counter(ioEvents, ioEventsHelp, labelled("activity", "written")),
		commits:       r.Counter("annals_log_commits_total", "Batches of records that were shown to readers."),
		syncs:         r.Histogram("annals_log_sync_seconds", "Time taken to make the log durable.", syncBounds),
		verified:      r.Counter("annals_log_verified_bytes_total", "Bytes of complete chunks that were compared with their checksums."),
		verifying:     r.Gauge("annals_log_verifying", "1 while complete chunks are compared with their checksums."),
		verifyAt:      r.Gauge("annals_log_verified_position", "Position up to which complete chunks were verified since the start."),
		renumbered:    r.Counter("annals_log_numbers_wrong_total", "Events whose number does not follow the last event of their stream on this node."),
		falseHits:     r.Counter("annals_postings_false_hits_total", "Postings that led to an event which was not asked for."),
		hiddenHits:    r.Counter("annals_postings_hidden_total", "Events found by postings that reads of their streams do not show."),
		deniedHits:    r.Counter("annals_postings_denied_total", "Events found by postings whose streams the caller may not read."),
		queried:       r.Counter(postingsReads, postingsReadsHelp, labelled("source", "query")),
		indexed:       r.Counter(postingsReads, postingsReadsHelp, labelled("source", "index")),
		filtered:      r.Counter(postingsReads, postingsReadsHelp, labelled("source", "filter")),
		conditioned:   r.Counter(postingsReads, postingsReadsHelp, labelled("source", "condition")),
		malformedTags: r.Counter("annals_postings_malformed_tags_total", "Events that were posted without their tags, because these are malformed."),
		wide:          r.Counter(Conditions, ConditionsHelp, labelled("result", "wide")),
		looks:         r.Histogram("annals_condition_seconds", "Time that the look at the log for the conditions of a write took before it was decided.", lookBounds),
		lookedFor:     r.Histogram("annals_condition_postings", "Postings that one look for a condition read, before it was decided or then.", postingBounds),
		damaged:       r.Counter("annals_log_damaged_chunks_total", "Complete chunks that were found to be damaged."),
	}
}

// watch registers the metrics that are computed when they are read.
func (l *Log) watch(r *stats.Registry) {
	r.CounterFunc(ioBytes, ioBytesHelp, func() float64 { _, n := l.metrics.reads.sum(); return float64(n) }, labelled("activity", "read"))
	r.CounterFunc(ioEvents, ioEventsHelp, func() float64 { n, _ := l.metrics.reads.sum(); return float64(n) }, labelled("activity", "read"))

	at := func(name, read string, position func() int64) {
		r.GaugeFunc(positions, positionsHelp, func() float64 { return float64(position()) }, labelled("name", name), labelled("read", read))
	}
	end := func() int64 { return l.Tail().End }
	at("writer", "non-flushed", end)
	at("writer", "flushed", l.syncer.syncedEnd.Load)
	at("chaser", "non-flushed", end)
	at("replication", "non-flushed", end) // What is here was committed by a quorum.
	at("epoch", "non-flushed", l.EpochPosition)
	at("index", "non-flushed", l.index.Checkpoint)

	for i, kind := range l.postings.Status().Kinds {
		r.GaugeFunc("annals_postings", "Postings, by kind.", func() float64 { kinds, _ := l.postings.Kinds(); return float64(kinds[i].Postings) }, labelled("kind", kind.Name))
		r.GaugeFunc("annals_postings_keys", "Keys of postings, by kind. Of tags and correlations it is at most so many.",
			func() float64 { kinds, _ := l.postings.Kinds(); return float64(kinds[i].Keys) }, labelled("kind", kind.Name))
	}
	r.GaugeFunc("annals_postings_malformed_tags", "Events in the log whose tags are malformed.", func() float64 { _, n := l.postings.Kinds(); return float64(n) })
	r.GaugeFunc("annals_postings_build_ratio", "Share of the log that the index of postings has; 1 when it has all.", func() float64 {
		done, total := l.postings.Progress()
		if total == 0 {
			return 1
		}
		return float64(done) / float64(total)
	})
	r.GaugeFunc("annals_chunks_damaged", "Complete chunk files in use that are known to be damaged.", func() float64 { return float64(len(l.Health.Damaged())) })
	r.GaugeFunc("annals_chunk_check_ratio", "Share of the complete chunks that the running check, or the last one, has read.", func() float64 {
		p := l.Health.CheckProgress()
		return min(1, float64(p.Done)/float64(max(p.Total, 1)))
	})
	r.GaugeFunc("annals_chunk_check_last_end_timestamp_seconds", "When the last check of all complete chunks ended, 0: never.", func() float64 {
		if at := l.Health.CheckProgress().Ended; !at.IsZero() {
			return float64(at.Unix())
		}
		return 0
	})
	r.GaugeFunc("annals_log_chunks", "Chunk files in use.", func() float64 { n, _ := l.chunkStatistics(); return float64(n) })
	r.GaugeFunc("annals_log_records", "Records in complete chunks.", func() float64 { _, n := l.chunkStatistics(); return float64(n) })
	r.GaugeFunc("annals_log_unsynced_bytes", "Bytes of the log that are not synced yet. After a power cut they come from the Raft log.",
		func() float64 { return float64(max(0, end()-l.syncer.syncedEnd.Load())) })
	r.CounterFunc("annals_log_hash_collisions_total", "Entries of the index that were looked up and belonged to another stream with the same hash.",
		func() float64 { return float64(l.metrics.collisions.Load()) })
	r.GaugeFunc("annals_log_waiting_readers", "Readers that wait for the log or a stream to grow.",
		func() float64 { return float64(l.Reads.notify.waiting.Load()) })

	const info, ids = "stream-info", "event-ids"
	cache := func(name, help, cache, kind string, f func() float64) {
		r.GaugeFunc(name, help, f, labelled("cache", cache), labelled("kind", kind))
	}
	hits := func(kind string, f func(streamStatistics) uint64) {
		r.CounterFunc(hitsMisses, hitsMissesHelp, func() float64 { return float64(f(l.Reads.streams.metrics())) }, labelled("cache", info), labelled("kind", kind))
	}
	hits("hits", func(f streamStatistics) uint64 { return f.hits })
	hits("misses", func(f streamStatistics) uint64 { return f.misses })
	cache(cacheCount, cacheCountHelp, info, "count", func() float64 { return float64(l.Reads.streams.metrics().entries) })
	cache(cacheCount, cacheCountHelp, info, "capacity", func() float64 { return float64(l.Reads.streams.capacity()) })
	cache(cacheBytes, cacheBytesHelp, info, "size", func() float64 { return float64(l.Reads.streams.metrics().bytes) })
	cache(cacheBytes, cacheBytesHelp, info, "capacity", func() float64 {
		f := l.Reads.streams.metrics()
		each := int64(cachedStreamBytes)
		if f.entries > 0 {
			each = f.bytes / int64(f.entries)
		}
		return float64(each * int64(l.Reads.streams.capacity()))
	})
	cache(cacheCount, cacheCountHelp, ids, "count", func() float64 { n, _ := l.Reads.ids.metrics(); return float64(n) })
	cache(cacheCount, cacheCountHelp, ids, "capacity", func() float64 { return float64(l.opts.RecentIDs) })
	cache(cacheBytes, cacheBytesHelp, ids, "size", func() float64 { _, n := l.Reads.ids.metrics(); return float64(n) })
}

// chunkStatistics counts the chunk files and the records in those that are complete.
func (l *Log) chunkStatistics() (files, records int) {
	l.setMu.Lock()
	chunks := l.files // replaced as a whole, never changed
	l.setMu.Unlock()
	for _, c := range chunks {
		records += c.Footer.Records
	}
	return len(chunks), records
}

// Statistics are the numbers of a log at one moment; the counts are since it was opened.
type Statistics struct {
	Writer        int64 // position up to which the log is durable without the Raft log
	NonFlushed    int64 // end of the log: applied, indexed, readable
	Index         int64 // position up to which the index is durable
	WrittenBytes  uint64
	WrittenEvents uint64
	ReadBytes     uint64 // of the events given to readers
	ReadEvents    uint64

	// Records are read from files mapped into memory, without a call to the
	// system: whether the system had to fetch a page from the disk is not known to this
	// process. All such reads count as cached. Not cached are those from files that cannot be
	// mapped, as those of a database in memory, or on some file systems.
	CachedRecords    uint64
	NotCachedRecords uint64

	CachedStreamInfos    uint64 // facts of a stream that were known
	NotCachedStreamInfos uint64
	HashCollisions       uint64
}

// Statistics returns them. It takes no lock for longer than a few loads.
func (l *Log) Statistics() Statistics {
	events, bytes := l.metrics.reads.sum()
	streams := l.Reads.streams.metrics()
	f := Statistics{
		Writer: l.syncer.syncedEnd.Load(), NonFlushed: l.Tail().End, Index: l.index.Checkpoint(),
		WrittenBytes: l.metrics.writtenBytes.Value(), WrittenEvents: l.metrics.writtenEvents.Value(),
		ReadBytes: bytes, ReadEvents: events,
		CachedStreamInfos: streams.hits, NotCachedStreamInfos: streams.misses,
		HashCollisions: l.metrics.collisions.Load(),
	}
	if l.mapped {
		f.CachedRecords = events
	} else {
		f.NotCachedRecords = events
	}
	return f
}
