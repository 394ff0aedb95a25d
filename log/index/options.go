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
)

// tablesPerLevel tables of one level become one of the next.
const tablesPerLevel = 4

// maxFrozen is how many frozen tables may wait for the flusher (each takes about 55 MB) before Add waits too.
const maxFrozen = 1

// Options configures an index. FS and Dir are required; the rest has defaults.
type Options struct {
	FS  vfs.FS
	Dir string // the folder; made when missing

	MaxMemTable        int   // entries in memory before they go to a file; 0: DefaultMaxMemTable
	MaxAutoMergeLevel  int   // highest level that automatic merges make; 0: no limit; below 0: no automatic merges
	NoBloom            bool  // do without the filters of tables
	ExistenceFilterMax int64 // bytes of the stream-existence filter; 0: DefaultExistenceFilterMax; below 0: no filter
	SkipVerify         bool  // open tables without reading their whole content

	Cluster event.ID // of the log; an index of another one is built anew
	// Belongs is asked during Open whether a frame of the log ends at a position with a chain. An
	// index for which it does not is built anew. Nil: each is believed.
	Belongs func(position int64, chain event.Chain) (bool, error)

	Logger hclog.Logger // nil: silent

	// OnFatal is told once of the write, sync or read that made the index unusable.
	// The owner stops the process; nothing is tried again. It runs on a goroutine
	// of the index or of a reader and must not call Close, which waits for it.
	OnFatal func(error)

	Events EventListener

	// Progress is told during Open how much of the tables has been checked, in bytes.
	// It is called often, from several goroutines, and must not block.
	Progress func(done, total int64)

	Stats *stats.Registry // where the figures are registered; default: nowhere
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
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.OnFatal == nil {
		o.OnFatal = func(error) {}
	}
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
	o.Events.ensureDefaults()
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
	}
	return nil
}

// FlushInfo describes the writing of one table from memory.
type FlushInfo struct {
	Entries    int64
	Checkpoint int64  // log position up to which the index is durable afterwards
	File       string // of the new table, empty before the end and when there was no entry to write
}

// MergeInfo describes the merging of tables.
type MergeInfo struct {
	Manual  bool
	Level   int   // of the result
	Inputs  int   // tables merged
	Read    int64 // entries of the inputs
	Written int64 // entries of the result; known at the end
	File    string
}

// EventListener is told of background work. Its functions run on the goroutine
// that does the work and must not call the index. Nil functions are skipped.
type EventListener struct {
	FlushBegin func(FlushInfo)
	FlushEnd   func(FlushInfo, error)
	MergeBegin func(MergeInfo)
	MergeEnd   func(MergeInfo, error)

	ScavengeBegin func(ScavengedTable) // with the table's level, index and file
	ScavengeEnd   func(ScavengedTable, error)
}

func (l *EventListener) ensureDefaults() {
	if l.FlushBegin == nil {
		l.FlushBegin = func(FlushInfo) {}
	}
	if l.FlushEnd == nil {
		l.FlushEnd = func(FlushInfo, error) {}
	}
	if l.MergeBegin == nil {
		l.MergeBegin = func(MergeInfo) {}
	}
	if l.MergeEnd == nil {
		l.MergeEnd = func(MergeInfo, error) {}
	}
	if l.ScavengeBegin == nil {
		l.ScavengeBegin = func(ScavengedTable) {}
	}
	if l.ScavengeEnd == nil {
		l.ScavengeEnd = func(ScavengedTable, error) {}
	}
}
