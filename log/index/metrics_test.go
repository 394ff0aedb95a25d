package index_test

import (
	"fmt"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/index"
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
	r := new(stats.Registry)
	x := open(t, index.Options{FS: vfs.NewMem(), Stats: r, MaxAutoMergeLevel: -1, ExistenceFilterMax: 1 << 20})
	position := int64(0)
	add := func(hash uint64, numbers ...int64) {
		for _, n := range numbers {
			check.Must(t, x.Add([]index.Entry{{Hash: hash, Number: n, Position: position}}, position+1, event.Chain{}))
			position++
		}
	}
	const old, fresh, both = 1 << 61, 2 << 61, 3 << 61
	add(old, 0, 1, 2)
	add(both, 0)
	check.Must(t, x.Flush())
	add(old+1, 0)
	check.Must(t, x.Flush())
	check.Must(t, x.Merge(t.Context()))
	add(fresh, 0, 1)
	add(both, 1)
	x.Last(old)          // in a table
	x.Last(fresh)        // in memory
	x.Get(nil, fresh, 1) // in memory
	x.Get(nil, fresh, 7) // nowhere
	x.Ascend(nil, both, 0, 9, 5)
	x.Descend(nil, both, 9, 0, 1) // the newest is in memory
	x.MayExist(old)
	x.MayExist(12345)
	got := samples(r)
	for key, want := range map[string]float64{
		"annals_index_lookups_total answered=tables":             2,
		"annals_index_lookups_total answered=memory":             3,
		"annals_index_lookups_total answered=nowhere":            1,
		"annals_index_filter_passes_total result=found":          1,
		"annals_index_filter_passes_total result=false-positive": 0,
		"annals_index_existence_filter_spared_total":             1,
		"annals_index_memory_entries":                            3,
		"annals_index_table_entries":                             5,
		"annals_index_tables level=0":                            0,
		"annals_index_tables level=1":                            1,
		"annals_index_tables level=7+":                           0,
		"annals_index_flush_seconds":                             2,
		"annals_index_flushed_entries_total":                     5,
		"annals_index_merge_seconds":                             1,
		"annals_index_merge_read_entries_total":                  5,
		"annals_index_merge_written_entries_total":               5,
		"annals_index_merges_under_way":                          0,
		"annals_queue_length queue=Index Committer":              0,
		"eventstore_queue_processing_duration_seconds message_type=FlushMemTable queue=Index Committer": 2,
		"eventstore_queue_processing_duration_seconds message_type=MergeTables queue=Index Committer":   1,
		"eventstore_cache_resources_bytes cache=stream-existence-filter kind=capacity":                  1 << 20,
		"eventstore_cache_resources_bytes cache=index-bloom-filters kind=size":                          64,
		"eventstore_cache_resources_bytes cache=index-samples kind=size":                                16,
	} {
		if have, ok := got[key]; !ok || have != want {
			t.Errorf("%s is %v (%t), expected %v", key, have, ok, want)
		}
	}
	check.Must(t, x.Close())
	check.Equal(t, samples(r)["annals_index_table_entries"], 0, "a closed index shows ... entries")
}

// Whatever happens to a table in memory, it leaves the queue once.
func TestCommitterQueueEndsEmpty(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*index.Index) error
	}{
		{"flush", (*index.Index).Flush},
		{"close", (*index.Index).Close},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := new(stats.Registry)
			x := open(t, index.Options{FS: vfs.NewMem(), Stats: r, MaxMemTable: 10})
			for i := range int64(500) {
				check.Must(t, x.Add([]index.Entry{{Hash: uint64(i) << 50, Number: i, Position: i}}, i+1, event.Chain{}))
			}
			check.Must(t, c.end(x))
			check.Must(t, x.Close())
			queue := r.Queues()[0]
			queue.Enter(1) // It would hide a negative length.
			if f := queue.Statistics(); f.Length != 1 || f.Doing != "" {
				t.Errorf("%+v", f)
			}
		})
	}
}
