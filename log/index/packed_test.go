package index_test

import (
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/index"
	"github.com/annalsdb/annals/stats"
)

// TestPackedRefusesOtherNumbers: nothing of a batch is added, nor replaced by a rebuild.
func TestPackedRefusesOtherNumbers(t *testing.T) {
	x := open(t, index.Options{FS: vfs.NewMem(), Packed: true})
	defer func() { check.Must(t, x.Close()) }()
	m := &model{packed: true}
	fill(t, x, m, 100, 7)
	wrong := []index.Entry{{Hash: 1, Number: m.end, Position: m.end}, {Hash: 1, Number: 1, Position: m.end + 1}}
	if err := x.Add(wrong, m.end+100, event.Chain{}); err == nil || !strings.Contains(err.Error(), "is not its position") {
		t.Errorf("add: %v", err)
	}
	check.Must(t, x.Flush())
	err := index.Rebuild(t.Context(), x, func(upTo int64, add func([]index.Entry) error) error {
		return errors.Join(m.refill(upTo, add), add([]index.Entry{{Hash: 1, Number: 1, Position: 2}}))
	})
	if err == nil || !strings.Contains(err.Error(), "is not its position") {
		t.Errorf("rebuild: %v", err)
	}
	m.check(t, x, 1)
	m.check(t, x, spread(3))
}

// TestCountOfARange: entries are counted in tables and in memory.
func TestCountOfARange(t *testing.T) {
	x := open(t, index.Options{FS: vfs.NewMem(), Packed: true, MaxAutoMergeLevel: -1})
	defer func() { check.Must(t, x.Close()) }()
	for at := int64(0); at < 4000; at += 10 {
		check.Must(t, x.Add([]index.Entry{{Hash: uint64(at % 3), Number: at, Position: at}}, at+10, event.Chain{}))
		if at == 1000 || at == 2000 {
			check.Must(t, x.Flush())
		}
	}
	for _, of := range [][2]int64{{0, math.MaxInt64}, {0, 3999}, {1, 1000}, {990, 1010}, {1500, 3001}, {2011, 2012}, {3990, 9000}, {-5, 0}} {
		for hash := range uint64(4) {
			want := 0
			for at := int64(0); at < 4000; at += 10 {
				if at >= of[0] && at <= of[1] && uint64(at%3) == hash {
					want++
				}
			}
			check.Equal(t, check.Value(x.Count(hash, of[0], of[1])).Must(t), int64(want), "entries of", hash, of)
		}
	}
}

// TestOtherShape: an index whose tables are of the other shape is built again.
func TestOtherShape(t *testing.T) {
	onShapes(t, func(t *testing.T, packed bool) {
		fsys, m, _ := build(t, packed)
		if packed {
			m = &model{log: m.log, end: m.end} // Plain tables take any numbers.
		} else {
			m = &model{packed: true}
			for range 200 {
				m.add(spread(3), 0)
			}
		}
		rebuilt(t, fsys, dir, m)
	})
}

// TestMergeOfLongLists: lists that take several blocks are whole after a merge.
func TestMergeOfLongLists(t *testing.T) {
	onShapes(t, func(t *testing.T, packed bool) {
		x := open(t, index.Options{FS: vfs.NewMem(), Packed: packed, MaxAutoMergeLevel: -1})
		defer func() { check.Must(t, x.Close()) }()
		m := &model{packed: packed}
		for range 3 {
			fill(t, x, m, 3000, 3)
			check.Must(t, x.Flush())
		}
		check.Must(t, x.Merge(t.Context()))
		for k := range uint64(3) {
			m.checkRange(t, x, spread(k), 0, math.MaxInt64, 3000)
		}
	})
}

// TestIndexesOfOneRegistry: each has metrics and a queue of its own.
func TestIndexesOfOneRegistry(t *testing.T) {
	r := new(stats.Registry)
	for name, entries := range map[string]int{"": 20, "postings": 30} {
		x := open(t, index.Options{FS: vfs.NewMem(), Stats: r, Name: name, Packed: name != ""})
		defer func() { check.Must(t, x.Close()) }()
		fill(t, x, &model{packed: name != ""}, entries, 5)
		check.Must(t, x.Flush())
	}
	got := samples(r)
	for key, want := range map[string]float64{
		"annals_index_flush_seconds":                                                                       1,
		"annals_postings_flush_seconds":                                                                    1,
		"annals_index_table_entries":                                                                       20,
		"annals_postings_table_entries":                                                                    30,
		"annals_index_memory_bytes":                                                                        8 << 10,
		"annals_index_scavenge_dropped_entries_total":                                                      0,
		"annals_postings_scavenge_dropped_total":                                                           0,
		"annals_postings_memory_bytes":                                                                     8 << 10,
		"annals_postings_tables level=0":                                                                   1,
		"eventstore_cache_resources_bytes cache=index-samples kind=size":                                   16,
		"eventstore_cache_resources_bytes cache=postings-samples kind=size":                                168,
		"eventstore_cache_resources_bytes cache=stream-existence-filter kind=size":                         128 << 10,
		"eventstore_cache_resources_bytes cache=postings-existence-filter kind=size":                       128 << 10,
		"eventstore_queue_processing_duration_seconds message_type=FlushMemTable queue=Index Committer":    1,
		"eventstore_queue_processing_duration_seconds message_type=FlushMemTable queue=Postings Committer": 1,
	} {
		if have, ok := got[key]; !ok || have != want {
			t.Errorf("%s is %v (%t), expected %v", key, have, ok, want)
		}
	}
	if got["annals_index_table_bytes"] <= 0 || got["annals_postings_bytes"] <= 0 {
		t.Errorf("bytes of tables: %v", got)
	}
}

// TestSizes compares what an index says of itself with its files, and what a table costs in memory
// with its blocks.
func TestSizes(t *testing.T) {
	onShapes(t, func(t *testing.T, packed bool) {
		const entries, streams = 100_000, 300
		o := index.Options{FS: vfs.NewMem(), Packed: packed, MaxAutoMergeLevel: -1}
		x, m := open(t, o), &model{packed: packed}
		fill(t, x, m, entries/2, streams)
		check.Must(t, x.Flush())
		fill(t, x, m, entries/2, streams)
		before := x.Sizes()
		check.Must(t, x.Flush())
		check.Must(t, x.Close())
		check.Equal(t, x.Sizes(), index.Sizes{}, "sizes of a closed index")
		x = open(t, o)
		defer func() { check.Must(t, x.Close()) }()
		n := x.Sizes()
		var files int64
		for _, tab := range x.Tables() {
			for _, name := range []string{tab.File, tab.File + ".bloomfilter"} {
				files += check.Value(o.FS.Stat(filepath.Join(dir, name))).Must(t).Size()
			}
		}
		if n.Tables != 2 || n.Entries != entries || n.Bytes != files || n.Keys > streams || n.Keys < streams*9/10 {
			t.Errorf("%+v, expected %d entries in files of %d bytes", n, entries, files)
		}
		if before.Entries != entries || before.Memory-n.Memory < entries/2*16 {
			t.Errorf("%+v before the flush, %+v after it", before, n)
		}
		// Plain tables have samples, and checksums of parts.
		bytes, most := int64(25*entries), int64(300*entries/1024)
		if packed {
			bytes, most = 4*entries, 40*entries/1024
		}
		// Both kinds of filters, and an empty table in memory.
		const others = 128<<10 + 2*6*64 + 1024*8
		if lists := n.Memory - others; n.Bytes > bytes || lists > most {
			t.Errorf("%+v: files above %d bytes, or lists above %d", n, bytes, most)
		}
		all := slices.Collect(func(yield func(index.Entry) bool) {
			for e, err := range x.Entries() {
				if check.Must(t, err); !yield(e) {
					return
				}
			}
		})
		check.Equal(t, len(all), entries, "entries")
	})
}
