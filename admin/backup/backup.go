// Package backup copies a node's database while it serves, keeps the copies in a folder or in an
// object store, and restores a copy to a data folder. DESIGN.md says how the parts fit together.
package backup

import (
	"context"
	"errors"
	"io"
	"time"

	eventlog "github.com/annalsdb/annals/log"
)

// File is one file of a backup.
type File struct {
	// Name is relative to the data folder, with slashes: `chunk-000000.000000`, `index/<GUID>`,
	// `writer.chk`.
	Name string `json:"name"`
	Size int64  `json:"size"` // bytes
	// Checksum is in hex. Complete chunks and most files of the index end with their own checksum,
	// and it is that one: known without reading the file, and computed from the bytes that were
	// written, not from those that a disk returns. For other files it is the XXH3-128 of all bytes.
	// Sum computes and checks either.
	Checksum string `json:"checksum"`
	// Complete files keep their bytes as long as they have their name.
	Complete bool `json:"complete"`
}

// Sum computes the file's checksum while its bytes pass by. The caller compares the result with
// Checksum.
func (f File) Sum() *eventlog.FileSum { return eventlog.NewFileSum(f.Name, f.Size, f.Complete) }

// Session is the set of files that a source holds for a backup: those that make up the database at
// one moment, in the order in which they are to be copied.
type Session struct {
	ID string `json:"backupId"`
	// Position is the end of the log. Everything acknowledged before the session began is before
	// it.
	Position int64  `json:"position"`
	Chain    string `json:"chain"` // there, in hex
	// Time is that of the newest record, the zero time in an empty log.
	Time      time.Time `json:"time"`
	ClusterID string    `json:"clusterId"`
	NodeID    string    `json:"nodeId"`
	Expires   time.Time `json:"expires"` // unless a client reads from it before
	Files     []File    `json:"files"`
}

// Source is where the bytes of a backup come from: the sessions of this node, or
// those of another one, over HTTP.
type Source interface {
	// Begin opens a session.
	Begin(ctx context.Context) (Session, error)
	// Open reads a file of a session from an offset on. The file's bytes are those at Begin.
	// It fails with ErrSessionGone when the session has ended.
	Open(ctx context.Context, session, name string, offset int64) (io.ReadCloser, error)
	// End ends a session. Ending one twice is not an error.
	End(ctx context.Context, session string) error
}

// Content is an open file of a session, with the bytes that it had at Begin.
// Reading fails with ErrSessionGone when the session has ended.
type Content interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// Kinds of a backup.
const (
	KindFull        = "full"
	KindIncremental = "incremental" // at least one file was there already
)

// Manifest describes one backup: it is `<id>/manifest.json` of its target, made durable after
// everything that it names.
type Manifest struct {
	// Format of the manifest and of the layout around it. Do not change.
	Format int `json:"format"`
	// ID sorts by time: `20060102T150405.000Z-` and eight hex digits.
	ID   string `json:"id"`
	Kind string `json:"kind"`
	Session
	BytesCopied int64   `json:"bytesCopied"`
	Seconds     float64 `json:"seconds"`
	Verified    bool    `json:"checked"` // every byte was read back
}

// What a source can answer instead of data.
var (
	// ErrSessionGone says that there is no such session: it was ended, no client read from it for
	// long, or it never existed. An Ended is one.
	ErrSessionGone     = errors.New("no such backup session")
	ErrNoSuchFile      = errors.New("no such file in the backup session")
	ErrTooManySessions = errors.New("too many backup sessions")
	ErrInMemory        = errors.New("a database in memory cannot be backed up")
	// try again soon
	ErrSuspended = errors.New("no backup can begin while events are redacted")
)

// Ended says that the node ended a session before its owner did. The backup has to begin again.
type Ended struct {
	Reason string
}

// Why a node ends sessions.
const (
	EndedByRedaction = "The backup was ended by a redaction, begin it again"
	EndedByFullDisk  = "The backup was ended because the disk is nearly full, begin it again when there is space"
)

func (e *Ended) Error() string { return e.Reason }

// Is makes errors.Is(err, ErrSessionGone) hold.
func (e *Ended) Is(target error) bool { return target == ErrSessionGone }
