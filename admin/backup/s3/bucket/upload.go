package bucket

import (
	"context"
	"encoding/xml"
	"errors"
	"net/http"
	"net/url"
	"strconv"
)

// MaxParts is how many parts an object may be sent in.
const MaxParts = 10_000

// Upload is an object that is being sent in parts. It is there when the upload is complete. Until
// then, or until the upload is ended, its parts take space.
type Upload struct {
	c       *Client
	key, id string
	parts   []part
	size    int64
}

type part struct {
	PartNumber int
	ETag       string
}

// Begin begins an upload in parts.
func (c *Client) Begin(ctx context.Context, key string) (*Upload, error) {
	var x struct {
		UploadID string `xml:"UploadId"`
	}
	q := request{method: http.MethodPost, key: key, query: url.Values{"uploads": {""}}, header: map[string]string{"Content-Type": "application/octet-stream"}}
	err := c.do(ctx, q, func(a *http.Response) error { return c.decode(a, &x) })
	if err == nil && x.UploadID == "" {
		err = &malformed{errors.New("the store gives the upload no id")}
	}
	if err != nil {
		return nil, err
	}
	return &Upload{c: c, key: key, id: x.UploadID}, nil
}

// Part sends the next part. All but the last have at least 5 MiB.
func (u *Upload) Part(ctx context.Context, data []byte) error {
	p := part{PartNumber: len(u.parts) + 1}
	q := request{
		method: http.MethodPut, key: u.key, header: bodyHeader(data), body: data,
		query: url.Values{"uploadId": {u.id}, "partNumber": {strconv.Itoa(p.PartNumber)}},
	}
	err := u.c.do(ctx, q, func(a *http.Response) error {
		if p.ETag = a.Header.Get("ETag"); p.ETag == "" {
			return &malformed{errors.New("the store gives the part no ETag")}
		}
		return nil
	})
	if err == nil {
		u.parts, u.size = append(u.parts, p), u.size+int64(len(data))
	}
	return err
}

// Complete makes the object of its parts.
func (u *Upload) Complete(ctx context.Context) error {
	body, err := xml.Marshal(struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ CompleteMultipartUpload"`
		Part    []part
	}{Part: u.parts})
	if err != nil {
		return err
	}
	var x struct{ ETag string }
	q := request{
		method: http.MethodPost, key: u.key, query: url.Values{"uploadId": {u.id}}, body: body,
		header: map[string]string{"Content-Type": "application/xml"},
	}
	err = u.c.do(ctx, q, func(a *http.Response) error { return u.c.decode(a, &x) })
	if err == nil && x.ETag == "" {
		err = &malformed{errors.New("the store gives the object no ETag")}
	}
	if e, ok := errors.AsType[*Error](err); ok && e.Code == codeNoSuchUpload {
		// It is complete if the first answer was lost.
		if size, sizeErr := u.c.Size(ctx, u.key); sizeErr == nil && size == u.size {
			return nil
		}
	}
	return err
}

// Abort ends the upload: its parts are gone.
func (u *Upload) Abort(ctx context.Context) error { return u.c.Abort(ctx, u.key, u.id) }

// Abort ends an upload that Uploads named.
func (c *Client) Abort(ctx context.Context, key, id string) error {
	return c.do(ctx, request{method: http.MethodDelete, key: key, query: url.Values{"uploadId": {id}}}, nil)
}
