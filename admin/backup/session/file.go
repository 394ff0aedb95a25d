package session

import (
	"errors"

	"github.com/annalsdb/annals/event"
	eventlog "github.com/annalsdb/annals/log"
)

// file is an open file of a session.
type file struct {
	service *Service
	session *session
	r       *eventlog.PinnedReader
}

// Size is the length of the file.
func (f *file) Size() int64 { return f.r.Size() }

// ReadAt reads the bytes of the file as they were when the session began.
func (f *file) ReadAt(b []byte, offset int64) (int, error) {
	n, err := f.r.ReadAt(b, offset)
	if errors.Is(err, event.ErrClosed) {
		return n, f.service.why(f.session.facts.ID)
	}
	f.service.touch(f.session)
	return n, err
}

// Close releases the file.
func (f *file) Close() error { return f.r.Close() }
