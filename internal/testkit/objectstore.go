package testkit

import (
	"bytes"
	"cmp"
	"crypto/md5"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Keys that an ObjectStore accepts, and its region.
const (
	ObjectStoreKey    = "k"
	ObjectStoreSecret = "s"
	ObjectStoreRegion = "us-east-1"
)

// ObjectStore is an object store in memory that speaks as much of the S3 protocol as backups need.
// It has one bucket. It refuses requests that are not signed, and bodies that are not those that
// were signed.
type ObjectStore struct {
	URL    string // of the store
	Bucket string // s3://bucket/

	mu       sync.Mutex // guards what follows
	objects  map[string]storedObject
	uploads  map[string]*upload // by id
	begun    int                // uploads so far
	pageSize int
	requests int
	refuse   func(r *http.Request) int
	answer   func(w http.ResponseWriter, r *http.Request) bool
	cut      func(key string) bool
	damage   func(r *http.Request) bool
}

type storedObject struct {
	data []byte
	at   time.Time
}

// upload is an object that is being sent in parts.
type upload struct {
	key   string
	parts map[int][]byte
}

// NewObjectStore returns a store that is an http.Handler, and has no URL.
func NewObjectStore() *ObjectStore {
	return &ObjectStore{
		Bucket: "s3://bucket/", objects: map[string]storedObject{}, uploads: map[string]*upload{}, pageSize: 1000,
	}
}

// StartObjectStore starts a store that ends with the test.
func StartObjectStore(t testing.TB) *ObjectStore {
	s := NewObjectStore()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// PageSize is how much the store lists in one answer.
func (s *ObjectStore) PageSize(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pageSize = n
}

// Answer has f answer requests that it returns true for. The others are served.
func (s *ObjectStore) Answer(f func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

// Damage has bodies arrive with a wrong byte where f says so.
func (s *ObjectStore) Damage(f func(r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.damage = f
}

// Refuse has f look at requests before they are served. A status other than 0 is the answer. f may
// wait.
func (s *ObjectStore) Refuse(f func(r *http.Request) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = f
}

// Cut has bodies of objects break off in the middle where f says so.
func (s *ObjectStore) Cut(f func(key string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = f
}

// Has reports whether there is an object.
func (s *ObjectStore) Has(key string) bool { return slices.Contains(s.Keys(), key) }

// Keys are those of all objects, in order.
func (s *ObjectStore) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

// Requests is how many there were.
func (s *ObjectStore) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Object returns the bytes of an object.
func (s *ObjectStore) Object(key string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[key].data
}

// Uploads are the keys of objects that are being sent in parts.
func (s *ObjectStore) Uploads() (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.uploads {
		keys = append(keys, u.key)
	}
	slices.Sort(keys)
	return keys
}

// BeginUpload begins an object in parts, and returns the id of that.
func (s *ObjectStore) BeginUpload(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	id := fmt.Sprintf("%06d", s.begun)
	s.uploads[id] = &upload{key: key, parts: map[int][]byte{}}
	return id
}

func (s *ObjectStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests++
	refuse, answer, cut, damage := s.refuse, s.answer, s.cut, s.damage
	s.mu.Unlock()
	if refuse != nil {
		if status := refuse(r); status != 0 {
			w.WriteHeader(status)
			return
		}
	}
	if answer != nil && answer(w, r) {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // A client that went away has made no object.
	}
	if damage != nil && damage(r) && len(body) > 0 {
		body[0] ^= 1
	}
	if status, code := checkRequest(r, body, time.Now()); code != "" {
		refuseWith(w, status, code)
		return
	}
	key, ok := strings.CutPrefix(r.URL.Path, "/bucket")
	key = strings.TrimPrefix(key, "/")
	q := r.URL.Query()
	switch {
	case !ok:
		refuseWith(w, http.StatusNotFound, "NoSuchBucket")
	case r.Method == http.MethodGet && q.Has("uploads"):
		s.listUploads(w, q)
	case q.Has("uploads") || q.Has("uploadId"):
		s.upload(w, r, key, body)
	case r.Method == http.MethodGet && key == "":
		s.list(w, q)
	case r.Method == http.MethodPut:
		s.mu.Lock()
		s.objects[key] = storedObject{body, time.Now()}
		s.mu.Unlock()
		w.Header().Set("ETag", etag(body))
	case r.Method == http.MethodDelete:
		s.mu.Lock()
		delete(s.objects, key)
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	default:
		s.mu.Lock()
		o, ok := s.objects[key]
		s.mu.Unlock()
		if !ok {
			refuseWith(w, http.StatusNotFound, "NoSuchKey")
			return
		}
		w.Header().Set("ETag", etag(o.data))
		if r.Method == http.MethodGet && cut != nil && cut(key) {
			w = &cutWriter{w, len(o.data) / 2}
		}
		http.ServeContent(w, r, "", o.at, bytes.NewReader(o.data))
	}
}

// cutWriter breaks an answer off after some bytes.
type cutWriter struct {
	http.ResponseWriter
	left int
}

func (c *cutWriter) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b[:min(c.left, len(b))])
	if c.left -= n; c.left > 0 || err != nil {
		return n, err
	}
	panic(http.ErrAbortHandler)
}

func etag(data []byte) string { return fmt.Sprintf(`"%x"`, md5.Sum(data)) }

// refuseWith answers with an error. The client sees what comes of it.
func refuseWith(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "%s<Error><Code>%s</Code><Message>%s.</Message><ServerTime>%s</ServerTime></Error>",
		xml.Header, code, code, time.Now().UTC().Format(time.RFC3339))
}

func answerXML(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(v) // The client sees what comes of it.
}

// upload begins, continues and ends objects that are sent in parts.
func (s *ObjectStore) upload(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	q := r.URL.Query()
	if q.Has("uploads") {
		answerXML(w, struct {
			XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
			UploadID string   `xml:"UploadId"`
		}{UploadID: s.BeginUpload(key)})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := q.Get("uploadId")
	u := s.uploads[id]
	if u == nil || u.key != key {
		refuseWith(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	switch r.Method {
	case http.MethodPut:
		n, err := strconv.Atoi(q.Get("partNumber"))
		if err != nil || n < 1 || n > 10_000 {
			refuseWith(w, http.StatusBadRequest, "InvalidArgument")
			return
		}
		u.parts[n] = body
		w.Header().Set("ETag", etag(body))
	case http.MethodDelete:
		delete(s.uploads, id)
		w.WriteHeader(http.StatusNoContent)
	case http.MethodPost:
		data, code := u.complete(body)
		if code != "" {
			refuseWith(w, http.StatusBadRequest, code)
			return
		}
		s.objects[key] = storedObject{data, time.Now()}
		delete(s.uploads, id)
		answerXML(w, struct {
			XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
			ETag    string
		}{ETag: etag(data)})
	default:
		w.WriteHeader(http.StatusNotImplemented)
	}
}

// complete joins the parts that a request names, or returns the code of an error.
func (u *upload) complete(request []byte) (data []byte, code string) {
	var x struct {
		XMLName xml.Name `xml:"CompleteMultipartUpload"`
		Part    []struct {
			PartNumber int
			ETag       string
		}
	}
	if err := xml.Unmarshal(request, &x); err != nil || len(x.Part) == 0 {
		return nil, "MalformedXML"
	}
	for i, p := range x.Part {
		part, ok := u.parts[p.PartNumber]
		switch {
		case !ok || etag(part) != p.ETag:
			return nil, "InvalidPart"
		case i > 0 && p.PartNumber <= x.Part[i-1].PartNumber:
			return nil, "InvalidPartOrder"
		case i < len(x.Part)-1 && len(part) < 5<<20:
			return nil, "EntityTooSmall"
		}
		data = append(data, part...)
	}
	return data, ""
}

// escapeKey is how a store writes a key in a list, if the request wants it so.
func escapeKey(key string, q url.Values) string {
	if q.Get("encoding-type") == "url" {
		return url.QueryEscape(key)
	}
	return key
}

func (s *ObjectStore) listUploads(w http.ResponseWriter, q url.Values) {
	type one struct {
		Key      string
		UploadID string `xml:"UploadId"`
	}
	out := struct {
		XMLName            xml.Name `xml:"ListMultipartUploadsResult"`
		EncodingType       string
		IsTruncated        bool
		NextKeyMarker      string
		NextUploadIDMarker string `xml:"NextUploadIdMarker"`
		Upload             []one
	}{EncodingType: q.Get("encoding-type")}
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []one
	for id, u := range s.uploads {
		if strings.HasPrefix(u.key, q.Get("prefix")) {
			all = append(all, one{u.key, id})
		}
	}
	order := func(a, b one) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.UploadID, b.UploadID)) }
	slices.SortFunc(all, order)
	after := one{q.Get("key-marker"), q.Get("upload-id-marker")}
	for _, u := range all {
		if after.Key != "" && order(u, after) <= 0 {
			continue
		}
		if out.IsTruncated = len(out.Upload) == s.pageSize; out.IsTruncated {
			break
		}
		out.NextKeyMarker, out.NextUploadIDMarker = escapeKey(u.Key, q), u.UploadID
		out.Upload = append(out.Upload, one{escapeKey(u.Key, q), u.UploadID})
	}
	answerXML(w, out)
}

func (s *ObjectStore) list(w http.ResponseWriter, q url.Values) {
	type content struct {
		Key                string
		Size               int
		LastModified, ETag string
	}
	type common struct{ Prefix string }
	out := struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		EncodingType          string
		IsTruncated           bool
		NextContinuationToken string
		Contents              []content
		CommonPrefixes        []common
	}{EncodingType: q.Get("encoding-type")}
	prefix, delimiter := q.Get("prefix"), q.Get("delimiter")
	s.mu.Lock()
	defer s.mu.Unlock()
	last, n := q.Get("continuation-token"), 0
	if last != "" { // It is opaque to clients, and has characters that must be escaped.
		last = strings.TrimSuffix(last, "+/=")
	}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		name := key
		first, _, folder := strings.Cut(rest, delimiter)
		if folder = folder && delimiter != ""; folder {
			name = prefix + first + delimiter
		}
		if name <= last {
			continue
		}
		if n == s.pageSize {
			out.IsTruncated, out.NextContinuationToken = true, last+"+/="
			break
		}
		last = name
		n++
		if folder {
			out.CommonPrefixes = append(out.CommonPrefixes, common{escapeKey(name, q)})
			continue
		}
		o := s.objects[key]
		out.Contents = append(out.Contents, content{escapeKey(key, q), len(o.data), o.at.UTC().Format("2006-01-02T15:04:05.000Z"), etag(o.data)})
	}
	answerXML(w, out)
}
