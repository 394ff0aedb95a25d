package access_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/stats"
)

var ctx = context.Background()

// newManager uses cheap hashes, which are counted.
func newManager(s *store) (*access.Manager, *stats.Registry) {
	r := new(stats.Registry)
	return access.NewManager(s, access.ManagerOptions{Hasher: access.NewHasher(access.HasherOptions{Iterations: 1, Stats: r})}), r
}

func newJane(password string) access.NewAccount {
	return access.NewAccount{Login: "jane", FullName: "Jane Doe", Groups: []string{"billing"}, Password: password}
}

// did lists the writes since it was called last.
func (s *store) did() (writes []string) {
	for _, w := range s.writes {
		what := "delete"
		if w.Kind == event.Append {
			what = fmt.Sprintf("%s %d", w.Events[0].Type, w.Events[0].Flags)
		}
		writes = append(writes, fmt.Sprintf("%s@%d %s", w.Stream, w.ExpectedVersion, what))
	}
	s.writes = nil
	return writes
}

func (s *store) wantWrites(t *testing.T, want ...string) {
	t.Helper()
	if got := s.did(); !same(got, want) {
		t.Fatalf("wrote %q\nwant  %q", got, want)
	}
}

const (
	noted      = "$users-password-notifications@-2 $PasswordChanged 1"
	notedFirst = "$$$users-password-notifications@-1 $metadata 1"
)

// The life of a user: what is written, and what can be read.
func TestManagerLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // Wrong passwords are slowed.
		s := newStore()
		m, _ := newManager(s)
		a, _ := newAuthenticator(t, s, access.AuthenticatorOptions{})
		updated := time.Unix(0, now).UTC()
		want := func(w access.Account) {
			t.Helper()
			w.Updated = updated
			got := check.Value(m.Get(ctx, w.Login)).Must(t)
			check.MustDeep(t, got, w)
		}

		check.Must(t, m.Create(ctx, newJane("one")))
		s.wantWrites(t, "$$$user-jane@-1 $metadata 1", "$user-jane@-1 $UserCreated 1", "$users@-2 $User 0")
		if got := string(s.events["$$$user-jane"][0].Data); got != access.UserStreamMetadata {
			t.Fatalf("metadata: %s", got)
		}
		want(access.Account{Login: "jane", FullName: "Jane Doe", Groups: []string{"billing"}})
		check.Must(t, login(a, "jane:one"))

		check.Must(t, m.Update(ctx, "jane", "Jane Roe", nil))
		s.wantWrites(t, notedFirst, noted, "$user-jane@0 $UserUpdated 1")
		if got := string(s.events["$$$users-password-notifications"][0].Data); got != access.NotificationsMetadata {
			t.Fatalf("metadata: %s", got)
		}
		if got := string(s.events[access.NotificationsStream][0].Data); got != `{"loginName":"jane"}` {
			t.Fatalf("notification: %s", got)
		}
		want(access.Account{Login: "jane", FullName: "Jane Roe", Groups: []string{}})
		check.Must(t, login(a, "jane:one"))

		check.Must(t, m.SetDisabled(ctx, "jane", true))
		s.wantWrites(t, noted, "$user-jane@1 $UserUpdated 1")
		want(access.Account{Login: "jane", FullName: "Jane Roe", Groups: []string{}, Disabled: true})
		check.MustBe(t, login(a, "jane:one"), event.ErrNotAuthorized)
		check.Must(t, m.SetDisabled(ctx, "jane", true))
		s.wantWrites(t)

		check.Must(t, m.ResetPassword(ctx, "jane", "two"))
		s.wantWrites(t, noted, "$user-jane@2 $UserUpdated 1")
		check.MustBe(t, m.ChangePassword(ctx, "jane", "two", "three"), event.ErrNotAuthorized)
		check.Must(t, m.Create(ctx, newJane("two"))) // Idempotent, disabled or not.
		check.MustBe(t, m.Create(ctx, newJane("one")), event.ErrUserConflict)
		s.wantWrites(t)
		want(access.Account{Login: "jane", FullName: "Jane Roe", Groups: []string{}, Disabled: true})

		check.Must(t, m.SetDisabled(ctx, "jane", false))
		s.wantWrites(t, "$user-jane@3 $UserUpdated 1")
		check.Must(t, m.SetDisabled(ctx, "jane", false))
		s.wantWrites(t)
		check.Must(t, login(a, "jane:two"))

		check.MustBe(t, m.ChangePassword(ctx, "jane", "one", "three"), event.ErrNotAuthorized)
		s.wantWrites(t)
		check.Must(t, m.ChangePassword(ctx, "jane", "two", "three"))
		s.wantWrites(t, noted, "$user-jane@4 $UserUpdated 1")
		check.MustBe(t, login(a, "jane:two"), event.ErrNotAuthorized)
		check.Must(t, login(a, "jane:three"))

		check.Must(t, m.Delete(ctx, "jane"))
		s.wantWrites(t, noted, "$user-jane@5 $UserUpdated 1", "$user-jane@6 delete")
		_, err := m.Get(ctx, "jane")
		check.MustBe(t, err, event.ErrUserNotFound)
		check.MustBe(t, login(a, "jane:three"), event.ErrNotAuthorized)

		again := access.NewAccount{Login: "jane", FullName: "New", Password: "four"}
		check.Must(t, m.Create(ctx, again))
		s.wantWrites(t, "$$$user-jane@1 $metadata 1", "$user-jane@6 $UserCreated 1", "$users@-2 $User 0")
		want(access.Account{Login: "jane", FullName: "New", Groups: []string{}})
		check.MustBe(t, login(a, "jane:three"), event.ErrNotAuthorized)
		check.Must(t, login(a, "jane:four"))
		info, err := s.StreamInfo(ctx, "$user-jane")
		if err != nil || info.Metadata.TruncateBefore != 7 || !reflect.DeepEqual(info.Metadata.ACL.Write, event.Roles{"$admins"}) {
			t.Fatalf("got %+v, %v", info, err)
		}
		list := check.Value(m.List(ctx)).Must(t)
		check.MustEqual(t, len(list), 1, list)
	})
}

func TestManagerUnknownUser(t *testing.T) {
	s := newStore()
	m, r := newManager(s)
	s.setUser(t, "gone", "x", false)
	s.softDelete("$user-gone")
	s.setUser(t, "never", "x", false)
	s.hardDelete("$user-never")
	s.set("$user-redacted", "\xff\xff")
	s.set("$user-other", legacyUser)
	for _, login := range []string{"nobody", "gone", "never", "redacted", "other", strings.Repeat("x", access.MaxLoginBytes+1)} {
		_, err := m.Get(ctx, login)
		for name, err := range map[string]error{
			"Get": err, "Update": m.Update(ctx, login, "", nil), "Delete": m.Delete(ctx, login), "SetDisabled": m.SetDisabled(ctx, login, false),
			"ResetPassword": m.ResetPassword(ctx, login, "x"), "ChangePassword": m.ChangePassword(ctx, login, "x", "y"),
		} {
			if !errors.Is(err, event.ErrUserNotFound) {
				t.Errorf("%s of %.20q: %v", name, login, err)
			}
		}
	}
	s.wantWrites(t)
	check.Equal(t, hashes(r), 0, "hashes for users that do not exist")
	check.Must(t, m.Create(ctx, access.NewAccount{Login: "redacted", Password: "x"}))
	check.Must(t, m.Create(ctx, access.NewAccount{Login: strings.Repeat("x", access.MaxLoginBytes), Password: "x"}))
	check.MustBe(t, m.Create(ctx, access.NewAccount{Login: strings.Repeat("x", access.MaxLoginBytes+1), Password: "x"}), event.ErrTooLarge)
	check.MustBe(t, m.Create(ctx, access.NewAccount{Login: "never", Password: "x"}), event.ErrStreamDeleted)
	check.Equal(t, hashes(r), 2, "hashes")
}

// Whichever write of a creation fails, done or not, the repeated creation
// completes it, and adds nothing that is there. So it is for a login used before.
func TestCreateInterrupted(t *testing.T) {
	for _, before := range []string{"new", "deleted"} {
		for _, written := range []bool{false, true} {
			for at := range 3 {
				t.Run(fmt.Sprintf("%s, write %d, written=%v", before, at, written), func(t *testing.T) {
					s := newStore()
					m, _ := newManager(s)
					listed := 0
					if before == "deleted" {
						check.Must(t, m.Create(ctx, access.NewAccount{Login: "jane", FullName: "Old", Groups: []string{"$admins"}, Password: "old"}))
						check.Must(t, m.Delete(ctx, "jane"))
						listed = 1
					}
					n := 0
					s.writeErr = func(w *event.Write) error {
						if n++; n-1 != at {
							return nil
						}
						if written {
							check.NoError(t, check.Err(s.write(w)))
						}
						return event.ErrOutcomeUnknown
					}
					check.MustBe(t, m.Create(ctx, newJane("x")), event.ErrOutcomeUnknown)
					s.writeErr = nil
					s.ids = map[event.ID]bool{} // They are not remembered for ever.
					a, _ := newAuthenticator(t, s, access.AuthenticatorOptions{})
					check.MustBe(t, login(a, "jane:old"), event.ErrNotAuthorized)
					for range 2 {
						check.Must(t, m.Create(ctx, newJane("x")))
					}
					got, err := m.Get(ctx, "jane")
					if want := (access.Account{Login: "jane", FullName: "Jane Doe", Groups: []string{"billing"}, Updated: time.Unix(0, now).UTC()}); err != nil || !reflect.DeepEqual(got, want) {
						t.Fatalf("got %+v, %v", got, err)
					}
					check.Must(t, login(a, "jane:x"))
					if n := len(s.events["$user-jane"]); n != 2*listed+1 { // One of a deletion.
						t.Errorf("%d events", n)
					}
					if n := len(s.events["$users"]); n < 1 || n > listed+1 {
						t.Errorf("listed %d times", n)
					}
				})
			}
		}
	}
}

// A change that fails at any of its writes can be repeated and is then complete.
func TestChangeInterrupted(t *testing.T) {
	changes := map[string]func(m *access.Manager) error{
		"update":  func(m *access.Manager) error { return m.Update(ctx, "jane", "New", nil) },
		"disable": func(m *access.Manager) error { return m.SetDisabled(ctx, "jane", true) },
		"reset":   func(m *access.Manager) error { return m.ResetPassword(ctx, "jane", "y") },
		"change":  func(m *access.Manager) error { return m.ChangePassword(ctx, "jane", "x", "y") },
		"delete":  func(m *access.Manager) error { return m.Delete(ctx, "jane") },
	}
	for name, change := range changes {
		for at := range 3 {
			for _, err := range []error{event.ErrNotReady, event.ErrWriteTimeout, &event.NotLeader{Address: "http://127.0.0.1:1"}} {
				t.Run(fmt.Sprintf("%s, write %d, %v", name, at, err), func(t *testing.T) {
					s := newStore()
					m, _ := newManager(s)
					check.Must(t, m.Create(ctx, newJane("x")))
					s.writes = nil
					n := 0
					s.writeErr = func(*event.Write) error {
						if n++; n-1 == at {
							return err
						}
						return nil
					}
					if got := change(m); !errors.Is(got, err) || got == err {
						t.Fatalf("got %v", got)
					}
					if len(s.events["$user-jane"]) != 1 || len(s.events["$$$user-jane"]) != 1 {
						t.Fatal("the change was made")
					}
					check.Must(t, change(m))
					s.wantDeleted(t, m, name == "delete")
					if n := len(s.events[access.NotificationsStream]); n == 0 || n > 2 {
						t.Errorf("%d notifications", n)
					}
					if n := len(s.events["$$"+access.NotificationsStream]); n != 1 {
						t.Errorf("%d metadata of the notifications", n)
					}
				})
			}
		}
	}
}

func (s *store) wantDeleted(t *testing.T, m *access.Manager, want bool) {
	t.Helper()
	_, err := m.Get(ctx, "jane")
	info := s.info("$user-jane")
	check.MustEqual(t, errors.Is(err, event.ErrUserNotFound), want, "not found")
	check.MustEqual(t, info.Metadata.SoftDeleted(), want, "soft-deleted")
}

// A half-done deletion lets no one in. Repeating it completes it. It does not prevent a new user of
// that login.
func TestDeleteInterrupted(t *testing.T) {
	s := newStore()
	m, _ := newManager(s)
	a, _ := newAuthenticator(t, s, access.AuthenticatorOptions{})
	check.Must(t, m.Create(ctx, newJane("x")))
	halfWay := func() {
		t.Helper()
		s.writeErr = func(w *event.Write) error {
			if w.Kind == event.SoftDelete {
				return event.ErrNotReady
			}
			return nil
		}
		check.MustBe(t, m.Delete(ctx, "jane"), event.ErrNotReady)
		s.writeErr = nil
		_, err := m.Get(ctx, "jane")
		check.MustBe(t, err, event.ErrUserNotFound)
		check.MustBe(t, m.SetDisabled(ctx, "jane", false), event.ErrUserNotFound)
	}
	halfWay()
	check.MustBe(t, login(a, "jane:x"), event.ErrNotAuthorized)
	check.Must(t, m.Delete(ctx, "jane"))
	s.wantDeleted(t, m, true)
	check.MustBe(t, m.Delete(ctx, "jane"), event.ErrUserNotFound)

	check.Must(t, m.Create(ctx, newJane("y")))
	halfWay()
	check.Must(t, m.Create(ctx, newJane("z")))
	check.Must(t, loginFrom(a, "192.0.2.2:1", "jane:z"))
}

// The number of a stream's last event does not change when it is soft-deleted. A
// change made of a user who is deleted meanwhile must not bring it back.
func TestDeletedDuringChange(t *testing.T) {
	s := newStore()
	m, _ := newManager(s)
	check.Must(t, m.Create(ctx, newJane("x")))
	u, version := lastUser(t, s, "jane"), int64(0)
	others := 1
	s.onRead = func(string) {
		if others--; others == 0 {
			check.Must(t, m.Delete(ctx, "jane"))
		}
	}
	check.MustBe(t, m.Update(ctx, "jane", "New", nil), event.ErrUserNotFound)
	w, err := access.UpgradeWrite(*u, version)
	check.Must(t, err)
	_, err = s.Write(ctx, w)
	var conflict *event.WrongExpectedVersion
	if !errors.As(err, &conflict) {
		t.Fatalf("got %v", err)
	}
	s.wantDeleted(t, m, true)
}

func TestNobodyToNotify(t *testing.T) {
	s := newStore()
	m, _ := newManager(s)
	check.Must(t, m.Create(ctx, newJane("x")))
	s.hardDelete(access.NotificationsStream)
	s.hardDelete("$$" + access.NotificationsStream)
	check.Must(t, m.Update(ctx, "jane", "New", nil))
}

// Changes made at the same time are written one after the other. Only when that keeps failing is it
// a conflict.
func TestConcurrentChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		m, r := newManager(s)
		check.Must(t, m.Create(ctx, newJane("x")))
		before := hashes(r)
		others := 3
		s.onRead = func(string) { // Another change is faster, three times.
			if others--; others >= 0 {
				s.mu.Lock()
				last := s.events["$user-jane"][len(s.events["$user-jane"])-1]
				s.mu.Unlock()
				s.set("$user-jane", strings.Replace(string(last.Data), `"fullName":"`, `"fullName":"x`, 1))
			}
		}
		check.Must(t, m.ChangePassword(ctx, "jane", "x", "y"))
		if got, err := m.Get(ctx, "jane"); err != nil || got.FullName != "xxxJane Doe" {
			t.Fatalf("got %+v, %v", got, err)
		}
		if n := hashes(r) - before; n != 2 {
			t.Fatalf("%d hashes: one to verify and one to make are wanted", n)
		}
		check.MustEqual(t, len(s.events[access.NotificationsStream]), 1, "notifications")
		others = 1000
		check.MustBe(t, m.Update(ctx, "jane", "", nil), event.ErrUserConflict)
		others = 0

		// The password is changed by another while this one is being changed.
		others = 1
		s.onRead = func(string) {
			if others--; others == 0 {
				s.setUser(t, "jane", "z", false)
			}
		}
		check.MustBe(t, m.ChangePassword(ctx, "jane", "y", "a"), event.ErrNotAuthorized)
		s.onRead = nil
		check.Must(t, m.ChangePassword(ctx, "jane", "z", "a"))

		// And deleted by another.
		others = 1
		s.onRead = func(string) {
			if others--; others == 0 {
				check.Must(t, m.Delete(ctx, "jane"))
			}
		}
		check.MustBe(t, m.Update(ctx, "jane", "", nil), event.ErrUserNotFound)
	})
}

func TestConcurrentCreation(t *testing.T) {
	cases := []struct {
		name, password string
		want           error
		hashes         uint64
	}{
		{"same password", "x", nil, 2},
		{"other password", "y", event.ErrUserConflict, 2},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newStore()
			m, r := newManager(s)
			s.writeErr = func(w *event.Write) error {
				// Another is faster.
				if w.Stream == "$user-jane" && len(s.events["$user-jane"]) == 0 {
					other := newStore()
					other.setUser(t, "jane", c.password, false)
					s.append("$user-jane", other.events["$user-jane"][0])
				}
				return nil
			}
			check.MustBe(t, m.Create(ctx, newJane("x")), c.want)
			check.Equal(t, hashes(r), c.hashes, "hashes")
			if c.want == nil && len(s.events["$users"]) != 1 {
				t.Errorf("listed %d times", len(s.events["$users"]))
			}
		})
	}
}

func TestList(t *testing.T) {
	s := newStore()
	m, _ := newManager(s)
	if list, err := m.List(ctx); err != nil || list == nil || len(list) != 0 {
		t.Fatalf("got %v, %v", list, err)
	}
	const users = 3000
	data := strings.Replace(legacyUser, `"old"`, `"%s"`, 1)
	entry := func(login string) { s.append("$users", event.Record{Type: "$User", Data: []byte(login)}) }
	var want []access.Account
	for i := range users {
		login := fmt.Sprintf("user%04d", (i*7)%users)
		s.set("$user-"+login, fmt.Sprintf(data, login))
		entry(login)
		want = append(want, access.Account{Login: fmt.Sprintf("user%04d", i), FullName: "Old", Groups: []string{"$ops"}, Updated: time.Unix(0, now).UTC()})
	}
	entry("user0001") // Twice.
	entry("never")
	entry("")
	entry(strings.Repeat("x", event.MaxNameBytes))
	s.set("$users", "user0000") // No entry.
	s.softDelete("$user-user0000")
	s.lasts, s.pages = 0, 0
	got, err := m.List(ctx)
	check.Must(t, err)
	check.MustDeep(t, got, want[1:], len(got), "users")
	if s.lasts > users+2 || s.pages > 7 {
		t.Errorf("%d events and %d pages were read", s.lasts, s.pages)
	}

	s.setMetadata("$users", `{"$tb":2990}`)
	s.pages = 0
	if got, err = m.List(ctx); err != nil || len(got) != 11 || s.pages != 2 {
		t.Errorf("of the truncated stream: %d users in %d pages, %v", len(got), s.pages, err)
	}
	s.hardDelete("$users")
	if got, err = m.List(ctx); err != nil || len(got) != 0 {
		t.Errorf("of the deleted stream: %d users, %v", len(got), err)
	}
	s.readErr = event.ErrNotReady
	_, err = m.List(ctx)
	check.MustBe(t, err, event.ErrNotReady)
}

// A user that was created long ago is found among thousands, and not listed again.
func TestCreateAgainAmongThousands(t *testing.T) {
	s := newStore()
	m, _ := newManager(s)
	check.Must(t, m.Create(ctx, newJane("x")))
	for i := range 2000 {
		s.append("$users", event.Record{Type: "$User", Data: fmt.Append(nil, "user", i)})
	}
	s.writes = nil
	check.Must(t, m.Create(ctx, newJane("x")))
	s.wantWrites(t)
}
