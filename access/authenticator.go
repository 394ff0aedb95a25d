package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"sync"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/stats"
)

// Users is where users are stored.
type Users interface {
	// LastEvent returns the last event of a stream that a reader would see. It
	// fails with event.ErrStreamNotFound, ErrStreamDeleted or ErrEventNotFound when
	// there is none, a soft-deleted stream included, and with event.ErrNotReady,
	// ErrNotInitialized or ErrClosed while the node cannot tell: for example as
	// long as the built-in users may still have to be created.
	LastEvent(ctx context.Context, stream string) (event.Record, error)
}

// AuthenticatorOptions are the options of an Authenticator. The zero value works.
type AuthenticatorOptions struct {
	// Insecure makes everybody the system account.
	Insecure bool
	// TrustedAuth believes ES-TrustedAuth headers. Only for nodes behind a proxy that sets or removes them.
	TrustedAuth bool
	// Hasher checks passwords; one with default options when nil.
	Hasher *Hasher
	Stats  *stats.Registry // may be nil
}

// Authenticator finds out who a caller is. Its methods may be called concurrently.
type Authenticator struct {
	opts    AuthenticatorOptions
	users   Users
	metrics *metrics
	cache   cache
	scratch sync.Pool // of *scratch
}

// scratch is the memory in which one header is checked.
type scratch struct {
	mac    hash.Hash // keyed with the key of this Authenticator
	buffer [256]byte
	digest digest
}

// NewAuthenticator returns an Authenticator over the stored users.
func NewAuthenticator(users Users, o AuthenticatorOptions) (*Authenticator, error) {
	if o.Hasher == nil {
		o.Hasher = NewHasher(HasherOptions{Stats: o.Stats})
	}
	key := make([]byte, sha256.Size)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("make a key for cached logins: %w", err)
	}
	a := &Authenticator{opts: o, users: users, metrics: newMetrics(o.Stats)}
	a.scratch.New = func() any { return &scratch{mac: hmac.New(sha256.New, key)} }
	return a, nil
}

// Forget drops what is cached of a login. After it returns, no request that
// begins is answered from what was stored before it was called: call it when a
// change of the user is committed and can be read.
func (a *Authenticator) Forget(login string) { a.cache.forget(login) }

// ForgetAll drops all that is cached.
func (a *Authenticator) ForgetAll() { a.cache.forgetAll() }

// Authenticate returns the caller of a request: who its Basic header says, else
// the system account on a connection marked by WithNodeConn, else who its ES-TrustedAuth header says
// if that is switched on, else the system account on a connection marked by
// WithSystemConn, else Anonymous. The first that is there decides.
//
// It fails with event.ErrNotAuthorized for credentials that are wrong, whatever
// was asked for, with event.ErrNotInitialized when users cannot be read at the
// moment, and with the error of the request's context.
func (a *Authenticator) Authenticate(r *http.Request) (Principal, error) {
	if a.opts.Insecure {
		return System, nil
	}
	p, err := a.Header(r.Context(), r.Header.Get(headerAuthorization))
	if err != nil || !p.IsAnonymous() {
		return p, err
	}
	if r.Context().Value(nodeConn{}) != nil {
		return System, nil
	}
	if a.opts.TrustedAuth {
		if h := r.Header.Get(headerTrustedAuth); h != "" {
			return ParseTrusted(h)
		}
	}
	if r.Context().Value(systemConn{}) != nil {
		return System, nil
	}
	return Anonymous, nil
}

// Header returns the caller that an Authorization header names: Anonymous when
// it is empty or of another scheme than Basic. Errors are those of Authenticate.
func (a *Authenticator) Header(ctx context.Context, authorization string) (Principal, error) {
	if a.opts.Insecure {
		return System, nil
	}
	token, ok := basicToken(authorization)
	if !ok {
		return Anonymous, nil
	}
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
	if p, ok := a.cache.get(login, &s.digest); ok {
		a.putBack(s, len(whole))
		a.metrics.cached.Inc()
		return p, nil
	}
	d, name, password := s.digest, string(login), string(whole[len(login)+1:])
	a.putBack(s, len(whole))
	return a.verify(ctx, name, password, &d)
}

// putBack wipes the first used bytes, which may hold a password.
func (a *Authenticator) putBack(s *scratch, used int) {
	clear(s.buffer[:min(used, len(s.buffer))])
	a.scratch.Put(s)
}

// verify checks a password against the stored user.
func (a *Authenticator) verify(ctx context.Context, login, password string, d *digest) (Principal, error) {
	hasher := a.opts.Hasher
	if err := hasher.acquire(ctx); err != nil {
		return Principal{}, err
	}
	defer hasher.release()
	// Another request may have been here with the same credentials while this one
	// waited: a client that opens a hundred connections is hashed once.
	if p, ok := a.cache.get([]byte(login), d); ok {
		a.metrics.cached.Inc()
		return p, nil
	}
	// Taken before the user is read: a change that this read misses is announced later.
	generation := a.cache.generation.Load()
	user, err := a.read(ctx, login)
	if err != nil {
		return Principal{}, err
	}
	var right bool
	if user == nil {
		err = hasher.waste(password)
	} else {
		right, err = hasher.matches(password, user.Password())
	}
	if err != nil {
		return Principal{}, err
	}
	if !right || user.Disabled {
		a.metrics.refused.Inc()
		return Principal{}, event.ErrNotAuthorized
	}
	a.metrics.verified.Inc()
	p := user.Principal()
	a.cache.put(login, d, p, generation)
	return p, nil
}

// read returns the stored user, nil when there is none.
func (a *Authenticator) read(ctx context.Context, login string) (*User, error) {
	if len(UserStreamPrefix)+len(login) > event.MaxNameBytes {
		return nil, nil
	}
	record, err := a.users.LastEvent(ctx, UserStream(login))
	switch {
	case err == nil:
	case errors.Is(err, event.ErrStreamNotFound), errors.Is(err, event.ErrStreamDeleted), errors.Is(err, event.ErrEventNotFound):
		return nil, nil
	case errors.Is(err, event.ErrNotReady), errors.Is(err, event.ErrClosed):
		return nil, fmt.Errorf("%w: %v", event.ErrNotInitialized, err) // One kind of error only: it decides the answer.
	default:
		return nil, fmt.Errorf("read user %q: %w", login, err)
	}
	user, err := DecodeUser(record.Data)
	if err != nil || user.LoginName != login {
		return nil, nil // Redacted, or written by hand: nobody can be authenticated by it.
	}
	return user, nil
}

type nodeConn struct{}

// WithNodeConn marks the context of a connection whose other side has proved, by
// its certificate, to be a node of the cluster. Nodes are the system account.
func WithNodeConn(ctx context.Context) context.Context {
	return context.WithValue(ctx, nodeConn{}, true)
}

type systemConn struct{}

// WithSystemConn marks the context of a connection whose callers are the system
// account, as on the node's unix socket, where the file's permissions decide who gets in.
func WithSystemConn(ctx context.Context) context.Context {
	return context.WithValue(ctx, systemConn{}, true)
}
