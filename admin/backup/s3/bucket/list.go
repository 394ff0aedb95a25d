package bucket

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

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
