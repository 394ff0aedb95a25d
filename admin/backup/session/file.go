package session

import (
	"context"
	"errors"
	"io"

	"github.com/annalsdb/annals/event"
	eventlog "github.com/annalsdb/annals/log"
)

// File reads a file of a session. When the session has ended it fails with the reason, an error that is backup.ErrSessionGone.
type File struct {
	service *Service
	session *session
	r       *eventlog.PinnedReader
}

// Size is the length of the file.
func (f *File) Size() int64 { return f.r.Size() }

// ReadAt reads the bytes of the file as they were when the session began.
func (f *File) ReadAt(b []byte, offset int64) (int, error) {
	n, err := f.r.ReadAt(b, offset)
	if errors.Is(err, event.ErrClosed) {
		return n, f.service.why(f.session.facts.ID)
	}
	f.service.touch(f.session)
	return n, err
}

// Close lets go of the file.
func (f *File) Close() error { return f.r.Close() }

// stream reads a file from front to back.
type stream struct {
	ctx  context.Context
	file *File
	at   int64
}

func (r *stream) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.file.ReadAt(b, r.at)
	r.at += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func (r *stream) Close() error { return r.file.Close() }
