package replication

import (
	"io"

	"github.com/annalsdb/annals/event"
)

// Data is the event log as catching up sees it.
type Data interface {
	// LastRecord is the position of the last record that is applied, -1 when there is
	// none; Epoch that of the first record of the newest term.
	LastRecord() int64
	Epoch() int64

	// Continue returns what a log that ends with the given chain lacks of this one.
	// The error is event.ErrOtherHistory when this log has another chain there, and
	// event.ErrBeyondEnd when it does not reach there.
	Continue(end int64, chain event.Chain) (Continuation, error)

	// AppendFrames adds whole frames that another node sent and returns how many were new. Wrong
	// frames are refused and leave no trace. InstallChunk does the same with a whole chunk file.
	AppendFrames(first int64, raw []byte) (int, error)
	InstallChunk(name string) error

	// CreateTemp makes a file for a chunk that is being fetched, OpenTemp opens it again to resume,
	// DropTemp removes it.
	CreateTemp() (file TempFile, name string, err error)
	OpenTemp(name string) (TempFile, error)
	DropTemp(name string) error
}

// TempFile is a chunk file that is being fetched.
type TempFile interface {
	io.WriterAt
	Size() (int64, error)
	Sync() error
	Close() error
}

// Continuation is the part of another node's log that a node lacks: either whole frames, or a chunk
// file that was rewritten, so that its frames have no borders any more.
type Continuation interface {
	// File describes the chunk file; ok is false when there are frames instead.
	File() (file ChunkFile, ok bool)
	// Next returns the next frames, of about max bytes at most. At the end it returns io.EOF.
	Next(max int) (first int64, raw []byte, err error)
	io.ReaderAt // of the chunk file
	Close() error
}

// ChunkFile names the content of a chunk file.
type ChunkFile struct {
	First    int    `json:"first"` // logical chunk numbers, both included
	Last     int    `json:"last"`
	Size     int64  `json:"size"`
	Checksum string `json:"checksum"`
	End      int64  `json:"end"` // of the log after it
}
