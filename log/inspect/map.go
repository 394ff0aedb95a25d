package inspect

import "github.com/annalsdb/annals/log/chunkfile"

// checkMapEntry checks that the next entry of the position map names the item
// at hand. The map and the data are walked side by side.
func (k *walker) checkMapEntry(w *walk, position int64) {
	for {
		at, offset, ok := w.mapEntry(w.entry)
		switch {
		case !ok || at > position:
			k.mapFault(w, int64(w.at), position, "the position map does not name the item of position %d", position)
			return
		case at == position:
			if offset != int64(w.at) {
				k.mapFault(w, w.entryOffset(w.entry), position, "the position map names offset %d for position %d, which stands at %d", offset, position, w.at)
			}
			w.entry++
			k.checkOrder(w, at)
			return
		}
		// Where items cannot be read the map may well be right.
		if int64(w.hole) <= offset {
			k.mapFault(w, w.entryOffset(w.entry), at, "the position map names position %d, which no item has", at)
		}
		w.entry++
		k.checkOrder(w, at)
	}
}

// checkOrder checks that the entry after one of the given position is higher.
func (k *walker) checkOrder(w *walk, before int64) {
	if at, _, ok := w.mapEntry(w.entry); ok && at <= before {
		k.mapFault(w, w.entryOffset(w.entry), at, "the position map is not in order: %d follows %d", at, before)
	}
}

// restOfMap reports entries of the position map after the last item.
func (k *walker) restOfMap(w *walk) {
	for ; ; w.entry++ {
		at, offset, ok := w.mapEntry(w.entry)
		if !ok {
			return
		}
		if int64(w.hole) <= offset {
			k.mapFault(w, w.entryOffset(w.entry), at, "the position map names position %d, which no item has", at)
		}
	}
}

func (k *walker) mapFault(w *walk, offset, position int64, format string, args ...any) {
	k.n.unsure = true
	k.n.find(Problem, FindMap, w.c.Name, offset, position, format, args...)
}

func (w *walk) entryOffset(i int) int64 {
	return chunkfile.HeaderSize + w.c.Footer.DataSize + int64(i)*chunkfile.MapEntrySize
}

// mapEntry returns the i-th entry of the position map.
func (w *walk) mapEntry(i int) (position, offset int64, ok bool) {
	if i >= w.c.MapEntries() {
		return 0, 0, false
	}
	b := w.full[w.entryOffset(i):]
	return int64(chunkfile.Order.Uint64(b)), int64(chunkfile.Order.Uint32(b[8:])), true
}
