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
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/datadir"
	"github.com/annalsdb/annals/log/index"
)

const (
	chunkA = "chunk-000000.000000"
	chunkB = "chunk-000001.000000"
	chunkC = "chunk-000002.000000"
)

func TestInspectClean(t *testing.T) {
	cases := []struct {
		name string
		make func(f *inspectFolder)
		want Summary // without index tables and bytes
	}{
		{"as written", func(*inspectFolder) {}, Summary{Chunks: 3, Frames: 38, Records: 90, Streams: 14, IndexEntries: 88}},
		{"scavenged", func(f *inspectFolder) {
			f.scavenge(func(it chunkfile.Item) bool { return string(it.Stream()) == "b" }, chunkA)
		}, Summary{Chunks: 3, Scavenged: 1, Frames: 38, Records: 50, Streams: 14, IndexEntries: 88}},
		{"one record left", func(f *inspectFolder) {
			f.scavenge(func(it chunkfile.Item) bool { return string(it.Stream()) != "$$a" }, chunkA)
		}, Summary{Chunks: 3, Scavenged: 1, Frames: 38, Records: 29, Streams: 14, IndexEntries: 88}},
		{"merged", func(f *inspectFolder) {
			f.scavenge(func(it chunkfile.Item) bool { return it.Number() == 3 }, chunkA, chunkB)
		}, Summary{Chunks: 2, Scavenged: 1, Frames: 38, Records: 88, Streams: 14, IndexEntries: 88}},
		{"redacted", func(f *inspectFolder) {
			f.editItem(chunkA, 5, func(it []byte) {
				chunkfile.Order.PutUint16(it[6:], uint16(event.FlagRedacted))
				for i := range chunkfile.Item(it).Data() {
					chunkfile.Item(it).Data()[i] = 0xff
				}
			})
		}, Summary{Chunks: 3, Frames: 38, Records: 90, Redacted: 1, Streams: 14, IndexEntries: 88}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newInspectFolder(t, vfs.NewMem()).build()
			c.make(f)
			findings, sum, err := f.inspect(false)
			if err != nil || len(findings) > 0 {
				t.Fatalf("%v, %v", findings, err)
			}
			c.want.End, c.want.Bytes, c.want.IndexTables = sum.End, sum.Bytes, sum.IndexTables
			if sum != c.want || sum.Bytes == 0 || sum.IndexTables == 0 || sum.End <= 2*chunkfile.ChunkSize {
				t.Fatalf("\n got %+v\nwant %+v", sum, c.want)
			}
			f.open() // What is clean can be opened.
			f.close()
		})
	}
}

func TestInspectEmpty(t *testing.T) {
	f := newInspectFolder(t, vfs.NewMem())
	f.close()
	findings, sum, err := f.inspect(false)
	if err != nil || len(findings) > 0 || sum.Chunks != 1 || sum.End != 0 {
		t.Fatal(findings, sum, err)
	}
}

// A part of the folder is damaged; the findings are exactly those named: how they begin, and a part
// of each.
func TestInspectDamage(t *testing.T) {
	at := func(f *inspectFolder, name string, i int) int { return itemOffsets(f.read(name))[i] }
	cases := []struct {
		name   string
		damage func(f *inspectFolder)
		want   []string
	}{
		{"header", func(f *inspectFolder) { f.flip(chunkB, 60) },
			[]string{"error checksum chunk-000001.000000 @0: checksum of the header"}},
		{"footer", func(f *inspectFolder) { f.flip(chunkB, -60) },
			[]string{"error checksum chunk-000001.000000 @2653: checksum of the footer does not match"}},
		{"magic of the footer", func(f *inspectFolder) { f.flip(chunkB, -128) },
			[]string{"error checksum chunk-000001.000000 @2653: no footer"}},
		{"record in a complete chunk", func(f *inspectFolder) { f.flip(chunkA, at(f, chunkA, 5)+60) },
			[]string{"error item chunk-000000.000000 @532: checksum of the item of 84 bytes does not match; 84 bytes are passed over",
				"error checksum chunk-000000.000000 @-1: checksum of the whole file"}},
		{"length of a record", func(f *inspectFolder) { f.flip(chunkA, at(f, chunkA, 5)+2) },
			[]string{"error item chunk-000000.000000 @532: length", "error checksum chunk-000000.000000 @-1: checksum of the whole file"}},
		{"trailer", func(f *inspectFolder) { f.flip(chunkA, at(f, chunkA, 3)+20) },
			[]string{"error item chunk-000000.000000 @380: checksum of the item of 68 bytes", "error checksum chunk-000000.000000 @-1: checksum of the whole file"}},
		{"record in the active chunk", func(f *inspectFolder) { f.flip(chunkC, at(f, chunkC, 0)+30) },
			[]string{"error item chunk-000002.000000 @128: checksum of the item"}},
		{"last trailer", func(f *inspectFolder) { f.flip(chunkC, -20) },
			[]string{"error item chunk-000002.000000", "error frame chunk-000002.000000", "error checkpoint writer.chk @-1: the log ends at"}},
		{"chunk missing", func(f *inspectFolder) { f.remove(chunkB) },
			[]string{"error missing chunk-000002.000000 @-1: chunks 1 to 1 are missing"}},
		{"first chunk missing", func(f *inspectFolder) { f.remove(chunkA) },
			[]string{"error missing chunk-000001.000000 @-1: chunks 0 to 0 are missing"}},
		{"active chunk missing", func(f *inspectFolder) { f.remove(chunkC) },
			[]string{"error checkpoint writer.chk", "error index index/indexmap @-1: the index reaches up to"}},
		{"chunk cut short", func(f *inspectFolder) {
			f.change(chunkB, func(b []byte) []byte { return b[:len(b)-300] })
		}, []string{"error missing chunk-000001.000000 @-1: the chunk has no footer", "error item chunk-000001.000000", "error frame chunk-000001.000000"}},
		{"active chunk cut at a frame", func(f *inspectFolder) {
			f.change(chunkC, func(b []byte) []byte { i := itemOffsets(b); return b[:i[len(i)-3]] })
		}, []string{"error checkpoint writer.chk"}},
		{"chunk under another number", func(f *inspectFolder) {
			f.must(f.fs.Rename(f.path(chunkC), f.path("chunk-000003.000000")))
		}, []string{"error missing", "error unreadable chunk-000003.000000 @16: the header says", "error checkpoint writer.chk", "error index index/indexmap"}},
		{"another cluster", func(f *inspectFolder) {
			f.change(chunkC, func(b []byte) []byte {
				h, err := chunkfile.ParseHeader(b)
				f.must(err)
				h.Cluster = event.ID{9}
				return append(h.Bytes(), b[chunkfile.HeaderSize:]...)
			})
		}, []string{"error cluster chunk-000002.000000 @40: the chunk belongs to cluster"}},
		{"broken chain", func(f *inspectFolder) { f.editItem(chunkA, 5, func(it []byte) { it[70] ^= 1 }) },
			[]string{"error chain chunk-000000.000000"}},
		{"chain in a trailer", func(f *inspectFolder) { f.editItem(chunkA, 3, func(it []byte) { it[40] ^= 1 }) },
			[]string{"error chain chunk-000000.000000 @380", "error chain chunk-000000.000000 @700"}},
		{"chain in the footer", func(f *inspectFolder) { f.refoot(chunkA, func(x *chunkfile.Footer) { x.Chain[0] ^= 1 }) },
			[]string{"error chain chunk-000000.000000"}},
		{"footer that counts wrong", func(f *inspectFolder) { f.refoot(chunkA, func(x *chunkfile.Footer) { x.Records++ }) },
			[]string{"error footer chunk-000000.000000 @6769: the footer says records 63, the data before it 62"}},
		{"footer with another index", func(f *inspectFolder) { f.refoot(chunkA, func(x *chunkfile.Footer) { x.LastIndex++ }) },
			[]string{"error footer chunk-000000.000000 @6769: the footer says last Raft index"}},
		{"Raft index falls", func(f *inspectFolder) {
			f.editItem(chunkB, 2, func(it []byte) { chunkfile.Order.PutUint64(it[16:], 3) })
		}, []string{"error frame chunk-000001.000000 @297: the Raft index 3 follows 21", "error footer chunk-000001.000000"}},
		{"term falls", func(f *inspectFolder) {
			f.editItem(chunkB, 2, func(it []byte) { chunkfile.Order.PutUint64(it[24:], 0) })
		}, []string{"error frame chunk-000001.000000 @297: the Raft term 0 follows 1"}},
		{"time falls", func(f *inspectFolder) {
			f.editItem(chunkC, 2, func(it []byte) { chunkfile.Order.PutUint64(it[24:], 5) })
		}, []string{"error chain chunk-000002.000000", "error item chunk-000002.000000 @280: time 5"}},
		{"torn tail", func(f *inspectFolder) {
			f.change(chunkC, func(b []byte) []byte { return append(b, b[chunkfile.HeaderSize:chunkfile.HeaderSize+50]...) })
		}, []string{"notice torn chunk-000002.000000 @1124: 50 bytes after the last valid frame"}},
		{"torn frame", func(f *inspectFolder) {
			end := f.lastEnd()
			f.change(chunkC, func(b []byte) []byte {
				return chunkfile.AppendRecord(b, end, "a", 99, f.time, 0, &event.Proposed{})
			})
		}, []string{"notice torn chunk-000002.000000 @1124: 65 bytes after the last valid frame: the records there have no trailer"}},
		{"torn tail without a checkpoint", func(f *inspectFolder) {
			f.remove(datadir.WriterCheckpoint)
			f.change(chunkC, func(b []byte) []byte { return append(b, make([]byte, 100)...) })
		}, []string{"error missing writer.chk", "notice torn chunk-000002.000000 @1124: 100 bytes"}},
		{"chunk that was only begun", func(f *inspectFolder) {
			h := chunkfile.Header{First: 3, Last: 3, Cluster: f.log.Cluster()}
			f.write("chunk-000003.000000", h.Bytes()[:50])
		}, []string{"notice missing chunk-000002.000000", "error unreadable chunk-000003.000000"}},
		{"older version", func(f *inspectFolder) {
			old := f.read(chunkA)
			f.scavenge(func(chunkfile.Item) bool { return false }, chunkA)
			f.write(chunkA, old)
		}, []string{"notice leftover chunk-000000.000000"}},
		{"merged file and what it replaced", func(f *inspectFolder) {
			old := f.read(chunkB)
			f.scavenge(func(chunkfile.Item) bool { return false }, chunkA, chunkB)
			f.write(chunkB, old)
		}, []string{"notice leftover chunk-000001.000000 @-1: a merged chunk"}},
		{"temporary file", func(f *inspectFolder) { f.write("x.tmp", nil) }, []string{"notice leftover x.tmp"}},
		{"chaser beyond writer", func(f *inspectFolder) { f.checkpoint(datadir.ChaserCheckpoint, f.lastEnd()+1) }, nil},
		{"epoch beyond writer", func(f *inspectFolder) { f.checkpoint(datadir.EpochCheckpoint, f.lastEnd()+1) },
			[]string{"error checkpoint epoch.chk @0"}},
		{"writer beyond the end", func(f *inspectFolder) { f.checkpoint(datadir.WriterCheckpoint, f.lastEnd()+1) },
			[]string{"error checkpoint writer.chk @-1: the log ends at"}},
		{"impossible checkpoint", func(f *inspectFolder) { f.checkpoint(datadir.ProposalCheckpoint, -2) },
			[]string{"error checkpoint proposal.chk @0: impossible value -2"}},
		{"short checkpoint", func(f *inspectFolder) { f.write(datadir.ChaserCheckpoint, []byte{1}) },
			[]string{"error checkpoint chaser.chk @-1: 1 bytes"}},
		{"cut pending", func(f *inspectFolder) { f.checkpoint(datadir.TruncateCheckpoint, 100) },
			[]string{"notice checkpoint truncate.chk @0: the next start cuts the log at 100"}},
		{"format file damaged", func(f *inspectFolder) { f.write(datadir.FormatFile, []byte("{")) },
			[]string{"error unreadable annals.format"}},
		{"format file missing", func(f *inspectFolder) { f.remove(datadir.FormatFile) }, []string{"notice missing annals.format"}},
		{"position map out of order", func(f *inspectFolder) {
			f.mapped(func(m []byte) {
				for i := range chunkfile.MapEntrySize {
					m[i], m[chunkfile.MapEntrySize+i] = m[chunkfile.MapEntrySize+i], m[i]
				}
			})
		}, []string{"error map chunk-000000.000001 @128: the position map does not name", "error map chunk-000000.000001 @6781: the position map is not in order", "error map chunk-000000.000001 @6781: the position map names position 0, which no item has"}},
		{"position map points elsewhere", func(f *inspectFolder) { f.mapped(func(m []byte) { m[8]++ }) },
			[]string{"error map chunk-000000.000001 @6769: the position map names offset 129 for position 0"}},
		{"position map names what is not there", func(f *inspectFolder) { f.mapped(func(m []byte) { m[chunkfile.MapEntrySize]++ }) },
			[]string{"error map chunk-000000.000001 @212: the position map does not name", "error map chunk-000000.000001 @6781: the position map names position 85, which no item has"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newInspectFolder(t, vfs.NewMem()).build()
			c.damage(f)
			findings, _, err := f.inspect(false)
			check.Must(t, err)
			inspectCompare(t, findings, c.want)
		})
	}
}

func inspectCompare(t *testing.T, findings []Finding, want []string) {
	t.Helper()
	var got []string
	for _, x := range findings {
		got = append(got, inspectLine(x))
	}
	ok := len(got) == len(want)
	for i := 0; ok && i < len(got); i++ {
		ok = strings.HasPrefix(got[i], want[i])
	}
	if !ok {
		t.Fatalf("findings:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// lastEnd is where the log of the folder ends.
func (f *inspectFolder) lastEnd() int64 {
	return int64(chunkfile.Order.Uint64(f.read(datadir.WriterCheckpoint)))
}

// mapped scavenges the first chunk without dropping anything, and changes its position map.
func (f *inspectFolder) mapped(change func(m []byte)) {
	name := f.scavenge(func(chunkfile.Item) bool { return false }, chunkA)
	f.change(name, func(b []byte) []byte {
		h, err := chunkfile.ParseHeader(b)
		f.must(err)
		foot, err := chunkfile.ParseFooter(b[len(b)-chunkfile.FooterSize:], h, int64(len(b)))
		f.must(err)
		change(b[chunkfile.HeaderSize+foot.DataSize:])
		return b
	})
	f.refoot(name, func(*chunkfile.Footer) {})
}

func TestInspectStreams(t *testing.T) {
	cases := []struct {
		name    string
		records []inspectRecord
		want    []string
	}{
		{"gap", []inspectRecord{{"a", 0}, {"a", 1}, {"a", 3}, {"a", 4}}, []string{`error stream chunk-000000.000000 @296: stream "a": event 3 follows event 1 at position 84`}},
		{"written twice", []inspectRecord{{"a", 0}, {"a", 1}, {"a", 0}, {"a", 2}}, []string{`error stream chunk-000000.000000 @296: stream "a": event 0 was written again, after event 1`}},
		{"begins late", []inspectRecord{{"a", 2}, {"a", 3}}, []string{`error stream chunk-000000.000000 @128: stream "a": begins with event 2`}},
		{"after the tombstone", []inspectRecord{{"a", 0}, {"a", event.TombstoneNumber}, {"a", 1}}, []string{`error stream chunk-000000.000000 @296: stream "a": event 1 follows the tombstone`}},
		{"only a tombstone", []inspectRecord{{"a", event.TombstoneNumber}}, nil},
		{"negative", []inspectRecord{{"a", -1}}, []string{`error stream chunk-000000.000000 @128: stream "a": impossible event number -1`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newInspectFolder(t, vfs.NewMem())
			f.frame(false, c.records...)
			f.close()
			findings, _, err := f.inspect(false)
			check.Must(t, err)
			inspectCompare(t, findings, c.want)
		})
	}
	t.Run("last number without tombstone", func(t *testing.T) {
		f := newInspectFolder(t, vfs.NewMem())
		f.frame(false, inspectRecord{"a", event.TombstoneNumber})
		f.close()
		f.editItem(chunkA, 0, func(it []byte) { it[6] = 0 })
		findings, _, err := f.inspect(false)
		f.must(err)
		inspectCompare(t, findings, []string{"error chain", `error stream chunk-000000.000000 @128: stream "a": event number 9223372036854775807 does not fit the flags 0x0`})
	})
}

// Streams that share a hash are distinguished by name.
func TestInspectSharedHash(t *testing.T) {
	f := newInspectFolder(t, vfs.NewMem())
	var records []inspectRecord
	for i := range int64(50) {
		records = append(records, inspectRecord{"a", i}, inspectRecord{"b", i})
		if i%2 == 0 {
			records = append(records, inspectRecord{"c", i / 2})
		}
	}
	records = append(records, inspectRecord{"a", event.TombstoneNumber}, inspectRecord{"b", 50}, inspectRecord{"c", 26})
	f.frame(false, records...)
	f.close()
	c, err := chunkfile.OpenNamed(f.fs, inspectDir, chunkA)
	f.must(err)
	var findings []Finding
	n := &inspector{chunks: []*chunkfile.Chunk{c}, blurred: -1, report: func(x Finding) { findings = append(findings, x) }}
	g := &names{n: n}
	g.streams.init()
	b := f.read(chunkA)
	for _, at := range itemOffsets(b) {
		it, err := chunkfile.ParseItem(b[at:])
		f.must(err)
		if it.IsRecord() {
			g.noteEvent(c, int64(at), 42, it)
		}
	}
	f.must(n.close())
	if len(findings) != 1 || !strings.HasPrefix(findings[0].Detail, `stream "c": event 26 follows event 24`) || g.streams.count != 3 {
		t.Fatal(findings, g.streams.count)
	}
}

func TestInspectManyStreams(t *testing.T) {
	f := newInspectFolder(t, vfs.NewMem())
	const streams = 10_000
	for number := range int64(2) {
		for from := 0; from < streams; from += 500 {
			var records []inspectRecord
			for i := from; i < from+500; i++ {
				records = append(records, inspectRecord{fmt.Sprint("stream-", i), number})
			}
			f.frame(false, records...)
		}
	}
	f.must(f.log.Index().Flush())
	f.close()
	findings, sum, err := f.inspect(false)
	if err != nil || len(findings) > 0 || sum.Streams != streams || sum.IndexEntries != 2*streams {
		t.Fatal(findings, sum, err)
	}
}

func TestInspectIndex(t *testing.T) {
	tables := func(f *inspectFolder) []string {
		var names []string
		all, err := f.fs.List(inspectDir + "/index")
		f.must(err)
		for _, name := range all {
			if len(name) == 36 {
				names = append(names, "index/"+name)
			}
		}
		return names
	}
	cases := []struct {
		name   string
		damage func(f *inspectFolder)
		want   []string // TABLE stands for the name of a table
	}{
		// See below: what else is found depends on the bit.
		{"entry", func(f *inspectFolder) { f.flip(tables(f)[0], 60) }, nil},
		{"footer", func(f *inspectFolder) { f.flip(tables(f)[0], -30) }, []string{"error checksum TABLE @"}},
		{"filter", func(f *inspectFolder) { f.flip(tables(f)[0]+".bloomfilter", 60) }, []string{"error checksum TABLE.bloomfilter @"}},
		{"map", func(f *inspectFolder) { f.flip("index/indexmap", 40) }, []string{"error checksum index/indexmap @0: wrong checksum"}},
		{"map missing", func(f *inspectFolder) { f.remove("index/indexmap") }, []string{"error missing index/indexmap @-1: no such file, though"}},
		{"table missing", func(f *inspectFolder) { f.remove(tables(f)[1]) }, []string{"error missing TABLE"}},
		{"filter missing", func(f *inspectFolder) { f.remove(tables(f)[1] + ".bloomfilter") }, []string{"notice missing TABLE.bloomfilter"}},
		{"tables swapped", func(f *inspectFolder) {
			names := tables(f)
			a, b := f.read(names[0]), f.read(names[1])
			f.write(names[0], b)
			f.write(names[1], a)
		}, []string{"error index TABLE.bloomfilter @24: filter of another table", "error index TABLE.bloomfilter @24: filter of another table"}},
		{"two tables damaged", func(f *inspectFolder) {
			f.flip(tables(f)[0], -30)
			f.flip(tables(f)[1], -30)
		}, []string{"error checksum TABLE @", "error checksum TABLE @"}},
		{"file that nothing names", func(f *inspectFolder) {
			f.write("index/6b1f8a3e-3d0f-4c5e-9a39-9f5f4a3c1a01", nil)
		}, []string{"notice leftover index/6b1f8a3e-3d0f-4c5e-9a39-9f5f4a3c1a01"}},
		{"existence filter", func(f *inspectFolder) { f.flip("index/stream-existence/streamExistenceFilter.dat", 100) },
			[]string{"error checksum index/stream-existence/streamExistenceFilter.dat"}},
		{"existence checkpoint ahead", func(f *inspectFolder) {
			f.checkpoint("index/stream-existence/streamExistenceFilter.chk", 1<<40)
		}, []string{"error index index/stream-existence/streamExistenceFilter.chk @0"}},
		{"no index", func(f *inspectFolder) { f.must(f.fs.RemoveAll(inspectDir + "/index")) }, []string{"notice missing index @-1: there is no index"}},
		{"entry points at another record", func(f *inspectFolder) {
			f.reindex(func(es []index.Entry) []index.Entry {
				i, j := 0, len(es)-1
				es[i].Position, es[j].Position = es[j].Position, es[i].Position
				return es
			})
		}, []string{"error index chunk-", "error index chunk-", "error index chunk-", "error index chunk-"}},
		{"entry points between records", func(f *inspectFolder) {
			f.reindex(func(es []index.Entry) []index.Entry { es[3].Position++; return es })
		}, []string{"error index chunk-", "error index chunk-"}},
		{"entry missing", func(f *inspectFolder) {
			f.reindex(func(es []index.Entry) []index.Entry { return es[1:] })
		}, []string{"error index chunk-"}},
		{"entry twice", func(f *inspectFolder) {
			f.reindex(func(es []index.Entry) []index.Entry { return append(es, es[7]) })
		}, []string{"error index index @-1: event"}},
		{"entry of another number", func(f *inspectFolder) {
			f.reindex(func(es []index.Entry) []index.Entry { es[3].Number += 1000; return es })
		}, []string{"error index chunk-", "error index chunk-"}},
		{"entry missing of a scavenged chunk", func(f *inspectFolder) {
			f.scavenge(func(it chunkfile.Item) bool { return it.Number() == 1 }, chunkA)
			f.reindex(func(es []index.Entry) []index.Entry {
				for i := range es {
					if es[i].Number == 3 && es[i].Position < chunkfile.ChunkSize {
						return append(es[:i], es[i+1:]...)
					}
				}
				panic("no such entry")
			})
		}, []string{"error index chunk-000000.000001"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newInspectFolder(t, vfs.NewMem()).build()
			c.damage(f)
			findings, _, err := f.inspect(false)
			check.Must(t, err)
			if c.want == nil {
				if len(findings) == 0 || findings[0].Severity != Problem {
					t.Fatalf("%v", findings)
				}
				return
			}
			for i := range findings {
				if base, ok := strings.CutPrefix(findings[i].File, inspectDir+"/index/"); ok && len(base) >= 36 && base[8] == '-' && findings[i].Kind != FindLeftover {
					findings[i].File = "TABLE" + base[36:]
				}
			}
			inspectCompare(t, findings, c.want)
		})
	}
	t.Run("quick", func(t *testing.T) {
		f := newInspectFolder(t, vfs.NewMem()).build()
		f.reindex(func(es []index.Entry) []index.Entry { return es[1:] })
		findings, _, err := f.inspect(true)
		f.must(err)
		inspectCompare(t, findings, []string{"error index index/indexmap @-1: the log has 88 records that the index must know, the index has 87 entries: they differ"})
	})
	t.Run("rebuilt", func(t *testing.T) {
		f := newInspectFolder(t, vfs.NewMem()).build()
		f.reindex(func(es []index.Entry) []index.Entry { return es })
		findings, _, err := f.inspect(false)
		f.must(err)
		inspectCompare(t, findings, nil)
	})
}

// Every bit of a chunk matters.
func TestInspectFindsEveryFlip(t *testing.T) {
	f := newInspectFolder(t, vfs.NewMem()).build()
	f.rewriteOdd(1)
	f.mustBeClean("before")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for _, name := range []string{chunkA, "chunk-000001.000001", chunkC} {
		whole := f.read(name)
		flip := func(bit int) {
			b := append([]byte(nil), whole...)
			b[bit/8] ^= 1 << (bit % 8)
			f.write(name, b)
			findings, _, err := f.inspect(true)
			problem := false
			for _, x := range findings {
				problem = problem || x.Severity == Problem
			}
			if err == nil && !problem {
				t.Errorf("bit %d of %s: %v", bit, name, findings)
			}
		}
		for range 100 {
			flip(r.IntN(len(whole) * 8))
		}
		for range 30 { // The header, and the footer if there is one.
			flip(r.IntN(chunkfile.HeaderSize * 8))
			flip(len(whole)*8 - 1 - r.IntN(chunkfile.FooterSize*8))
		}
		f.write(name, whole)
	}
}

func TestInspectCannot(t *testing.T) {
	t.Run("no folder", func(t *testing.T) {
		_, err := Run(context.Background(), Options{FS: vfs.NewMem(), Dir: inspectDir}, func(Finding) {})
		check.MustFail(t, err, "no error")
	})
	t.Run("no data folder", func(t *testing.T) {
		fsys := vfs.NewMem()
		check.Must(t, fsys.MkdirAll(inspectDir))
		_, err := Run(context.Background(), Options{FS: fsys, Dir: inspectDir}, func(Finding) {})
		check.MustBe(t, err, ErrNoDataFolder)
	})
	t.Run("newer folder", func(t *testing.T) {
		f := newInspectFolder(t, vfs.NewMem()).build()
		f.write(datadir.FormatFile, []byte(`{"format":2}`))
		if _, _, err := f.inspect(false); err == nil {
			t.Fatal("no error")
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		f := newInspectFolder(t, vfs.NewMem()).build()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := Run(ctx, Options{FS: f.fs, Dir: inspectDir}, func(Finding) {})
		check.MustBe(t, err, context.Canceled)
	})
}

func TestInspectUnreadable(t *testing.T) {
	broken := errors.New("input/output error")
	cases := []struct {
		name string
		fail func(op vfs.Op) bool
		want []string
	}{
		{"chunk", func(op vfs.Op) bool { return op.Kind == vfs.OpOpen && strings.HasSuffix(op.Name, chunkB) },
			[]string{"error unreadable chunk-000001.000000 @-1: open"}},
		{"data of a chunk", func(op vfs.Op) bool {
			return op.Kind == vfs.OpRead && strings.HasSuffix(op.Name, chunkB) && op.Len > chunkfile.HeaderSize
		}, []string{"error unreadable chunk-000001.000000 @-1: read"}},
		{"checkpoint", func(op vfs.Op) bool {
			return op.Kind == vfs.OpOpen && strings.HasSuffix(op.Name, datadir.ChaserCheckpoint)
		},
			[]string{"error unreadable chaser.chk"}},
		{"indexmap", func(op vfs.Op) bool { return op.Kind == vfs.OpOpen && strings.HasSuffix(op.Name, "index/indexmap") },
			[]string{"error unreadable index/indexmap @-1: input/output error"}},
		{"folder of the index", func(op vfs.Op) bool { return op.Kind == vfs.OpList && strings.HasSuffix(op.Name, "/index") },
			[]string{"error unreadable index"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newInspectFolder(t, vfs.NewMem()).build()
			f.fs = vfs.NewFaulty(f.fs, func(op vfs.Op) error {
				if c.fail(op) {
					return broken
				}
				return nil
			})
			findings, _, err := f.inspect(false)
			f.must(err)
			inspectCompare(t, findings, c.want)
		})
	}
}

// The index of postings is compared with the log both ways.
func TestInspectPostings(t *testing.T) {
	for name, c := range map[string]struct {
		change func(x *index.Index) error
		want   []string
	}{
		"as written": {func(*index.Index) error { return nil }, nil},
		"one too many": {func(x *index.Index) error {
			end, chain := x.Reached()
			return errors.Join(x.Add([]index.Entry{{Hash: 7, Number: 0, Position: 0}}, end, chain), x.Flush())
		}, []string{"error index index/postings/indexmap @-1: the log has"}},
		"one is gone": {func(x *index.Index) error {
			gone := false
			return x.Scavenge(context.Background(), index.ScavengeOptions{Keep: func(index.Entry) (bool, error) {
				keep := gone
				gone = true
				return keep, nil
			}})
		}, []string{"error index index/postings/indexmap @-1: the log has"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newInspectFolder(t, vfs.NewMem()).build()
			x := check.Value(index.Open(index.Options{FS: f.fs, Dir: f.path("index/postings"), Packed: true, ExistenceFilterMax: -1, Cluster: inspectCluster})).Must(t)
			check.Must(t, c.change(x))
			check.Must(t, x.Close())
			findings, _, err := f.inspect(false)
			f.must(err)
			inspectCompare(t, findings, c.want)
		})
	}
}
