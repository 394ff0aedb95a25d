package index

import (
	"errors"
	"math"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/stats"
)

// Entry says where the record of one event begins.
type Entry struct {
	Hash     uint64 // of the stream's name
	Number   int64  // of the event within the stream
	Position int64  // of the record in the log
}

// less orders entries as tables hold them: by hash, then number, then position.
func (e Entry) less(o Entry) bool {
	if e.Hash != o.Hash {
		return e.Hash < o.Hash
	}
	if e.Number != o.Number {
		return e.Number < o.Number
	}
	return e.Position < o.Position
}

// compareEntries is less for package slices.
func compareEntries(a, b Entry) int {
	if a.less(b) {
		return -1
	}
	if b.less(a) {
		return 1
	}
	return 0
}

// Defaults of Options.
const (
	DefaultMaxMemTable        = 1_000_000
	DefaultExistenceFilterMax = 256_000_000
	DefaultMaxAutoMergeLevel  = math.MaxInt32
	DefaultName               = "index"
)

// tablesPerLevel tables of one level become one of the next.
const tablesPerLevel = 4

// maxFrozen is how many frozen tables may wait for the flusher (each takes about 60 MB) before Add
// waits too.
const maxFrozen = 1

// Options configures an index. FS and Dir are required; the rest has defaults.
type Options struct {
	FS  vfs.FS
	Dir string // the folder; made when missing

	MaxMemTable int // entries in memory before they go to a file; 0: DefaultMaxMemTable
	// bytes that they take in memory before they go to a file; above 0 it replaces MaxMemTable
	MaxMemory int64
	// highest level that automatic merges make; 0: no limit; below 0: no automatic merges
	MaxAutoMergeLevel int
	NoBloom           bool // do without the filters of tables
	// bytes of the stream-existence filter; 0: DefaultExistenceFilterMax; below 0: no filter
	ExistenceFilterMax int64

	// Packed makes tables of a compact shape, for entries that all have their position as their
	// number and of which no two are equal. Tables of the other shape count as damage.
	Packed bool

	Cluster event.ID // of the log; an index of another cluster is rebuilt
	// Belongs reports whether a frame of the log ends at a position with a chain. Open rebuilds an
	// index for which it says no. Nil: every index belongs.
	Belongs func(position int64, chain event.Chain) (bool, error)

	Logger hclog.Logger // nil: silent

	// OnFatal gets, once, the write, sync or read that made the index unusable.
	// The owner stops the process; nothing is tried again. It runs on a goroutine
	// of the index or of a reader and must not call Close, which waits for it.
	OnFatal func(error)

	// OnDamage is called when Damage begins to return an error. It must not wait, nor call the
	// index.
	OnDamage func()

	// BeforeFlush is called before entries in memory are written to a table. What they
	// point to must be durable when it returns. It must not call the index.
	BeforeFlush func()

	Stats *stats.Registry // where the metrics are registered; default: nowhere
	// what the names of the metrics say after annals_; "": DefaultName. The indexes of one registry
	// have different ones.
	Name string
}

// EnsureDefaults fills in the fields that are zero.
func (o *Options) EnsureDefaults() {
	if o.MaxMemTable == 0 {
		o.MaxMemTable = DefaultMaxMemTable
	}
	if o.MaxAutoMergeLevel == 0 {
		o.MaxAutoMergeLevel = DefaultMaxAutoMergeLevel
	}
	if o.ExistenceFilterMax == 0 {
		o.ExistenceFilterMax = DefaultExistenceFilterMax
	}
	if o.Name == "" {
		o.Name = DefaultName
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.OnFatal == nil {
		o.OnFatal = func(error) {}
	}
	if o.OnDamage == nil {
		o.OnDamage = func() {}
	}
	if o.BeforeFlush == nil {
		o.BeforeFlush = func() {}
	}
}

// Validate reports options that cannot work.
func (o *Options) Validate() error {
	switch {
	case o.FS == nil:
		return errors.New("index: no file system given")
	case o.Dir == "":
		return errors.New("index: no folder given")
	case o.MaxMemTable < 0 || o.MaxMemTable > math.MaxInt32:
		return errors.New("index: size of the table in memory is out of range")
	case o.MaxMemory < 0 || o.MaxMemory > math.MaxInt32:
		return errors.New("index: memory of the table in memory is out of range")
	}
	return nil
}
