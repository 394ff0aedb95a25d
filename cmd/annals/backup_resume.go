package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/annalsdb/annals/admin/backup"
)

const (
	// A transfer that breaks is begun again so often without a byte between.
	resumeTries = 8
	resumePause = 250 * time.Millisecond
)

// resuming is a source whose transfers go on where they broke.
type resuming struct {
	backup.Source
	begun bool // a session was: before that nothing was tried
}

func (s *resuming) Begin(ctx context.Context) (backup.Session, error) {
	one, err := s.Source.Begin(ctx)
	s.begun = err == nil
	return one, err
}

func (s *resuming) Open(ctx context.Context, session, name string, offset int64) (io.ReadCloser, error) {
	r := &resumedFile{ctx: ctx, at: offset, open: func(at int64) (io.ReadCloser, error) { return s.Source.Open(ctx, session, name, at) }}
	if err := r.connect(); err != nil && !r.broke(err) {
		return nil, err
	}
	return r, nil
}

// resumedFile is a file on its way.
type resumedFile struct {
	ctx   context.Context // of the whole copy: the reader is gone when it ends
	open  func(at int64) (io.ReadCloser, error)
	at    int64
	body  io.ReadCloser // nil: not connected
	tries int
}

func (f *resumedFile) connect() error {
	if f.body != nil {
		return nil
	}
	body, err := f.open(f.at)
	if err == nil {
		f.body = body
	}
	return err
}

// broke reports whether an error is one of the way to the node.
func (f *resumedFile) broke(err error) bool {
	if _, refused := errors.AsType[*refusedError](err); refused && !isAway(err) {
		return false
	}
	return f.ctx.Err() == nil && !errors.Is(err, backup.ErrSessionGone)
}

func (f *resumedFile) Read(b []byte) (int, error) {
	for {
		err := f.connect()
		if err == nil {
			n, e := f.body.Read(b)
			f.at += int64(n)
			if n > 0 {
				f.tries = 0
				return n, nil // What e says it says again.
			}
			if e == nil || e == io.EOF {
				return 0, e
			}
			err = e
		}
		if f.ctx.Err() != nil {
			return 0, f.ctx.Err()
		}
		if f.tries++; !f.broke(err) || f.tries > resumeTries {
			return 0, err
		}
		f.drop()
		select {
		case <-time.After(time.Duration(f.tries) * resumePause):
		case <-f.ctx.Done():
		}
	}
}

// drop lets go of a connection that broke. What closing it says was said before.
func (f *resumedFile) drop() {
	if f.body != nil {
		_ = f.body.Close()
		f.body = nil
	}
}

func (f *resumedFile) Close() error {
	f.drop()
	return nil
}
