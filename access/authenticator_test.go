package access_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/stats"
)

func basic(credentials string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(credentials))
}

// newAuthenticator uses one hash at a time and cheap ones.
func newAuthenticator(t testing.TB, s *store, o access.AuthenticatorOptions) (*access.Authenticator, *stats.Registry) {
	t.Helper()
	r := new(stats.Registry)
	o.Stats = r
	o.Hasher = access.NewHasher(access.HasherOptions{Iterations: 1, Parallel: 1, Stats: r})
	return access.NewAuthenticator(s, o), r
}

// hashes returns how many hashes were computed.
func hashes(r *stats.Registry) uint64 {
	return r.Histogram("annals_access_hash_seconds", "", stats.DurationBounds).Snapshot().Count
}

// header authenticates a request with an Authorization header.
// sameCaller compares callers but for how they became known.
func sameCaller(a, b access.Principal) bool {
	return a.Login == b.Login && reflect.DeepEqual(a.Groups, b.Groups) && a.IsSystem() == b.IsSystem()
}

func header(ctx context.Context, a *access.Authenticator, remote, authorization string) (access.Principal, error) {
	r := (&http.Request{RemoteAddr: remote, Header: http.Header{"Authorization": {authorization}}}).WithContext(ctx)
	return a.Authenticate(r)
}

// login authenticates with a name and a password.
func login(a *access.Authenticator, credentials string) error {
	return loginFrom(a, "192.0.2.1:1000", credentials)
}

func loginFrom(a *access.Authenticator, remote, credentials string) error {
	_, err := header(context.Background(), a, remote, basic(credentials))
	return err
}

const legacyUser = `{"loginName":"old","fullName":"Old","salt":"MDEyMzQ1Njc4OWFiY2RlZg==","hash":"HerS5bAVilEfQOLyb5nlJBaOI78=","groups":["$ops"]}`

func TestBasic(t *testing.T) {
	s := newStore()
	s.setUser(t, "jane", "pass:word", false, "billing")
	s.setUser(t, "jürgen", "ß€", false)
	s.setUser(t, "disabled", "x", true, "$admins")
	s.setUser(t, "deleted", "x", false)
	s.softDelete("$user-deleted")
	s.set("$user-old", legacyUser)
	s.set("$user-redacted", "\xff\xff\xff")
	s.set("$user-thief", legacyUser)

	jane := access.Principal{Login: "jane", Groups: []string{"billing"}}
	refused := event.ErrNotAuthorized
	cases := []struct {
		name, header string
		want         access.Principal
		err          error
	}{
		{"none", "", access.Anonymous, nil},
		{"right", basic("jane:pass:word"), jane, nil},
		{"scheme in lower case", "b" + basic("jane:pass:word")[1:], jane, nil},
		{"scheme in upper case", "BASIC" + basic("jane:pass:word")[5:], jane, nil},
		{"more blanks", " Basic \t " + basic("jane:pass:word")[6:] + " ", jane, nil},
		{"not ASCII", basic("jürgen:ß€"), access.Principal{Login: "jürgen", Groups: []string{}}, nil},
		{"legacy hash", basic("old:changeit"), access.Principal{Login: "old", Groups: []string{"$ops"}}, nil},
		{"wrong password", basic("jane:pass"), access.Principal{}, refused},
		{"wrong password, legacy hash", basic("old:changeit2"), access.Principal{}, refused},
		{"no password", basic("jane:"), access.Principal{}, refused},
		{"other case of the login", basic("Jane:pass:word"), access.Principal{}, refused},
		{"unknown", basic("nobody:x"), access.Principal{}, refused},
		{"disabled", basic("disabled:x"), access.Principal{}, refused},
		{"deleted", basic("deleted:x"), access.Principal{}, refused},
		{"redacted", basic("redacted:x"), access.Principal{}, refused},
		{"document of another user", basic("thief:changeit"), access.Principal{}, refused},
		{"login longer than a stream name", basic(strings.Repeat("x", event.MaxNameBytes) + ":x"), access.Principal{}, refused},
		{"long password", basic("jane:" + strings.Repeat("x", 5000)), access.Principal{}, refused},
		{"no login", basic(":x"), access.Principal{}, refused},
		{"no login, no password", "Basic Og==", access.Principal{}, refused},
		{"no colon", basic("jane"), access.Principal{}, refused},
		{"empty token", "Basic ", access.Principal{}, refused},
		{"no token", "Basic", access.Principal{}, refused},
		{"bad base64", "Basic ***", access.Principal{}, refused},
		{"cut base64", "Basic amFuZTpwYXNzOndvcmQ", access.Principal{}, refused},
		{"Bearer", "Bearer abc", access.Anonymous, nil},
		{"scheme beginning alike", "BasicCustom " + basic("jane:pass")[6:], access.Anonymous, nil},
		{"short", "Bas", access.Anonymous, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, _ := newAuthenticator(t, s, access.AuthenticatorOptions{})
				for range 2 { // The second time may come out of the cache.
					got, err := header(context.Background(), a, "192.0.2.1:1000", c.header)
					if !sameCaller(got, c.want) || !errors.Is(err, c.err) {
						t.Fatalf("got %+v, %v, want %+v, %v", got, err, c.want, c.err)
					}
				}
			})
		})
	}
}

func TestUsersUnreadable(t *testing.T) {
	cases := []struct {
		name      string
		err, want error
	}{
		{"not ready", event.ErrNotReady, event.ErrNotInitialized},
		{"closed", fmt.Errorf("read: %w", event.ErrClosed), event.ErrNotInitialized},
		{"not initialized", event.ErrNotInitialized, event.ErrNotInitialized},
		{"corruption", &event.Corruption{File: "chunk-000001.000000"}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newStore()
			s.setUser(t, "jane", "x", false)
			a, _ := newAuthenticator(t, s, access.AuthenticatorOptions{})
			s.readErr = c.err
			err := login(a, "jane:x")
			if c.want != nil && !errors.Is(err, c.want) || c.want == nil && !event.IsCorruption(err) {
				t.Fatalf("got %v", err)
			}
			if errors.Is(err, event.ErrNotAuthorized) || errors.Is(err, event.ErrNotReady) {
				t.Fatalf("got %v", err)
			}
			s.readErr = nil
			check.Must(t, login(a, "jane:x"), "afterwards")
			s.readErr = c.err
			if err := login(a, "jane:x"); c.want != nil && !errors.Is(err, c.want) || c.want == nil && !event.IsCorruption(err) {
				t.Fatalf("cached: got %v", err)
			}
		})
	}
}

func TestAuthenticateOrder(t *testing.T) {
	s := newStore()
	s.setUser(t, "jane", "x", false)
	jane := access.Principal{Login: "jane", Groups: []string{}}
	trusted := access.Principal{Login: "proxy", Groups: []string{"a", "b"}}
	cases := []struct {
		name                   string
		opts                   access.AuthenticatorOptions
		authorization, trusted string
		second                 string // another value of the trusted header
		node                   bool
		unix                   bool
		want                   access.Principal
		err                    error
	}{
		{name: "nothing"},
		{name: "insecure", opts: access.AuthenticatorOptions{Insecure: true}, authorization: "Basic *", want: access.System},
		{name: "basic first", opts: access.AuthenticatorOptions{TrustedAuth: true}, authorization: basic("jane:x"),
			trusted: "proxy; a", node: true, unix: true, want: jane},
		{name: "wrong basic decides", opts: access.AuthenticatorOptions{TrustedAuth: true}, authorization: basic("jane:y"),
			trusted: "proxy; a", unix: true, err: event.ErrNotAuthorized},
		{name: "certificate second", opts: access.AuthenticatorOptions{TrustedAuth: true}, authorization: "Bearer x",
			trusted: "proxy; a", node: true, want: access.System},
		{name: "trusted third", opts: access.AuthenticatorOptions{TrustedAuth: true}, trusted: "proxy; a, b", want: trusted},
		{name: "malformed trusted", opts: access.AuthenticatorOptions{TrustedAuth: true}, trusted: "proxy; a; b", err: event.ErrNotAuthorized},
		{name: "two trusted headers", opts: access.AuthenticatorOptions{TrustedAuth: true}, trusted: "proxy; a", second: "admin", err: event.ErrNotAuthorized},
		{name: "trusted is off", trusted: "proxy; a"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a, _ := newAuthenticator(t, s, c.opts)
			ctx := context.Background()
			if c.node {
				ctx = access.WithNodeConn(ctx)
			}
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1/ping", nil)
			check.Must(t, err)
			if c.authorization != "" {
				r.Header.Set("Authorization", c.authorization)
			}
			if c.trusted != "" {
				r.Header.Set("ES-TrustedAuth", c.trusted)
			}
			if c.second != "" {
				r.Header.Add("ES-TrustedAuth", c.second)
			}
			got, err := a.Authenticate(r)
			if !sameCaller(got, c.want) || !errors.Is(err, c.err) {
				t.Fatalf("got %+v, %v", got, err)
			}
		})
	}
}

func TestParseTrusted(t *testing.T) {
	cases := []struct {
		header string
		login  string // empty: refused
		groups []string
	}{
		{"jane; a, b", "jane", []string{"a", "b"}},
		{" jane ;a,b ", "jane", []string{"a", "b"}},
		{"jane;$admins", "jane", []string{"$admins"}},
		{"jane", "jane", []string{}},
		{"jane;", "jane", []string{}},
		{"jane; , ,a,", "jane", []string{"a"}},
		{"jane; a; b", "", nil},
		{"jane;;", "", nil},
		{"; a", "", nil},
		{"", "", nil},
		{" ", "", nil},
	}
	for _, c := range cases {
		t.Run(c.header, func(t *testing.T) {
			got, err := access.ParseTrusted(c.header)
			if c.login == "" {
				check.MustBe(t, err, event.ErrNotAuthorized, got)
				return
			}
			if want := (access.Principal{Login: c.login, Groups: c.groups}); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("got %+v, %v", got, err)
			}
		})
	}
}

func TestCache(t *testing.T) { synctest.Test(t, testCache) }

func testCache(t *testing.T) {
	s := newStore()
	s.setUser(t, "jane", "one", false)
	a, r := newAuthenticator(t, s, access.AuthenticatorOptions{})
	step := func(name, credentials string, wantErr error, wantHashes uint64) {
		t.Helper()
		before := hashes(r)
		check.MustBe(t, login(a, credentials), wantErr, name)
		check.MustEqual(t, hashes(r)-before, wantHashes, name, "hashes")
	}
	step("first", "jane:one", nil, 1)
	step("second", "jane:one", nil, 0)
	step("wrong", "jane:two", event.ErrNotAuthorized, 1)
	step("wrong again is not cached", "jane:two", event.ErrNotAuthorized, 1)
	step("wrong did not evict", "jane:one", nil, 0)
	step("unknown costs as much", "nobody:two", event.ErrNotAuthorized, 1)

	s.setUser(t, "jane", "two", false)
	step("old after a change", "jane:one", event.ErrNotAuthorized, 1)
	step("new after a change", "jane:two", nil, 1)

	s.setUser(t, "jane", "two", true)
	step("disabled", "jane:two", event.ErrNotAuthorized, 1)
	s.setUser(t, "jane", "two", false)
	step("enabled", "jane:two", nil, 1)
	s.setUser(t, "jane", "three", false)
	step("another password replaces", "jane:three", nil, 1)
	step("replaced", "jane:two", event.ErrNotAuthorized, 1)
	step("replacing", "jane:three", nil, 0)
	s.softDelete("$user-jane")
	step("deleted", "jane:three", event.ErrNotAuthorized, 1)
	s.setMetadata("$user-jane", `{}`)
	step("shown again", "jane:three", nil, 1)
	s.setMetadata("$user-jane", `{}`)
	step("any change of the metadata", "jane:three", nil, 1)
	step("and then", "jane:three", nil, 0)
	s.hardDelete("$user-jane")
	step("deleted for good", "jane:three", event.ErrNotAuthorized, 1)

	lookups := func(name, label, value string) uint64 {
		return r.Counter(name, "", stats.Label{Name: label, Value: value}).Value()
	}
	if got, want := lookups("annals_access_logins_total", "result", "cached"), uint64(4); got != want {
		t.Errorf("%d hits, want %d", got, want)
	}
	if got, want := lookups("annals_access_cache_misses_total", "reason", "changed"), uint64(7); got != want {
		t.Errorf("%d misses because of a change, want %d", got, want)
	}
	check.Equal(t, r.Gauge("annals_access_cache_entries", "").Value(), 1, "entries")
}

func TestLegacyRefusalCostsAsMuch(t *testing.T) {
	s := newStore()
	s.set("$user-old", legacyUser)
	a, r := newAuthenticator(t, s, access.AuthenticatorOptions{})
	check.MustBe(t, login(a, "old:wrong"), event.ErrNotAuthorized)
	check.MustEqual(t, hashes(r), 2, "hashes: the legacy one and one of today are wanted")
}

func TestCacheEvictsLeastRecentlyUsed(t *testing.T) {
	s := newStore()
	a, r := newAuthenticator(t, s, access.AuthenticatorOptions{})
	for i := range access.CacheSize + 1 {
		s.setUser(t, fmt.Sprint("user", i), "x", false)
	}
	fill := func(i int) {
		t.Helper()
		check.Must(t, login(a, fmt.Sprintf("user%d:x", i)))
	}
	for i := range access.CacheSize {
		fill(i)
	}
	fill(0) // Now user1 is the one used longest ago.
	check.MustEqual(t, hashes(r), access.CacheSize, "hashes")
	fill(access.CacheSize)
	fill(0)
	fill(2)
	check.MustEqual(t, hashes(r), access.CacheSize+1, "hashes: one too many was evicted")
	fill(1)
	check.MustEqual(t, hashes(r), access.CacheSize+2, "hashes: the wrong one was evicted")
}

// A verification that read the user before a change must not let the old
// password in after the change, whichever of its reads came first.
func TestChangeDuringVerification(t *testing.T) {
	s := newStore()
	s.setUser(t, "jane", "old", false)
	a, _ := newAuthenticator(t, s, access.AuthenticatorOptions{})
	reading, goOn := make(chan struct{}), make(chan struct{})
	s.onRead = func(string) { close(reading); <-goOn }
	done := make(chan error)
	go func() { done <- login(a, "jane:old") }()
	<-reading
	s.mu.Lock()
	s.onRead = nil
	s.mu.Unlock()
	s.setUser(t, "jane", "new", false)
	close(goOn)
	if err := <-done; err != nil { // It began before the change.
		t.Fatal(err)
	}
	check.MustBe(t, login(a, "jane:old"), event.ErrNotAuthorized, "the old password")
	check.Must(t, login(a, "jane:new"))
}

func TestWaitingRespectsContext(t *testing.T) {
	s := newStore()
	s.setUser(t, "jane", "x", false)
	a, r := newAuthenticator(t, s, access.AuthenticatorOptions{})
	reading, goOn := make(chan struct{}), make(chan struct{})
	s.onRead = func(string) { close(reading); <-goOn }
	first := make(chan error)
	go func() { first <- login(a, "jane:x") }()
	<-reading // It holds the only slot.

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	check.MustBe(t, check.Err(header(ctx, a, "192.0.2.1:1000", basic("joe:x"))), context.Canceled)
	// Those that wait with the same credentials are served by the first one's hash.
	s.mu.Lock()
	s.onRead = nil
	s.mu.Unlock()
	var wg sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		wg.Go(func() { errs[i] = login(a, "jane:x") })
	}
	close(goOn)
	wg.Wait()
	check.Must(t, errors.Join(append(errs, <-first)...))
	check.MustEqual(t, hashes(r), 1, "hashes for one login")
	check.MustEqual(t, r.Gauge("annals_access_hash_waiting", "").Value(), 0, "are still waiting")
}

// Many callers log in while passwords change: once a change was made, the
// password before it never works again.
func TestCacheRaces(t *testing.T) { synctest.Test(t, testCacheRaces) }

func testCacheRaces(t *testing.T) {
	s := newStore()
	a, _ := newAuthenticator(t, s, access.AuthenticatorOptions{})
	s.setUser(t, "jane", "0", false)
	s.setUser(t, "joe", "x", false)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for from := range 4 {
		wg.Go(func() {
			for !stop.Load() {
				check.NoError(t, login(a, "joe:x"), "joe")
				for i := range 3 {
					if err := loginFrom(a, fmt.Sprintf("192.0.2.2:%d", from), fmt.Sprint("jane:", i)); err != nil && !errors.Is(err, event.ErrNotAuthorized) {
						t.Errorf("jane: %v", err)
					}
				}
			}
		})
	}
	for i := 1; i <= 30; i++ {
		s.setUser(t, "jane", fmt.Sprint(i%3), false)
		if err := login(a, fmt.Sprint("jane:", (i+2)%3)); !errors.Is(err, event.ErrNotAuthorized) {
			t.Fatalf("the old password: %v", err)
		}
		check.Must(t, login(a, fmt.Sprint("jane:", i%3)), "the new password")
	}
	stop.Store(true)
	wg.Wait()
}

func FuzzBasic(f *testing.F) {
	s := newStore()
	s.setUser(f, "jane", "x", false)
	a, _ := newAuthenticator(f, s, access.AuthenticatorOptions{})
	for _, h := range []string{"", "Basic", "Basic ", "Bearer x", "basic amFuZTp4", basic("jane:x"), basic("jane"), basic(":"), "Basic \xff", basic(strings.Repeat("a", 300) + ":")} {
		f.Add(h)
	}
	var n atomic.Uint32
	f.Fuzz(func(t *testing.T, value string) {
		port := n.Add(1) // Not twice from one address: failures are slowed.
		p, err := header(context.Background(), a, fmt.Sprintf("10.%d.%d.%d:1", port>>16&0xff, port>>8&0xff, port&0xff), value)
		if err != nil {
			check.MustBe(t, err, event.ErrNotAuthorized, value)
			check.MustDeep(t, p, access.Principal{}, value)
			return
		}
		r := http.Request{Header: http.Header{"Authorization": {strings.Trim(value, " \t")}}}
		user, password, isBasic := r.BasicAuth()
		switch {
		case p.IsAnonymous():
			if isBasic && user != "" {
				t.Fatalf("%q of %s passed as anonymous", value, user)
			}
		case p.Login != "jane":
			t.Fatalf("%q gave %+v", value, p)
		case isBasic && (user != "jane" || password != "x"):
			t.Fatalf("%q of %s let jane in", value, user)
		}
	})
}

func FuzzParseTrusted(f *testing.F) {
	for _, h := range []string{"", "a", "a;b,c", "a;;", " ; ", "a;,,"} {
		f.Add(h)
	}
	f.Fuzz(func(t *testing.T, header string) {
		p, err := access.ParseTrusted(header)
		if err != nil {
			return
		}
		if p.IsAnonymous() || p.IsSystem() || strings.Count(header, ";") > 1 {
			t.Fatalf("%q gave %+v", header, p)
		}
		for _, g := range p.Groups {
			if g == "" || g != strings.TrimSpace(g) || strings.Contains(g, ",") {
				t.Fatalf("%q gave the group %q", header, g)
			}
		}
	})
}

// still is a store in which nothing changes, and which answers without work.
type still struct{ event.Record }

func (s still) StreamInfo(context.Context, string) (event.StreamInfo, error) {
	return event.StreamInfo{Last: s.Number, MetaLast: 0}, nil
}

func (s still) LastEvent(context.Context, string) (event.Record, error) { return s.Record, nil }

func cachedRequest(t testing.TB) (*access.Authenticator, *http.Request) {
	t.Helper()
	s := newStore()
	s.setUser(t, "admin", "changeit", false, "$admins")
	a := access.NewAuthenticator(still{s.events["$user-admin"][0]}, access.AuthenticatorOptions{
		Hasher: access.NewHasher(access.HasherOptions{Iterations: 1}),
	})
	r := check.Value(http.NewRequest(http.MethodGet, "http://127.0.0.1/streams/a", nil)).Must(t)
	r.RemoteAddr = "192.0.2.1:1000"
	r.Header.Set("Authorization", basic("admin:changeit"))
	if p, err := a.Authenticate(r); err != nil || p.Login != "admin" {
		t.Fatalf("got %+v, %v", p, err)
	}
	return a, r
}

func TestCachedWithoutAllocation(t *testing.T) {
	if raceDetector {
		t.Skip("pools allocate under the race detector")
	}
	a, r := cachedRequest(t)
	n := testing.AllocsPerRun(1000, func() { check.Must(t, check.Err(a.Authenticate(r))) })
	if n >= 1 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAuthenticateCached(b *testing.B) {
	a, r := cachedRequest(b)
	b.ReportAllocs()
	for b.Loop() {
		check.Must(b, check.Err(a.Authenticate(r)))
	}
}

func BenchmarkAuthenticateCachedParallel(b *testing.B) {
	a, r := cachedRequest(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			check.Must(b, check.Err(a.Authenticate(r)))
		}
	})
}
