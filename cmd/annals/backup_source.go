package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/annalsdb/annals/admin/backup"
)

const sessionsPath = "/admin/backup/sessions"

// sourceStall is how long a node may send nothing of a file.
const sourceStall = 60 * time.Second

// nodeSource reads the database of a running node by its backup sessions.
type nodeSource struct{ *nodeClient }

var _ backup.Source = nodeSource{}

// Begin opens a session. A node may sync and read for it longer than it takes to answer anything else.
func (s nodeSource) Begin(ctx context.Context) (session backup.Session, err error) {
	body, err := s.ask(ctx, http.MethodPost, sessionsPath, "application/json")
	if err != nil {
		return session, err
	}
	if err := json.Unmarshal(body, &session); err != nil {
		return session, fmt.Errorf("%s answers %s with something else than a session: %w", s.host, sessionsPath, err)
	}
	return session, nil
}

// Open reads a file from an offset on.
func (s nodeSource) Open(ctx context.Context, session, name string, offset int64) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	path := sessionsPath + "/" + url.PathEscape(session) + "/files/" + url.PathEscape(name)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.address+path, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	want := http.StatusOK
	if offset > 0 {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
		want = http.StatusPartialContent
	}
	if s.flags.password != "" {
		r.SetBasicAuth(s.flags.user, s.flags.password)
	}
	stalled := time.AfterFunc(sourceStall, cancel)
	resp, err := s.http.Do(r)
	if err != nil {
		stalled.Stop()
		cancel()
		return nil, s.away(ctx, r.URL.Host, err)
	}
	body := &sourceBody{ReadCloser: resp.Body, cancel: cancel, stalled: stalled}
	if resp.StatusCode == want {
		return body, nil
	}
	text, readErr := io.ReadAll(io.LimitReader(body, maxRefusal))
	if err := errors.Join(readErr, body.Close()); err != nil {
		return nil, s.away(ctx, r.URL.Host, err)
	}
	refused := s.refused(&nodeAnswer{host: r.URL.Host, path: path, status: resp.StatusCode, header: resp.Header, body: text})
	switch resp.StatusCode {
	case http.StatusGone:
		return nil, errors.Join(refused, &backup.Ended{Reason: refused.text})
	case http.StatusNotFound:
		return nil, errors.Join(refused, backup.ErrSessionGone)
	}
	return nil, refused
}

// End lets go of a session.
func (s nodeSource) End(ctx context.Context, session string) error {
	answer, err := s.send(ctx, &nodeRequest{method: http.MethodDelete, path: sessionsPath + "/" + url.PathEscape(session)})
	switch {
	case err != nil:
		return err
	case answer.status == http.StatusOK, answer.status == http.StatusNotFound, answer.status == http.StatusGone:
		return nil
	}
	return s.refused(answer)
}

// sourceBody ends a transfer in which nothing moves.
type sourceBody struct {
	io.ReadCloser
	cancel  context.CancelFunc
	stalled *time.Timer
}

func (b *sourceBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.stalled.Reset(sourceStall)
	}
	return n, err
}

func (b *sourceBody) Close() error {
	defer b.cancel()
	b.stalled.Stop()
	return b.ReadCloser.Close()
}
