package s3_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/backup/s3"
	eventlog "github.com/annalsdb/annals/log"
)

// fake is an object store in memory, with one bucket.
type fake struct {
	mu     sync.Mutex
	objs   map[string][]byte
	log    []string
	refuse func(r *http.Request) int
	cut    func(key string) bool // break the body of an answer off
}

func (s *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/bucket"), "/")
	s.log = append(s.log, r.Method+" "+key)
	if s.refuse != nil {
		if c := s.refuse(r); c != 0 {
			w.WriteHeader(c)
			return
		}
	}
	switch {
	case r.Method == "GET" && key == "":
		q := r.URL.Query()
		type content struct {
			Key                string
			Size               int
			LastModified, ETag string
		}
		type pre struct{ Prefix string }
		out := struct {
			XMLName        xml.Name `xml:"ListBucketResult"`
			IsTruncated    bool
			Contents       []content
			CommonPrefixes []pre
		}{}
		seen := map[string]bool{}
		var keys []string
		for k := range s.objs {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		for _, k := range keys {
			if !strings.HasPrefix(k, q.Get("prefix")) {
				continue
			}
			rest := k[len(q.Get("prefix")):]
			if d := q.Get("delimiter"); d != "" {
				if i := strings.Index(rest, d); i >= 0 {
					p := q.Get("prefix") + rest[:i+1]
					if !seen[p] {
						seen[p] = true
						out.CommonPrefixes = append(out.CommonPrefixes, pre{p})
					}
					continue
				}
			}
			out.Contents = append(out.Contents, content{k, len(s.objs[k]), "2026-01-01T00:00:00.000Z", `"x"`})
		}
		w.Header().Set("Content-Type", "application/xml")
		_ = xml.NewEncoder(w).Encode(out) // As above.
	case r.Method == "PUT":
		b, _ := io.ReadAll(r.Body) // What is missing is not there.
		if strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING") {
			b = unchunk(b)
		}
		s.objs[key] = b
		w.Header().Set("ETag", `"x"`)
	case r.Method == "DELETE":
		delete(s.objs, key)
		w.WriteHeader(204)
	default:
		b, ok := s.objs[key]
		if !ok {
			w.WriteHeader(404)
			_, _ = fmt.Fprint(w, `<Error><Code>NoSuchKey</Code></Error>`)
			return
		}
		w.Header().Set("ETag", `"x"`)
		if r.Method == "GET" && s.cut != nil && s.cut(key) {
			w.Header().Set("Content-Length", fmt.Sprint(len(b)))
			_, _ = w.Write(b[:len(b)/2]) // The client sees what comes of it.
			panic(http.ErrAbortHandler)
		}
		http.ServeContent(w, r, "", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), bytes.NewReader(b))
	}
}

func unchunk(b []byte) (out []byte) {
	s := string(b)
	for {
		i := strings.Index(s, "\r\n")
		size, _, _ := strings.Cut(s[:i], ";")
		long, err := strconv.ParseInt(size, 16, 32)
		n := int(long)
		if err != nil || n == 0 {
			return out
		}
		out = append(out, s[i+2:i+2+n]...)
		s = s[i+2+n+2:]
	}
}

// source has two files of fixed bytes; one of them can fail.
type source struct {
	files map[string]string
	order []string
	bad   string
}

func (s source) Begin(context.Context) (backup.Session, error) {
	one := backup.Session{ID: "1", ClusterID: "c", Position: 1}
	for _, n := range s.order {
		f := backup.File{Name: n, Size: int64(len(s.files[n]))}
		sum := eventlog.NewFileSum(f.Name, f.Size, f.Complete)
		if _, err := io.WriteString(sum, s.files[n]); err != nil {
			return one, err
		}
		var err error
		if f.Checksum, err = sum.Sum(); err != nil {
			return one, err
		}
		one.Files = append(one.Files, f)
	}
	return one, nil
}
func (s source) Open(_ context.Context, _, name string, at int64) (io.ReadCloser, error) {
	if name == s.bad {
		return nil, errors.New("the node is gone")
	}
	return io.NopCloser(strings.NewReader(s.files[name][at:])), nil
}
func (source) End(context.Context, string) error { return nil }

func setup(t *testing.T) (*fake, *s3.Target, source) {
	s := &fake{objs: map[string][]byte{}}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	env := map[string]string{"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
	target, err := s3.New(s3.Options{URL: "s3://bucket/p", Endpoint: srv.URL, Getenv: func(k string) string { return env[k] }, Retries: 2})
	if err != nil {
		t.Fatal(err)
	}
	return s, target, source{files: map[string]string{"a": strings.Repeat("a", 100), "b": strings.Repeat("b", 100)}, order: []string{"a", "b"}}
}

func check(t *testing.T, s *fake, target *s3.Target) {
	all, err := target.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Error("nothing listed")
	}
	for _, m := range all {
		for _, f := range m.Files {
			if _, ok := s.objs["p/objects/"+f.Checksum+"-"+f.Name]; !ok {
				t.Errorf("%s is listed and lacks %s", m.ID, f.Name)
			}
		}
	}
}

// TestAbortKeepsShared: a full backup that fails takes no files from an earlier one.
func TestAbortKeepsShared(t *testing.T) {
	s, target, src := setup(t)
	if _, err := backup.Create(t.Context(), src, target, backup.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	check(t, s, target)
	src.bad = "b"
	if _, err := backup.Create(t.Context(), src, target, backup.CreateOptions{Full: true}); err == nil {
		t.Fatal("succeeded")
	}
	check(t, s, target)
}

// TestPruneBesideCreate: a backup that begins while prune is at work loses no files to it.
func TestPruneBesideCreate(t *testing.T) {
	s, target, src := setup(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time { now = now.Add(time.Second); return now }
	if _, err := backup.Create(t.Context(), src, target, backup.CreateOptions{Now: clock}); err != nil {
		t.Fatal(err)
	}
	later := source{files: map[string]string{"a": strings.Repeat("x", 100)}, order: []string{"a"}}
	if _, err := backup.Create(t.Context(), later, target, backup.CreateOptions{Now: clock}); err != nil {
		t.Fatal(err)
	}
	// The third one, of the first's files, is made when prune lists the objects, behind its look for backups at work.
	started := false
	s.refuse = func(r *http.Request) int {
		if r.Method == "DELETE" && strings.Contains(r.URL.Path, "manifest") && !started {
			started = true
			s.mu.Unlock()
			_, err := backup.Create(t.Context(), src, target, backup.CreateOptions{Now: clock})
			s.mu.Lock()
			t.Logf("create during prune: %v", err)
		}
		return 0
	}
	p, err := backup.Prune(t.Context(), target, 1, 0, now, false)
	t.Logf("prune: %+v %v", p, err)
	check(t, s, target)
}

// TestForbidden: a key that is refused is no connection that broke.
func TestForbidden(t *testing.T) {
	s, target, src := setup(t)
	m, err := backup.Create(t.Context(), src, target, backup.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.refuse = func(r *http.Request) int {
		if r.Method == "GET" && strings.Contains(r.URL.Path, "objects") {
			return 403
		}
		return 0
	}
	n := len(s.log)
	r, err := target.Open(t.Context(), &m, &m.Files[0])
	if err == nil {
		_, err = io.ReadAll(r)
	}
	if k := len(s.log) - n; k > 3 {
		t.Errorf("403: asked %d times: %v", k, err)
	}
}

// TestListAfterKill: what a killed backup has left hinders nobody.
func TestListAfterKill(t *testing.T) {
	s, target, src := setup(t)
	if _, err := target.Begin(t.Context(), backup.NewID(time.Now())); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Create(t.Context(), src, target, backup.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	check(t, s, target)
}

// TestTroubles: a store that answers some requests with errors, and breaks bodies off, is worked with all the same.
func TestTroubles(t *testing.T) {
	s, target, src := setup(t)
	asked := map[string]bool{}
	s.refuse = func(r *http.Request) int {
		what := r.Method + r.URL.String()
		if asked[what] = !asked[what]; asked[what] { // every second time each
			return http.StatusServiceUnavailable
		}
		return 0
	}
	m, err := backup.Create(t.Context(), src, target, backup.CreateOptions{Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	again, err := backup.Create(t.Context(), src, target, backup.CreateOptions{})
	if err != nil || again.Kind != backup.KindIncremental || again.BytesCopied != 0 {
		t.Fatalf("%+v, %v", again, err)
	}
	s.refuse = nil
	cuts := 0
	s.cut = func(key string) bool {
		cuts++
		return strings.Contains(key, "objects/") && cuts%2 == 1
	}
	r, err := target.Open(t.Context(), &m, &m.Files[0])
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil || string(b) != src.files["a"] || cuts < 2 {
		t.Errorf("%q after %d answers, %v", b, cuts, err)
	}
	s.cut = nil
	s.refuse = func(*http.Request) int { return http.StatusInternalServerError }
	if _, err := backup.Create(t.Context(), src, target, backup.CreateOptions{}); err == nil {
		t.Error("made a backup in a store that refuses everything")
	}
	s.refuse = nil
	check(t, s, target)
}

func TestOptions(t *testing.T) {
	keys := func(k string) string {
		return map[string]string{"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}[k]
	}
	for _, c := range []struct {
		url, endpoint, want string
		getenv              func(string) string
	}{
		{"s3:///x", "", "not of the form s3://bucket/prefix", keys},
		{"s3://b?x=1", "", "not of the form s3://bucket/prefix", keys},
		{"s3://b/p", "ftp://x", "not of the form https://host:port", keys},
		{"s3://b/p", "http://x/path", "not of the form https://host:port", keys},
		{"s3://b/p", "", "set AWS_ACCESS_KEY_ID", func(string) string { return "" }},
		{"s3://b/p", "", "", keys},
		{"s3://b", "http://127.0.0.1:9", "", keys},
	} {
		_, err := s3.New(s3.Options{URL: c.url, Endpoint: c.endpoint, Getenv: c.getenv})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
