package access

import (
	"cmp"
	"context"
	"fmt"

	"github.com/annalsdb/annals/event"
)

// DefaultPassword is the password of the built-in users unless the operator sets one.
const DefaultPassword = "changeit"

// builtin is a user that every database begins with. They are part of the wire contract: do not
// change.
type builtin struct {
	login, fullName, group string
}

var builtins = [...]builtin{
	{LoginAdmin, "Event Store Administrator", RoleAdmins},
	{LoginOps, "Event Store Operations", RoleOps},
}

// EnsureDefaultUsers creates the users admin and ops in a database that never
// had them. One that was deleted does not come back, and an existing one keeps
// its password. Empty passwords mean DefaultPassword, 0 iterations mean
// DefaultIterations; nothing is hashed unless a user is to be created.
//
// The leader calls it before it reports ready, and again after an error: each
// step is written only when it is missing, so that an interrupted creation is
// completed and never doubled.
func EnsureDefaultUsers(ctx context.Context, w Writer, iterations int, adminPassword, opsPassword string) error {
	hasher := NewHasher(HasherOptions{Iterations: iterations})
	for i, password := range [...]string{adminPassword, opsPassword} {
		if err := ensureUser(ctx, w, hasher, i, cmp.Or(password, DefaultPassword)); err != nil {
			return fmt.Errorf("create the user %s: %w", builtins[i].login, err)
		}
	}
	return nil
}

// ensureUser creates the user builtins[place]. After a crash there may be only the metadata, which
// does not count as a user, or the user without its entry in $users. In a new database the entry of
// builtins[place] has number place: no other user can be created before these two exist.
func ensureUser(ctx context.Context, w Writer, hasher *Hasher, place int, password string) error {
	b := &builtins[place]
	info, err := w.StreamInfo(ctx, UserStream(b.login))
	if err != nil {
		return err
	}
	if info.HardDeleted || info.Metadata.SoftDeleted() {
		return nil
	}
	if info.Last < 0 {
		creds, err := hasher.Hash(ctx, b.login, password)
		if err != nil {
			return err
		}
		u := User{LoginName: b.login, FullName: b.fullName, Groups: []string{b.group}}
		u.SetPassword(creds)
		created, err := createUser(ctx, w, info, &u)
		if err != nil {
			return err
		}
		if created { // $users does not list it yet, even if it has other entries.
			return listUser(ctx, w, b.login, 0, event.AnyVersion)
		}
	}
	before := int64(place) - 1 // number of the event before the entry in $users
	users, err := w.StreamInfo(ctx, UsersStream)
	if err != nil {
		return err
	}
	if users.HardDeleted || users.Last > before {
		return nil
	}
	return listUser(ctx, w, b.login, 0, before)
}

// DefaultsInForce returns the built-in users that log in with DefaultPassword. It hashes once for
// each that there is.
func (m *Manager) DefaultsInForce(ctx context.Context) (logins []string, err error) {
	for _, b := range builtins {
		u, _, err := readUser(ctx, m.store, b.login)
		if err != nil {
			return logins, fmt.Errorf("look for default passwords: read user %q: %w", b.login, err)
		}
		if u == nil || u.Disabled {
			continue
		}
		same, err := m.hasher.Test(ctx, b.login, DefaultPassword, u.Password())
		if err != nil {
			return logins, fmt.Errorf("look for default passwords: %w", err)
		}
		if same {
			logins = append(logins, b.login)
		}
	}
	return logins, nil
}
