package index

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/internal/vfs"
)

const (
	existenceVersion     = 1
	existenceFirst       = 128 << 10 // bytes of the first layer; each further one is twice as large
	existenceBitsPerHash = 16
	existenceHeaderSize  = 16
	existenceLayerSize   = 16
	existenceMaxLayers   = 64

	// existenceSmall is the size below which the filter is written at every flush.
	// A larger one is written once the tables have grown by its own size, so that
	// it never costs more than they do; in between an old one is brought up to date at open.
	existenceSmall = 16 << 20
)

var existenceMagic = []byte("ANNALSSE")

// existenceFilter tells streams that certainly have no entry. It grows by layers
// up to a bound; beyond it only its sharpness suffers. One goroutine adds, any
// number reads: a bit is visible before the entry that it stands for.
type existenceFilter struct {
	max    int64
	layers atomic.Pointer[[]*existenceLayer]
	dirty  atomic.Bool // has bits that are not on disk
}

type existenceLayer struct {
	words    []atomic.Uint64 // blocks of 8 words
	capacity int64           // hashes it was made for
	count    atomic.Int64    // hashes added; written by the adding goroutine
}

func newExistenceLayer(size int64) *existenceLayer {
	blocks := max(1, size/bloomBlock)
	return &existenceLayer{
		words:    make([]atomic.Uint64, blocks*bloomBlock/8),
		capacity: blocks * bloomBlock * 8 / existenceBitsPerHash,
	}
}

func (l *existenceLayer) blocks() uint64 { return uint64(len(l.words)) * 8 / bloomBlock }
func (l *existenceLayer) bytes() int64   { return int64(len(l.words)) * 8 }

func newExistenceFilter(bound int64) *existenceFilter {
	f := &existenceFilter{max: bound}
	f.layers.Store(&[]*existenceLayer{newExistenceLayer(min(existenceFirst, bound))})
	return f
}

func (f *existenceFilter) mayContain(hash uint64) bool {
	m := bloomMix(hash)
	probe := bloomBits(m)
	layers := *f.layers.Load()
	for i := len(layers) - 1; i >= 0; i-- {
		if layers[i].mayContain(m, probe) {
			return true
		}
	}
	return false
}

func (l *existenceLayer) mayContain(mixed, w uint64) bool {
	block := l.words[bloomBlockOf(mixed, l.blocks())*(bloomBlock/8):][:bloomBlock/8]
	for range bloomProbes {
		if block[w>>6&7].Load()&(1<<(w&63)) == 0 {
			return false
		}
		w >>= 9
	}
	return true
}

// add makes the filter contain a hash.
func (f *existenceFilter) add(hash uint64) {
	if f.mayContain(hash) {
		return
	}
	layers := *f.layers.Load()
	l := layers[len(layers)-1]
	if l.count.Load() >= l.capacity {
		if bigger := f.grow(layers); bigger != nil {
			l = bigger
		}
	}
	m := bloomMix(hash)
	block := l.words[bloomBlockOf(m, l.blocks())*(bloomBlock/8):][:bloomBlock/8]
	w := bloomBits(m)
	for range bloomProbes {
		block[w>>6&7].Or(1 << (w & 63))
		w >>= 9
	}
	l.count.Add(1)
	f.dirty.Store(true)
}

// grow adds a layer unless the bound is reached.
func (f *existenceFilter) grow(layers []*existenceLayer) *existenceLayer {
	last := layers[len(layers)-1].bytes()
	size := min(2*last, f.max-f.bytes())
	if size < last/2 || size < bloomBlock || len(layers) == existenceMaxLayers {
		return nil
	}
	l := newExistenceLayer(size)
	more := append(slices.Clip(layers), l)
	f.layers.Store(&more)
	return l
}

func (f *existenceFilter) bytes() (n int64) {
	for _, l := range *f.layers.Load() {
		n += l.bytes()
	}
	return n
}

// save writes the filter and then its checkpoint. Bits that are set meanwhile
// may or may not be in the file: the checkpoint promises only those of entries
// below it, and a bit too many is harmless.
func (f *existenceFilter) save(fsys vfs.FS, dir string, checkpoint int64) error {
	if f.dirty.Swap(false) {
		if err := f.replace(fsys, filepath.Join(dir, existenceName)); err != nil {
			f.dirty.Store(true)
			return err
		}
	}
	return vfs.WriteFileAtomic(fsys, filepath.Join(dir, existenceChk), sealed(checkpoint))
}

// replace writes the filter to a file that durably takes the place of an older one.
func (f *existenceFilter) replace(fsys vfs.FS, name string) error {
	buffer := int(min(64<<10, f.bytes()+existenceHeaderSize+existenceMaxLayers*existenceLayerSize))
	if err := writeNamed(fsys, name, buffer, f.write); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}

func (f *existenceFilter) write(w *fileWriter) error {
	layers := *f.layers.Load()
	header := append(make([]byte, 0, existenceHeaderSize), existenceMagic...)
	header = le.AppendUint32(header, existenceVersion)
	header = le.AppendUint32(header, uint32(len(layers)))
	for _, l := range layers {
		header = le.AppendUint64(header, l.blocks())
		header = le.AppendUint64(header, uint64(l.count.Load()))
	}
	if err := w.write(header); err != nil {
		return err
	}
	for _, l := range layers {
		for i := range l.words {
			b, err := w.room(8)
			if err != nil {
				return err
			}
			le.PutUint64(b, l.words[i].Load())
		}
	}
	return w.seal()
}

// loadExistence reads a saved filter and its checkpoint.
// The error is fs.ErrNotExist when there is none.
func loadExistence(fsys vfs.FS, dir string, bound int64) (*existenceFilter, int64, error) {
	chkName := filepath.Join(dir, existenceChk)
	chk, err := vfs.ReadFile(fsys, chkName)
	if err != nil {
		return nil, 0, err
	}
	covered, err := unseal(chkName, chk)
	if err != nil {
		return nil, 0, err
	}
	name := filepath.Join(dir, existenceName)
	data, err := vfs.ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) && covered == 0 {
		// Nothing was ever added before the first checkpoint.
		return newExistenceFilter(bound), 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	f, err := parseExistence(name, data, bound)
	if err != nil {
		return nil, 0, err
	}
	return f, covered, nil
}

// sealed is a checkpoint with its checksum.
func sealed(checkpoint int64) []byte {
	b := le.AppendUint64(nil, uint64(checkpoint))
	return le.AppendUint64(b, xxh3.Hash(b))
}

// unseal reads what sealed made.
func unseal(name string, b []byte) (int64, error) {
	switch {
	case len(b) != 16:
		return 0, corrupt(name, 0, "%d bytes instead of 16", len(b))
	case le.Uint64(b[8:]) != xxh3.Hash(b[:8]):
		return 0, corrupt(name, 8, "wrong checksum")
	}
	return int64(le.Uint64(b)), nil
}

func parseExistence(name string, data []byte, bound int64) (*existenceFilter, error) {
	if len(data) < existenceHeaderSize+bloomSumSize || !bytes.Equal(data[:8], existenceMagic) {
		return nil, corrupt(name, 0, "not a stream-existence filter")
	}
	if v := le.Uint32(data[8:]); v != existenceVersion {
		return nil, corrupt(name, 8, "unknown version %d", v)
	}
	n := int(le.Uint32(data[12:]))
	end := len(data) - bloomSumSize
	if n < 1 || n > existenceMaxLayers || existenceHeaderSize+n*existenceLayerSize > end {
		return nil, corrupt(name, 12, "%d layers", n)
	}
	if le.Uint64(data[end:]) != xxh3.Hash(data[:end]) {
		return nil, corrupt(name, int64(end), "wrong checksum")
	}
	rest := data[existenceHeaderSize+n*existenceLayerSize : end]
	layers := make([]*existenceLayer, n)
	for i := range layers {
		head := data[existenceHeaderSize+i*existenceLayerSize:]
		blocks := le.Uint64(head)
		if blocks == 0 || blocks > uint64(len(rest))/bloomBlock {
			return nil, corrupt(name, int64(existenceHeaderSize+i*existenceLayerSize), "layer of %d blocks", blocks)
		}
		l := newExistenceLayer(int64(blocks) * bloomBlock)
		l.count.Store(int64(le.Uint64(head[8:])))
		// No one else has these words yet, and plain stores take a fraction of the time.
		words := unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(l.words))), len(l.words))
		for w := range words {
			words[w] = le.Uint64(rest[w*8:])
		}
		layers[i], rest = l, rest[l.bytes():]
	}
	if len(rest) != 0 {
		return nil, corrupt(name, int64(end-len(rest)), "%d bytes too many", len(rest))
	}
	f := &existenceFilter{max: bound}
	f.layers.Store(&layers)
	if f.bytes() > max(bound, bloomBlock) {
		return nil, fmt.Errorf("%s: larger than the %d bytes allowed", name, bound)
	}
	return f, nil
}
