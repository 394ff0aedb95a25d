package replication

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/annalsdb/annals/replication/bootstrap"
)

// caller asks other nodes over the port between nodes.
type caller struct {
	self      *self
	client    *http.Client     // nil in a cluster of one
	duplicate func(why string) // another node said that this node's id belongs to another process
}

// Bounds of what nodes send each other as JSON.
const (
	maxAnswer  = 1 << 20
	maxRequest = 48 << 20 // a write of 16 MiB with its bytes as base64
)

// errRequestSize says that no node takes a request of that size. It was not sent.
var errRequestSize = errors.New("the request is larger than allowed")

// callError is the answer of a node that refused a request.
type callError struct {
	Address string
	Status  int
	Text    string
}

func (e *callError) Error() string { return fmt.Sprintf("node at %s: %s", e.Address, e.Text) }

// request asks another node. An answer other than 200 becomes a *callError.
func (c *caller) request(ctx context.Context, address, method, path string, ask any) (*http.Response, error) {
	var body io.Reader
	if ask != nil {
		data, isPacked := ask.([]byte)
		if !isPacked {
			var err error
			if data, err = json.Marshal(ask); err != nil {
				return nil, err
			}
		}
		if len(data) > maxRequest {
			return nil, fmt.Errorf("ask node at %s: %w", address, errRequestSize)
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set(headerAddress, c.self.opts.Advertise)
	if l := c.self.incarnation.Load(); l != nil {
		req.Header.Set(headerIncarnation, l.id.String())
	}
	resp, err := c.client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the method and address once more
		}
		return nil, fmt.Errorf("ask node at %s: %w", address, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if resp.StatusCode == statusTwin {
		c.duplicate(string(bytes.TrimSpace(text)))
	}
	return nil, errors.Join(&callError{Address: address, Status: resp.StatusCode, Text: string(bytes.TrimSpace(text))}, err, resp.Body.Close())
}

// call asks another node over the port between nodes. Answers other than 200
// become a *callError.
func (c *caller) call(ctx context.Context, address, method, path string, ask, into any) error {
	resp, err := c.request(ctx, address, method, path, ask)
	if err != nil {
		return err
	}
	defer func() { c.self.warnDebug(resp.Body.Close()) }()
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxAnswer)).Decode(into); err != nil {
		return fmt.Errorf("answer of %s to %s: %w", address, path, err)
	}
	return nil
}

// bootstrap carries a call of the bootstrap.
func (c *caller) bootstrap(ctx context.Context, address string, q bootstrap.Request) (a bootstrap.Answer, err error) {
	err = c.call(ctx, address, http.MethodPost, "/bootstrap", q, &a)
	return a, err
}
