package s3_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/backup/s3"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	eventlog "github.com/annalsdb/annals/log"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

func setup(t *testing.T) (*testkit.ObjectStore, *s3.Target, source) {
	s := testkit.StartObjectStore(t)
	env := map[string]string{"AWS_ACCESS_KEY_ID": testkit.ObjectStoreKey, "AWS_SECRET_ACCESS_KEY": testkit.ObjectStoreSecret}
	target, err := s3.New(s3.Options{URL: s.Bucket + "p", Endpoint: s.URL, Getenv: func(k string) string { return env[k] }, Retries: 2})
	check.Must(t, err)
	t.Cleanup(target.Close)
	return s, target, source{files: map[string]string{"a": strings.Repeat("a", 100), "b": strings.Repeat("b", 100)}, order: []string{"a", "b"}}
}

// complete holds the backups that a target lists against the files in its store.
func complete(t *testing.T, s *testkit.ObjectStore, target *s3.Target) {
	all := check.Value(target.List(t.Context())).Must(t)
	if len(all) == 0 {
		t.Error("nothing listed")
	}
	for _, m := range all {
		for _, f := range m.Files {
			if !s.Has("p/objects/" + f.Checksum + "-" + f.Name) {
				t.Errorf("%s is listed and lacks %s", m.ID, f.Name)
			}
		}
	}
}

// TestAbortKeepsShared: a full backup that fails takes no files from an earlier one.
func TestAbortKeepsShared(t *testing.T) {
	s, target, src := setup(t)
	check.Must(t, check.Err(backup.Create(t.Context(), src, target, backup.CreateOptions{})))
	complete(t, s, target)
	src.bad = "b"
	if _, err := backup.Create(t.Context(), src, target, backup.CreateOptions{Full: true}); err == nil {
		t.Fatal("succeeded")
	}
	complete(t, s, target)
}

// TestPruneBesideCreate: a backup that begins while prune is at work loses no files to it.
func TestPruneBesideCreate(t *testing.T) {
	s, target, src := setup(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time { now = now.Add(time.Second); return now }
	check.Must(t, check.Err(backup.Create(t.Context(), src, target, backup.CreateOptions{Now: clock})))
	later := source{files: map[string]string{"a": strings.Repeat("x", 100)}, order: []string{"a"}}
	check.Must(t, check.Err(backup.Create(t.Context(), later, target, backup.CreateOptions{Now: clock})))
	// The third one, of the first's files, is made when prune lists the objects, after it looked
	// for backups at work.
	started := false
	s.Refuse(func(r *http.Request) int {
		if r.Method == "DELETE" && strings.Contains(r.URL.Path, "manifest") && !started {
			started = true
			_, err := backup.Create(t.Context(), src, target, backup.CreateOptions{Now: clock})
			t.Logf("create during prune: %v", err)
		}
		return 0
	})
	p, err := backup.Prune(t.Context(), target, 1, 0, now, false)
	t.Logf("prune: %+v %v", p, err)
	complete(t, s, target)
}

// TestPruneParts: what a killed backup has sent of a large file takes no space for ever.
func TestPruneParts(t *testing.T) {
	s, target, src := setup(t)
	check.Must(t, check.Err(backup.Create(t.Context(), src, target, backup.CreateOptions{})))
	if s.BeginUpload("p/objects/x"); len(s.Uploads()) != 1 {
		t.Fatal(s.Uploads())
	}
	if _, err := backup.Prune(t.Context(), target, 1, 0, time.Now(), false); err != nil || len(s.Uploads()) != 0 {
		t.Errorf("left: %v, %v", s.Uploads(), err)
	}
}

// TestForbidden: a refused key is not treated as a broken connection.
func TestForbidden(t *testing.T) {
	s, target, src := setup(t)
	m, err := backup.Create(t.Context(), src, target, backup.CreateOptions{})
	check.Must(t, err)
	s.Refuse(func(r *http.Request) int {
		if r.Method == "GET" && strings.Contains(r.URL.Path, "objects") {
			return 403
		}
		return 0
	})
	n := s.Requests()
	r, err := target.Open(t.Context(), &m, &m.Files[0])
	if err == nil {
		_, err = io.ReadAll(r)
	}
	if k := s.Requests() - n; k > 3 {
		t.Errorf("403: asked %d times: %v", k, err)
	}
}

// TestListAfterKill: the leftovers of a killed backup do not disturb others.
func TestListAfterKill(t *testing.T) {
	s, target, src := setup(t)
	check.Must(t, check.Err(target.Begin(t.Context(), backup.NewID(time.Now()))))
	check.Must(t, check.Err(backup.Create(t.Context(), src, target, backup.CreateOptions{})))
	complete(t, s, target)
}

// TestTroubles: a store that answers some requests with errors, and breaks bodies off, is worked
// with all the same.
func TestTroubles(t *testing.T) {
	s, target, src := setup(t)
	var mu sync.Mutex
	asked := map[string]bool{}
	s.Refuse(func(r *http.Request) int {
		mu.Lock()
		defer mu.Unlock()
		what := r.Method + r.URL.String()
		if asked[what] = !asked[what]; asked[what] { // every second time each
			return http.StatusServiceUnavailable
		}
		return 0
	})
	m, err := backup.Create(t.Context(), src, target, backup.CreateOptions{Verify: true})
	check.Must(t, err)
	again, err := backup.Create(t.Context(), src, target, backup.CreateOptions{})
	if err != nil || again.Kind != backup.KindIncremental || again.BytesCopied != 0 {
		t.Fatalf("%+v, %v", again, err)
	}
	s.Refuse(nil)
	var answers atomic.Int64
	s.Cut(func(key string) bool { return strings.Contains(key, "objects/") && answers.Add(1)%2 == 1 })
	r := check.Value(target.Open(t.Context(), &m, &m.Files[0])).Must(t)
	b, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil || string(b) != src.files["a"] || answers.Load() < 2 {
		t.Errorf("%q after %d answers, %v", b, answers.Load(), err)
	}
	s.Cut(nil)
	s.Refuse(func(*http.Request) int { return http.StatusInternalServerError })
	if _, err := backup.Create(t.Context(), src, target, backup.CreateOptions{}); err == nil {
		t.Error("made a backup in a store that refuses everything")
	}
	s.Refuse(nil)
	complete(t, s, target)
}

// TestLargeFile: a file in parts is stored if it is whole, and leaves no parts if it is not.
func TestLargeFile(t *testing.T) {
	s, target, _ := setup(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<20+1) // a part and sixteen bytes
	f := &backup.File{Name: "large", Size: int64(len(data)), Checksum: "c"}
	const key = "p/objects/c-large"
	bad := errors.New("these are other bytes")
	reader := func(n int, last error) io.Reader {
		return io.MultiReader(bytes.NewReader(data[:n]), iotest.ErrReader(last))
	}
	w, err := target.Begin(t.Context(), backup.NewID(time.Now()))
	check.Must(t, err)
	for _, c := range []struct {
		name   string
		from   io.Reader
		refuse func(*http.Request) bool
		want   string
	}{
		{"fails at the end", reader(len(data), bad), nil, bad.Error()},
		{"fails early", reader(100, bad), nil, bad.Error()},
		{"fails between parts", reader(16<<20, bad), nil, bad.Error()},
		{"ends early", reader(16<<20, io.EOF), nil, "the file has fewer bytes than it should"},
		{"ends in a part", reader(16<<20+1, io.EOF), nil, "the file has fewer bytes than it should"},
		{"is longer", io.MultiReader(bytes.NewReader(data), strings.NewReader("x")), nil, "the file has more bytes than it should"},
		{"refused part", bytes.NewReader(data), func(r *http.Request) bool { return r.URL.Query().Get("partNumber") == "2" }, "write large in the object store: status 403 Forbidden"},
		{"refused end", bytes.NewReader(data), func(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Query().Has("uploadId") }, "write large in the object store: status 403 Forbidden"},
	} {
		s.Refuse(func(r *http.Request) int {
			if c.refuse != nil && c.refuse(r) {
				return http.StatusForbidden
			}
			return 0
		})
		err := w.Put(t.Context(), f, c.from)
		if err == nil || err.Error() != c.want || s.Has(key) || len(s.Uploads()) != 0 {
			t.Errorf("%s: %v; there: %v, parts: %v", c.name, err, s.Has(key), s.Uploads())
		}
	}
	// A run that is stopped leaves no parts either.
	ctx, cancel := context.WithCancel(t.Context())
	s.Refuse(func(r *http.Request) int {
		if r.URL.Query().Get("partNumber") == "2" {
			cancel()
			// The client goes, and sees no answer: that is only noticed after the body.
			check.NoError(t, check.Err(io.Copy(io.Discard, r.Body)))
			<-r.Context().Done()
			return http.StatusServiceUnavailable
		}
		return 0
	})
	if err := w.Put(ctx, f, bytes.NewReader(data)); !errors.Is(err, context.Canceled) || len(s.Uploads()) != 0 {
		t.Errorf("%v; parts: %v", err, s.Uploads())
	}
	s.Refuse(nil)
	if err := w.Put(t.Context(), f, bytes.NewReader(data)); err != nil || !bytes.Equal(s.Object(key), data) {
		t.Errorf("%d bytes, %v", len(s.Object(key)), err)
	}
	if ok, err := w.Reuse(t.Context(), nil, f); !ok || err != nil {
		t.Error(ok, err)
	}
	r, err := w.Open(t.Context(), f)
	check.Must(t, err)
	n := 0
	s.Cut(func(string) bool { n++; return n < 5 })
	got, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, data) || n < 2 {
		t.Errorf("%d bytes in %d answers, %v", len(got), n, err)
	}
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
