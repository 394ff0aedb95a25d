package access

import (
	"context"
	"slices"
	"sync"

	"github.com/annalsdb/annals/event"
)

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
