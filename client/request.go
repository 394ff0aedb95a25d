package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
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
)

// Request is one request.
type Request struct {
	Method string // by default GET, or POST with a body
	Path   string // with the query; or a whole address
	Header map[string]string
	Body   []byte

	Node    string        // the node to ask, and no other one; by default any
	Login   *url.Userinfo // in place of that of the client
	Timeout time.Duration // in place of that of the client
	Stay    bool          // a redirect is an answer like others
}

// Response is what a node answers, with any status.
type Response struct {
	Node   string   // address of the node that answered
	Via    []string // addresses of the nodes that redirected to it
	Method string
	Path   string
	Status int
	Reason string // follows the status
	Header http.Header
	Body   []byte

	user   string // who asked
	prefix string // of the paths of the node
}

func (a Response) String() string { return fmt.Sprintf("%d %s %.500q", a.Status, a.Reason, a.Body) }

// Text is the body as one line, for people.
func (a Response) Text() string { return line(a.Body) }

// Host is host and port of the node.
func (a Response) Host() string {
	_, host, _ := strings.Cut(a.Node, "://")
	host, _, _ = strings.Cut(host, "/")
	return host
}

// Err is an *Error unless the answer is a success.
func (a Response) Err() error {
	if a.Status/100 == 2 {
		return nil
	}
	return a.refusal()
}

func (a Response) refusal() *Error {
	return &Error{
		Node: a.Host(), Method: a.Method, Path: a.Path, Status: a.Status, Reason: a.Reason, Text: sentence(a.Body), Header: a.Header,
		User: a.user, below: strings.TrimPrefix(a.Path, a.prefix),
	}
}

// Decode reads the body, which is JSON.
func (a Response) Decode(value any) error {
	if err := json.Unmarshal(a.Body, value); err != nil {
		return fmt.Errorf("read the answer of %s to %s %s: %w", a.Host(), a.Method, a.Path, err)
	}
	return nil
}

// Do sends a request. It goes to the next node as long as it gets no connection, and repeats
// nothing that a node may have got. An error means that no whole answer came.
func (c *Client) Do(ctx context.Context, q Request) (Response, error) {
	for n := 1; ; n++ {
		node := cmp.Or(q.Node, c.Node())
		a, err := c.ask(ctx, q, node)
		failed, ok := errors.AsType[*UnreachableError](err)
		if !ok || failed.Sent || ctx.Err() != nil || q.Node != "" || n >= c.leave(node) {
			return a, err
		}
	}
}

// Call does something whose arguments and result are JSON. Both may be nil. A GET is repeated as
// Options.RetryFor says, other methods only as long as no node has done anything.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	q, err := jsonRequest(method, path, in)
	if err != nil {
		return err
	}
	again := undone
	if method == http.MethodGet {
		again = mayPass
	}
	a, _, err := c.insist(ctx, q, again)
	if err != nil || out == nil {
		return err
	}
	return a.Decode(out)
}

// jsonRequest is a request with a value as its body, which may be nil.
func jsonRequest(method, path string, in any) (Request, error) {
	q := Request{Method: method, Path: path, Header: map[string]string{"Accept": MediaJSON}}
	if in == nil {
		return q, nil
	}
	var err error
	if q.Body, err = json.Marshal(in); err != nil {
		return q, fmt.Errorf("%s %s: %w", method, path, err)
	}
	q.Header["Content-Type"] = MediaJSON
	return q, nil
}

// ask sends a request to one node and follows its redirects.
func (c *Client) ask(ctx context.Context, q Request, node string) (Response, error) {
	a, body, err := c.open(ctx, q, node, cmp.Or(q.Timeout, c.o.Timeout))
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
		c.prefer(a.Node) // A redirect leads to the leader.
	}
	return a, nil
}

// open sends a request and returns the head of the answer, with the body still to be read.
func (c *Client) open(ctx context.Context, q Request, node string, limit time.Duration) (Response, *transfer, error) {
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
		resp, err := c.exchange(t, &q, address)
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
			if login := cmp.Or(q.Login, c.o.Login); login != nil {
				a.user = login.Username()
			}
			return a, t, nil
		}
		_, _ = io.CopyN(io.Discard, t, maxText) // The connection serves again when all was read.
		// The redirect counts, however its body ended.
		_ = t.Close()
		to, err := c.redirected(&q, resp)
		if err != nil {
			return Response{}, nil, err
		}
		via, address = append(via, from.Scheme+"://"+from.Host), to
	}
	return Response{}, nil, &RedirectError{Node: node, Text: fmt.Sprintf("redirected more than %d times, at last to %s: the nodes do not agree on who leads, try again", maxHops-1, address)}
}

// redirected reads where to ask instead. A password that was sent by TLS is never sent without.
func (c *Client) redirected(q *Request, resp *http.Response) (string, error) {
	from := resp.Request.URL
	to, err := resp.Location()
	switch {
	case err != nil:
		return "", &RedirectError{from.Host, "redirects to nowhere: " + err.Error()}
	case to.Scheme != "http" && to.Scheme != "https":
		return "", &RedirectError{from.Host, "redirects to " + to.Redacted() + ", which is not followed"}
	case cmp.Or(q.Login, c.o.Login) != nil && from.Scheme == "https" && to.Scheme != "https":
		return "", &RedirectError{from.Host, "redirects to " + to.Redacted() + ": the password is not sent there without TLS"}
	}
	return to.String(), nil
}

// exchange sends a request to one address.
func (c *Client) exchange(t *transfer, q *Request, address string) (*http.Response, error) {
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
	if c.after != "" {
		r.Header.Set(HeaderWaitFor, c.after)
		r.Header.Set(HeaderWaitAtMost, WaitAtMost.String())
	}
	for name, value := range q.Header {
		r.Header.Set(name, value)
	}
	if login := cmp.Or(q.Login, c.o.Login); login != nil {
		password, _ := login.Password()
		r.SetBasicAuth(login.Username(), password)
	}
	t.host = r.URL.Host
	if t.limit <= 0 {
		t.limit = math.MaxInt64
	}
	t.stalled = time.AfterFunc(t.limit, func() { cancel(context.DeadlineExceeded) })
	resp, err := c.http.Do(r)
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
