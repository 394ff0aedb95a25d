package access_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/stats"
)

// renewing returns an authenticator that stores what it is given to upgrade, and the versions it
// was given.
func renewing(t *testing.T, s *store, before func()) (*access.Authenticator, *stats.Registry, func() []int64) {
	var mu sync.Mutex
	var versions []int64
	a, r := newAuthenticator(t, s, access.AuthenticatorOptions{Upgrade: func(u access.User, version int64) {
		before()
		mu.Lock()
		defer mu.Unlock()
		versions = append(versions, version)
		w, err := access.UpgradeWrite(u, version)
		if err != nil {
			t.Error(err)
			return
		}
		var conflict *event.WrongExpectedVersion
		if _, err := s.Write(context.Background(), w); err != nil && !errors.As(err, &conflict) {
			t.Error(err)
		}
	}})
	return a, r, func() []int64 {
		mu.Lock()
		defer mu.Unlock()
		return versions
	}
}

func lastUser(t *testing.T, s *store, login string) *access.User {
	t.Helper()
	r := check.Value(s.LastEvent(context.Background(), access.UserStream(login))).Must(t)
	u := check.Value(access.DecodeUser(r.Data)).Must(t)
	return u
}

func TestUpgradeOnLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.set("$user-old", `{}`)
		s.set("$user-old", legacyUser)
		s.setUser(t, "jane", "x", false)
		a, r, versions := renewing(t, s, func() {})
		check.Must(t, errors.Join(login(a, "old:changeit"), login(a, "jane:x")))
		check.MustBe(t, login(a, "old:wrong"), event.ErrNotAuthorized)
		synctest.Wait()
		check.MustDeep(t, versions(), []int64{1}, "upgraded")
		u := lastUser(t, s, "old")
		want := &access.User{LoginName: "old", FullName: "Old", Groups: []string{"$ops"}, Salt: u.Salt, Hash: u.Hash, Algorithm: "pbkdf2-sha256", Iterations: 1}
		if !reflect.DeepEqual(u, want) || len(u.Hash) != 32 {
			t.Fatalf("stored %+v", u)
		}
		if last := s.events["$user-old"][2]; last.Type != access.TypeUserUpdated || !last.IsJSON() || len(s.events[access.NotificationsStream]) != 0 {
			t.Fatalf("stored %+v, and %d notifications", last, len(s.events[access.NotificationsStream]))
		}
		check.Must(t, login(a, "old:changeit"))
		a.Close()
		if got := versions(); len(got) != 1 {
			t.Fatalf("upgraded again: %v", got)
		}
		if got := r.Counter("annals_access_upgrades_total", "").Value(); got != 1 {
			t.Fatalf("%d upgrades counted", got)
		}
	})
}

// While one upgrade runs, others are left for the next login. A change made in the meantime wins.
// Close waits and lets no upgrade begin.
func TestUpgradesOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.set("$user-old", legacyUser)
		s.set("$user-old2", strings.Replace(legacyUser, `"old"`, `"old2"`, 1))
		goOn := make(chan struct{})
		a, _, versions := renewing(t, s, func() { <-goOn })
		check.Must(t, errors.Join(login(a, "old:changeit"), login(a, "old2:changeit")))
		s.setUser(t, "old", "changed", false)
		closed := make(chan struct{})
		go func() { a.Close(); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Fatal("closed before the upgrade was done")
		default:
		}
		close(goOn)
		<-closed
		check.MustDeep(t, versions(), []int64{0}, "upgraded")
		check.Must(t, login(a, "old:changed"), "the change was lost")
		s.setMetadata("$user-old2", `{}`) // No longer in the cache.
		if err := login(a, "old2:changeit"); err != nil || len(versions()) != 1 {
			t.Fatalf("after Close: %v, upgraded %v", err, versions())
		}
		a.Close()
	})
}

// The time of a refusal tells nothing of a disabled user with a weak hash either.
func TestDisabledLegacyRefusalCostsAsMuch(t *testing.T) {
	s := newStore()
	s.set("$user-old", strings.Replace(legacyUser, `{`, `{"disabled":true,`, 1))
	a, r := newAuthenticator(t, s, access.AuthenticatorOptions{})
	check.MustBe(t, login(a, "old:changeit"), event.ErrNotAuthorized)
	check.MustEqual(t, hashes(r), 2, "hashes: the legacy one and one of today are wanted")
}
