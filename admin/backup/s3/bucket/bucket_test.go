package bucket_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/admin/backup/s3/bucket"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// keys are all that stores escape, in paths and in listings.
var keys = []string{
	"a/plain", "a/sp ace", "a/p+lus", "a/per%cent%2F%41", "a/&=?#;:,'()*!@$~-._", "a/\"<>`{}|^[]\\",
	"a/ünï/☃", "a//double", "a/new\nline\t", "b",
}

func TestObjects(t *testing.T) {
	store := testkit.NewObjectStore()
	c, end := connect(t, store, nil)
	defer end()
	ctx := t.Context()
	for _, key := range keys {
		check.Must(t, c.Put(ctx, key, []byte("0123456789"+key)), key)
		if size, err := c.Size(ctx, key); err != nil || size != int64(10+len(key)) {
			t.Errorf("%q has %d bytes, %v", key, size, err)
		}
		if b, err := c.Read(ctx, key, 1000); err != nil || string(b) != "0123456789"+key {
			t.Errorf("%q has %q, %v", key, b, err)
		}
		body := check.Value(c.Open(ctx, key, 3, 8)).Must(t)
		if b, err := io.ReadAll(body); err != nil || string(b) != "34567" {
			t.Errorf("%q has %q, %v", key, b, err)
		}
		check.NoError(t, body.Close())
	}
	if got, want := store.Keys(), slices.Sorted(slices.Values(keys)); !slices.Equal(got, want) {
		t.Errorf("stored %q", got)
	}
	if b, err := c.Read(ctx, "b", 4); err != nil || string(b) != "0123" {
		t.Errorf("%q, %v", b, err)
	}
	if err := c.Remove(ctx, "b"); err != nil || store.Has("b") {
		t.Error("not removed", err)
	}
	check.NoError(t, c.Remove(ctx, "b"))
	if _, err := c.Size(ctx, "b"); !bucket.Missing(err) {
		t.Error(err)
	}
	if _, err := c.Read(ctx, "b", 1000); !bucket.Missing(err) {
		t.Error(err)
	}
	if _, err := c.Open(ctx, "a/plain", 100, 110); err == nil || bucket.Missing(err) {
		t.Error("read past the end", err)
	}
}

// TestMissing: that another server does not know the address says nothing about an object.
func TestMissing(t *testing.T) {
	for _, c := range []struct {
		err  bucket.Error
		want bool
	}{
		{bucket.Error{Code: "NoSuchKey", StatusCode: 404}, true}, {bucket.Error{Code: "NoSuchUpload", StatusCode: 404}, true},
		{bucket.Error{Code: "NoSuchBucket", StatusCode: 404}, false}, {bucket.Error{StatusCode: 404}, false},
	} {
		check.Equal(t, bucket.Missing(&c.err), c.want, c.err)
	}
}

func TestList(t *testing.T) {
	store := testkit.NewObjectStore()
	c, end := connect(t, store, nil)
	defer end()
	ctx := t.Context()
	want := map[string]int64{}
	for i, key := range keys {
		check.Must(t, c.Put(ctx, key, make([]byte, i)))
		if strings.HasPrefix(key, "a/") {
			want[key] = int64(i)
		}
	}
	list := func(prefix string, recursive bool) map[string]int64 {
		got := map[string]int64{}
		n := 0
		check.NoError(t, c.List(ctx, prefix, recursive, func(o bucket.Object) { got[o.Key] = o.Size; n++ }))
		check.Equal(t, n, len(got), "listed, of them are different")
		return got
	}
	for _, size := range []int{1, 2, 3, 9, 10, 1000} {
		store.PageSize(size)
		if got := list("a/", true); !maps.Equal(got, want) {
			t.Errorf("by %d: %v", size, got)
		}
		if got := list("", false); !maps.Equal(got, map[string]int64{"a/": 0, "b": int64(len(keys) - 1)}) {
			t.Errorf("by %d: %v", size, got)
		}
	}
	if got := list("nothing/", true); len(got) != 0 {
		t.Error(got)
	}
}

func TestUploads(t *testing.T) {
	store := testkit.NewObjectStore()
	c, end := connect(t, store, nil)
	defer end()
	for _, key := range append(slices.Clone(keys), keys[:4]...) {
		store.BeginUpload(key)
	}
	for _, size := range []int{1, 3, 1000} {
		store.PageSize(size)
		n := 0
		if err := c.Uploads(t.Context(), "a/", func(string, string) { n++ }); err != nil || n != len(keys)+3 {
			t.Errorf("by %d: %d, %v", size, n, err)
		}
	}
	ids := map[string]string{}
	check.Must(t, c.Uploads(t.Context(), "", func(key, id string) { ids[id] = key }))
	for id, key := range ids {
		check.NoError(t, c.Abort(t.Context(), key, id), key)
	}
	if left := store.Uploads(); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	if err := c.Abort(t.Context(), "b", "1"); !bucket.Missing(err) {
		t.Error(err)
	}
}

// TestParts: an object in parts is whole, and is there when the answer to its completion is an
// error with status 200, or is lost.
func TestParts(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 600_000)
	const internal = `<?xml version="1.0" encoding="UTF-8"?>` + "\n   \n" +
		`<Error><Code>InternalError</Code><Message>We encountered an internal error. Please try again.</Message></Error>`
	for _, c := range []struct {
		name string
		// spoil answers the nth request to complete the upload, or returns false.
		spoil func(store *testkit.ObjectStore, w http.ResponseWriter, r *http.Request, nth int) bool
		fails string
	}{
		{"plain", nil, ""},
		{"error with status 200", func(_ *testkit.ObjectStore, w http.ResponseWriter, _ *http.Request, nth int) bool {
			if nth == 1 {
				say(w, internal)
			}
			return nth == 1
		}, ""},
		{"empty", func(_ *testkit.ObjectStore, _ http.ResponseWriter, _ *http.Request, nth int) bool { return nth == 1 }, ""},
		{"lost answer", func(store *testkit.ObjectStore, w http.ResponseWriter, r *http.Request, nth int) bool {
			if nth > 1 {
				return false
			}
			store.Answer(nil)
			store.ServeHTTP(discard{w.Header()}, r)
			panic(http.ErrAbortHandler)
		}, ""},
		{"lasting error with status 200", func(_ *testkit.ObjectStore, w http.ResponseWriter, _ *http.Request, _ int) bool {
			say(w, `<Error><Code>InvalidPart</Code><Message>One is wrong.</Message></Error>`)
			return true
		}, "One is wrong (status 200 InvalidPart)"},
		{"a page for people", func(_ *testkit.ObjectStore, w http.ResponseWriter, _ *http.Request, _ int) bool {
			say(w, `<html><body>Welcome</body></html>`)
			return true
		}, "the store gives the object no ETag"},
		{"gone", func(store *testkit.ObjectStore, w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.WriteHeader(http.StatusNotFound)
			say(w, `<Error><Code>NoSuchUpload</Code></Error>`)
			return true
		}, "status 404 NoSuchUpload"},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := testkit.NewObjectStore()
			client, end := connect(t, store, nil)
			defer end()
			nth := 0
			store.Answer(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPost || !r.URL.Query().Has("uploadId") || c.spoil == nil {
					return false
				}
				nth++
				return c.spoil(store, w, r, nth)
			})
			ctx := t.Context()
			u, err := client.Begin(ctx, "large one")
			check.Must(t, err)
			check.Must(t, errors.Join(u.Part(ctx, data[:5<<20]), u.Part(ctx, data[5<<20:])))
			if store.Has("large one") {
				t.Error("it is there before it is complete")
			}
			err = u.Complete(ctx)
			if c.fails == "" && (err != nil || !bytes.Equal(store.Object("large one"), data)) {
				t.Errorf("%d bytes, %v", len(store.Object("large one")), err)
			}
			if c.fails != "" {
				if err == nil || err.Error() != c.fails {
					t.Error(err)
				}
				store.Answer(nil)
				if err := u.Abort(ctx); err != nil || len(store.Uploads()) != 0 {
					t.Error(store.Uploads(), err)
				}
			}
		})
	}
}

// discard is an answer that goes nowhere.
type discard struct{ header http.Header }

func (d discard) Header() http.Header       { return d.header }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}

// TestDamage: the store refuses bytes that are not those that were sent, and gets them again.
func TestDamage(t *testing.T) {
	store := testkit.NewObjectStore()
	c, end := connect(t, store, nil)
	defer end()
	n := 0
	store.Damage(func(*http.Request) bool { n++; return n%2 == 1 })
	if err := c.Put(t.Context(), "k", []byte("value")); err != nil || string(store.Object("k")) != "value" || n != 2 {
		t.Errorf("%q after %d, %v", store.Object("k"), n, err)
	}
}

// TestDigest: a store that does not look at the signed hash finds a damaged body all the same.
func TestDigest(t *testing.T) {
	got := map[string]string{}
	c, end := connect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got[r.URL.Query().Get("partNumber")] = r.Header.Get("Content-Md5")
		w.Header().Set("ETag", `"x"`)
		say(w, "<R><UploadId>1</UploadId></R>")
	}), nil)
	defer end()
	ctx := t.Context()
	u := check.Value(c.Begin(ctx, "k")).Must(t)
	check.Must(t, errors.Join(u.Part(ctx, []byte("a")), c.Put(ctx, "k", nil)))
	if want := map[string]string{"": "1B2M2Y8AsgTpgAmY7PhCfg==", "1": "DMF1ucDxtqgxw5niaXcmYQ=="}; !maps.Equal(got, want) {
		t.Error(got)
	}
}

// TestRanges: bytes from elsewhere are not taken for those that were asked for.
func TestRanges(t *testing.T) {
	for _, c := range []struct {
		from   int64
		status int
		header string
		ok     bool
	}{
		{0, 206, "bytes 0-9/20", true},
		{5, 206, "bytes 5-9/20", true},
		{5, 206, "bytes 50-59/60", false},
		{5, 206, "", false},
		{0, 200, "", true},
		{5, 200, "", false},
	} {
		client, end := connect(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if c.header != "" {
				w.Header().Set("Content-Range", c.header)
			}
			w.WriteHeader(c.status)
		}), nil)
		body, err := client.Open(t.Context(), "k", c.from, 10)
		check.Equal(t, err == nil, c.ok, c, err)
		if err == nil {
			check.NoError(t, body.Close())
		}
		end()
	}
}

// TestLists: answers that would mislead are errors.
func TestLists(t *testing.T) {
	const begin = "<ListBucketResult><EncodingType>url</EncodingType>"
	for _, c := range []struct{ name, answer, want string }{
		{"a page for people", "<html></html>", "expected element type <ListBucketResult>"},
		{"empty", "", "EOF"},
		{"cut", begin + "<Contents><Key>a</Key>", "unexpected EOF"},
		{"no token", begin + "<IsTruncated>true</IsTruncated></ListBucketResult>", "where its list continues"},
		{"the same token", begin + "<IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken></ListBucketResult>", "where its list continues"},
		{"foreign key", begin + "<Contents><Key>q</Key></Contents></ListBucketResult>", `lists "q", asked for "p/"`},
		{"bad escape", begin + "<Contents><Key>p/%zz</Key></Contents></ListBucketResult>", "invalid URL escape"},
		{"negative size", begin + "<Contents><Key>p/a</Key><Size>-1</Size></Contents></ListBucketResult>", `"p/a" has -1 bytes`},
		{"an error with status 200", "<Error><Code>AccessDenied</Code></Error>", "status 200 AccessDenied"},
		{"too long", begin + strings.Repeat(" ", 8<<20), "more than 8388608 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, end := connect(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				say(w, c.answer)
			}), func(o *bucket.Options) { o.Retries = 1 })
			defer end()
			err := client.List(t.Context(), "p/", true, func(bucket.Object) {})
			check.Says(t, err, c.want)
		})
	}
}

// TestPlainKeys: a store that does not know how to escape keys in a list is understood.
func TestPlainKeys(t *testing.T) {
	c, end := connect(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		say(w, "<ListBucketResult xmlns='x'><Contents><Key>a+b%20</Key><Size>7</Size></Contents></ListBucketResult>")
	}), nil)
	defer end()
	var got []bucket.Object
	err := c.List(t.Context(), "", true, func(o bucket.Object) { got = append(got, o) })
	check.Must(t, err)
	check.Slice(t, got, []bucket.Object{{Key: "a+b%20", Size: 7}})
}

func TestEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, end := connect(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { cancel() }), nil)
	defer end()
	if _, err := c.Read(ctx, "k", 10); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	check.Is(t, c.Put(ctx, "k", nil), context.Canceled)
}
