package access_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// What becomes of a caller whose request lasts, by what is done to the user meanwhile.
func TestRenew(t *testing.T) {
	refused := event.ErrNotAuthorized
	for _, c := range []struct {
		name   string
		change func(t *testing.T, s *store, m *access.Manager)
		groups string // the last one then
		err    error
	}{
		{"nothing", func(*testing.T, *store, *access.Manager) {}, "billing", nil},
		{"deleted", func(t *testing.T, _ *store, m *access.Manager) { check.Must(t, m.Delete(t.Context(), "jane")) }, "", refused},
		{"stream deleted", func(_ *testing.T, s *store, _ *access.Manager) { s.softDelete("$user-jane") }, "", refused},
		{"stream hard-deleted", func(_ *testing.T, s *store, _ *access.Manager) { s.hardDelete("$user-jane") }, "", refused},
		{"disabled", func(t *testing.T, _ *store, m *access.Manager) {
			check.Must(t, m.SetDisabled(t.Context(), "jane", true))
		}, "", refused},
		{"disabled and enabled", func(t *testing.T, _ *store, m *access.Manager) {
			check.Must(t, m.SetDisabled(t.Context(), "jane", true))
			check.Must(t, m.SetDisabled(t.Context(), "jane", false))
		}, "billing", nil},
		{"other password", func(t *testing.T, _ *store, m *access.Manager) {
			check.Must(t, m.ResetPassword(t.Context(), "jane", "other"))
		}, "", refused},
		{"other password of her own", func(t *testing.T, _ *store, m *access.Manager) {
			check.Must(t, m.ChangePassword(t.Context(), "jane", "secret", "other"))
		}, "", refused},
		{"deleted and made again", func(t *testing.T, _ *store, m *access.Manager) {
			check.Must(t, m.Delete(t.Context(), "jane"))
			check.Must(t, m.Create(t.Context(), newJane("secret")))
		}, "", refused},
		{"other groups", func(t *testing.T, _ *store, m *access.Manager) {
			check.Must(t, m.Update(t.Context(), "jane", "Jane", []string{"sales"}))
		}, "sales", nil},
		{"other name", func(t *testing.T, _ *store, m *access.Manager) {
			check.Must(t, m.Update(t.Context(), "jane", "Jane Roe", []string{"billing"}))
		}, "billing", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				m, _ := newManager(s)
				jane := newJane("secret")
				jane.Groups = []string{"billing"}
				check.Must(t, m.Create(t.Context(), jane))
				a, _ := newAuthenticator(t, s, access.AuthenticatorOptions{})
				was, err := header(t.Context(), a, "192.0.2.1:1000", basic("jane:secret"))
				check.Must(t, err)
				c.change(t, s, m)
				for range 2 {
					is, err := a.Renew(t.Context(), was)
					check.MustBe(t, err, c.err)
					if err == nil && is.Groups[len(is.Groups)-1] != c.groups {
						t.Fatalf("got %+v", is)
					}
				}
			})
		})
	}
}

// Callers who are not stored users stay who they are.
func TestRenewOthers(t *testing.T) {
	a, _ := newAuthenticator(t, newStore(), access.AuthenticatorOptions{})
	for _, p := range []access.Principal{access.Anonymous, access.System, {Login: "proxied", Groups: []string{"g"}}} {
		if got, err := a.Renew(t.Context(), p); err != nil || !sameCaller(got, p) {
			t.Fatalf("got %+v, %v, want %+v", got, err, p)
		}
	}
}

// A user stays logged in when the node stores a stronger hash of the same password.
func TestRenewAfterUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.set("$user-old", legacyUser)
		a, _, _ := renewing(t, s, func() {})
		was, err := header(context.Background(), a, "192.0.2.1:1000", basic("old:changeit"))
		check.Must(t, err)
		synctest.Wait()
		if lastUser(t, s, "old").Algorithm == "" {
			t.Fatal("the hash was not made again")
		}
		if got, err := a.Renew(t.Context(), was); err != nil || got.Login != "old" {
			t.Fatalf("got %+v, %v", got, err)
		}
		m, _ := newManager(s)
		check.Must(t, m.ResetPassword(t.Context(), "old", "other"))
		check.MustBe(t, check.Err(a.Renew(t.Context(), was)), event.ErrNotAuthorized)
	})
}

// While users cannot be read nothing is said of the caller.
func TestRenewUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.setUser(t, "jane", "secret", false)
		a, _ := newAuthenticator(t, s, access.AuthenticatorOptions{})
		was := check.Value(header(t.Context(), a, "192.0.2.1:1000", basic("jane:secret"))).Must(t)
		s.mu.Lock()
		s.readErr = event.ErrNotReady
		s.mu.Unlock()
		check.MustBe(t, check.Err(a.Renew(t.Context(), was)), event.ErrNotInitialized)
	})
}
