package inspect

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// scavengedFolder is a folder to be scavenged, with what a scavenge must remove.
type scavengedFolder struct {
	*inspectFolder
	discard map[string]int64 // events below this number go
}

// buildScavenged writes three complete chunks and one that grows. Of them a
// scavenge up to the end of the third one has something to remove.
func buildScavenged(t *testing.T) *scavengedFolder {
	t.Helper()
	f := newInspectFolder(t, vfs.NewMem())
	for i := range int64(20) {
		f.frame(false, inspectRecord{"a", i}, inspectRecord{"b", 2 * i}, inspectRecord{"b", 2*i + 1})
	}
	f.frame(true, inspectRecord{"$$a", 0}, inspectRecord{"gone", 0}, inspectRecord{"$$gone", 0}, inspectRecord{"d", 0}, inspectRecord{"d", 1})
	f.must(f.log.Index().Flush())
	f.term = 2
	for i := range int64(10) {
		f.frame(false, inspectRecord{"a", 20 + i}, inspectRecord{fmt.Sprint("c", i), 0})
	}
	f.frame(true, inspectRecord{"gone", 1}, inspectRecord{"$$gone", 1}, inspectRecord{"$$a", 1}, inspectRecord{"gone", event.TombstoneNumber})
	for i := range int64(5) {
		f.frame(i == 4, inspectRecord{"a", 30 + i})
	}
	f.must(f.log.Index().Flush()) // With that of the scavenge three tables: too few for a merge.
	f.frame(false, inspectRecord{"a", 35}, inspectRecord{"b", 40})
	f.frame(false, inspectRecord{"a", 36})
	return &scavengedFolder{f, map[string]int64{
		"a": 25, "$$a": 1, "b": 39, "gone": event.TombstoneNumber, "$$gone": event.TombstoneNumber,
	}}
}

// rewrite removes from chunks first..last what must go, and the events that drop says.
func (f *scavengedFolder) rewrite(first, last int, idsFrom int64, drop func(*eventlog.Stored) bool) {
	f.t.Helper()
	_, err := f.log.Chunks.Rewrite(f.t.Context(), eventlog.Rewrite{First: first, Last: last, IDsFrom: idsFrom, Keep: func(s *eventlog.Stored) bool {
		return s.Number >= f.discard[string(s.Stream)] && (drop == nil || !drop(s))
	}})
	f.must(err)
}

// scavengeIndex removes the entries that must go, from at most so many tables.
func (f *scavengedFolder) scavengeIndex(tables int) {
	f.t.Helper()
	points := map[uint64]int64{}
	for name, n := range f.discard {
		points[chunkfile.HashStream(name)] = n
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	defer cancel()
	err := f.log.Index().Scavenge(ctx, index.ScavengeOptions{
		Keep: func(e index.Entry) (bool, error) { return e.Number >= points[e.Hash], nil },
		Done: func(index.ScavengedTable) {
			if tables--; tables == 0 {
				cancel()
			}
		},
	})
	if !errors.Is(err, context.Canceled) || tables > 0 {
		f.must(err)
	}
}

// rewriteOdd rewrites a chunk of a closed folder without the odd events of a, of which stubs are
// left.
func (f *inspectFolder) rewriteOdd(number int) {
	f.t.Helper()
	f.open()
	_, err := f.log.Chunks.Rewrite(f.t.Context(), eventlog.Rewrite{First: number, Last: number, Keep: func(s *eventlog.Stored) bool {
		return string(s.Stream) != "a" || s.Number%2 == 0
	}})
	f.must(err)
	f.close()
}

// reindex rebuilds the index from the entries it has, after a change.
func (f *inspectFolder) reindex(change func(entries []index.Entry) []index.Entry) {
	f.t.Helper()
	var owner event.Chain // Kept, lest the next start take the index for that of another log.
	options := index.Options{FS: f.fs, Dir: inspectDir + "/index", Cluster: inspectCluster, Belongs: func(_ int64, chain event.Chain) (bool, error) {
		owner = chain
		return true, nil
	}}
	x, err := index.Open(options)
	f.must(err)
	var entries []index.Entry
	for e, err := range x.Entries() {
		f.must(err)
		entries = append(entries, e)
	}
	end := x.Checkpoint()
	f.must(x.Close())
	f.must(f.fs.RemoveAll(inspectDir + "/index"))
	x, err = index.Open(options)
	f.must(err)
	f.must(x.Add(change(entries), end, owner))
	f.must(x.Flush())
	f.must(x.Close())
}

// database makes the file that says that a scavenge has been here.
func (f *inspectFolder) database() {
	f.t.Helper()
	f.must(f.fs.MkdirAll(inspectDir + "/index/scavenging"))
	f.write("index/scavenging/scavenging.db", []byte("SQLite"))
}

// without leaves out the entries of some events.
func without(stream string, numbers ...int64) func([]index.Entry) []index.Entry {
	return func(es []index.Entry) (left []index.Entry) {
		for _, e := range es {
			drop := false
			for _, n := range numbers {
				drop = drop || e.Hash == chunkfile.HashStream(stream) && e.Number == n
			}
			if !drop {
				left = append(left, e)
			}
		}
		return left
	}
}

func everyTable() int { return 100 }

// Whatever a scavenge leaves, stopped or not, is clean, and the log opens and reads as before.
func TestInspectScavengedClean(t *testing.T) {
	cases := []struct {
		name     string
		scavenge func(f *scavengedFolder)
		want     Summary // chunks, scavenged ones, records, stubs, entries of the index
	}{
		{"all", func(f *scavengedFolder) {
			f.rewrite(0, 0, 0, nil)
			f.rewrite(1, 1, 0, nil)
			f.rewrite(2, 2, 0, nil)
			f.scavengeIndex(everyTable())
		}, Summary{Chunks: 4, Scavenged: 3, Records: 28, Stubs: 69, IndexEntries: 28}},
		{"no ids", func(f *scavengedFolder) {
			f.rewrite(0, 0, 4*chunkfile.ChunkSize, nil)
			f.rewrite(1, 1, 4*chunkfile.ChunkSize, nil)
			f.scavengeIndex(everyTable())
		}, Summary{Chunks: 4, Scavenged: 2, Records: 28, IndexEntries: 28}},
		{"some ids", func(f *scavengedFolder) {
			f.rewrite(0, 0, chunkfile.ChunkSize, nil)
			f.rewrite(1, 1, chunkfile.ChunkSize, nil)
			f.scavengeIndex(everyTable())
		}, Summary{Chunks: 4, Scavenged: 2, Records: 28, Stubs: 7, IndexEntries: 28}},
		{"first chunk passed over", func(f *scavengedFolder) {
			f.rewrite(1, 1, 0, nil)
			f.scavengeIndex(everyTable())
		}, Summary{Chunks: 4, Scavenged: 1, Records: 90, Stubs: 7, IndexEntries: 28}},
		{"second chunk passed over", func(f *scavengedFolder) {
			f.rewrite(0, 0, 0, nil)
			f.scavengeIndex(everyTable())
		}, Summary{Chunks: 4, Scavenged: 1, Records: 35, Stubs: 62, IndexEntries: 28}},
		{"all passed over", func(f *scavengedFolder) {
			f.scavengeIndex(everyTable())
			f.database()
		}, Summary{Chunks: 4, Records: 97, IndexEntries: 28}},
		{"index not yet", func(f *scavengedFolder) {
			f.rewrite(0, 0, 0, nil)
			f.rewrite(1, 1, chunkfile.ChunkSize+500, nil)
		}, Summary{Chunks: 4, Scavenged: 2, Records: 28, Stubs: 66, IndexEntries: 94}},
		{"stopped in the index", func(f *scavengedFolder) {
			f.rewrite(1, 1, 0, nil)
			f.scavengeIndex(1)
		}, Summary{Chunks: 4, Scavenged: 1, Records: 90, Stubs: 7, IndexEntries: 35}},
		{"more gone by age", func(f *scavengedFolder) {
			f.rewrite(1, 1, 0, func(s *eventlog.Stored) bool { return string(s.Stream) == "a" && s.Number < 28 })
			f.scavengeIndex(everyTable())
		}, Summary{Chunks: 4, Scavenged: 1, Records: 87, Stubs: 10, IndexEntries: 28}},
		{"merged", func(f *scavengedFolder) {
			f.rewrite(0, 0, 0, nil)
			f.rewrite(0, 2, 2*chunkfile.ChunkSize, nil)
			f.scavengeIndex(everyTable())
		}, Summary{Chunks: 2, Scavenged: 1, Records: 28, IndexEntries: 28}},
		{"nothing left of a chunk", func(f *scavengedFolder) {
			f.rewrite(0, 0, 4*chunkfile.ChunkSize, nil)
			f.discard["a"], f.discard["c1"] = 35, 0
			f.rewrite(2, 2, 4*chunkfile.ChunkSize, nil)
			f.scavengeIndex(everyTable())
		}, Summary{Chunks: 4, Scavenged: 2, Records: 30, IndexEntries: 18}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := buildScavenged(t)
			c.scavenge(f)
			f.close()
			for _, quick := range []bool{true, false} {
				findings, sum, err := f.inspect(quick)
				if err != nil || len(findings) > 0 {
					t.Fatalf("%v, %v", findings, err)
				}
				got := Summary{Chunks: sum.Chunks, Scavenged: sum.Scavenged, Records: sum.Records, Stubs: sum.Stubs, IndexEntries: sum.IndexEntries}
				if got != c.want || sum.Frames != 39 {
					t.Fatalf("\n got %+v, %d frames\nwant %+v", got, sum.Frames, c.want)
				}
			}
			f.open()
			f.close()
			f.must(f.fs.RemoveAll(inspectDir + "/index"))
			f.open() // The index is rebuilt, and names all that is there.
			f.must(f.log.Index().Flush())
			f.close()
			findings, sum, err := f.inspect(false)
			if err != nil || len(findings) > 0 || sum.IndexEntries != sum.Records {
				t.Fatalf("%v, %+v, %v", findings, sum, err)
			}
		})
	}
}

// Errors in an index of a log of which only the second chunk was rewritten.
func TestInspectScavengedIndex(t *testing.T) {
	at := func(es []index.Entry, stream string, number int64) *index.Entry {
		for i := range es {
			if es[i].Hash == chunkfile.HashStream(stream) && es[i].Number == number {
				return &es[i]
			}
		}
		panic("no such entry")
	}
	cases := []struct {
		name   string
		change func([]index.Entry) []index.Entry
		want   []string
	}{
		{"as it was", func(es []index.Entry) []index.Entry { return es }, nil},
		// As if the discard point were higher.
		{"first one of a stream missing", without("a", 25), nil},
		{"last one missing", without("a", 36), []string{`error index chunk-000003.000000 @364: the index does not name event 36 of stream "a"`}},
		{"all of a stream missing", without("c3", 0), []string{`error index chunk-000001.000001 @843: the index does not name event 0 of stream "c3"`}},
		{"hole", without("a", 28, 29), []string{`error index chunk-000001.000001 @1924: the index does not name event 28`, `error index chunk-000001.000001 @2161: the index does not name event 29`}},
		{"tombstone", without("gone", event.TombstoneNumber), []string{`error index chunk-000000.000000`, `error index chunk-000001.000001`}},
		{"newest metadata", without("$$a", 1), []string{`error index chunk-000000.000000 @6528: the index does not name event 0 of stream "$$a"`, `error index chunk-000001.000001`}},
		{"stream of a chunk passed over", without("d", 0, 1), []string{`error index chunk-000000.000000`, `error index chunk-000000.000000`}},
		{"between records", func(es []index.Entry) []index.Entry { at(es, "a", 32).Position++; return es },
			[]string{"error index chunk-000002.000000 @", `error index chunk-000002.000000 @`}},
		{"where a record was", func(es []index.Entry) []index.Entry { at(es, "a", 27).Position++; return es },
			[]string{`error index chunk-000001.000001 @1687: the index does not name event 27`}},
		{"first one of a stream where a record was", func(es []index.Entry) []index.Entry { at(es, "a", 25).Position = chunkfile.ChunkSize; return es },
			[]string{`error index chunk-000001.000001 @1213: the index does not name event 25`}},
		{"at another record", func(es []index.Entry) []index.Entry {
			at(es, "a", 32).Position = at(es, "a", 31).Position
			return es
		}, []string{"error index chunk-000002.000000 @", `error index chunk-000002.000000 @`}},
		{"another number", func(es []index.Entry) []index.Entry { at(es, "a", 27).Number = 24; return es },
			[]string{`error index chunk-000001.000001 @1687: the index names it for event 24`, `error index chunk-000001.000001`}},
		{"beyond the last event", func(es []index.Entry) []index.Entry {
			return append(es, index.Entry{Hash: chunkfile.HashStream("c3"), Number: 1, Position: chunkfile.ChunkSize + 1})
		}, []string{"error index index @-1: event 1 of the stream with hash"}},
		{"unknown stream", func(es []index.Entry) []index.Entry {
			return append(es, index.Entry{Hash: chunkfile.HashStream("x"), Number: 1, Position: chunkfile.ChunkSize + 1})
		}, []string{"error index index @-1: event 1 of the stream with hash"}},
		{"metadata of a deleted stream", func(es []index.Entry) []index.Entry {
			return append(es, index.Entry{Hash: chunkfile.HashStream("$$gone"), Number: 7, Position: chunkfile.ChunkSize + 1})
		}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := buildScavenged(t)
			f.rewrite(1, 1, 0, nil)
			f.scavengeIndex(everyTable())
			f.close()
			f.reindex(c.change)
			findings, _, err := f.inspect(false)
			f.must(err)
			inspectCompare(t, findings, c.want)
			// Without looking for the place it is found as well.
			findings, _, err = f.inspect(true)
			f.must(err)
			check.Equal(t, len(findings) > 0, len(c.want) > 0, "quick", findings)
		})
	}
	t.Run("of which no chunk was executed, in a copy", func(t *testing.T) {
		f := buildScavenged(t)
		f.frame(true, inspectRecord{event.ScavengePointsStream, 0})
		f.close()
		f.reindex(without("a", 0))
		findings, _, err := f.inspect(false)
		f.must(err)
		inspectCompare(t, findings, nil)
	})
	t.Run("without a scavenge", func(t *testing.T) {
		f := buildScavenged(t)
		f.close()
		f.reindex(without("a", 0))
		findings, _, err := f.inspect(false)
		f.must(err)
		inspectCompare(t, findings, []string{`error index chunk-000000.000000 @128: the index does not name event 0 of stream "a"`})
	})
}

// A scavenge that removed more than it may is found out.
func TestInspectScavengedTooMuch(t *testing.T) {
	for _, c := range []struct {
		name string
		drop string
		from int64
		want []string
	}{
		{"only event of a stream", "c3", 0, []string{"error index index @-1: event 0 of the stream with hash"}},
		{"last event of a stream", "d", 1, []string{"error index index @-1: event 1 of the stream with hash"}},
		{"newest metadata", "$$a", 1, []string{"error index index @-1: event 1 of the stream with hash"}},
		{"tombstone", "gone", event.TombstoneNumber, []string{
			"error index index @-1: event 9223372036854775807 of the stream with hash",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := buildScavenged(t)
			for chunk := range 2 {
				f.rewrite(chunk, chunk, 4*chunkfile.ChunkSize, func(s *eventlog.Stored) bool { return string(s.Stream) == c.drop && s.Number >= c.from })
			}
			f.scavengeIndex(everyTable())
			f.close()
			findings, _, err := f.inspect(false)
			f.must(err)
			inspectCompare(t, findings, c.want)
		})
	}
}

func TestInspectStubs(t *testing.T) {
	const rewritten = "chunk-000001.000001"
	first := func(f *inspectFolder, which func(chunkfile.Item) bool) int {
		b := f.read(rewritten)
		for i, at := range itemOffsets(b) {
			if it, err := chunkfile.ParseItem(b[at:]); err == nil && which(it) {
				return i
			}
		}
		panic("no such item")
	}
	edit := func(change func(stub []byte)) func(*inspectFolder) {
		return func(f *inspectFolder) { f.editItem(rewritten, first(f, chunkfile.Item.IsStub), change) }
	}
	cases := []struct {
		name   string
		damage func(f *inspectFolder)
		want   []string
	}{
		{"checksum", func(f *inspectFolder) {
			f.flip(rewritten, itemOffsets(f.read(rewritten))[first(f, chunkfile.Item.IsStub)]+20)
		}, []string{"error item chunk-000001.000001 @128: checksum of the item of 64 bytes does not match; 64 bytes are passed over", "error checksum chunk-000001.000001"}},
		{"count", func(f *inspectFolder) { f.refoot(rewritten, func(x *chunkfile.Footer) { x.Stubs++ }) },
			[]string{"error footer chunk-000001.000001 @3167: the footer says stubs 9, the data before it 8"}},
		{"position", edit(func(b []byte) { chunkfile.Order.PutUint64(b[8:], uint64(chunkfile.ChunkSize+1)) }),
			[]string{"error map chunk-000001.000001 @2747: the position map names position 268435456, which no item has", "error map chunk-000001.000001 @128: the position map does not name the item of position 268435457"}},
		{"position before the frame", func(f *inspectFolder) {
			second := func(it chunkfile.Item) bool { return it.IsStub() && it.Number() == 21 }
			f.editItem(rewritten, first(f, second), func(b []byte) { chunkfile.Order.PutUint64(b[8:], chunkfile.Order.Uint64(b[8:])-10) })
		}, []string{"error map", "error map", "error frame chunk-000001.000001 @494: the record at position 268435683 does not lie in its frame, 268435693 to"}},
		{"time", edit(func(b []byte) { chunkfile.Order.PutUint64(b[24:], 5) }), []string{"error item chunk-000001.000001 @128: time 5"}},
		{"number", edit(func(b []byte) { chunkfile.Order.PutUint64(b[16:], 1<<63) }), []string{"error stream chunk-000001.000001 @128: stream with hash"}},
		{"of a tombstone", edit(func(b []byte) { chunkfile.Order.PutUint16(b[6:], uint16(event.FlagDeleted)) }), []string{"error stream chunk-000001.000001 @128: stream with hash"}},
		{"in a chunk as it was written", func(f *inspectFolder) {
			f.editItem(chunkC, 0, func(it []byte) {
				stub := chunkfile.AppendStub(nil, it)
				copy(it, stub[:4])
				it[4] = chunkfile.KindStub
			})
		}, []string{"error item chunk-000002.000000"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := buildScavenged(t)
			f.rewrite(1, 1, 0, func(s *eventlog.Stored) bool { return string(s.Stream) == "a" && s.Number == 25 })
			f.scavengeIndex(everyTable())
			f.close()
			c.damage(f.inspectFolder)
			findings, _, err := f.inspect(false)
			f.must(err)
			inspectCompare(t, findings, c.want)
		})
	}
}

// What any number of scavenges leaves is clean; an entry less that they must keep is not.
func TestInspectScavengedRandomly(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	for range 10 {
		f := &scavengedFolder{newInspectFolder(t, vfs.NewMem()), map[string]int64{}}
		next := map[string]int64{}
		chunks := 0
		for range 40 + r.IntN(60) {
			var records []inspectRecord
			for range 1 + r.IntN(4) {
				name := fmt.Sprint("s", r.IntN(12))
				if r.IntN(5) == 0 {
					name = "$$" + name
				}
				number := next[name]
				if number == event.TombstoneNumber {
					continue
				}
				if next[name]++; r.IntN(40) == 0 && !event.IsMetaStream(name) {
					number, next[name] = event.TombstoneNumber, event.TombstoneNumber
				}
				records = append(records, inspectRecord{name, number})
			}
			if len(records) == 0 {
				continue
			}
			completes := r.IntN(12) == 0
			f.frame(completes, records...)
			if completes {
				chunks++
			}
			if r.IntN(10) == 0 {
				f.must(f.log.Index().Flush())
			}
			if r.IntN(25) != 0 || chunks == 0 {
				continue
			}
			// A scavenge of what is complete, up to here.
			for name, n := range next {
				switch last := n - 1; {
				case n == event.TombstoneNumber:
					f.discard[name], f.discard["$$"+name] = n, n
				case event.IsMetaStream(name):
					f.discard[name] = max(f.discard[name], last)
				case last > 0 && r.IntN(2) == 0:
					f.discard[name] = max(f.discard[name], r.Int64N(last+1))
				}
			}
			for number := range chunks {
				if r.IntN(3) > 0 {
					f.rewrite(number, number, r.Int64N(int64(chunks+1)*chunkfile.ChunkSize), nil)
				}
			}
			f.scavengeIndex(1 + r.IntN(6))
			f.database()
		}
		f.close()
		f.mustBeClean("after scavenges")
		f.open()
		f.must(f.log.Index().Flush())
		f.close()
		f.mustBeClean("after a start")
		// The newest event that the index knows of a stream is missed, whichever it is.
		var hashes []uint64
		last, count := map[uint64]index.Entry{}, map[uint64]int{}
		f.reindex(func(es []index.Entry) []index.Entry {
			for _, e := range es {
				if _, ok := last[e.Hash]; !ok {
					hashes = append(hashes, e.Hash)
				}
				last[e.Hash] = e
				count[e.Hash]++
			}
			return es
		})
		hash := hashes[r.IntN(len(hashes))]
		f.open()
		_, there, err := f.log.Chunks.StreamAt(nil, last[hash].Position)
		f.must(err)
		f.close()
		void := !there // And the last one of a deleted stream's metadata may go.
		for name, n := range next {
			void = void || n == event.TombstoneNumber && chunkfile.HashStream("$$"+name) == hash && count[hash] == 1
		}
		f.database()
		f.reindex(func(es []index.Entry) (left []index.Entry) {
			for _, e := range es {
				if e != last[hash] {
					left = append(left, e)
				}
			}
			return left
		})
		f.database()
		findings, _, err := f.inspect(false)
		f.must(err)
		found := false
		for _, x := range findings {
			found = found || x.Kind == FindIndex && strings.Contains(x.Detail, fmt.Sprintf("does not name event %d of", last[hash].Number))
		}
		if found == void {
			t.Errorf("without entry %+v: %v", last[hash], findings)
		}
	}
}

// Streams that share a hash are distinguished by name where entries are missing.
func TestInspectScavengedSharedHash(t *testing.T) {
	const shared = 42
	f := newInspectFolder(t, vfs.NewMem())
	for i := range int64(6) {
		f.frame(false, inspectRecord{"a", i}, inspectRecord{"b", i})
	}
	f.close()
	c, err := chunkfile.OpenNamed(f.fs, inspectDir, chunkA)
	f.must(err)
	items := map[string]chunkfile.Item{}
	position := map[string]int64{}
	b := f.read(chunkA)
	for _, at := range itemOffsets(b) {
		if it, err := chunkfile.ParseItem(b[at:]); err == nil && it.IsRecord() {
			key := fmt.Sprint(string(it.Stream()), it.Number())
			items[key], position[key] = it, it.Position()
		}
	}
	// The index names a from 4 on, and of b all but 2.
	x, err := index.Open(index.Options{FS: f.fs, Dir: "/shared"})
	f.must(err)
	var entries []index.Entry
	for _, key := range []string{"a4", "a5", "b0", "b1", "b3", "b4", "b5"} {
		entries = append(entries, index.Entry{Hash: shared, Number: items[key].Number(), Position: position[key]})
	}
	f.must(x.Add(entries, c.Start()+int64(len(b)), event.Chain{}))
	n := &inspector{chunks: []*chunkfile.Chunk{c}, tail: event.Tail{End: int64(len(b)) - chunkfile.HeaderSize}}
	g := &names{n: n}
	g.streams.init()
	r := &indexCheck{n: n, names: g, index: x}
	for key, want := range map[string][2]bool{ // named, may be unnamed
		"a0": {false, true}, "a3": {false, true}, "a4": {true, false}, "b2": {false, false}, "b5": {true, false},
	} {
		if got, err := r.isNamed(shared, items[key]); got != want[0] || err != nil {
			t.Errorf("%s: named is %t, %v", key, got, err)
		}
		if got, err := r.mayBeUnnamed(shared, items[key]); !want[0] && got != want[1] || err != nil {
			t.Errorf("%s: may be unnamed is %t, %v", key, got, err)
		}
	}
	f.must(errors.Join(n.close(), r.close()))
}
