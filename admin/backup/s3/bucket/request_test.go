package bucket_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/admin/backup/s3/bucket"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestRetries: requests are sent again where that can help, for about a minute.
func TestRetries(t *testing.T) {
	code := func(status int, code string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.WriteHeader(status)
			say(w, "<Error><Code>"+code+"</Code></Error>")
		}
	}
	later := func(value string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", value)
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	const minute = time.Minute
	for _, c := range []struct {
		name              string
		answer            func(http.ResponseWriter)
		tries, tooMany    int64
		shortest, longest time.Duration
	}{
		{"cut", func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, 20, 36, 40 * time.Second, 65 * time.Second},
		{"408", code(408, ""), 20, 36, 40 * time.Second, 65 * time.Second},
		{"429", code(429, ""), 20, 36, 40 * time.Second, 65 * time.Second},
		{"500", code(500, "InternalError"), 20, 36, 40 * time.Second, 65 * time.Second},
		{"502", code(502, ""), 20, 36, 40 * time.Second, 65 * time.Second},
		{"503", code(503, "SlowDown"), 20, 36, 40 * time.Second, 65 * time.Second},
		{"504", code(504, ""), 20, 36, 40 * time.Second, 65 * time.Second},
		{"RequestTimeout", code(400, "RequestTimeout"), 20, 36, 40 * time.Second, 65 * time.Second},
		{"Retry-After", later("20"), 3, 6, 55 * time.Second, 65 * time.Second},
		{"long Retry-After", later("3600"), 3, 5, minute, 65 * time.Second},
		{"Retry-After as a date", later("Sat, 01 Jan 2000 01:00:00 GMT"), 3, 5, minute, 65 * time.Second},
		{"silent", func(http.ResponseWriter) { select {} }, 3, 4, 3 * minute, 3*minute + 2*time.Second},
		{"400", code(400, "InvalidRequest"), 1, 2, 0, 0},
		{"403", code(403, "AccessDenied"), 1, 2, 0, 0},
		{"404", code(404, "NoSuchBucket"), 1, 2, 0, 0},
		{"409", code(409, "BucketNotEmpty"), 1, 2, 0, 0},
		{"412", code(412, ""), 1, 2, 0, 0},
		{"501", code(501, "NotImplemented"), 1, 2, 0, 0},
		{"507", code(507, ""), 1, 2, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var tries atomic.Int64
				stop := make(chan struct{})
				client, end := connect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					tries.Add(1)
					if c.name == "silent" {
						<-stop
						return
					}
					c.answer(w)
				}), nil)
				defer end()
				defer close(stop)
				begun := time.Now()
				err := client.Put(t.Context(), "k", []byte("value"))
				n := tries.Load()
				if took := time.Since(begun); err == nil || n < c.tries || n >= c.tooMany || took < c.shortest || took > c.longest {
					t.Errorf("%d tries in %v: %v", n, took, err)
				}
			})
		})
	}
}

// TestRecovers: what is answered in the end counts.
func TestRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := testkit.NewObjectStore()
		c, end := connect(t, store, nil)
		defer end()
		begun := time.Now()
		store.Refuse(func(*http.Request) int {
			if time.Since(begun) < 30*time.Second {
				return http.StatusServiceUnavailable
			}
			return 0
		})
		if err := c.Put(t.Context(), "k", []byte("value")); err != nil || string(store.Object("k")) != "value" {
			t.Error(err)
		}
		n := 0
		store.Refuse(nil)
		store.Cut(func(string) bool { n++; return n < 4 })
		if b, err := c.Read(t.Context(), "k", 100); err != nil || string(b) != "value" || n != 4 {
			t.Errorf("%q after %d, %v", b, n, err)
		}
	})
}

// TestContext: the end of the context ends pauses, and waits for a silent store, at once.
func TestContext(t *testing.T) {
	for _, name := range []string{"pause", "silence"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stop := make(chan struct{})
				c, end := connect(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if name == "silence" {
						<-stop
					}
					w.Header().Set("Retry-After", "50")
					w.WriteHeader(http.StatusServiceUnavailable)
				}), nil)
				defer end()
				defer close(stop)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				begun := time.Now()
				err := c.Put(ctx, "k", nil)
				if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took != 10*time.Second {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}

// TestSlow: a body may take long, in both directions, as long as it moves. One that stops does not
// hold the client.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 1 << 20
		stop := make(chan struct{})
		c, end := connect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for range 20 {
				if r.Method == http.MethodPut {
					check.NoError(t, check.Err(io.CopyN(io.Discard, r.Body, size/20)))
				} else {
					say(w, strings.Repeat("v", 100))
					check.NoError(t, http.NewResponseController(w).Flush())
				}
				time.Sleep(50 * time.Second)
			}
			if r.Method != http.MethodPut && strings.HasSuffix(r.URL.Path, "stops") {
				<-stop
			}
		}), nil)
		defer end()
		defer close(stop)
		begun := time.Now()
		if err := c.Put(t.Context(), "k", make([]byte, size)); err != nil || time.Since(begun) < 15*time.Minute {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		body, err := c.Open(t.Context(), "k", 0, 2000)
		check.Must(t, err)
		if b, err := io.ReadAll(body); err != nil || len(b) != 2000 {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		if body, err = c.Open(t.Context(), "stops", 0, 2001); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(body)
		if len(b) != 2000 || err == nil || !strings.Contains(err.Error(), "timeout") {
			t.Errorf("%d bytes, %v", len(b), err)
		}
	})
}

// TestRedirect: the error names what to set, and the signature goes to no other host.
func TestRedirect(t *testing.T) {
	var elsewhere []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		elsewhere = append(elsewhere, r.Header.Get("Authorization"))
	}))
	defer other.Close()
	for _, c := range []struct {
		status       int
		region, want string
	}{
		{301, "eu-west-1", "the bucket is in the region eu-west-1, not in us-east-1: set AWS_REGION"},
		{307, "", "the store redirects to the endpoint " + strings.TrimPrefix(other.URL, "http://")},
		{400, "eu-west-1", "the bucket is in the region eu-west-1, not in us-east-1: set AWS_REGION"},
	} {
		tries := 0
		store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			tries++
			w.Header().Set("Location", other.URL+"/bucket/k")
			if c.region != "" {
				w.Header().Set("X-Amz-Bucket-Region", c.region)
			}
			w.WriteHeader(c.status)
		}))
		o := options(t)
		var err error
		if o.Endpoint, err = url.Parse(store.URL); err != nil {
			t.Fatal(err)
		}
		client := bucket.New(o)
		for _, err := range []error{
			client.Put(t.Context(), "k", nil), client.Remove(t.Context(), "k"),
			func() error { _, err := client.Size(t.Context(), "k"); return err }(),
		} {
			if err == nil || !strings.HasPrefix(err.Error(), c.want+": ") {
				t.Errorf("%d: %v", c.status, err)
			}
		}
		check.Equal(t, tries, 3, "tries")
		client.Close()
		store.Close()
	}
	check.Equal(t, len(elsewhere), 0, "sent to another host", elsewhere)
}

// TestCertificate: trying again makes a certificate no better, nor a scheme.
func TestCertificate(t *testing.T) {
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	for address, want := range map[string]string{
		secure.URL: "certificate", strings.Replace(plain.URL, "http:", "https:", 1): "HTTP response to HTTPS client",
	} {
		o := options(t)
		var err error
		if o.Endpoint, err = url.Parse(address); err != nil {
			t.Fatal(err)
		}
		c := bucket.New(o)
		begun := time.Now()
		err = c.Put(t.Context(), "k", nil)
		if err == nil || !strings.Contains(err.Error(), want) || time.Since(begun) > 20*time.Second {
			t.Error(address, err)
		}
		c.Close()
	}
}

// TestErrors: what users read.
func TestErrors(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name         string
		status       int
		header, body string
		want         string
	}{
		{
			"with all", 403, "X-Amz-Request-Id: R1", "<Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>",
			"Access Denied (status 403 AccessDenied, request R1)",
		},
		{"without a body", 403, "", "", "status 403 Forbidden"},
		{"id in the body", 400, "", "<Error><Code>X</Code><RequestId>R2</RequestId></Error>", "status 400 X, request R2"},
		{"plain text", 400, "Content-Type: text/plain", "Client sent an HTTP request to an HTTPS server.\n", "Client sent an HTTP request to an HTTPS server (status 400 Bad Request)"},
		{"a page for people", 400, "Content-Type: text/html", "<html>", "status 400 Bad Request"},
		{"for terminals", 400, "", "<Error><Code>X</Code><Message>a\nb\u009b[31m\u00e9</Message></Error>", "a b[31m\u00e9 (status 400 X)"},
		{
			"fast", 403, "", "<Error><Code>RequestTimeTooSkewed</Code><Message>Too large.</Message><ServerTime>2026-05-01T11:42:30Z</ServerTime></Error>",
			"the clock of this machine is 17m30s fast, compared with that of the store: set it: Too large (status 403 RequestTimeTooSkewed)",
		},
		{
			"slow", 403, "", "<Error><Code>RequestTimeTooSkewed</Code><ServerTime>2026-05-01T13:00:00Z</ServerTime></Error>",
			"the clock of this machine is 1h0m0s slow, compared with that of the store: set it: status 403 RequestTimeTooSkewed",
		},
		{"by the header", 403, "Date: Fri, 01 May 2026 12:20:00 GMT", "", "the clock of this machine is 20m0s slow, compared with that of the store: set it: status 403 Forbidden"},
		{"the clock is right", 403, "Date: Fri, 01 May 2026 12:00:02 GMT", "", "status 403 Forbidden"},
		{
			"region", 400, "", "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-north-1</Region></Error>",
			"the bucket is in the region eu-north-1, not in us-east-1: set AWS_REGION: status 400 AuthorizationHeaderMalformed",
		},
		{"endless", 400, "", "<Error><Code>X</Code><Message>" + strings.Repeat("m", 1<<20), "status 400 Bad Request"},
		{"long", 400, "", "<Error><Code>X</Code><Message>" + strings.Repeat("m", 1000) + "</Message></Error>", strings.Repeat("m", 500) + " (status 400 X)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, end := connect(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Date"] = nil
				w.Header()["Content-Type"] = nil
				if name, value, ok := strings.Cut(c.header, ": "); ok {
					w.Header().Set(name, value)
				}
				w.WriteHeader(c.status)
				say(w, c.body)
			}), func(o *bucket.Options) { o.Now = func() time.Time { return now } })
			defer end()
			_, err := client.Read(t.Context(), "k", 10)
			if err == nil || err.Error() != c.want {
				t.Errorf("%v\nwant %s", err, c.want)
			}
		})
	}
}

// TestRefused: the store refuses wrong keys and wrong clocks, once.
func TestRefused(t *testing.T) {
	for name, change := range map[string]func(*bucket.Options){
		"SignatureDoesNotMatch":        func(o *bucket.Options) { o.Secret = "other" },
		"InvalidAccessKeyId":           func(o *bucket.Options) { o.Key = "other" },
		"AuthorizationHeaderMalformed": func(o *bucket.Options) { o.Region = "eu-west-1" },
		"RequestTimeTooSkewed":         func(o *bucket.Options) { o.Now = func() time.Time { return time.Now().Add(-time.Hour) } },
		"NoSuchBucket":                 func(o *bucket.Options) { o.Name = "other" },
	} {
		store := testkit.NewObjectStore()
		c, end := connect(t, store, change)
		err := c.Put(t.Context(), "k", []byte("value"))
		e, ok := errors.AsType[*bucket.Error](err)
		if !ok || e.Code != name || bucket.Missing(err) || store.Requests() != 1 || len(store.Keys()) != 0 {
			t.Errorf("%s: %v after %d", name, err, store.Requests())
		}
		end()
	}
}
