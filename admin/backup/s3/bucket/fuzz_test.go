package bucket

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"github.com/annalsdb/annals/internal/check"
)

// answers gives every request the same answer.
type answers struct {
	status int
	header http.Header
	body   []byte
}

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader(a.body)),
		ContentLength: int64(len(a.body)), Request: r,
	}, nil
}

// FuzzAnswers: no answer of a store ends the process, keeps a call from its end, or passes for a
// listing of other keys. Errors are one line.
func FuzzAnswers(f *testing.F) {
	f.Add(200, "", []byte(`<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken><Contents><Key>p/a+b</Key><Size>3</Size></Contents><CommonPrefixes><Prefix>p/c/</Prefix></CommonPrefixes></ListBucketResult>`))
	f.Add(200, "", []byte(`<ListMultipartUploadsResult><IsTruncated>true</IsTruncated><NextKeyMarker>p/k</NextKeyMarker><NextUploadIdMarker>1</NextUploadIdMarker><Upload><Key>p/k</Key><UploadId>1</UploadId></Upload></ListMultipartUploadsResult>`))
	f.Add(200, "", []byte(`<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>`))
	f.Add(200, "bytes 5-9/10", []byte(`<CompleteMultipartUploadResult><ETag>"x"</ETag></CompleteMultipartUploadResult>`))
	f.Add(403, "Fri, 01 May 2026 12:00:00 GMT", []byte(`<Error><Code>RequestTimeTooSkewed</Code><Message>m</Message><ServerTime>2026-05-01T11:42:30Z</ServerTime></Error>`))
	f.Add(301, "eu-west-1", []byte(`<Error><Code>PermanentRedirect</Code><Region>eu-west-1</Region></Error>`))
	f.Add(503, "20", []byte(`<Error><Code>SlowDown</Code></Error>`))
	f.Fuzz(func(t *testing.T, status int, value string, body []byte) {
		if status < 100 || status > 999 {
			return
		}
		c := New(Options{Endpoint: &url.URL{Scheme: "http", Host: "store"}, Region: "r", Name: "b", Key: "k", Secret: "s"})
		header := http.Header{}
		for _, name := range []string{"Content-Range", "Content-Type", "Date", "Etag", "Location", "Retry-After", "X-Amz-Bucket-Region", "X-Amz-Request-Id"} {
			header.Set(name, value)
		}
		c.http.Transport = answers{status, header, body}
		c.retries = -1 // Pauses would take most of the time.
		ctx := t.Context()
		u := &Upload{c: c, key: "k", id: "1"}
		_, size := c.Size(ctx, "k")
		_, begin := c.Begin(ctx, "k")
		_, read := c.Read(ctx, "k", 10)
		for _, err := range []error{
			size, begin, read, c.Put(ctx, "k", nil), c.Remove(ctx, "k"), u.Part(ctx, nil), u.Complete(ctx), u.Abort(ctx),
			c.List(ctx, "p/", true, func(o Object) {
				if !strings.HasPrefix(o.Key, "p/") || o.Size < 0 {
					t.Errorf("listed %+v", o)
				}
			}),
			c.Uploads(ctx, "p/", func(key, _ string) {
				if !strings.HasPrefix(key, "p/") {
					t.Errorf("listed %q", key)
				}
			}),
		} {
			e, ok := err.(*Error)
			if ok && strings.ContainsFunc(e.Error(), unicode.IsControl) {
				t.Errorf("%q", e)
			}
		}
		if b, err := c.Open(ctx, "k", 5, 9); err == nil {
			check.NoError(t, b.Close())
		}
	})
}
