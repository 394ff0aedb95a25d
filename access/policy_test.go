package access_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

var (
	jane = access.Principal{Login: "jane", Groups: []string{"billing"}}
	joe  = access.Principal{Login: "joe"}
	olga = access.Principal{Login: "olga", Groups: []string{"$ops"}}
	ada  = access.Principal{Login: "ada", Groups: []string{"$admins"}}
	all4 = []string{"jane", "joe", "olga", "ada"}

	everybody = []access.Principal{jane, joe, olga, ada}
)

// whoMay returns the logins that have the right. The targets of links are judged likewise.
func whoMay(t *testing.T, p *access.Policy, s *store, stream string, right access.Right) []string {
	t.Helper()
	var logins []string
	info := check.Value(s.StreamInfo(context.Background(), stream)).Must(t)
	for _, c := range everybody {
		err := p.CheckStream(context.Background(), c, stream, right)
		if may, linkErr := p.MayRead(context.Background(), &c, stream, &info); right == access.ReadRight && (linkErr != nil || may != (err == nil)) {
			t.Fatalf("a link to %s resolves for %s: %t, %v; a read: %v", stream, c.Login, may, linkErr, err)
		}
		if err == nil {
			logins = append(logins, c.Login)
		} else if !errors.Is(err, event.ErrNotAuthorized) {
			t.Fatal(err)
		}
	}
	return logins
}

func same(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestWorkedExamples(t *testing.T) {
	cases := []struct {
		name, stream, acl, settings string
		read, write, metaWrite      []string
	}{
		{"no list", "a", "", "", all4, all4, all4},
		{"one login", "a", `{"$r": "jane"}`, "", []string{"jane", "ada"}, all4, all4},
		{"group and login", "a", `{"$r": ["billing", "joe"], "$w": "billing"}`, "", []string{"jane", "joe", "ada"}, []string{"jane", "ada"}, all4},
		{"empty list", "a", `{"$r": [], "$mw": "$admins"}`, "", []string{"ada"}, all4, []string{"ada"}},
		{"list over settings", "a", `{"$r": "$all"}`, `{"$userStreamAcl": {"$r": "$admins"}}`, all4, all4, all4},
		{"system stream", "$ce-a", "", "", []string{"ada"}, []string{"ada"}, []string{"ada"}},
		{"system stream with list", "$ce-a", `{"$r": "$ops"}`, "", []string{"olga", "ada"}, []string{"ada"}, []string{"ada"}},
		{"system stream with settings", "$ce-a", "", `{"$systemStreamAcl": {"$r": ["$admins", "joe"]}}`, []string{"joe", "ada"}, []string{"ada"}, []string{"ada"}},

		{"list with the empty role", "a", `{"$r": ""}`, "", []string{"ada"}, all4, all4},
		{"null counts as not mentioned", "a", `{"$r": null}`, "", all4, all4, all4},
		{"user settings", "a", "", `{"$userStreamAcl": {"$w": "joe", "$mw": []}}`, all4, []string{"joe", "ada"}, []string{"ada"}},
		{"user settings do not touch system streams", "$a", "", `{"$userStreamAcl": {"$r": "$all"}}`, []string{"ada"}, []string{"ada"}, []string{"ada"}},
		{"settings that are no JSON", "a", "", `{"$userStreamAcl`, all4, all4, all4},
		{"settings that are no object", "a", "", `[]`, all4, all4, all4},
		{"one member of settings malformed", "a", "", `{"$systemStreamAcl": 5, "$userStreamAcl": {"$w": "joe"}}`, all4, []string{"joe", "ada"}, all4},
		{"malformed metadata", "a", `{"$r": 5}`, "", all4, all4, all4},
		{"the log", "$all", "", "", []string{"ada"}, nil, []string{"ada"}},
		{"the log with list", "$all", `{"$r": "$ops", "$w": "$all"}`, "", []string{"olga", "ada"}, nil, []string{"ada"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newStore()
			if c.acl != "" {
				s.setMetadata(c.stream, `{"$acl": `+c.acl+`}`)
			}
			if c.settings != "" {
				// Only the last counts.
				s.set(event.SettingsStream, `{"$userStreamAcl": {"$r": [], "$w": [], "$mw": []}}`)
				s.set(event.SettingsStream, c.settings)
			}
			p := access.NewPolicy(s, access.PolicyOptions{})
			check := func(right access.Right, want []string) {
				t.Helper()
				if got := whoMay(t, p, s, c.stream, right); !same(got, want) {
					t.Errorf("%v: got %v, want %v", right, got, want)
				}
			}
			check(access.ReadRight, c.read)
			check(access.WriteRight, c.write)
			check(access.MetaWriteRight, c.metaWrite)
			if got := whoMay(t, p, s, "$$"+c.stream, access.WriteRight); !same(got, c.metaWrite) {
				t.Errorf("append to the metadata stream: got %v, want %v", got, c.metaWrite)
			}
		})
	}
}

func TestMetadataStreams(t *testing.T) {
	s := newStore()
	s.setMetadata("a", `{"$acl": {"$r": "jane", "$w": "joe", "$d": "olga", "$mr": "joe", "$mw": "jane"}}`)
	p := access.NewPolicy(s, access.PolicyOptions{})
	cases := []struct {
		name, stream string
		right        access.Right
		want         []string
	}{
		{"read", "a", access.ReadRight, []string{"jane", "ada"}},
		{"write", "a", access.WriteRight, []string{"joe", "ada"}},
		{"delete", "a", access.DeleteRight, []string{"olga", "ada"}},
		{"read metadata", "a", access.MetaReadRight, []string{"joe", "ada"}},
		{"write metadata", "a", access.MetaWriteRight, []string{"jane", "ada"}},
		{"read $$", "$$a", access.ReadRight, []string{"joe", "ada"}},
		{"write $$", "$$a", access.WriteRight, []string{"jane", "ada"}},
		{"delete $$", "$$a", access.DeleteRight, nil},
		{"metadata of $$", "$$a", access.MetaReadRight, []string{"joe", "ada"}},
		{"write metadata of $$", "$$$$a", access.WriteRight, []string{"jane", "ada"}},
		{"no list of its own", "$$b", access.WriteRight, all4},
		{"of a system stream", "$$$b", access.WriteRight, []string{"ada"}},
		{"of the log", "$$$all", access.WriteRight, []string{"ada"}},
		{"delete the metadata of the log", "$$$all", access.DeleteRight, nil},
		{"of nothing", "$$", access.WriteRight, []string{"ada"}},
		{"delete the log", "$all", access.DeleteRight, nil},
		{"no such right", "a", access.Right(99), []string{"ada"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := whoMay(t, p, s, c.stream, c.right); !same(got, c.want) {
				t.Fatalf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestWhoIsJudged(t *testing.T) {
	s := newStore()
	s.setMetadata("closed", `{"$acl": {"$r": "$admins", "$w": ["", "jane"]}}`)
	s.setMetadata("admins", `{"$acl": {"$r": []}}`)
	s.setMetadata("operators", `{"$acl": {"$r": "$ops"}}`)
	odd := access.Principal{Login: "odd", Groups: []string{""}}
	strict := access.PolicyOptions{}
	open := access.PolicyOptions{AllowAnonymousStreamAccess: true}
	insecure := access.PolicyOptions{Insecure: true}
	cases := []struct {
		name   string
		opts   access.PolicyOptions
		caller access.Principal
		stream string
		right  access.Right
		want   bool
	}{
		{"anonymous, strict", strict, access.Anonymous, "a", access.ReadRight, false},
		{"anonymous, open", open, access.Anonymous, "a", access.WriteRight, true},
		{"anonymous, open, closed stream", open, access.Anonymous, "closed", access.WriteRight, false},
		{"anonymous, open, system stream", open, access.Anonymous, "$ce-a", access.ReadRight, false},
		{"anonymous with groups", open, access.Principal{Groups: []string{"$admins"}}, "closed", access.ReadRight, false},
		{"empty group", strict, odd, "closed", access.WriteRight, false},
		{"the user admin without groups", strict, access.Principal{Login: "admin"}, "admins", access.ReadRight, true},
		{"the user ops", strict, access.Principal{Login: "ops"}, "$ce-a", access.ReadRight, false},
		{"the user ops without groups", strict, access.Principal{Login: "ops"}, "operators", access.ReadRight, true},
		{"not in $ops", strict, joe, "operators", access.ReadRight, false},
		{"the system account", strict, access.System, "admins", access.ReadRight, true},
		{"a user called system", strict, access.Principal{Login: "system"}, "admins", access.ReadRight, false},
		{"insecure", insecure, access.Anonymous, "admins", access.ReadRight, true},
		{"insecure, the log", insecure, access.System, "$all", access.ReadRight, true},
		{"insecure, write to the log", insecure, access.System, "$all", access.WriteRight, false},
		{"insecure, delete metadata", insecure, access.System, "$$a", access.DeleteRight, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := access.NewPolicy(s, c.opts).CheckStream(context.Background(), c.caller, c.stream, c.right)
			if (err == nil) != c.want || err != nil && !errors.Is(err, event.ErrNotAuthorized) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

func TestSettingsChange(t *testing.T) {
	s := newStore()
	p := access.NewPolicy(s, access.PolicyOptions{})
	step := func(name string, want ...string) {
		t.Helper()
		for range 3 {
			if got := whoMay(t, p, s, "a", access.ReadRight); !same(got, want) {
				t.Fatalf("%s: got %v, want %v", name, got, want)
			}
		}
	}
	step("none", all4...)
	s.set("$settings", `{"$userStreamAcl": {"$r": "jane"}}`)
	step("first", "jane", "ada")
	s.set("$settings", `{"$userStreamAcl": {"$r": "joe"}}`)
	step("second", "joe", "ada")
	reads := s.lasts
	step("unchanged", "joe", "ada")
	check.MustEqual(t, s.lasts, reads, "unchanged settings were read", s.lasts-reads, "times")
	s.softDelete("$settings")
	step("deleted", all4...)
	s.setMetadata("$settings", `{}`)
	step("shown again", "joe", "ada")
	s.set("$settings", `nonsense`)
	step("unparseable", all4...)
	s.setMetadata("a", `{"$acl": {"$r": "jane"}}`)
	step("list of the stream", "jane", "ada")
}

// A change that is committed between looking at the state of $settings and
// reading it must not be kept from the callers after it.
func TestSettingsChangeDuringRead(t *testing.T) {
	s := newStore()
	s.set("$settings", `{"$userStreamAcl": {"$r": "jane"}}`)
	p := access.NewPolicy(s, access.PolicyOptions{})
	var once sync.Once
	s.onRead = func(string) {
		once.Do(func() { s.set("$settings", `{"$userStreamAcl": {"$r": "joe"}}`) })
	}
	if err := p.CheckStream(context.Background(), jane, "a", access.ReadRight); err != nil {
		t.Fatal(err) // It began before the change.
	}
	if got, want := whoMay(t, p, s, "a", access.ReadRight), []string{"joe", "ada"}; !same(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestPolicyErrors(t *testing.T) {
	s := newStore()
	s.readErr = event.ErrNotReady
	p := access.NewPolicy(s, access.PolicyOptions{})
	if err := p.CheckStream(context.Background(), jane, "a", access.ReadRight); !errors.Is(err, event.ErrNotReady) || errors.Is(err, event.ErrNotAuthorized) {
		t.Fatalf("got %v", err)
	}
	for _, err := range []error{event.ErrStreamNotFound, event.ErrStreamDeleted} {
		s.readErr = err
		check.Must(t, p.CheckStream(context.Background(), jane, "a", access.ReadRight))
	}
}

func TestCheckLevel(t *testing.T) {
	named := func(login string) access.Principal { return access.Principal{Login: login} }
	levels := []access.Level{access.Anon, access.Auth, access.Ops, access.Admin, access.SystemLevel}
	cases := []struct {
		name    string
		caller  access.Principal
		highest access.Level
	}{
		{"anonymous", access.Anonymous, access.Anon},
		{"user", jane, access.Auth},
		{"a user called system", named("system"), access.Auth},
		{"in $ops", olga, access.Ops},
		{"called ops", named("ops"), access.Ops},
		{"in $admins", ada, access.Admin},
		{"called admin", named("admin"), access.Admin},
		{"system", access.System, access.SystemLevel},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for _, l := range levels {
				err := access.CheckLevel(c.caller, l)
				if (err == nil) != (l <= c.highest) || err != nil && !errors.Is(err, event.ErrNotAuthorized) {
					t.Errorf("level %v: %v", l, err)
				}
			}
			if access.CheckLevel(c.caller, access.Level(99)) == nil {
				t.Error("an unknown level is open")
			}
		})
	}
}

func BenchmarkCheckStream(b *testing.B) {
	p := access.NewPolicy(quick{}, access.PolicyOptions{})
	b.ReportAllocs()
	for b.Loop() {
		check.Must(b, p.CheckStream(context.Background(), jane, "account-12", access.ReadRight))
	}
}

// quick answers without work, so that only the decision is measured.
type quick struct{}

func (quick) StreamInfo(context.Context, string) (event.StreamInfo, error) {
	return event.StreamInfo{Last: 3, MetaLast: -1}, nil
}

func (quick) LastEvent(context.Context, string) (event.Record, error) {
	return event.Record{Data: []byte(`{"$userStreamAcl": {"$r": ["a", "billing"]}}`)}, nil
}
