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
	"testing"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
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
	a, err := access.NewAuthenticator(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return a, r
}

// hashes returns how many hashes were computed.
func hashes(r *stats.Registry) uint64 {
	return r.Histogram("access_hash_seconds", "", stats.DurationBounds).Snapshot().Count
}

// login is the Header of an authenticator for a name and a password.
func login(a *access.Authenticator, credentials string) error {
	_, err := a.Header(context.Background(), basic(credentials))
	return err
}

const legacyUser = `{"loginName":"old","fullName":"Old","salt":"MDEyMzQ1Njc4OWFiY2RlZg==","hash":"HerS5bAVilEfQOLyb5nlJBaOI78=","groups":["$ops"]}`

func TestHeader(t *testing.T) {
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
		{"no colon", basic("jane"), access.Principal{}, refused},
		{"empty token", "Basic ", access.Principal{}, refused},
		{"no token", "Basic", access.Principal{}, refused},
		{"bad base64", "Basic ***", access.Principal{}, refused},
		{"cut base64", "Basic amFuZTpwYXNzOndvcmQ", access.Principal{}, refused},
		{"Bearer", "Bearer abc", access.Anonymous, nil},
		{"scheme beginning alike", "BasicCustom " + basic("jane:pass")[6:], access.Anonymous, nil},
		{"short", "Bas", access.Anonymous, nil},
	}
	a, _ := newAuthenticator(t, s, access.AuthenticatorOptions{})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for range 2 { // The second time may come out of the cache.
				got, err := a.Header(context.Background(), c.header)
				if !reflect.DeepEqual(got, c.want) || !errors.Is(err, c.err) {
					t.Fatalf("got %+v, %v, want %+v, %v", got, err, c.want, c.err)
				}
			}
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
			if err := login(a, "jane:x"); err != nil {
				t.Fatalf("afterwards: %v", err)
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
		{name: "trusted third", opts: access.AuthenticatorOptions{TrustedAuth: true}, trusted: "proxy; a, b", unix: true, want: trusted},
		{name: "malformed trusted", opts: access.AuthenticatorOptions{TrustedAuth: true}, trusted: "proxy; a; b", err: event.ErrNotAuthorized},
		{name: "trusted is off", trusted: "proxy; a"},
		{name: "unix socket", trusted: "proxy; a", unix: true, want: access.System},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a, _ := newAuthenticator(t, s, c.opts)
			ctx := context.Background()
			if c.unix {
				ctx = access.WithSystemConn(ctx)
			}
			if c.node {
				ctx = access.WithNodeConn(ctx)
			}
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1/ping", nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.authorization != "" {
				r.Header.Set("Authorization", c.authorization)
			}
			if c.trusted != "" {
				r.Header.Set("ES-TrustedAuth", c.trusted)
			}
			got, err := a.Authenticate(r)
			if !reflect.DeepEqual(got, c.want) || !errors.Is(err, c.err) {
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
				if !errors.Is(err, event.ErrNotAuthorized) {
					t.Fatalf("got %+v, %v", got, err)
				}
				return
			}
			if want := (access.Principal{Login: c.login, Groups: c.groups}); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("got %+v, %v", got, err)
			}
		})
	}
}

func TestCache(t *testing.T) {
	s := newStore()
	s.setUser(t, "jane", "one", false)
	a, r := newAuthenticator(t, s, access.AuthenticatorOptions{})
	step := func(name, credentials string, wantErr error, wantHashes uint64) {
		t.Helper()
		before := hashes(r)
		if err := login(a, credentials); !errors.Is(err, wantErr) {
			t.Fatalf("%s: %v", name, err)
		}
		if got := hashes(r) - before; got != wantHashes {
			t.Fatalf("%s: %d hashes, want %d", name, got, wantHashes)
		}
	}
	step("first", "jane:one", nil, 1)
	step("second", "jane:one", nil, 0)
	step("wrong", "jane:two", event.ErrNotAuthorized, 1)
	step("wrong again is not cached", "jane:two", event.ErrNotAuthorized, 1)
	step("wrong did not evict", "jane:one", nil, 0)
	step("unknown costs as much", "nobody:two", event.ErrNotAuthorized, 1)

	s.setUser(t, "jane", "two", false)
	a.Forget("john")
	step("until it is forgotten", "jane:one", nil, 0)
	a.Forget("jane")
	step("old after a change", "jane:one", event.ErrNotAuthorized, 1)
	step("new after a change", "jane:two", nil, 1)

	s.setUser(t, "jane", "two", true)
	a.ForgetAll()
	step("disabled", "jane:two", event.ErrNotAuthorized, 1)
	s.setUser(t, "jane", "two", false)
	step("enabled", "jane:two", nil, 1)
	s.setUser(t, "jane", "three", false)
	step("another password replaces", "jane:three", nil, 1)
	step("replaced", "jane:two", event.ErrNotAuthorized, 1)
	step("replacing", "jane:three", nil, 0)
}

func TestLegacyRefusalCostsAsMuch(t *testing.T) {
	s := newStore()
	s.set("$user-old", legacyUser)
	a, r := newAuthenticator(t, s, access.AuthenticatorOptions{})
	if err := login(a, "old:wrong"); !errors.Is(err, event.ErrNotAuthorized) {
		t.Fatal(err)
	}
	if got := hashes(r); got != 2 {
		t.Fatalf("%d hashes: the legacy one and one of today are wanted", got)
	}
}

func TestCacheEvictsLeastRecentlyUsed(t *testing.T) {
	s := newStore()
	a, r := newAuthenticator(t, s, access.AuthenticatorOptions{})
	for i := range access.CacheSize + 1 {
		s.setUser(t, fmt.Sprint("user", i), "x", false)
	}
	fill := func(i int) {
		t.Helper()
		if err := login(a, fmt.Sprintf("user%d:x", i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range access.CacheSize {
		fill(i)
	}
	fill(0) // Now user1 is the one used longest ago.
	if got := hashes(r); got != access.CacheSize {
		t.Fatalf("%d hashes", got)
	}
	fill(access.CacheSize)
	fill(0)
	fill(2)
	if got := hashes(r); got != access.CacheSize+1 {
		t.Fatalf("%d hashes: one too many was evicted", got)
	}
	fill(1)
	if got := hashes(r); got != access.CacheSize+2 {
		t.Fatalf("%d hashes: the wrong one was evicted", got)
	}
}

// A verification that read the user before a change must not put the old
// password back into the cache after the change was announced.
func TestForgetDuringVerification(t *testing.T) {
	for _, all := range []bool{false, true} {
		t.Run(fmt.Sprintf("all=%v", all), func(t *testing.T) {
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
			if all {
				a.ForgetAll()
			} else {
				a.Forget("jane")
			}
			close(goOn)
			if err := <-done; err != nil { // It began before the change.
				t.Fatal(err)
			}
			if err := login(a, "jane:old"); !errors.Is(err, event.ErrNotAuthorized) {
				t.Fatalf("the old password: %v", err)
			}
			if err := login(a, "jane:new"); err != nil {
				t.Fatal(err)
			}
		})
	}
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
	if _, err := a.Header(ctx, basic("joe:x")); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
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
	if err := errors.Join(append(errs, <-first)...); err != nil {
		t.Fatal(err)
	}
	if got := hashes(r); got != 1 {
		t.Fatalf("%d hashes for one login", got)
	}
	if got := r.Gauge("access_hash_waiting", "").Value(); got != 0 {
		t.Fatalf("%d are still waiting", got)
	}
}

// Many goroutines log in while passwords change: once a change was announced,
// the password before it never works again.
func TestCacheRaces(t *testing.T) {
	s := newStore()
	a, _ := newAuthenticator(t, s, access.AuthenticatorOptions{})
	s.setUser(t, "jane", "0", false)
	s.setUser(t, "joe", "x", false)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := login(a, "joe:x"); err != nil {
					t.Errorf("joe: %v", err)
				}
				for i := range 3 {
					if err := login(a, fmt.Sprint("jane:", i)); err != nil && !errors.Is(err, event.ErrNotAuthorized) {
						t.Errorf("jane: %v", err)
					}
				}
			}
		})
	}
	for i := 1; i <= 30; i++ {
		s.setUser(t, "jane", fmt.Sprint(i%3), false)
		a.Forget("jane")
		if err := login(a, fmt.Sprint("jane:", (i+2)%3)); !errors.Is(err, event.ErrNotAuthorized) {
			t.Fatalf("the old password: %v", err)
		}
		if err := login(a, fmt.Sprint("jane:", i%3)); err != nil {
			t.Fatalf("the new password: %v", err)
		}
	}
	close(stop)
	wg.Wait()
}

func FuzzHeader(f *testing.F) {
	s := newStore()
	s.setUser(f, "jane", "x", false)
	a, _ := newAuthenticator(f, s, access.AuthenticatorOptions{})
	for _, h := range []string{"", "Basic", "Basic ", "Bearer x", "basic amFuZTp4", basic("jane:x"), basic("jane"), basic(":"), "Basic \xff", basic(strings.Repeat("a", 300) + ":")} {
		f.Add(h)
	}
	f.Fuzz(func(t *testing.T, header string) {
		p, err := a.Header(context.Background(), header)
		if err != nil {
			if !errors.Is(err, event.ErrNotAuthorized) || !reflect.DeepEqual(p, access.Principal{}) {
				t.Fatalf("%q gave %+v, %v", header, p, err)
			}
			return
		}
		r := http.Request{Header: http.Header{"Authorization": {strings.Trim(header, " \t")}}}
		user, password, isBasic := r.BasicAuth()
		switch {
		case p.IsAnonymous():
			if isBasic && user != "" {
				t.Fatalf("%q of %s passed as anonymous", header, user)
			}
		case p.Login != "jane":
			t.Fatalf("%q gave %+v", header, p)
		case isBasic && (user != "jane" || password != "x"):
			t.Fatalf("%q of %s let jane in", header, user)
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

func BenchmarkAuthenticateCached(b *testing.B) {
	s := newStore()
	s.setUser(b, "admin", "changeit", false, "$admins")
	a, _ := newAuthenticator(b, s, access.AuthenticatorOptions{})
	r, err := http.NewRequest(http.MethodGet, "http://127.0.0.1/streams/a", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Authorization", basic("admin:changeit"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Authenticate(r); err != nil {
			b.Fatal(err)
		}
	}
}
