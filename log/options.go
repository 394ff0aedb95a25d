package eventlog

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/index"
	"github.com/annalsdb/annals/stats"
)

// Options say where and how a log is kept. Dir is needed; the zero value of everything else works.
type Options struct {
	Dir      string // of chunks and checkpoint files
	IndexDir string // default: Dir/index
	FS       vfs.FS // default: the real file system
	// of a log that is created; an existing one keeps its own, and a different one given here is an
	// error
	ClusterID event.ID

	Index index.Options // FS, Dir, Logger, OnFatal and Stats are filled in
	// bytes of memory for the index of postings until they go to a file, default 64 MiB
	PostingsMemory int
	StreamCache    int // streams whose facts are kept, default 50,000
	RecentIDs      int // newest events whose ids are remembered, default 1,048,576
	// bytes that truncate.chk may cut, default 256 MiB, negative: no limit
	MaxTruncate  int64
	SkipVerify   bool  // do not verify complete chunks in the background after start
	VerifyPerSec int64 // bytes a second that the verification reads, default 64 MiB

	// how often all complete chunks are compared with their checksums; 0: only at start
	CheckEvery time.Duration
	// bytes a second that this reads at most, a fourth of that while the log is used; default 32
	// MiB
	CheckPerSec int64

	Logger hclog.Logger
	// told once when a write or sync failed: the process must stop; must not call Close, which may
	// wait for it
	OnFatal func(error)
	// told how long it took to make the log durable; must not block
	OnSync func(took time.Duration)
	// gets each complete chunk that is not what was written, and when the newest event ids cannot
	// be read
	OnDamage func(error)
	Now      func() time.Time // the clock that $maxAge is judged by, default time.Now

	// Redacted returns the events from a position up to another of which this node blanked the
	// data, by rising position: they are blanked in chunk files that come from other nodes. nil:
	// none.
	Redacted func(from, to int64) []Redaction

	// BeforeCut is called when truncate.chk is about to cut the log at a position: the folder was
	// restored. The caller must put away everything that knows of the longer log. An error stops
	// the start before anything was changed.
	BeforeCut func(at int64) error

	// Progress gets during Open what is being done, in a few words, and how far
	// it is: bytes done of all. It is called when something begins and then at most four
	// times a second, must not block, and is not called once Open has returned.
	Progress func(doing string, done, total int64)

	// where the metrics are registered, those of the index too; default: nowhere
	Stats *stats.Registry
}

// checkPerSec is how many bytes a second the regular check reads, while the log is used a fourth of
// that.
const checkPerSec = 32 << 20

// Redaction names an event of which this node blanked the data. A position alone
// would not do: the log of a node that was restored may have another event there.
type Redaction struct {
	Position int64
	Stream   uint64 // hash of the stream's name, as HashStream makes it
	Number   int64
	Metadata bool // blanked as well
}

// EnsureDefaults fills in what was left zero.
func (o *Options) EnsureDefaults() {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.IndexDir == "" {
		o.IndexDir = filepath.Join(o.Dir, "index")
	}
	if o.PostingsMemory <= 0 {
		o.PostingsMemory = 64 << 20
	}
	if o.StreamCache <= 0 {
		o.StreamCache = 50_000
	}
	if o.RecentIDs <= 0 {
		o.RecentIDs = recentIDsDefault
	}
	if o.MaxTruncate == 0 {
		o.MaxTruncate = 256 << 20
	}
	if o.VerifyPerSec <= 0 {
		o.VerifyPerSec = 64 << 20
	}
	if o.CheckPerSec <= 0 {
		o.CheckPerSec = checkPerSec
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.OnFatal == nil {
		o.OnFatal = func(error) {}
	}
	if o.OnSync == nil {
		o.OnSync = func(time.Duration) {}
	}
	if o.OnDamage == nil {
		o.OnDamage = func(error) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Validate reports what is wrong with the options.
func (o *Options) Validate() error {
	if o.Dir == "" {
		return errors.New("no folder for the log")
	}
	if filepath.Clean(o.Dir) == filepath.Clean(o.IndexDir) {
		return errors.New("the index must not lie in the folder of the log itself")
	}
	return nil
}
