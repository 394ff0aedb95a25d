package access

import (
	"context"

	"github.com/annalsdb/annals/event"
)

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
