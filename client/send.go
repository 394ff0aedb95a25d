package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// maxAnswer keeps a server of another kind from filling the memory. The largest answer of a
	// node is the estimate of a scavenge, with some 200 bytes for each chunk file of 256 MiB.
	maxAnswer = 1 << 30
	// maxHops is how many nodes are asked until one does not redirect.
	maxHops = 5

	// Pauses between repetitions.
	shortestPause = 50 * time.Millisecond
	longestPause  = 2 * time.Second
)

// sender takes requests to the nodes that are known, and says which may be sent again.
type sender struct {
	nodes *known
	o     Options
	http  *http.Client
	after string // the position that reads wait for; empty: none
}

func newSender(nodes *known, o Options) *sender {
	return &sender{nodes: nodes, o: o, http: &http.Client{
		Transport: o.Transport,
		// Followed by hand: the standard client would not send the password to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// finish sends a request that may be done twice, and that is refused with one of some statuses when
// an earlier try has done it.
func (s *sender) finish(ctx context.Context, q Request, done ...int) error {
	return s.finishWhile(ctx, q, mayPass, done...)
}

func (s *sender) finishWhile(ctx context.Context, q Request, again func(error) bool, done ...int) error {
	_, unsure, err := s.insist(ctx, q, again)
	if unsure && HasStatus(err, done...) {
		return nil
	}
	return err
}

// insist sends a request as long as its error is one to try again after, and the time for it is not
// over. It is unsure whether an earlier try was done when one of them may have been.
func (s *sender) insist(ctx context.Context, q Request, again func(error) bool) (a Response, unsure bool, err error) {
	end := time.Now().Add(s.o.RetryFor)
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		node := s.nodes.next()
		if a, err = s.do(ctx, q); err == nil {
			err = a.Err()
		}
		if err == nil || !again(err) || time.Now().Add(pause).After(end) {
			return a, unsure, err
		}
		unsure = unsure || !undone(err)
		s.nodes.leave(node)
		if wait(ctx, pause) != nil {
			return a, unsure, err
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// do is Client.Do.
func (s *sender) do(ctx context.Context, q Request) (Response, error) {
	for n := 1; ; n++ {
		node := cmp.Or(q.Node, s.nodes.next())
		a, err := s.ask(ctx, q, node)
		failed, ok := errors.AsType[*UnreachableError](err)
		if !ok || failed.Sent || ctx.Err() != nil || q.Node != "" || n >= s.nodes.leave(node) {
			return a, err
		}
	}
}

// ask sends a request to one node and follows its redirects.
func (s *sender) ask(ctx context.Context, q Request, node string) (Response, error) {
	a, body, err := s.open(ctx, q, node, cmp.Or(q.Timeout, s.o.Timeout))
	if err != nil {
		return Response{}, err
	}
	a.Body, err = io.ReadAll(io.LimitReader(body, maxAnswer+1))
	if err == nil && len(a.Body) > maxAnswer {
		err = fmt.Errorf("the answer is larger than %d bytes", maxAnswer)
	}
	if err = errors.Join(err, body.Close()); err != nil {
		return Response{}, body.failed(err)
	}
	if len(a.Via) > 0 && q.Node == "" {
		s.nodes.prefer(a.Node) // A redirect leads to the leader.
	}
	return a, nil
}

// open sends a request and returns the head of the answer, with the body still to be read.
func (s *sender) open(ctx context.Context, q Request, node string, limit time.Duration) (Response, *transfer, error) {
	if q.Method == "" {
		q.Method = http.MethodGet
		if q.Body != nil {
			q.Method = http.MethodPost
		}
	}
	address, prefix := q.Path, ""
	if strings.HasPrefix(address, "/") {
		address = node + q.Path
		if base, err := url.Parse(node); err == nil {
			prefix = base.EscapedPath()
		}
	}
	var via []string
	for range maxHops {
		t := &transfer{parent: ctx, limit: limit}
		resp, err := s.exchange(t, &q, address)
		if err != nil {
			return Response{}, nil, err
		}
		from := resp.Request.URL
		if q.Stay || !leadsElsewhere(q.Method, resp.StatusCode, resp.Header) {
			_, reason, _ := strings.Cut(resp.Status, " ")
			if len(via) > 0 || node == "" {
				node = from.Scheme + "://" + from.Host
			}
			a := Response{Node: node, Via: via, Method: q.Method, Path: from.RequestURI(), Status: resp.StatusCode, Reason: reason, Header: resp.Header, prefix: prefix}
			if login := cmp.Or(q.Login, s.o.Login); login != nil {
				a.user = login.Username()
			}
			return a, t, nil
		}
		_, _ = io.CopyN(io.Discard, t, maxText) // The connection serves again when all was read.
		// The redirect counts, however its body ended.
		_ = t.Close()
		to, err := s.redirected(&q, resp)
		if err != nil {
			return Response{}, nil, err
		}
		via, address = append(via, from.Scheme+"://"+from.Host), to
	}
	return Response{}, nil, &RedirectError{Node: node, Text: fmt.Sprintf("redirected more than %d times, at last to %s: the nodes do not agree on who leads, try again", maxHops-1, address)}
}

// redirected reads where to ask instead. A password that was sent by TLS is never sent without.
func (s *sender) redirected(q *Request, resp *http.Response) (string, error) {
	from := resp.Request.URL
	to, err := resp.Location()
	switch {
	case err != nil:
		return "", &RedirectError{from.Host, "redirects to nowhere: " + err.Error()}
	case to.Scheme != "http" && to.Scheme != "https":
		return "", &RedirectError{from.Host, "redirects to " + to.Redacted() + ", which is not followed"}
	case cmp.Or(q.Login, s.o.Login) != nil && from.Scheme == "https" && to.Scheme != "https":
		return "", &RedirectError{from.Host, "redirects to " + to.Redacted() + ": the password is not sent there without TLS"}
	}
	return to.String(), nil
}

// exchange sends a request to one address.
func (s *sender) exchange(t *transfer, q *Request, address string) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(t.parent)
	t.ctx, t.cancel = ctx, cancel
	r, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// From here on bytes may have been sent. Before, none can have been.
		GotConn: func(httptrace.GotConnInfo) { t.sent.Store(true) },
	}), q.Method, address, bytes.NewReader(q.Body))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	if s.after != "" {
		r.Header.Set(HeaderWaitFor, s.after)
		r.Header.Set(HeaderWaitAtMost, WaitAtMost.String())
	}
	for name, value := range q.Header {
		r.Header.Set(name, value)
	}
	if login := cmp.Or(q.Login, s.o.Login); login != nil {
		password, _ := login.Password()
		r.SetBasicAuth(login.Username(), password)
	}
	t.host = r.URL.Host
	if t.limit <= 0 {
		t.limit = math.MaxInt64
	}
	t.stalled = time.AfterFunc(t.limit, func() { cancel(context.DeadlineExceeded) })
	resp, err := s.http.Do(r)
	if err != nil {
		err = t.failed(err)
		t.end()
		return nil, err
	}
	t.body = resp.Body
	resp.Request = r // Not every transport says so.
	return resp, nil
}

// transfer is the body of an answer on its way.
type transfer struct {
	parent  context.Context
	ctx     context.Context // of this exchange
	cancel  context.CancelCauseFunc
	limit   time.Duration
	stalled *time.Timer // ends the exchange when the limit is over
	moving  bool        // the limit starts again with every byte that comes
	sent    atomic.Bool
	host    string
	body    io.ReadCloser
}

func (t *transfer) Read(p []byte) (int, error) {
	n, err := t.body.Read(p)
	if n > 0 && t.moving {
		t.stalled.Reset(t.limit)
	}
	return n, err
}

func (t *transfer) end() {
	t.stalled.Stop()
	t.cancel(nil)
}

func (t *transfer) Close() error {
	defer t.end()
	return t.body.Close()
}

// failed wraps an error of the way to a node, without the request in it.
func (t *transfer) failed(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("the certificate of %s is not trusted: %w", t.host, err)
	}
	if t.parent.Err() == nil && context.Cause(t.ctx) == context.DeadlineExceeded {
		err = fmt.Errorf("nothing within %v: %w", t.limit, context.DeadlineExceeded)
	}
	return &UnreachableError{Node: t.host, Sent: t.sent.Load(), Err: err}
}
