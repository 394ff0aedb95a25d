package access

import (
	"sync"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
)

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
