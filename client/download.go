package client

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"time"
)

const (
	// stall is how long a node may send nothing of a file.
	stall = 60 * time.Second
	// A transfer that breaks is begun again this often without a byte in between.
	resumeTries = 8
	resumePause = 250 * time.Millisecond
)

// Download reads a file from an offset on. A transfer that breaks resumes where it broke, on the
// same node; Read returns an error when that does not help. A refusal at the beginning is an
// *Error.
func (c *Client) Download(ctx context.Context, q Request, offset int64) (io.ReadCloser, error) {
	q.Node, q.Header = cmp.Or(q.Node, c.Node()), maps.Clone(q.Header)
	if q.Header == nil {
		q.Header = map[string]string{}
	}
	f := &download{s: c.sender, ctx: ctx, q: q, at: offset}
	if err := f.connect(); err != nil && !f.broke(err) {
		return nil, err
	}
	return f, nil
}

// download is a file on its way.
type download struct {
	s     *sender
	ctx   context.Context // of the whole file: the reader is gone when it ends
	q     Request
	at    int64
	body  *transfer // nil: not connected
	tries int
}

func (f *download) connect() error {
	if f.body != nil {
		return nil
	}
	want := http.StatusOK
	if f.at > 0 {
		f.q.Header["Range"], want = fmt.Sprintf("bytes=%d-", f.at), http.StatusPartialContent
	}
	a, body, err := f.s.open(f.ctx, f.q, f.q.Node, stall)
	if err != nil {
		return err
	}
	if a.Status == want {
		body.moving = true
		f.body = body
		return nil
	}
	a.Body, err = io.ReadAll(io.LimitReader(body, maxText))
	if e := body.Close(); err == nil {
		err = e
	}
	if err != nil {
		return body.failed(err)
	}
	return a.refusal()
}

// broke reports whether an error is one of the way to the node.
func (f *download) broke(err error) bool { return f.ctx.Err() == nil && IsAway(err) }

func (f *download) Read(b []byte) (int, error) {
	for {
		err := f.connect()
		if err == nil {
			n, e := f.body.Read(b)
			f.at += int64(n)
			if n > 0 {
				f.tries = 0
				return n, nil // e repeats what this error says.
			}
			if e == nil || e == io.EOF {
				return 0, e
			}
			err = f.body.failed(e)
		}
		if f.ctx.Err() != nil {
			return 0, f.ctx.Err()
		}
		if f.tries++; !f.broke(err) || f.tries > resumeTries {
			return 0, err
		}
		f.drop()
		_ = wait(f.ctx, time.Duration(f.tries)*resumePause) // The check above shows what ended it.
	}
}

// drop closes a connection that broke. Close returns the same error again.
func (f *download) drop() {
	if f.body != nil {
		_ = f.body.Close()
		f.body = nil
	}
}

// Close ends the transfer.
func (f *download) Close() error {
	f.drop()
	return nil
}
