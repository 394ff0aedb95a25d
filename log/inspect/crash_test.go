package inspect

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/datadir"
)

// A power cut leaves nothing that counts as an error, neither before the next start nor after it
// has put things in order.
func TestInspectAfterPowerCut(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	for range 12 {
		fsys := vfs.NewCrashMem()
		f := newInspectFolder(t, fsys)
		next := map[string]int64{}
		for range r.IntN(60) {
			var records []inspectRecord
			for range 1 + r.IntN(4) {
				name := fmt.Sprint("s", r.IntN(9))
				records = append(records, inspectRecord{name, next[name]})
				next[name]++
			}
			f.frame(r.IntN(12) == 0, records...)
			switch r.IntN(12) {
			case 0:
				f.must(f.log.Sync())
			case 1:
				f.must(f.log.Index().Flush())
			}
		}
		after := fsys.CrashClone(vfs.CrashOptions{Rand: r})
		f.close()
		f.fs = after
		f.mustBeClean("after the power cut")
		f.open()
		f.close()
		f.mustBeClean("after the next start")
	}
}

func (f *inspectFolder) mustBeClean(when string) {
	f.t.Helper()
	findings, _, err := f.inspect(false)
	f.must(err)
	for _, x := range findings {
		if x.Severity == Problem {
			f.t.Errorf("%s: %s", when, inspectLine(x))
		}
	}
}

// Whatever stands in a folder, it is reported, and never taken for granted.
func FuzzInspect(f *testing.F) {
	f.Add(uint8(0), uint32(130), []byte{1, 2, 3, 4})
	f.Add(uint8(1), uint32(20), []byte{0xff, 0xff, 0xff, 0x7f})
	f.Add(uint8(2), uint32(6800), []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Add(uint8(3), uint32(0), []byte{0xff})
	f.Add(uint8(4), uint32(100), []byte{})
	f.Fuzz(func(t *testing.T, which uint8, offset uint32, patch []byte) {
		x := newInspectFolder(t, vfs.NewMem()).build()
		x.rewriteOdd(0)
		names := []string{"chunk-000000.000001", chunkB, chunkC, datadir.WriterCheckpoint, "index/indexmap"}
		name := names[int(which)%len(names)]
		x.change(name, func(b []byte) []byte {
			at := int(offset) % (len(b) + 1)
			return append(b[:at], append(patch, b[min(len(b), at+len(patch)):]...)...)
		})
		if which >= 128 { // Get past the checksums of the footer and the file.
			h, err := chunkfile.ParseHeader(x.read(name))
			if err == nil && h.Cluster != (event.ID{}) {
				x.refoot(name, func(*chunkfile.Footer) {})
			}
		}
		_, err := Run(context.Background(), Options{FS: x.fs, Dir: inspectDir}, func(Finding) {})
		if err != nil && name != datadir.WriterCheckpoint {
			t.Log(err)
		}
	})
}
