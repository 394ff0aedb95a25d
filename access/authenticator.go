package access

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"slices"
	"sync"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/stats"
)

// AuthenticatorOptions are the options of an Authenticator. The zero value works.
type AuthenticatorOptions struct {
	// Insecure makes everybody the system account.
	Insecure bool
	// TrustedAuth believes ES-TrustedAuth headers. Only for nodes behind a proxy that sets or
	// removes them.
	TrustedAuth bool
	// Hasher checks passwords; one with default options when nil.
	Hasher *Hasher
	// Upgrade, when not nil, is given users who logged in with a password whose
	// stored hash is weaker than new ones, with a new hash of it in place, and
	// the number of the event that holds the old one: UpgradeWrite makes the write
	// of it. It is called by one goroutine at a time, after the user was answered;
	// logins meanwhile go without, the next asks again. Close waits for it.
	Upgrade func(user User, version int64)
	Stats   *stats.Registry // may be nil
}

// Authenticator finds out who a caller is. Its methods may be called concurrently.
type Authenticator struct {
	opts     AuthenticatorOptions
	users    Streams
	metrics  *metrics
	cache    cache
	scratch  sync.Pool // of *scratch
	upgrades upgrades
}

// scratch is the memory in which one header is checked.
type scratch struct {
	mac    hash.Hash // keyed with the key of this Authenticator
	buffer [256]byte
	digest digest
}

// NewAuthenticator returns an Authenticator over the stored users. Only one with
// the option Upgrade needs to be closed. Reads of users fail with event.ErrNotReady,
// ErrNotInitialized or ErrClosed while the node cannot tell: for example as long
// as the built-in users may still have to be created.
func NewAuthenticator(users Streams, o AuthenticatorOptions) *Authenticator {
	if o.Hasher == nil {
		o.Hasher = NewHasher(HasherOptions{Stats: o.Stats})
	}
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // It never fails.
	a := &Authenticator{opts: o, users: users, metrics: newMetrics(o.Stats)}
	a.cache.size = a.metrics.entries
	a.scratch.New = func() any { return &scratch{mac: hmac.New(sha256.New, key)} }
	return a
}

// Close waits until a running upgrade of a password hash has ended, and lets no other begin. Logins
// keep working.
func (a *Authenticator) Close() { a.upgrades.close() }

// Authenticate returns the caller of a request: who its Basic header says, else the system account
// on a connection marked by WithNodeConn, else who its ES-TrustedAuth header says if that is
// switched on, else Anonymous. The first that is there decides.
//
// It fails with event.ErrNotAuthorized for wrong credentials on any request, with
// event.ErrNotInitialized when users cannot be read at the moment, with event.ErrBusy when too many
// others wait to have passwords checked, and with the error of the request's context. The last
// three say nothing about the credentials.
func (a *Authenticator) Authenticate(r *http.Request) (Principal, error) {
	if a.opts.Insecure {
		return System, nil
	}
	if token, ok := basicToken(r.Header.Get(headerAuthorization)); ok {
		return a.basic(r, token)
	}
	if r.Context().Value(nodeConn{}) != nil {
		return System, nil
	}
	if a.opts.TrustedAuth {
		h := slices.Concat(r.Header[headerTrustedAuth], r.Header[kurrentTrustedAuth])
		switch {
		case len(h) > 1: // Only one of them can be the proxy's.
			return Principal{}, event.ErrNotAuthorized
		case len(h) == 1 && h[0] != "":
			return ParseTrusted(h[0])
		}
	}
	return Anonymous, nil
}

// basic returns the caller that the token of a Basic header names.
func (a *Authenticator) basic(r *http.Request, token string) (Principal, error) {
	s := a.scratch.Get().(*scratch)
	login, whole, ok := decodeCredentials(s.buffer[:], token)
	if !ok {
		a.putBack(s, len(s.buffer))
		a.metrics.refused.Inc()
		return Principal{}, event.ErrNotAuthorized
	}
	// The whole of login, colon and password goes into the digest, so that equal
	// passwords of different users do not look equal in memory.
	s.mac.Reset()
	s.mac.Write(whole) // Never fails.
	s.mac.Sum(s.digest[:0])
	e, miss, err := a.remembered(r.Context(), login, &s.digest)
	if e != nil || err != nil {
		a.putBack(s, len(whole))
		if err != nil {
			return Principal{}, err
		}
		a.metrics.cached.Inc()
		return e.principal, nil
	}
	miss.Inc()
	d, name, password := s.digest, string(login), string(whole[len(login)+1:])
	a.putBack(s, len(whole))
	return a.verify(r, name, password, &d)
}

// remembered returns what the cache holds of credentials, if it is still so; else
// the counter of why not.
func (a *Authenticator) remembered(ctx context.Context, login []byte, d *digest) (e *cached, miss *stats.Counter, err error) {
	if e = a.cache.get(login, d); e == nil {
		return nil, a.metrics.absent, nil
	}
	info, err := streamInfo(ctx, a.users, e.stream)
	if err != nil {
		return nil, nil, unreadable(e.principal.Login, err)
	}
	if versionOf(&info) != e.version {
		return nil, a.metrics.changed, nil
	}
	return e, nil, nil
}

// putBack wipes the first used bytes, which may hold a password.
func (a *Authenticator) putBack(s *scratch, used int) {
	clear(s.buffer[:min(used, len(s.buffer))])
	a.scratch.Put(s)
}

// verify has a password checked, when its turn comes.
func (a *Authenticator) verify(r *http.Request, login, password string, d *digest) (Principal, error) {
	h := a.opts.Hasher
	// What is found is for all who wait for it, whether or not this caller still does.
	ctx := context.WithoutCancel(r.Context())
	v, err := h.turns.do(r.Context(), h.turns.place(originOf(r.RemoteAddr), login), d, h.checking,
		func() result { return a.check(ctx, login, password, d) })
	switch err = cmp.Or(err, v.err); {
	case err == nil:
		a.metrics.verified.Inc()
	case errors.Is(err, event.ErrNotAuthorized):
		a.metrics.refused.Inc()
	case errors.Is(err, event.ErrBusy):
		a.metrics.busy.Inc()
	}
	return v.principal, err
}

// check checks a password against the stored user. A slot is held.
func (a *Authenticator) check(ctx context.Context, login, password string, d *digest) (r result) {
	h := a.opts.Hasher
	// The same credentials may have been checked for a caller from elsewhere.
	e, _, err := a.remembered(ctx, []byte(login), d)
	if err != nil {
		r.err = err
		return r
	}
	if e != nil {
		r.principal, r.outcome = e.principal, wasRight
		return r
	}
	found, err := a.read(ctx, login)
	if err != nil {
		r.err = err
		return r
	}
	user := found.user
	var right bool
	if user == nil {
		err = h.waste(password)
	} else if right, err = h.matches(password, user.Password()); right && user.Disabled && h.outdated(user.Password()) {
		err = h.waste(password) // As if it had been wrong.
	}
	switch {
	case err != nil:
		r.err = err
	case !right || user.Disabled:
		r.err, r.outcome = event.ErrNotAuthorized, wasWrong
	default:
		e := newCached(&found, d)
		r.principal, r.outcome = e.principal, wasRight
		a.cache.put(login, e)
		r.keepsSlot = a.upgrade(found, e, password)
	}
	return r
}

// stored is a user as it was read.
type stored struct {
	user    *User // nil when there is none
	number  int64 // of the event that holds it
	stream  string
	version version
}

// read reads the stored user.
func (a *Authenticator) read(ctx context.Context, login string) (s stored, err error) {
	if len(login) > MaxLoginBytes {
		return s, nil
	}
	s.stream = UserStream(login)
	// The version before the event: a change in between makes what is read look old already.
	info, err := streamInfo(ctx, a.users, s.stream)
	if err != nil {
		return s, unreadable(login, err)
	}
	s.version = versionOf(&info)
	user, record, err := readUser(ctx, a.users, login)
	if err != nil {
		return s, unreadable(login, err)
	}
	s.user, s.number = user, record.Number
	return s, nil
}

// unreadable turns all ways of not being able to tell into one kind of error: it decides the
// answer.
func unreadable(login string, err error) error {
	if errors.Is(err, event.ErrNotReady) || errors.Is(err, event.ErrClosed) {
		return fmt.Errorf("%w: %v", event.ErrNotInitialized, err)
	}
	return fmt.Errorf("read user %q: %w", login, err)
}

type nodeConn struct{}

// WithNodeConn marks the context of a connection whose other side has proved, by
// its certificate, to be a node of the cluster. Nodes are the system account.
func WithNodeConn(ctx context.Context) context.Context {
	return context.WithValue(ctx, nodeConn{}, true)
}

// Renew returns the caller of a request that lasts as it is now, without a look at the
// password: event.ErrNotAuthorized when the credentials that the request came with do not hold
// any more, because the user was deleted or disabled, or has another password. Groups
// may be others. Other errors are those of Authenticate, and say nothing of the caller.
//
// While nothing changed it costs a look at the facts of the user's stream.
func (a *Authenticator) Renew(ctx context.Context, p Principal) (Principal, error) {
	was := p.login
	if was == nil { // No user, a node, or what a proxy says of a caller: no user is stored.
		return p, nil
	}
	info, err := streamInfo(ctx, a.users, was.stream)
	if err != nil {
		return Principal{}, unreadable(p.Login, err)
	}
	if versionOf(&info) == was.version {
		return p, nil
	}
	found, err := a.read(ctx, p.Login)
	if err != nil {
		return Principal{}, err
	}
	if found.user == nil || found.user.Disabled {
		return Principal{}, event.ErrNotAuthorized
	}
	// Others who came with the same credentials may have been judged already.
	if e := a.cache.get([]byte(p.Login), &was.digest); e != nil && e.version == found.version {
		return e.principal, nil
	}
	secret := secretOf(found.user.Password())
	if renewed := was.renewed.Load(); secret != was.secret && (renewed == nil || secret != *renewed) {
		return Principal{}, event.ErrNotAuthorized
	}
	e := newCached(&found, &was.digest)
	a.cache.put(p.Login, e)
	return e.principal, nil
}

// Delegates knows the users in whose name something runs while they are not there:
// projections. Its methods may be called concurrently.
type Delegates struct {
	opts  AuthenticatorOptions
	users Streams

	mu    sync.Mutex // guards known
	known map[string]delegate
}

// delegate is a user as read last. It holds as long as the version of the user's stream is the
// same.
type delegate struct {
	version   version
	isUser    bool // and enabled
	principal Principal
}

// NewDelegates returns delegates over the stored users. Only Insecure and TrustedAuth count.
func NewDelegates(users Streams, o AuthenticatorOptions) *Delegates {
	return &Delegates{opts: o, users: users, known: map[string]delegate{}}
}

// Now returns the user of a login with the groups that it has now. It returns
// event.ErrNotAuthorized when the user was deleted or disabled. groups are those that the user had
// when it made what runs. They count for callers who are not stored users: the system account, and
// those whom a proxy has named.
func (d *Delegates) Now(ctx context.Context, login string, groups []string) (Principal, error) {
	switch {
	case d.opts.Insecure, login == LoginSystem && slices.Equal(groups, System.Groups):
		return System, nil
	case login == "":
		return Anonymous, nil
	}
	stream := UserStream(login)
	info, err := streamInfo(ctx, d.users, stream)
	if err != nil {
		return Principal{}, unreadable(login, err)
	}
	if d.opts.TrustedAuth && info.Last < 0 && info.MetaLast < 0 {
		return Principal{Login: login, Groups: groups}, nil
	}
	d.mu.Lock()
	is, ok := d.known[login]
	d.mu.Unlock()
	if v := versionOf(&info); !ok || is.version != v {
		user, _, err := readUser(ctx, d.users, login)
		if err != nil {
			return Principal{}, unreadable(login, err)
		}
		if is = (delegate{version: v}); user != nil && !user.Disabled {
			is.isUser, is.principal = true, user.Principal()
		}
		d.keep(login, is)
	}
	if !is.isUser {
		return Principal{}, event.ErrNotAuthorized
	}
	return is.principal, nil
}

// keep remembers a user. They are few, as a rule: when they are not, it begins again.
func (d *Delegates) keep(login string, is delegate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known) >= cacheSize {
		clear(d.known)
	}
	d.known[login] = is
}
