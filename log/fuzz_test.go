package eventlog

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// seal makes the length and the checksum of an item right, so that what they
// guard is reached too.
func seal(b []byte) []byte {
	b = bytes.Clone(b)
	if n := len(b); n >= chunkfile.RecordFixed {
		chunkfile.Order.PutUint32(b, uint32(n))
		copy(b[n-chunkfile.ItemFoot:], checksumOf(b[:n-chunkfile.ItemFoot]))
		chunkfile.Order.PutUint32(b[n-4:], uint32(n))
	}
	return b
}

func FuzzRecord(f *testing.F) {
	m := newModel()
	fr := m.frame(true, ev("stream", `{"a":1}`), tombstone("s"), meta("s", `{}`))
	f.Add(fr.Records)
	f.Add(fr.Records[:len(fr.Records)-1])
	f.Add((&chunkfile.Trailer{First: 7, Length: 64, Index: 1, Term: 2, Completes: true}).Append(nil))
	f.Add(chunkfile.AppendStub(nil, chunkfile.Item(fr.Records)[:chunkfile.Order.Uint32(fr.Records)]))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, seal(b)} {
			it, err := chunkfile.ParseItem(b)
			if err != nil {
				continue
			}
			if it.IsStub() {
				if len(it) != chunkfile.StubSize || it.Position() != int64(chunkfile.Order.Uint64(it[8:])) || it.StreamHash() != chunkfile.Order.Uint64(it[48:]) {
					t.Fatalf("stub %x", []byte(it))
				}
				continue
			}
			if it.IsTrailer() {
				tr := it.Trailer()
				if again := tr.Append(nil); it.Flags() <= chunkfile.TrailerCompletesChunk && !bytes.Equal(again, it) {
					t.Fatalf("trailer %x is %x again", []byte(it), again)
				}
				continue
			}
			a := newArena(0, nil)
			rec := a.record(it, it.Position(), "")
			e := event.Proposed{ID: rec.ID, Type: rec.Type, Data: rec.Data, Metadata: rec.Metadata}
			if again := chunkfile.AppendRecord(nil, rec.Position, rec.Stream, rec.Number, rec.Time, rec.Flags, &e); !bytes.Equal(again, it) {
				t.Fatalf("record %x is %x again", []byte(it), again)
			}
		}
	})
}

func FuzzFrame(f *testing.F) {
	m := newModel()
	var whole []byte
	for _, fr := range m.someFrames(5, true) {
		tr := chunkfile.Trailer{First: fr.First, Length: len(fr.Records), Index: fr.Index, Term: fr.Term, Time: fr.tail.Time, Chain: fr.tail.Chain, Completes: fr.Completes}
		whole = tr.Append(append(whole, fr.Records...))
	}
	f.Add(whole, 0)
	f.Add(whole, 300)
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		before := event.Tail{Chain: chunkfile.GenesisChain(testCluster)}
		if s := scanFrames(b, 0, before, -1, func(int64) {}); s.size > int64(len(b)) || s.tail.End != s.size || s.frames > s.records {
			t.Fatalf("%+v", s)
		}
		// Damage anywhere never makes the log longer, and never changes what is before it.
		if at = max(at, -at); at < 0 || at%len(whole) < 0 {
			return
		}
		at %= len(whole)
		damaged := bytes.Clone(whole)
		for i := range min(len(b), len(damaged)-at) {
			damaged[at+i] ^= b[i]
		}
		s := scanFrames(damaged, 0, before, -1, func(int64) {})
		n := 0
		for n < len(m.frames) && m.frames[n].First+int64(len(m.frames[n].Records))+chunkfile.TrailerSize <= s.size {
			n++
		}
		if s.frames != n || n > 0 && s.tail.Chain != m.frames[n-1].tail.Chain || !bytes.Equal(damaged[:s.size], whole[:s.size]) {
			t.Fatalf("%d frames valid of %d, chain %s", s.frames, n, s.tail.Chain)
		}
	})
}

// FuzzAppendFrames gives a log bytes as frames from a peer: what it takes it
// holds afterwards, what it refuses changes nothing, and nothing ends it.
func FuzzAppendFrames(f *testing.F) {
	m := newModel()
	m.someFrames(7, true)
	f.Add(uint8(0), int64(0), raw(m.frames[:5]...))
	f.Add(uint8(5), m.frames[5].First, raw(m.frames[5:]...))
	f.Add(uint8(3), int64(0), raw(m.frames[:4]...))
	f.Add(uint8(2), m.frames[1].First, raw(m.frames[1]))
	f.Fuzz(func(t *testing.T, have uint8, first int64, b []byte) {
		n := int(have) % (len(m.frames) + 1)
		for _, b := range [][]byte{b, resealed(b)} {
			o := testOptions(vfs.NewMem())
			o.OnFatal = func(err error) { t.Errorf("fatal: %v", err) }
			l, err := Open(o)
			check.Must(t, err)
			write(t, l, m.frames[:n]...)
			before := l.Tail()
			taken, err := l.AppendFrames(first, b)
			after := l.Tail()
			if err != nil && (taken != 0 || after != before) || (taken == 0) != (after == before) {
				t.Fatalf("%d frames taken (%v), tail %+v, before %+v", taken, err, after, before)
			}
			check.Must(t, l.Close())
			l, err = Open(o)
			check.Must(t, err)
			check.MustEqual(t, l.Tail(), after, "tail ... after a restart")
			check.Must(t, l.Close())
		}
	})
}

// resealed makes the checksums of the items in b right, as far as their lengths make sense.
func resealed(b []byte) []byte {
	b = bytes.Clone(b)
	for at := 0; len(b)-at >= chunkfile.RecordFixed; {
		size := int(chunkfile.Order.Uint32(b[at:]))
		if size < chunkfile.RecordFixed || size > len(b)-at {
			break
		}
		copy(b[at:], seal(b[at:at+size]))
		at += size
	}
	return b
}

func FuzzChunkHeaderFooter(f *testing.F) {
	h := chunkfile.Header{First: 3, Last: 5, Mapped: true, FileID: event.ID{1}, Cluster: testCluster}
	foot := chunkfile.Footer{Mapped: true, LastCompletes: true, DataSize: 1000, MapSize: 24, End: 4*chunkfile.ChunkSize + 5, FirstIndex: 2, LastIndex: 9, LastTerm: 3}
	none := func([]byte) [16]byte { return [16]byte{} }
	f.Add(h.Bytes(), foot.Bytes(none), int64(chunkfile.HeaderSize+1000+24+chunkfile.FooterSize))
	f.Fuzz(func(t *testing.T, hb, fb []byte, size int64) {
		if len(hb) >= chunkfile.HeaderSize {
			hb = closeHeader(hb)[:chunkfile.HeaderSize]
		}
		h, err := chunkfile.ParseHeader(hb)
		if err != nil {
			return
		}
		if again := h.Bytes(); !bytes.Equal(again[12:56], hb[12:56]) {
			t.Fatalf("header %x is %x again", hb, again)
		}
		if len(fb) >= chunkfile.FooterSize {
			copy(fb[124:], checksumOf(fb[:124]))
		}
		foot, err := chunkfile.ParseFooter(fb, h, size)
		if err != nil {
			return
		}
		sum := foot.Checksum
		if again := foot.Bytes(func([]byte) [16]byte { return sum }); !bytes.Equal(again[12:104], fb[12:104]) {
			t.Fatalf("footer %x is %x again", fb, again)
		}
	})
}

// FuzzRewrittenChunk opens a file with any data and any position map, all its
// checksums right, and reads from it in every way.
func FuzzRewrittenChunk(f *testing.F) {
	m := newModel()
	m.someFrames(5, true)
	var data, places []byte
	for _, fr := range m.frames {
		places = chunkfile.Order.AppendUint32(chunkfile.Order.AppendUint64(places, uint64(fr.First)), uint32(chunkfile.HeaderSize+len(data)))
		data = append(data, fr.Records...)
	}
	f.Add(data, places, int64(300))
	f.Add(data[40:], places[12:], int64(70))
	f.Fuzz(func(t *testing.T, data, places []byte, position int64) {
		h := chunkfile.Header{Mapped: true, Cluster: testCluster}
		places = places[:len(places)/chunkfile.MapEntrySize*chunkfile.MapEntrySize]
		foot := chunkfile.Footer{Mapped: true, LastCompletes: true, DataSize: int64(len(data)), MapSize: int64(len(places)), End: m.tail.End, FirstIndex: 1, LastIndex: 5, LastTerm: 1}
		file := append(append(h.Bytes(), data...), places...)
		file = append(file, foot.Bytes(func(part []byte) [16]byte { return hash128(append(bytes.Clone(file), part...)) })...)
		fsys := vfs.NewMem()
		check.Must(t, fsys.MkdirAll(testDir))
		check.Must(t, vfs.WriteFileAtomic(fsys, filepath.Join(testDir, chunkfile.FileName(0, 1)), file))
		c, err := chunkfile.OpenNamed(fsys, testDir, chunkfile.FileName(0, 1))
		if err != nil {
			return
		}
		check.Must(t, c.Use())
		c.Retain()
		set := newChunkSet([]*chunkfile.Chunk{c}, func(err error) { t.Error(err) })
		v := view{&published{set: set, tail: event.Tail{End: chunkfile.ChunkSize}}}
		var scratch []byte
		// Any answer will do: it is the panic that is looked for.
		_, _ = v.itemAt(position, &scratch)
		cu := cursor{v: v}
		for _, seek := range []func(int64) error{cu.seekForward, cu.seekBackward} {
			step := cu.next
			if seek(position) != nil {
				continue
			}
			for range 100 {
				if it, _, err := step(); it == nil || err != nil {
					break
				}
			}
			for range 100 {
				if it, _, err := cu.prev(); it == nil || err != nil {
					break
				}
			}
		}
		set.release()
		check.Must(t, c.Release())
	})
}
