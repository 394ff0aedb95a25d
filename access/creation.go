package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
)

// Writer is what users are created through.
type Writer interface {
	// Write does as asked or fails, with *event.WrongExpectedVersion when the stream is elsewhere.
	Write(ctx context.Context, w *event.Write) (event.Written, error)
	// StreamInfo returns what is known of a stream, of one never written too.
	StreamInfo(ctx context.Context, stream string) (event.StreamInfo, error)
}

// createUser writes the first event of a user, and before it the metadata if
// they are missing. A user deleted before gets metadata that keep hiding what
// there was, so that a crash between the two does not bring it back. It reports
// false when the stream is not as info says any more.
func createUser(ctx context.Context, w Writer, info event.StreamInfo, u *User) (written bool, err error) {
	stream, first := UserStream(u.LoginName), info.Last+1
	if info.MetaLast < 0 || info.Metadata.TruncateBefore > first {
		data := []byte(UserStreamMetadata)
		if first > 0 {
			data = event.WithTruncateBefore(data, first)
		}
		if err := writeMetadata(ctx, w, stream, info.MetaLast, data); err != nil {
			return false, err
		}
	}
	write, err := userWrite(u, TypeUserCreated, info.Last)
	if err != nil {
		return false, err
	}
	return writeOnce(ctx, w, write)
}

// listUser writes the entry of a user in $users. first is the number of the
// user's first event: with the login it makes the entry's id, so that it is
// written once however often this is called within the memory of ids.
func listUser(ctx context.Context, w Writer, login string, first, expected int64) error {
	sum := sha256.Sum256([]byte("user/" + strconv.FormatInt(first, 10) + "/" + login))
	id := event.ID(sum[:16])
	id[6] = id[6]&0x0f | 0x80 // A GUID of version 8.
	id[8] = id[8]&0x3f | 0x80
	_, err := writeOnce(ctx, w, appendOne(UsersStream, expected, event.Proposed{ID: id, Type: TypeUser, Data: []byte(login)}))
	return err
}

// writeMetadata writes the metadata of a stream, unless another writer was faster.
func writeMetadata(ctx context.Context, w Writer, stream string, expected int64, data []byte) error {
	_, err := writeOnce(ctx, w, appendOne(event.MetaStreamOf(stream), expected, event.Proposed{
		ID: event.ID(uuid.New()), Type: event.TypeMetadata, Flags: event.FlagJSON, Data: data,
	}))
	return err
}

// writeOnce writes, unless another writer was faster.
func writeOnce(ctx context.Context, w Writer, write *event.Write) (written bool, err error) {
	_, err = w.Write(ctx, write)
	if overtaken(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("write to %s: %w", write.Stream, err)
	}
	return true, nil
}

// overtaken reports whether a write was refused because the stream is not as it was read.
func overtaken(err error) bool {
	var conflict *event.WrongExpectedVersion
	return errors.As(err, &conflict) || errors.Is(err, event.ErrStreamDeleted)
}

// readUser returns a stored user with the event that holds it, nil when there is none.
func readUser(ctx context.Context, s lastEvents, login string) (*User, event.Record, error) {
	user, record, err := lastUser(ctx, s, login)
	if err != nil || user == nil || user.leaving() {
		return nil, event.Record{}, err
	}
	return user, record, nil
}

// lastUser is readUser that also returns users who are being deleted.
func lastUser(ctx context.Context, s lastEvents, login string) (*User, event.Record, error) {
	if len(login) > MaxLoginBytes {
		return nil, event.Record{}, nil
	}
	record, err := s.LastEvent(ctx, UserStream(login))
	switch {
	case errors.Is(err, event.ErrStreamNotFound), errors.Is(err, event.ErrStreamDeleted), errors.Is(err, event.ErrEventNotFound):
		return nil, event.Record{}, nil
	case err != nil:
		return nil, event.Record{}, err
	}
	user, err := DecodeUser(record.Data)
	if err != nil || user.LoginName != login {
		// Redacted, or written by hand: no one can log in with it.
		return nil, event.Record{}, nil
	}
	return user, record, nil
}

type lastEvents interface {
	LastEvent(ctx context.Context, stream string) (event.Record, error)
}

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

// upgrades runs what follows a login with a weak hash, one at a time.
type upgrades struct {
	mu           sync.Mutex // guards busy and closed, and that no work begins once closed
	busy, closed bool
	work         sync.WaitGroup
}

// start runs f in a goroutine, and reports false when another one is running.
func (u *upgrades) start(f func()) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.busy || u.closed {
		return false
	}
	u.busy = true
	u.work.Go(func() {
		f()
		u.mu.Lock()
		u.busy = false
		u.mu.Unlock()
	})
	return true
}

func (u *upgrades) close() {
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	u.work.Wait()
}

// upgrade hashes a password again that was found right, if its stored hash is
// weak and nothing else is being hashed again. If so it takes over the caller's
// slot, so that the user has the answer without waiting for the second hash.
func (a *Authenticator) upgrade(s stored, e *cached, password string) (started bool) {
	h := a.opts.Hasher
	if a.opts.Upgrade == nil || !h.outdated(s.user.Password()) {
		return false
	}
	user := *s.user
	return a.upgrades.start(func() {
		h.turns.queue.Enter(1)
		begun := h.renewing.Begin(0)
		made, err := h.make(password)
		h.renewing.End(begun, 1)
		h.turns.release()
		if err != nil {
			return // Nothing depends on it: the next login tries again.
		}
		user.SetPassword(made)
		secret := secretOf(made) // Before it is stored: users stay logged in.
		e.renewed.Store(&secret)
		a.metrics.renewed.Inc()
		a.opts.Upgrade(user, s.number)
	})
}

// UpgradeWrite returns the write that stores a user in place of the event of that number. The
// option Upgrade is called with both. If the user was changed in the meantime, the write is refused
// with *event.WrongExpectedVersion, and nothing is to be done. The password is the same as before,
// so no notification is needed.
func UpgradeWrite(user User, version int64) (*event.Write, error) {
	return userWrite(&user, TypeUserUpdated, version)
}

// userWrite returns the write that appends a state of a user to its stream.
func userWrite(u *User, eventType string, expected int64) (*event.Write, error) {
	data, err := EncodeUser(u)
	if err != nil {
		return nil, err
	}
	return appendOne(UserStream(u.LoginName), expected, event.Proposed{
		ID: event.ID(uuid.New()), Type: eventType, Flags: event.FlagJSON, Data: data,
	}), nil
}

// appendOne returns the write that appends one event.
func appendOne(stream string, expected int64, e event.Proposed) *event.Write {
	return &event.Write{Kind: event.Append, Stream: stream, ExpectedVersion: expected, Events: []event.Proposed{e}}
}
