package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/annalsdb/annals/event"
)

// DefaultPassword is the password of the built-in users unless the operator sets one.
const DefaultPassword = "changeit"

// Writer is what EnsureDefaultUsers writes through.
type Writer interface {
	// Write does as asked or fails, with *event.WrongExpectedVersion when the stream is elsewhere.
	Write(ctx context.Context, w *event.Write) (event.Written, error)
	// StreamInfo returns what is known of a stream, of one never written too.
	StreamInfo(ctx context.Context, stream string) (event.StreamInfo, error)
}

// builtin is a user that every database begins with. They are part of the wire contract: do not change.
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
// step is written only when it is missing, with an event id of its own that is
// the same every time, so that an interrupted creation is completed and never doubled.
func EnsureDefaultUsers(ctx context.Context, w Writer, iterations int, adminPassword, opsPassword string) error {
	hasher := NewHasher(HasherOptions{Iterations: iterations})
	for i, password := range [...]string{adminPassword, opsPassword} {
		if password == "" {
			password = DefaultPassword
		}
		if err := ensureUser(ctx, w, hasher, i, password); err != nil {
			return fmt.Errorf("create the user %s: %w", builtins[i].login, err)
		}
	}
	return nil
}

// ensureUser creates the user builtins[place]. A crash can leave behind the
// metadata alone, which does not count as having existed, or the user without
// its entry in $users. In a new database the entry of builtins[place] is number
// place: nobody else can create users before these two are there.
func ensureUser(ctx context.Context, w Writer, hasher *Hasher, place int, password string) error {
	b := &builtins[place]
	stream := UserStream(b.login)
	info, err := w.StreamInfo(ctx, stream)
	if err != nil {
		return err
	}
	if info.HardDeleted || info.Metadata.SoftDeleted() {
		return nil
	}
	listedAt := int64(place) - 1 // number of the event before the entry in $users
	if info.Last < 0 {
		if info.MetaLast < 0 {
			if _, err := writeOnce(ctx, w, event.MetaStreamOf(stream), event.NoStream, event.Proposed{
				ID: stepID(b.login, "metadata"), Type: event.TypeMetadata, Flags: event.FlagJSON, Data: []byte(UserStreamMetadata),
			}); err != nil {
				return err
			}
		}
		data, err := b.document(ctx, hasher, password)
		if err != nil {
			return err
		}
		created, err := writeOnce(ctx, w, stream, event.NoStream, event.Proposed{
			ID: stepID(b.login, "created"), Type: TypeUserCreated, Flags: event.FlagJSON, Data: data,
		})
		if err != nil {
			return err
		}
		if created {
			listedAt = event.AnyVersion // Nobody has listed it, even where $users has other entries.
		}
	}
	if listedAt != event.AnyVersion {
		users, err := w.StreamInfo(ctx, UsersStream)
		if err != nil {
			return err
		}
		if users.HardDeleted || users.Last > listedAt {
			return nil
		}
	}
	_, err = writeOnce(ctx, w, UsersStream, listedAt, event.Proposed{
		ID: stepID(b.login, "listed"), Type: TypeUser, Data: []byte(b.login),
	})
	return err
}

// document returns the data of the user's first event.
func (b *builtin) document(ctx context.Context, hasher *Hasher, password string) ([]byte, error) {
	creds, err := hasher.Hash(ctx, password)
	if err != nil {
		return nil, err
	}
	u := User{LoginName: b.login, FullName: b.fullName, Groups: []string{b.group}}
	u.SetPassword(creds)
	return EncodeUser(&u)
}

// writeOnce appends one event. Another expected version, or a stream deleted for
// good, means that someone has been there before: done, but not written now.
func writeOnce(ctx context.Context, w Writer, stream string, expected int64, e event.Proposed) (written bool, err error) {
	_, err = w.Write(ctx, &event.Write{Kind: event.Append, Stream: stream, ExpectedVersion: expected, Events: []event.Proposed{e}})
	var conflict *event.WrongExpectedVersion
	if errors.As(err, &conflict) || errors.Is(err, event.ErrStreamDeleted) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("append to %s: %w", stream, err)
	}
	return true, nil
}

// stepID returns the event id of one step of creating a built-in user, as a GUID of version 8.
func stepID(login, step string) event.ID {
	sum := sha256.Sum256([]byte("built-in user/" + login + "/" + step))
	id := event.ID(sum[:16])
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return id
}
