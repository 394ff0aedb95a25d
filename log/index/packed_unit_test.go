package index

import (
	"bytes"
	"math"
	"slices"
	"testing"
)

// TestUnpackTakesWhatPackMakes and nothing else.
func TestUnpackTakesWhatPackMakes(t *testing.T) {
	at := func(hash uint64, positions ...int64) (es []Entry) {
		for _, p := range positions {
			es = append(es, Entry{hash, p, p})
		}
		return es
	}
	rows := func(es []Entry) []byte {
		b := make([]byte, len(es)*entrySize)
		for i, e := range es {
			putEntry(b[i*entrySize:], e)
		}
		return b
	}
	var unique, long []Entry
	for i := range int64(blockEntries) {
		unique = append(unique, at(uint64(i)<<54, (i%2)*math.MaxInt64)...)
		long = append(long, at(7, i<<52)...)
	}
	for name, es := range map[string][]Entry{
		"one":     at(5, 0),
		"extreme": slices.Concat(at(0, math.MinInt64, math.MaxInt64), at(math.MaxUint64, math.MinInt64, -1, 0, math.MaxInt64)),
		"equal":   at(5, 3, 3, 3),
		"falling": slices.Concat(at(5, 300), at(6, 200), at(7, 100)),
		"unique":  unique,
		"long":    long,
	} {
		want, got := rows(es), make([]byte, len(es)*entrySize)
		data := pack(nil, want)
		if !unpack(got, data, es[0]) || !bytes.Equal(got, want) || len(data) > packedRunMax*len(es) {
			t.Errorf("%s: %d bytes do not come back", name, len(data))
		}
		for n := range data {
			if unpack(got, data[:n], es[0]) {
				t.Errorf("%s: passes with %d bytes of %d", name, n, len(data))
			}
		}
	}
	first := Entry{9, math.MaxInt64 - 100, math.MaxInt64 - 100}
	for name, c := range map[string]struct {
		entries int
		data    []byte
	}{
		"nothing":               {1, nil},
		"no entry":              {1, []byte{0}},
		"too many":              {1, []byte{2, 1}},
		"a byte too many":       {1, []byte{1, 0}},
		"long form of a number": {2, []byte{0x82, 0, 5}},
		"long form of a step":   {2, []byte{2, 0x85, 0}},
		"endless number":        {2, append([]byte{2}, bytes.Repeat([]byte{0xff}, 30)...)},
		"position overflows":    {2, []byte{2, 101}},
		"hash again":            {2, []byte{1, 0, 2, 1}},
		"hash overflows":        {2, slices.Concat([]byte{1}, bytes.Repeat([]byte{0xff}, 9), []byte{1, 2, 1})},
	} {
		if unpack(make([]byte, c.entries*entrySize), c.data, first) {
			t.Errorf("%s: passes", name)
		}
	}
}
