package testkit

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// ObjectStore is an object store in memory that speaks as much of the S3 protocol as backups need.
// It has one bucket.
type ObjectStore struct {
	URL    string // of the store
	Bucket string // s3://bucket/

	mu       sync.Mutex // guards what follows
	objects  map[string]storedObject
	uploads  []string // keys of objects that are sent in parts
	requests int
	refuse   func(r *http.Request) int
	cut      func(key string) bool
}

type storedObject struct {
	data []byte
	at   time.Time
}

// StartObjectStore starts a store that ends with the test.
func StartObjectStore(t testing.TB) *ObjectStore {
	s := &ObjectStore{Bucket: "s3://bucket/", objects: map[string]storedObject{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
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

func (s *ObjectStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/bucket"), "/")
	s.mu.Lock()
	s.requests++
	refuse, cut := s.refuse, s.cut
	s.mu.Unlock()
	if refuse != nil {
		if status := refuse(r); status != 0 {
			w.WriteHeader(status)
			return
		}
	}
	switch q := r.URL.Query(); {
	case q.Has("uploads") || q.Has("uploadId"):
		s.upload(w, r, key)
	case r.Method == http.MethodGet && key == "":
		s.list(w, r.URL.Query().Get("prefix"), r.URL.Query().Get("delimiter"))
	case r.Method == http.MethodPut:
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return // A client that went away has made no object.
		}
		if strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING") {
			b = unchunk(b)
		}
		s.mu.Lock()
		s.objects[key] = storedObject{b, time.Now()}
		s.mu.Unlock()
		w.Header().Set("ETag", `"x"`)
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
			w.WriteHeader(http.StatusNotFound)
			// The client sees what comes of it.
			_, _ = fmt.Fprint(w, `<Error><Code>NoSuchKey</Code></Error>`)
			return
		}
		w.Header().Set("ETag", `"x"`)
		w.Header().Set("Last-Modified", o.at.UTC().Format(http.TimeFormat))
		if r.Method == http.MethodGet && cut != nil && cut(key) {
			w.Header().Set("Content-Length", strconv.Itoa(len(o.data)))
			_, _ = w.Write(o.data[:len(o.data)/2]) // As above.
			panic(http.ErrAbortHandler)
		}
		http.ServeContent(w, r, "", o.at, bytes.NewReader(o.data))
	}
}

// upload begins, lists and ends objects that are sent in parts. It takes no parts.
func (s *ObjectStore) upload(w http.ResponseWriter, r *http.Request, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Method {
	case http.MethodPost:
		s.uploads = append(s.uploads, key)
	case http.MethodGet:
		w.Header().Set("Content-Type", "application/xml")
		_, _ = fmt.Fprint(w, "<ListMultipartUploadsResult>") // The client sees what comes of it.
		for _, key := range s.uploads {
			// As above.
			_, _ = fmt.Fprintf(w, "<Upload><Key>%s</Key><UploadId>%s</UploadId></Upload>", key, key)
		}
		_, _ = fmt.Fprint(w, "</ListMultipartUploadsResult>") // As above.
	case http.MethodDelete:
		s.uploads = slices.DeleteFunc(s.uploads, func(k string) bool { return k == key })
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusNotImplemented)
	}
}

// Uploads are the keys of objects that are being sent in parts.
func (s *ObjectStore) Uploads() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.uploads)
}

func (s *ObjectStore) list(w http.ResponseWriter, prefix, delimiter string) {
	type content struct {
		Key                string
		Size               int
		LastModified, ETag string
	}
	type common struct{ Prefix string }
	out := struct {
		XMLName        xml.Name `xml:"ListBucketResult"`
		IsTruncated    bool
		Contents       []content
		CommonPrefixes []common
	}{}
	s.mu.Lock()
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		if first, _, found := strings.Cut(rest, delimiter); found && delimiter != "" {
			one := common{prefix + first + delimiter}
			if !slices.Contains(out.CommonPrefixes, one) {
				out.CommonPrefixes = append(out.CommonPrefixes, one)
			}
			continue
		}
		o := s.objects[key]
		out.Contents = append(out.Contents, content{key, len(o.data), o.at.UTC().Format("2006-01-02T15:04:05.000Z"), `"x"`})
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(out) // As above.
}

// unchunk takes the signatures between the parts of a body away.
func unchunk(b []byte) (out []byte) {
	s := string(b)
	for {
		i := strings.Index(s, "\r\n")
		if i < 0 {
			return out
		}
		size, _, _ := strings.Cut(s[:i], ";")
		long, err := strconv.ParseInt(size, 16, 32)
		n := int(long)
		if err != nil || n == 0 || len(s) < i+2+n+2 {
			return out
		}
		out = append(out, s[i+2:i+2+n]...)
		s = s[i+2+n+2:]
	}
}
