package access_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

func ensure(s *store) error {
	return access.EnsureDefaultUsers(context.Background(), s, 1, "", "secret")
}

// logins returns what $users holds.
func logins(s *store) (all []string) {
	for _, r := range s.events["$users"] {
		all = append(all, r.Type+" "+string(r.Data))
	}
	return all
}

var bothListed = []string{"$User admin", "$User ops"}

func TestEnsureDefaultUsers(t *testing.T) {
	s := newStore()
	check.Must(t, ensure(s))
	want := []string{
		"$$$user-admin $metadata 1 -1", "$user-admin $UserCreated 1 -1", "$users $User 0 -2",
		"$$$user-ops $metadata 1 -1", "$user-ops $UserCreated 1 -1", "$users $User 0 -2",
	}
	var got []string
	for _, w := range s.writes {
		got = append(got, fmt.Sprintf("%s %s %d %d", w.Stream, w.Events[0].Type, w.Events[0].Flags, w.ExpectedVersion))
	}
	if !same(got, want) {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
	if got := logins(s); !same(got, bothListed) {
		t.Fatalf("listed: %q", got)
	}
	if got := string(s.events["$$$user-ops"][0].Data); got != access.UserStreamMetadata {
		t.Fatalf("metadata: %s", got)
	}
	u, err := access.DecodeUser(s.events["$user-ops"][0].Data)
	if err != nil || u.LoginName != "ops" || u.FullName != "Event Store Operations" || !same(u.Groups, []string{"$ops"}) || u.Disabled {
		t.Fatalf("got %+v, %v", u, err)
	}
	u, err = access.DecodeUser(s.events["$user-admin"][0].Data)
	if err != nil || u.FullName != "Event Store Administrator" || !same(u.Groups, []string{"$admins"}) {
		t.Fatalf("got %+v, %v", u, err)
	}
	a, _ := newAuthenticator(t, s, access.AuthenticatorOptions{})
	check.Must(t, errors.Join(login(a, "admin:changeit"), login(a, "ops:secret")))

	before := len(s.writes)
	if err := ensure(s); err != nil || len(s.writes) != before {
		t.Fatalf("again: %d more writes, %v", len(s.writes)-before, err)
	}
}

func TestDefaultUsersThatExisted(t *testing.T) {
	cases := []struct {
		name   string
		change func(s *store)
	}{
		{"deleted", func(s *store) { s.softDelete("$user-admin"); s.softDelete("$user-ops") }},
		{"changed", func(s *store) { s.setUser(t, "admin", "other", false); s.setUser(t, "ops", "x", true) }},
		{"deleted and scavenged", func(s *store) {
			s.softDelete("$user-admin")
			delete(s.events, "$user-admin")
		}},
		{"more users", func(s *store) { s.set("$users", "jane"); s.set("$users", "admin") }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newStore()
			check.Must(t, ensure(s))
			s.ids = map[event.ID]bool{} // Idempotency does not remember for ever.
			c.change(s)
			before := len(s.writes)
			if err := ensure(s); err != nil || len(s.writes) != before {
				t.Fatalf("%d more writes, %v", len(s.writes)-before, err)
			}
		})
	}
}

// Whichever write fails, with or without having been written, the next run completes what is
// missing and doubles nothing.
func TestDefaultUsersInterrupted(t *testing.T) {
	for _, forgets := range []bool{false, true} {
		for _, written := range []bool{false, true} {
			for at := range 6 {
				t.Run(fmt.Sprintf("write %d, written=%v, ids forgotten=%v", at, written, forgets), func(t *testing.T) {
					s := newStore()
					n := 0
					s.writeErr = func(w *event.Write) error {
						n++
						if n-1 != at {
							return nil
						}
						if written {
							e := w.Events[0]
							s.ids[e.ID] = true
							s.append(w.Stream, event.Record{ID: e.ID, Type: e.Type, Data: e.Data})
						}
						return event.ErrOutcomeUnknown
					}
					check.MustBe(t, ensure(s), event.ErrOutcomeUnknown)
					if forgets {
						s.ids = map[event.ID]bool{}
					}
					check.Must(t, ensure(s))
					if got := logins(s); !same(got, bothListed) {
						t.Fatalf("listed: %q", got)
					}
					for _, stream := range []string{"$user-admin", "$user-ops", "$$$user-admin", "$$$user-ops"} {
						check.MustEqual(t, len(s.events[stream]), 1, stream, "has ... events")
					}
				})
			}
		}
	}
}

func TestDefaultUsersLostRace(t *testing.T) {
	s := newStore()
	s.writeErr = func(w *event.Write) error {
		if w.Stream == "$user-admin" { // Another leader was here just now.
			return &event.WrongExpectedVersion{Stream: w.Stream, Expected: -1, Current: 0}
		}
		if w.Stream == "$$$user-ops" {
			return event.ErrStreamDeleted
		}
		return nil
	}
	check.Must(t, ensure(s))
	s = newStore()
	s.readErr = event.ErrNotReady
	check.MustBe(t, ensure(s), event.ErrNotReady)
}
