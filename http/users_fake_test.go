package httpapi_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
)

// memUsers are users in memory, and Access over them.
type memUsers struct {
	mu    sync.Mutex
	users map[string]*memUser
	now   time.Time // of the next change
	fail  error     // what every call returns, when set
	block bool      // every call waits for its context
	calls int

	store *memStore // judges streams
}

type memUser struct {
	access.Account
	password string
}

func newMemUsers() *memUsers {
	return &memUsers{
		now: time.Date(2024, 5, 6, 7, 8, 9, 123456789, time.UTC),
		users: map[string]*memUser{
			"admin": {access.Account{Login: "admin", FullName: "Event Store Administrator", Groups: []string{"$admins"}}, "changeit"},
			"ops":   {access.Account{Login: "ops", FullName: "Event Store Operations", Groups: []string{"$ops"}}, "changeit"},
		},
	}
}

// newUsersNode is a node whose callers are the users that it manages.
func newUsersNode(t testing.TB, change ...func(*httpapi.Options)) (*node, *memUsers) {
	u := newMemUsers()
	set := func(o *httpapi.Options) { o.Users, o.Access = u, u }
	n := newNode(t, append([]func(*httpapi.Options){set}, change...)...)
	u.store = n.store
	return n, u
}

func (u *memUsers) enter(ctx context.Context) error {
	u.mu.Lock()
	u.calls++
	fail, block := u.fail, u.block
	u.mu.Unlock()
	if block {
		<-ctx.Done()
		return ctx.Err()
	}
	return fail
}

// change does something to a user, under the lock.
func (u *memUsers) change(ctx context.Context, login string, do func(*memUser) error) error {
	if err := u.enter(ctx); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	user := u.users[login]
	if user == nil {
		return event.ErrUserNotFound
	}
	if err := do(user); err != nil {
		return err
	}
	user.Updated = u.tick()
	return nil
}

func (u *memUsers) tick() time.Time {
	now := u.now
	u.now = now.Add(time.Second)
	return now
}

func (u *memUsers) List(ctx context.Context) ([]access.Account, error) {
	if err := u.enter(ctx); err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	var list []access.Account
	for _, user := range u.users {
		list = append(list, user.Account)
	}
	slices.SortFunc(list, func(a, b access.Account) int { return strings.Compare(a.Login, b.Login) })
	return list, nil
}

func (u *memUsers) Get(ctx context.Context, login string) (access.Account, error) {
	if err := u.enter(ctx); err != nil {
		return access.Account{}, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	user := u.users[login]
	if user == nil {
		return access.Account{}, event.ErrUserNotFound
	}
	return user.Account, nil
}

func (u *memUsers) Create(ctx context.Context, a access.NewAccount) error {
	if err := u.enter(ctx); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if user := u.users[a.Login]; user != nil {
		if user.password != a.Password {
			return event.ErrUserConflict
		}
		return nil
	}
	u.users[a.Login] = &memUser{access.Account{Login: a.Login, FullName: a.FullName, Groups: a.Groups, Updated: u.tick()}, a.Password}
	return nil
}

func (u *memUsers) Update(ctx context.Context, login, fullName string, groups []string) error {
	return u.change(ctx, login, func(user *memUser) error {
		user.FullName, user.Groups = fullName, groups
		return nil
	})
}

func (u *memUsers) Delete(ctx context.Context, login string) error {
	return u.change(ctx, login, func(*memUser) error {
		delete(u.users, login)
		return nil
	})
}

func (u *memUsers) SetDisabled(ctx context.Context, login string, disabled bool) error {
	return u.change(ctx, login, func(user *memUser) error {
		user.Disabled = disabled
		return nil
	})
}

func (u *memUsers) ResetPassword(ctx context.Context, login, password string) error {
	return u.change(ctx, login, func(user *memUser) error {
		user.password = password
		return nil
	})
}

func (u *memUsers) ChangePassword(ctx context.Context, login, current, password string) error {
	return u.change(ctx, login, func(user *memUser) error {
		if user.password != current {
			return event.ErrNotAuthorized
		}
		user.password = password
		return nil
	})
}

func (u *memUsers) Authenticate(r *http.Request) (access.Principal, error) {
	if isNode, _ := r.Context().Value(nodeKey{}).(bool); isNode {
		return access.System, nil
	}
	if h := r.Header.Get("ES-TrustedAuth"); h != "" {
		return access.ParseTrusted(h)
	}
	login, password, ok := r.BasicAuth()
	if !ok {
		return access.Anonymous, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	user := u.users[login]
	if user == nil || user.Disabled || user.password != password {
		return access.Anonymous, event.ErrNotAuthorized
	}
	return access.Principal{Login: login, Groups: user.Groups}, nil
}

func (u *memUsers) Renew(_ context.Context, p access.Principal) (access.Principal, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if user := u.users[p.Login]; user != nil && !user.Disabled {
		return access.Principal{Login: p.Login, Groups: user.Groups}, nil
	} else if p.IsAnonymous() || p.IsSystem() {
		return p, nil
	}
	return access.Principal{}, event.ErrNotAuthorized
}

func (u *memUsers) MayRead(ctx context.Context, p *access.Principal, stream string, info *event.StreamInfo) (bool, error) {
	return (&memAccess{store: u.store}).MayRead(ctx, p, stream, info)
}

func (u *memUsers) CheckStream(ctx context.Context, p access.Principal, stream string, right access.Right) error {
	return (&memAccess{store: u.store}).CheckStream(ctx, p, stream, right)
}

// nodeKey marks requests of another node.
type nodeKey struct{}

// as are the headers of a user's request; headers follow as key, value.
func as(login, password string, headers ...string) http.Header {
	h := with(headers...)
	r := http.Request{Header: h}
	r.SetBasicAuth(login, password)
	return h
}

// userDetail is a user as a client reads it.
type userDetail struct {
	LoginName, FullName string
	Groups              []string
	DateLastUpdated     *string
	Disabled            *bool
	Links               []struct{ Href, Rel string }
}

type userEnvelope struct {
	LoginName *string
	Data      *userDetail
	Success   *bool
	Error     string
}

type usersEnvelope struct {
	Data    []userDetail
	Success bool
	Error   string
}
