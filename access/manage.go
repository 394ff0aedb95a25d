package access

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
)

// ManagerStore is where a Manager reads and writes users. What it reads must
// not be older than what was written before through it: it is the leader's.
type ManagerStore interface {
	Writer
	// LastEvent is as Streams has it.
	LastEvent(ctx context.Context, stream string) (event.Record, error)
	// ReadStream returns a page of a stream. It fails with event.ErrStreamNotFound or
	// ErrStreamDeleted when there is none.
	ReadStream(ctx context.Context, r event.StreamRead) (event.StreamPage, error)
}

// ManagerOptions are the options of a Manager. The zero value works.
type ManagerOptions struct {
	Hasher *Hasher // one with default options when nil
}

// Manager creates, changes and deletes users. It keeps nothing in memory. Its methods may be called
// concurrently, also those of several Managers over one database: a change is written only if the
// state that it was made from is still the newest. Else it is made again from the newer state, a
// few times.
//
// All fail with event.ErrUserNotFound when there is no such user, with event.ErrUserConflict when
// others keep changing it, with event.ErrBusy when too many passwords wait to be hashed, and
// otherwise with the store's error. A call that failed can be repeated. Logins and passwords must
// not be empty, and logins not longer than MaxLoginBytes; it is for the caller to see to that.
type Manager struct {
	store  ManagerStore
	hasher *Hasher
}

const (
	attempts = 10  // to make one change, the first included
	listPage = 500 // entries of $users read at a time
)

// NewManager returns a Manager.
func NewManager(store ManagerStore, o ManagerOptions) *Manager {
	if o.Hasher == nil {
		o.Hasher = NewHasher(HasherOptions{})
	}
	return &Manager{store: store, hasher: o.Hasher}
}

// List returns all users, sorted by login. It reads $users once, and one event for each login
// there.
func (m *Manager) List(ctx context.Context) ([]Account, error) {
	logins, err := m.logins(ctx)
	if err != nil {
		return nil, fmt.Errorf("list users: %w", err)
	}
	accounts := make([]Account, 0, len(logins))
	for login := range logins {
		a, err := m.Get(ctx, login)
		if errors.Is(err, event.ErrUserNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list users: %w", err)
		}
		accounts = append(accounts, a)
	}
	slices.SortFunc(accounts, func(a, b Account) int { return strings.Compare(a.Login, b.Login) })
	return accounts, nil
}

// logins returns every login that $users holds, of deleted users too.
func (m *Manager) logins(ctx context.Context) (map[string]struct{}, error) {
	logins := make(map[string]struct{})
	from, end := int64(0), false
	for !end {
		page, err := m.store.ReadStream(ctx, event.StreamRead{Stream: UsersStream, From: from, Count: listPage})
		if errors.Is(err, event.ErrStreamNotFound) || errors.Is(err, event.ErrStreamDeleted) {
			break
		}
		if err != nil {
			return nil, err
		}
		for i := range page.Events {
			if e := &page.Events[i]; e.Type == TypeUser {
				logins[string(e.Data)] = struct{}{}
			}
		}
		from, end = page.Next, page.End
	}
	return logins, nil
}

// Get returns a user.
func (m *Manager) Get(ctx context.Context, login string) (Account, error) {
	u, record, err := readUser(ctx, m.store, login)
	if err == nil && u == nil {
		err = event.ErrUserNotFound
	}
	if err != nil {
		return Account{}, fmt.Errorf("read user %q: %w", login, err)
	}
	return Account{Login: u.LoginName, FullName: u.FullName, Groups: u.Groups, Disabled: u.Disabled, Updated: record.When()}, nil
}

// Create creates a user. If there is one of that login and password already
// nothing changes, and an interrupted creation of it is completed. With another
// password it is event.ErrUserConflict. The login of a deleted user can be used again.
func (m *Manager) Create(ctx context.Context, n NewAccount) error {
	if err := m.create(ctx, n); err != nil {
		return fmt.Errorf("create user %q: %w", n.Login, err)
	}
	return nil
}

func (m *Manager) create(ctx context.Context, n NewAccount) error {
	if len(n.Login) > MaxLoginBytes {
		return event.ErrTooLarge
	}
	fresh := User{LoginName: n.Login, FullName: n.FullName, Groups: n.Groups}
	for range attempts {
		info, err := streamInfo(ctx, m.store, UserStream(n.Login))
		if err != nil {
			return err
		}
		if info.HardDeleted {
			return event.ErrStreamDeleted
		}
		there, _, err := readUser(ctx, m.store, n.Login)
		if err != nil {
			return err
		}
		if there != nil {
			right, err := m.hasher.Verify(ctx, n.Login, n.Password, there.Password())
			if err != nil {
				return err
			}
			if !right {
				return event.ErrUserConflict
			}
			return m.ensureListed(ctx, n.Login, info.Metadata.TruncateBefore)
		}
		if fresh.Hash == nil { // Only now is it known to be needed.
			creds, err := m.hasher.Hash(ctx, n.Login, n.Password)
			if err != nil {
				return err
			}
			fresh.SetPassword(creds)
		}
		created, err := createUser(ctx, m.store, info, &fresh)
		if err != nil {
			return err
		}
		if created {
			return listUser(ctx, m.store, n.Login, info.Last+1, event.AnyVersion)
		}
	}
	return event.ErrUserConflict
}

// ensureListed adds a user to $users if it is missing there, which is so if its creation was
// interrupted.
func (m *Manager) ensureListed(ctx context.Context, login string, first int64) error {
	logins, err := m.logins(ctx)
	if _, listed := logins[login]; listed || err != nil {
		return err
	}
	return listUser(ctx, m.store, login, first, event.AnyVersion)
}

// Update replaces the full name and the groups of a user.
func (m *Manager) Update(ctx context.Context, login, fullName string, groups []string) error {
	return m.change(ctx, login, true, func(u *User, number int64) (*event.Write, error) {
		u.FullName, u.Groups = fullName, groups
		return userWrite(u, TypeUserUpdated, number)
	})
}

// Delete deletes a user, in two steps. A soft deletion does not change the number of a stream's
// last event, so a change of the user made at the same time would be written and bring it back. So
// Delete writes an event without a password first: no such change can follow it. From then on the
// user exists only for Delete, which finds it and continues when it is repeated.
func (m *Manager) Delete(ctx context.Context, login string) error {
	changed := m.change(ctx, login, true, func(u *User, number int64) (*event.Write, error) {
		return userWrite(&User{LoginName: login, FullName: u.FullName, Salt: []byte{}, Hash: []byte{}, Disabled: true}, TypeUserUpdated, number)
	})
	if changed != nil && !errors.Is(changed, event.ErrUserNotFound) {
		return changed
	}
	u, record, err := lastUser(ctx, m.store, login)
	if err == nil && u != nil && u.leaving() {
		// A faster caller has deleted it too, or created another.
		changed = nil
		_, err = writeOnce(ctx, m.store, &event.Write{Kind: event.SoftDelete, Stream: UserStream(login), ExpectedVersion: record.Number})
	}
	if err != nil {
		return fmt.Errorf("delete user %q: %w", login, err)
	}
	return changed
}

// SetDisabled disables or enables a user. One that is so already stays as it is.
func (m *Manager) SetDisabled(ctx context.Context, login string, disabled bool) error {
	return m.change(ctx, login, disabled, func(u *User, number int64) (*event.Write, error) {
		if u.Disabled == disabled {
			return nil, nil
		}
		u.Disabled = disabled
		return userWrite(u, TypeUserUpdated, number)
	})
}

// ResetPassword gives a user another password.
func (m *Manager) ResetPassword(ctx context.Context, login, password string) error {
	return m.changePassword(ctx, login, password, func(*User) error { return nil })
}

// ChangePassword gives a user another password if the current one is right, and
// fails with event.ErrNotAuthorized if it is not, or if the user is disabled.
func (m *Manager) ChangePassword(ctx context.Context, login, current, password string) error {
	var verified []byte // the hash that current was found right for
	return m.changePassword(ctx, login, password, func(u *User) error {
		if u.Disabled {
			return event.ErrNotAuthorized
		}
		if verified != nil && bytes.Equal(verified, u.Hash) {
			return nil
		}
		right, err := m.hasher.Verify(ctx, login, current, u.Password())
		if err == nil && !right {
			err = event.ErrNotAuthorized
		}
		verified = u.Hash
		return err
	})
}

// changePassword stores a new password of a user whom allow lets have it. It is hashed once, and
// only then.
func (m *Manager) changePassword(ctx context.Context, login, password string, allow func(*User) error) error {
	var creds PasswordHash
	return m.change(ctx, login, true, func(u *User, number int64) (*event.Write, error) {
		err := allow(u)
		if err == nil && creds.Hash == nil {
			creds, err = m.hasher.Hash(ctx, login, password)
		}
		if err != nil {
			return nil, err
		}
		u.SetPassword(creds)
		return userWrite(u, TypeUserUpdated, number)
	})
}

// change does the write that edit makes of a user as it is, and of the number of
// the event that says so; no write means that all is well already. The
// notification goes first: the write is what counts, and when it is done nothing is left to do.
func (m *Manager) change(ctx context.Context, login string, notify bool, edit func(*User, int64) (*event.Write, error)) error {
	for range attempts {
		u, record, err := readUser(ctx, m.store, login)
		if err == nil && u == nil {
			err = event.ErrUserNotFound
		}
		var w *event.Write
		if err == nil {
			w, err = edit(u, record.Number)
		}
		if err == nil && w == nil {
			return nil
		}
		if err == nil && notify {
			err, notify = m.notify(ctx, login), false
		}
		if err == nil {
			_, err = m.store.Write(ctx, w)
			if err == nil {
				return nil
			}
			if overtaken(err) {
				continue
			}
		}
		return fmt.Errorf("change user %q: %w", login, err)
	}
	return fmt.Errorf("change user %q: %w", login, event.ErrUserConflict)
}

// notify tells those that follow the stream that a user is being changed.
func (m *Manager) notify(ctx context.Context, login string) error {
	data, err := notification(login)
	if err != nil {
		return err
	}
	info, err := streamInfo(ctx, m.store, NotificationsStream)
	if err != nil {
		return err
	}
	if info.MetaLast < 0 && !info.HardDeleted {
		if err := writeMetadata(ctx, m.store, NotificationsStream, event.NoStream, []byte(NotificationsMetadata)); err != nil {
			return err
		}
	}
	// If the stream was deleted for good there is no one to notify.
	_, err = writeOnce(ctx, m.store, appendOne(NotificationsStream, event.AnyVersion, event.Proposed{
		ID: event.ID(uuid.New()), Type: TypePasswordChanged, Flags: event.FlagJSON, Data: data,
	}))
	return err
}
