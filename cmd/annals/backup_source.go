package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/client"
)

const sessionsPath = "/admin/backup/sessions"

// nodeSource reads the database of a running node by its backup sessions.
type nodeSource struct {
	*nodeClient
	begun bool // a session was: before that nothing was tried
}

var _ backup.Source = (*nodeSource)(nil)

// Begin opens a session. A node may sync and read for it longer than it takes to answer anything
// else.
func (s *nodeSource) Begin(ctx context.Context) (session backup.Session, err error) {
	body, err := s.ask(ctx, http.MethodPost, sessionsPath, client.MediaJSON)
	if err != nil {
		return session, err
	}
	if err := json.Unmarshal(body, &session); err != nil {
		return session, fmt.Errorf("%s answers %s with something other than a session: %w", s.host, sessionsPath, err)
	}
	s.begun = true
	return session, nil
}

// Open reads a file from an offset on. A transfer that breaks resumes where it broke.
func (s *nodeSource) Open(ctx context.Context, session, name string, offset int64) (io.ReadCloser, error) {
	path := sessionsPath + "/" + url.PathEscape(session) + "/files/" + url.PathEscape(name)
	body, err := s.Download(ctx, client.Request{Path: path}, offset)
	if err != nil {
		return nil, s.lost(err)
	}
	return sourceBody{body, s}, nil
}

// sourceBody is a file whose session may end on the way.
type sourceBody struct {
	io.ReadCloser
	source *nodeSource
}

func (b sourceBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = b.source.lost(err)
	}
	return n, err
}

// lost says whether an error means that the session has ended.
func (s *nodeSource) lost(err error) error {
	refused, ok := errors.AsType[*client.Error](err)
	switch {
	case ok && refused.Status == http.StatusGone:
		return errors.Join(s.explain(err), &backup.Ended{Reason: refused.Text})
	case ok && refused.Status == http.StatusNotFound:
		return errors.Join(s.explain(err), backup.ErrSessionGone)
	}
	return s.explain(err)
}

// End ends a session.
func (s *nodeSource) End(ctx context.Context, session string) error {
	answer, err := s.Do(ctx, client.Request{Method: http.MethodDelete, Path: sessionsPath + "/" + url.PathEscape(session), Stay: true})
	if err == nil && answer.Status != http.StatusNotFound && answer.Status != http.StatusGone {
		err = answer.Err()
	}
	return s.explain(err)
}
