// Package bucket is a client of one bucket in an object store that speaks the S3 protocol. It has
// what backups use: objects as a whole and in parts, ranges, listings. It addresses the bucket by
// path, signs the hash of each body, and sends no request to a host other than the endpoint.
package bucket

import (
	"cmp"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/annalsdb/annals/internal/network"
)

const (
	dialTimeout = 5 * time.Second
	// silence is how long a store may take to accept or to send the next bytes of a body, or to
	// answer.
	silence = time.Minute
	// idleTimeout is shorter than that of stores and of proxies in front of them.
	idleTimeout = 30 * time.Second
	idleConns   = 16
)

// Options say which bucket it is.
type Options struct {
	Endpoint *url.URL // scheme and host of the store
	Region   string
	Name     string

	Key, Secret string
	Token       string // of a session; may be empty

	// Retries is how often a request is sent again. Default: for about a minute, with pauses that
	// grow to four seconds.
	Retries int
	Now     func() time.Time // default time.Now

	// Dial makes connections. Default: those of TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// EnsureDefaults fills in the fields that are not set.
func (o *Options) EnsureDefaults() {
	o.Retries = cmp.Or(o.Retries, retries)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Dial == nil {
		o.Dial = network.DialContext(network.TCP{Timeout: dialTimeout})
	}
}

// Client works with a bucket. Its methods may be called at the same time.
type Client struct {
	scheme, host string
	path         string // of the bucket, with a slash at either end
	signer       signer
	retries      int
	now          func() time.Time
	http         *http.Client
}

// New returns the client of a bucket. It asks the store nothing.
func New(o Options) *Client {
	o.EnsureDefaults()
	dial := func(ctx context.Context, by, address string) (net.Conn, error) {
		c, err := o.Dial(ctx, by, address)
		if err != nil {
			return nil, err
		}
		return moving{c}, nil
	}
	return &Client{
		scheme: o.Endpoint.Scheme, host: plainHost(o.Endpoint), path: "/" + o.Name + "/",
		signer:  signer{o.Key, o.Secret, o.Token, o.Region, "s3"},
		retries: o.Retries, now: o.Now,
		http: &http.Client{
			Transport: &http.Transport{
				Proxy: http.ProxyFromEnvironment, DialContext: dial,
				TLSHandshakeTimeout: 2 * dialTimeout, IdleConnTimeout: idleTimeout,
				MaxIdleConnsPerHost: idleConns, MaxResponseHeaderBytes: 1 << 16,
				DisableCompression: true, // A range is one of the stored bytes.
			},
			// A signature is for one host, and must not reach another.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// plainHost is what stores sign: they leave out the port that the scheme implies.
func plainHost(u *url.URL) string {
	if port := u.Port(); u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80" {
		return strings.TrimSuffix(u.Host, ":"+port)
	}
	return u.Host
}

// Close ends the connections that no call uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Put makes an object of bytes, which the store compares with two checksums.
func (c *Client) Put(ctx context.Context, key string, data []byte) error {
	return c.do(ctx, request{method: http.MethodPut, key: key, header: bodyHeader(data), body: data}, nil)
}

// bodyHeader is for stored bytes. All stores check the MD5, some do not check the signed hash.
func bodyHeader(data []byte) map[string]string {
	sum := md5.Sum(data)
	return map[string]string{
		"Content-Type": "application/octet-stream", "Content-Md5": base64.StdEncoding.EncodeToString(sum[:]),
	}
}

// Read returns an object, or its first bytes if it has more than most.
func (c *Client) Read(ctx context.Context, key string, most int64) (data []byte, err error) {
	err = c.do(ctx, request{method: http.MethodGet, key: key}, func(a *http.Response) (err error) {
		data, err = io.ReadAll(io.LimitReader(a.Body, most))
		return err
	})
	return data, err
}

// Open reads the bytes of an object from one place up to another, which is at least one byte. A
// body that breaks off is the caller's to resume.
func (c *Client) Open(ctx context.Context, key string, from, to int64) (body io.ReadCloser, err error) {
	asked := fmt.Sprintf("bytes=%d-%d", from, to-1)
	q := request{method: http.MethodGet, key: key, header: map[string]string{"Range": asked}}
	err = c.do(ctx, q, func(a *http.Response) error {
		got, partial := a.Header.Get("Content-Range"), a.StatusCode == http.StatusPartialContent
		if partial && !strings.HasPrefix(got, fmt.Sprintf("bytes %d-", from)) || !partial && from > 0 {
			return &malformed{fmt.Errorf("asked for %s, the store answered %s with %q", asked, a.Status, got)}
		}
		body, a.Body = a.Body, http.NoBody
		return nil
	})
	return body, err
}

// Size returns that of an object.
func (c *Client) Size(ctx context.Context, key string) (size int64, err error) {
	err = c.do(ctx, request{method: http.MethodHead, key: key}, func(a *http.Response) error {
		if size = a.ContentLength; size < 0 {
			return &malformed{fmt.Errorf("the store does not say how large %s is", key)}
		}
		return nil
	})
	return size, err
}

// Remove removes an object. For most stores it is not an error that there is none.
func (c *Client) Remove(ctx context.Context, key string) error {
	return c.do(ctx, request{method: http.MethodDelete, key: key}, nil)
}

// moving is a connection that fails when no byte moves in either direction for a while.
type moving struct{ net.Conn }

func (m moving) Read(b []byte) (int, error) {
	if err := m.SetDeadline(time.Now().Add(silence)); err != nil {
		return 0, err
	}
	return m.Conn.Read(b)
}

// Write also gives the Read that waits for the answer more time. Bodies come in small pieces, so a
// slow one does not fail.
func (m moving) Write(b []byte) (int, error) {
	if err := m.SetDeadline(time.Now().Add(silence)); err != nil {
		return 0, err
	}
	return m.Conn.Write(b)
}

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

// Object is an object of a listing. A folder has the key up to its slash, and no size.
type Object struct {
	Key  string
	Size int64
}

// listing is a page of objects.
type listing struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	EncodingType          string
	IsTruncated           bool
	NextContinuationToken string
	Contents              []Object
	CommonPrefixes        []struct{ Prefix string }
}

// List calls f for each object whose key begins with a prefix. If it is not recursive, objects with
// a slash after the prefix are folded into folders.
func (c *Client) List(ctx context.Context, prefix string, recursive bool, f func(Object)) error {
	query := url.Values{"list-type": {"2"}, "encoding-type": {"url"}, "prefix": {prefix}, "max-keys": {"1000"}}
	if !recursive {
		query.Set("delimiter", "/")
	}
	for {
		var page listing
		if err := c.page(ctx, query, &page); err != nil {
			return err
		}
		for _, p := range page.CommonPrefixes {
			page.Contents = append(page.Contents, Object{Key: p.Prefix})
		}
		for _, o := range page.Contents {
			var err error
			if o.Key, err = unescape(o.Key, page.EncodingType, prefix); err != nil {
				return err
			}
			if o.Size < 0 {
				return &malformed{fmt.Errorf("the store says that %q has %d bytes", o.Key, o.Size)}
			}
			f(o)
		}
		if !page.IsTruncated {
			return nil
		}
		if page.NextContinuationToken == "" || page.NextContinuationToken == query.Get("continuation-token") {
			return errNoNext
		}
		query.Set("continuation-token", page.NextContinuationToken)
	}
}

var errNoNext = &malformed{errors.New("the store does not say where its list continues")}

// uploads is a page of uploads in parts.
type uploads struct {
	XMLName            xml.Name `xml:"ListMultipartUploadsResult"`
	EncodingType       string
	IsTruncated        bool
	NextKeyMarker      string
	NextUploadIDMarker string `xml:"NextUploadIdMarker"`
	Upload             []struct {
		Key      string
		UploadID string `xml:"UploadId"`
	}
}

// Uploads calls f for each upload in parts that was begun and not completed.
func (c *Client) Uploads(ctx context.Context, prefix string, f func(key, id string)) error {
	query := url.Values{"uploads": {""}, "encoding-type": {"url"}, "prefix": {prefix}, "max-uploads": {"1000"}}
	for {
		var page uploads
		if err := c.page(ctx, query, &page); err != nil {
			return err
		}
		for _, u := range page.Upload {
			key, err := unescape(u.Key, page.EncodingType, prefix)
			if err != nil {
				return err
			}
			f(key, u.UploadID)
		}
		if !page.IsTruncated {
			return nil
		}
		next, err := unescape(page.NextKeyMarker, page.EncodingType, "")
		if err != nil {
			return err
		}
		if next == "" || next == query.Get("key-marker") && page.NextUploadIDMarker == query.Get("upload-id-marker") {
			return errNoNext
		}
		query.Set("key-marker", next)
		query.Set("upload-id-marker", page.NextUploadIDMarker)
	}
}

func (c *Client) page(ctx context.Context, query url.Values, into any) error {
	return c.do(ctx, request{method: http.MethodGet, query: query}, func(a *http.Response) error { return c.decode(a, into) })
}

// unescape returns the key of a listing. A store that escapes keys says so: XML cannot hold all of
// them.
func unescape(key, encoding, prefix string) (string, error) {
	if strings.EqualFold(encoding, "url") {
		var err error
		if key, err = url.QueryUnescape(key); err != nil {
			return "", &malformed{fmt.Errorf("a key in the list of the store: %w", err)}
		}
	}
	if !strings.HasPrefix(key, prefix) {
		return "", &malformed{fmt.Errorf("the store lists %q, asked for %q", key, prefix)}
	}
	return key, nil
}
