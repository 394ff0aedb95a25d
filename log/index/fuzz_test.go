package index

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

const fuzzTable = "0b0b0b0b-1111-4222-8333-444444444444"

// sealTable gives bytes the checksums of a table, so that the code after the checks is reached.
func sealTable(data []byte) []byte {
	data = slices.Clone(data)
	if len(data) >= tableHeaderSize+tableFooterSize {
		foot := len(data) - tableFooterSize
		if bytes.HasPrefix(data, packedMagic) {
			sealPacked(data[:foot], int64(le.Uint64(data[foot+8:])))
		} else {
			sealBlocks(data[tableHeaderSize:foot])
		}
		le.PutUint64(data[foot+64:], xxh3.Hash(data[:foot]))
		le.PutUint64(data[foot+72:], xxh3.Hash(data[foot:foot+72]))
	}
	return data
}

// sealBlocks makes the directory of blocks right, if there is room for one.
func sealBlocks(data []byte) {
	count := int64(len(data)-sumSize) / entrySize
	for count > 0 && count*entrySize+directorySize(count, false) > int64(len(data)) {
		count--
	}
	if count < 1 || count*entrySize+directorySize(count, false) != int64(len(data)) {
		return
	}
	var hashes, sums []byte
	entries, directory := data[:count*entrySize], data[count*entrySize:]
	for block := range slices.Chunk(entries, blockEntries*entrySize) {
		hashes = append(hashes, block[:sumSize]...)
		sums = le.AppendUint64(sums, xxh3.Hash(block))
	}
	lists := slices.Concat(hashes, sums)
	copy(directory, le.AppendUint64(lists, xxh3.Hash(lists)))
}

// sealPacked makes the checksums in the directory of a packed table right, where its blocks lie in
// the file.
func sealPacked(data []byte, count int64) {
	if count < 1 || count > int64(len(data)) || directorySize(count, true) > int64(len(data)) {
		return
	}
	begin := int64(len(data)) - directorySize(count, true)
	lists := data[begin : len(data)-sumSize-sharesSize]
	for at := 0; at < len(lists); at += packedLine {
		to := uint64(begin)
		if next := at + packedLine; next < len(lists) {
			to = le.Uint64(lists[next+16:])
		}
		if from := le.Uint64(lists[at+16:]); from <= to && to <= uint64(begin) {
			le.PutUint64(lists[at+24:], xxh3.Hash(data[from:to]))
		}
	}
	le.PutUint64(data[len(data)-sumSize:], xxh3.Hash(data[begin:len(data)-sumSize]))
}

func FuzzTable(f *testing.F) {
	few := []Entry{{1, 0, 0}, {1, 300, 300}, {1 << 60, 100, 100}, {1<<64 - 1, 200, 200}}
	many := make([]Entry, 1400)
	for i := range many {
		many[i] = Entry{Hash: uint64(i/3) << 48, Number: int64(i), Position: int64(i)}
	}
	for _, packed := range []bool{false, true} {
		for _, all := range [][]Entry{few, many} {
			mem := vfs.NewMem()
			t := makeShaped(f, &Options{FS: mem, Packed: packed}, all)
			t.release()
			good := check.Value(vfs.ReadFile(mem, t.file)).Must(f)
			f.Add(good, false)
			f.Add(good[:len(good)-entrySize], true)
			for at := tableHeaderSize; at < len(good) && at < 2000; at += 7 {
				bad := slices.Clone(good)
				bad[at] ^= 0x81
				f.Add(bad, true)
			}
			slices.Reverse(good[tableHeaderSize : len(good)-tableFooterSize])
			f.Add(good, true)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal {
			data = sealTable(data)
		}
		fsys := vfs.NewMem()
		check.Must(t, vfs.WriteFileAtomic(fsys, fuzzTable, data))
		tab, err := openTable(fsys, "", fuzzTable, 0)
		if err != nil {
			return
		}
		defer tab.release()
		// Whatever a table that opens holds, lookups end and stay within it.
		for _, hash := range []uint64{0, 1, tab.minHash, tab.maxHash, 1 << 60, 1<<64 - 1} {
			tab.last(hash, true)
			for _, number := range []int64{0, 1, 1<<63 - 1, -1 << 63} {
				tab.ascend(nil, hash, number, 1<<63-1, 3, false)
				tab.descend(nil, hash, number, 0, 3, true)
			}
		}
		var all []Entry
		s := newScanner(tab)
		for s.next() {
			all = append(all, s.entry)
		}
		if s.err != nil {
			return
		}
		// One that passes is just what would be written for its entries.
		again := vfs.NewMem()
		u := makeShaped(t, &Options{FS: again, Packed: tab.packed}, all)
		u.release()
		if got, err := vfs.ReadFile(again, u.file); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("written again it differs (%v)", err)
		}
	})
}

func FuzzIndexMap(f *testing.F) {
	f.Add((&indexMap{}).encode(), false)
	f.Add([]byte("ff0b14e5a2e5b6b8dd5c2a0f4ad2a9c8\n1\n7/7\n0\n"), true) // of version 1
	f.Add((&indexMap{cluster: event.ID{1}, chain: event.Chain{2}, checkpoint: 12345, maxLevel: 7, tables: []mapLine{
		{0, "0b0b0b0b-1111-4222-8333-444444444444"}, {0, "0b0b0b0b-1111-4222-8333-444444444445"}, {3, fuzzTable[:35] + "9"},
	}}).encode(), true)
	f.Add([]byte("\n1\n5/6\n7\n0,0,x\n"), true)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal { // The sum of whatever follows the first line.
			_, body, _ := bytes.Cut(data, []byte{'\n'})
			data = append(append(mapSum(body), '\n'), body...)
		}
		m, err := parseMap("indexmap", data)
		if err == nil && !bytes.Equal(m.encode(), data) {
			t.Fatalf("%q is written again as %q", data, m.encode())
		}
	})
}

func FuzzBloom(f *testing.F) {
	fsys := vfs.NewMem()
	b := newBloom(100)
	b.add(5)
	check.Must(f, writeBloom(&table{fsys: fsys, path: "table", tableFooter: tableFooter{sum: 77}}, b))
	good, err := vfs.ReadFile(fsys, "table"+bloomSuffix)
	check.Must(f, err)
	f.Add(good, true)
	e := newExistenceFilter(300)
	e.add(5)
	check.Must(f, e.save(fsys, "", 1))
	if good, err = vfs.ReadFile(fsys, existenceName); err != nil {
		f.Fatal(err)
	}
	f.Add(good, true)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal && len(data) >= bloomSumSize {
			data = slices.Clone(data)
			end := len(data) - bloomSumSize
			le.PutUint64(data[end:], xxh3.Hash(data[:end]))
		}
		// Those of the checksums of a page, too, where there is one.
		if seal && len(data) >= bloomHeaderSize+2*bloomSumSize+sumSize {
			sums := data[:len(data)-bloomSumSize-sumSize]
			le.PutUint64(data[len(sums):], xxh3.Hash(slices.Concat(sums[:bloomHeaderSize], sums[len(sums)-sumSize:])))
		}
		for _, whole := range []bool{false, true} {
			if b, err := parseBloom("bloom", data, 77, whole); err == nil {
				b.mayContain(5)
				b.mayContain(1<<64 - 1)
			}
		}
		e, err := parseExistence(existenceName, data, 1<<20)
		if err != nil {
			return
		}
		e.mayContain(5)
		mem := vfs.NewMem()
		check.Must(t, e.replace(mem, existenceName))
		again, err := vfs.ReadFile(mem, filepath.Join("", existenceName))
		check.Must(t, err, "written again it differs")
		check.MustSlice(t, again, data, "written again it differs")
	})
}
