package eventlog

import (
	"fmt"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/stats"
)

// samples are the values of a registry by name and labels.
func samples(r *stats.Registry) map[string]float64 {
	all := make(map[string]float64)
	r.Each(func(s stats.Sample) {
		key := s.Name
		for _, l := range s.Labels {
			key += fmt.Sprintf(" %s=%s", l.Name, l.Value)
		}
		if all[key] = s.Value; s.Histogram != nil {
			all[key] = float64(s.Histogram.Count)
		}
	})
	return all
}

func TestMetrics(t *testing.T) {
	m := newModel()
	for i := range 10 {
		m.frame(false, ev("a", fmt.Sprint(i)), ev("b", fmt.Sprint(i)))
	}
	o := testOptions(vfs.NewMem())
	o.Stats, o.StreamCache, o.RecentIDs = new(stats.Registry), 640, 1000
	l := mustOpen(t, o)
	write(t, l, m.frames...)
	before := samples(o.Stats)
	end := float64(m.tail.End)
	written := 0
	for _, f := range m.frames {
		written += len(f.Records) + chunkfile.TrailerSize
	}
	read := int64(0)
	page := check.Value(l.Reads.ReadStream(event.StreamRead{Stream: "a", Count: 4})).Must(t)
	for _, e := range page.Events {
		read += e.Next - e.Position
	}
	rec := check.Value(l.Reads.ReadEvent("b", 3, nil)).Must(t)
	read += rec.Next - rec.Position
	all := check.Value(l.Reads.ReadAll(event.AllRead{From: 0, Count: 7})).Must(t)
	for _, e := range all.Events {
		read += e.Next - e.Position
	}
	check.MustEqual(t, check.Err(l.Reads.ReadEvent("none", 0, nil)), event.ErrStreamNotFound)
	check.Must(t, l.syncer.Sync())
	got := samples(o.Stats)
	for key, want := range map[string]float64{
		"eventstore_io_bytes activity=read":                        float64(read),
		"eventstore_io_events activity=read":                       12,
		"eventstore_io_bytes activity=written":                     float64(written),
		"eventstore_io_events activity=written":                    20,
		"eventstore_checkpoints name=writer read=non-flushed":      end,
		"eventstore_checkpoints name=writer read=flushed":          end,
		"eventstore_checkpoints name=chaser read=non-flushed":      end,
		"eventstore_checkpoints name=replication read=non-flushed": end,
		"eventstore_checkpoints name=epoch read=non-flushed":       0,
		"eventstore_checkpoints name=index read=non-flushed":       0,
		// The first look at each stream.
		"eventstore_cache_hits_misses cache=stream-info kind=misses":               3,
		"eventstore_cache_hits_misses cache=stream-info kind=hits":                 0,
		"eventstore_cache_resources_entries cache=stream-info kind=count":          3,
		"eventstore_cache_resources_entries cache=stream-info kind=capacity":       640,
		"eventstore_cache_resources_bytes cache=stream-info kind=size":             3*cachedStreamBytes + 6,
		"eventstore_cache_resources_bytes cache=stream-info kind=capacity":         640 * (cachedStreamBytes + 2),
		"eventstore_cache_resources_entries cache=event-ids kind=count":            20,
		"eventstore_cache_resources_entries cache=event-ids kind=capacity":         1000,
		"eventstore_cache_resources_bytes cache=stream-existence-filter kind=size": 4096,
		"annals_log_chunks":                1,
		"annals_log_records":               0, // None is complete.
		"annals_log_unsynced_bytes":        0,
		"annals_log_hash_collisions_total": 0,
		"annals_log_damaged_chunks_total":  0,
		"annals_index_memory_entries":      20,
		// one page, one event: the facts of new streams are known
		"annals_index_lookups_total answered=memory": 2,
		"annals_index_lookups_total answered=tables": 0,
		"annals_index_existence_filter_spared_total": 5, // a stream, metadata of three, redactions
	} {
		if have, ok := got[key]; !ok || have != want {
			t.Errorf("%s is %v (%t), expected %v", key, have, ok, want)
		}
	}
	if got["annals_log_sync_seconds"] <= before["annals_log_sync_seconds"] {
		t.Errorf("%v syncs, %v before", got["annals_log_sync_seconds"], before["annals_log_sync_seconds"])
	}
	if f, want := l.Statistics(), (Statistics{
		Writer: m.tail.End, NonFlushed: m.tail.End, WrittenBytes: uint64(written), WrittenEvents: 20, ReadBytes: uint64(read), ReadEvents: 12,
		NotCachedRecords: 12, NotCachedStreamInfos: 3,
	}); f != want {
		t.Errorf("metrics %+v, expected %+v", f, want)
	}
	last := m.frame(false, ev("a", "last"))
	write(t, l, last)
	if got := samples(o.Stats); got["annals_log_unsynced_bytes"] != float64(m.tail.End)-end || got["eventstore_checkpoints name=writer read=flushed"] != end {
		t.Errorf("before a sync: %v unsynced, %v flushed", got["annals_log_unsynced_bytes"], got["eventstore_checkpoints name=writer read=flushed"])
	}
	write(t, l, m.frame(true, ev("a", "completes"))) // From here on the background syncs as well.
	if got := samples(o.Stats); got["annals_log_chunks"] != 1 || got["annals_log_records"] != 22 {
		t.Errorf("%v chunks, %v records in complete ones", got["annals_log_chunks"], got["annals_log_records"])
	}
	closeLog(t, l)
	// A log that is opened again has the same metrics under the same names.
	l = mustOpen(t, o)
	if again := samples(o.Stats); len(again) != len(got) || again["annals_log_chunks"] != 1 {
		t.Errorf("%d metrics, %d before", len(again), len(got))
	}
	closeLog(t, l)
	samples(o.Stats) // of a log that is closed
}

// The size of the cache is what its entries take, whatever came and went.
func TestStreamCacheSize(t *testing.T) {
	c := newStreamCache(64 * 3)
	for i := range uint64(5000) {
		hash := i * 0x9e3779b97f4a7c15
		name := fmt.Sprint("stream-", i%977)
		switch i % 3 {
		case 0:
			c.applied(hash, []byte(name), 0, 0)
		case 1:
			_, _, changes := c.get(hash, name)
			c.put(hash, cachedStream{name: name}, changes)
		default:
			c.applied(hash, []byte("x"+name), 7, 7)
		}
	}
	want := streamStatistics{}
	for i := range c.shards {
		for _, s := range c.shards[i].streams {
			want.bytes += s.size()
			want.entries++
		}
	}
	got := c.metrics()
	if got.bytes != want.bytes || got.entries != want.entries || got.entries > c.capacity() || got.entries == 0 {
		t.Errorf("%+v, expected %+v", got, want)
	}
	c.reset()
	if got := c.metrics(); got.bytes != 0 || got.entries != 0 {
		t.Errorf("after a reset: %+v", got)
	}
}
