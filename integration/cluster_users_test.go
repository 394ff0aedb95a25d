package integration_test

import (
	"crypto/pbkdf2"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestLongClusterUserManagement manages users through followers that redirect and followers
// that relay, with logins in the caches of all nodes.
func TestLongClusterUserManagement(t *testing.T) {
	t.Parallel()
	c, leader, redirecting, relaying := startForwarding(t)

	t.Run("creation through a follower", func(t *testing.T) {
		c.in(t)
		create := func(login string) testkit.Request {
			return userRequest(http.MethodPost, "/users/", fmt.Sprintf(`{"loginName":%q,"fullName":"Somebody","groups":["billing"],"password":"first"}`, login))
		}
		answer, err := redirecting.ask(create("jane"))
		if want := leader.URL() + "/users/"; err != nil || answer.Status != http.StatusTemporaryRedirect || answer.Header.Get("Location") != want {
			t.Fatalf("a follower that redirects: %s, Location %q, %v, want 307 to %s", answer, answer.Header.Get("Location"), err, want)
		}
		redirecting.manage(create("jane"), http.StatusCreated)
		answer = relaying.manage(create("joe"), http.StatusCreated)
		if got, want := answer.Header.Get("Location"), relaying.URL()+"/users/joe"; got != want {
			t.Errorf("a follower that relays: Location %q, want %q", got, want)
		}
		for _, login := range []string{"jane", "joe"} {
			c.inForce("creation of "+login, func(m *member) error { return m.letsIn(login, "first", "billing") })
		}
		relaying.manage(create("joe"), http.StatusCreated) // Again, with the same password.
		other := create("joe")
		other.Body = []byte(strings.Replace(string(other.Body), "first", "second", 1))
		relaying.manage(other, http.StatusConflict)
	})

	t.Run("changes", func(t *testing.T) {
		c.in(t)
		c.userChanges(redirecting, relaying)
	})
	c.identical()
	c.finish()
}

// TestLongClusterUsers changes users while the leader dies, and brings in one of an old release.
func TestLongClusterUsers(t *testing.T) {
	t.Parallel()
	c, _, _, relaying := startForwarding(t)
	relaying.manage(userRequest(http.MethodPost, "/users/", `{"loginName":"joe","groups":["billing"],"password":"first"}`), http.StatusCreated)
	c.level()
	t.Run("weak hash", func(t *testing.T) {
		c.in(t)
		c.hashUpgrade(relaying)
	})

	t.Run("leader killed", func(t *testing.T) {
		c.in(t)
		leader, followers := c.settled()
		c.lets("joe", "first")
		followers[0].manage(resetPassword("joe", "second"), http.StatusOK)
		leader.kill()
		// Followers may hear that it is committed from the next leader only.
		_, followers = c.settled()
		c.inForce("password reset before the leader's end, under a new leader", refusesAndLetsIn("joe", "first", "second"))
		followers[0].manage(userRequest(http.MethodPost, "/users/joe/command/disable", ""), http.StatusOK)
		c.inForce("disabled under a new leader", func(m *member) error { return m.refuses("joe", "second") })
		leader.start()
		c.settled()
		testkit.Eventually(t, settleLimit, func() error { return leader.health("/health/ready", http.StatusNoContent) })
		c.inForce("disabled, on the node that was away", func(m *member) error { return m.refuses("joe", "second") })
		leader.manage(userRequest(http.MethodPost, "/users/joe/command/enable", ""), http.StatusOK)
		c.inForce("enabled", func(m *member) error { return m.letsIn("joe", "second") })
	})
	c.identical()
	c.finish()
}

// userChanges makes every kind of change while the login is cached everywhere.
func (c *cluster) userChanges(redirecting, relaying *member) {
	t := c.t
	changes := []struct {
		what   string
		before string // password by which every node knows the user
		r      testkit.Request
		status int
		is     func(*member) error
	}{
		{"password reset", "first", resetPassword("jane", "second"), http.StatusOK, refusesAndLetsIn("jane", "first", "second")},
		{"password changed by the user", "second", asUser("jane", "second",
			userRequest(http.MethodPost, "/users/jane/command/change-password", `{"currentPassword":"second","newPassword":"third"}`)),
			http.StatusOK, refusesAndLetsIn("jane", "second", "third")},
		{"disabled", "third", userRequest(http.MethodPost, "/users/jane/command/disable", ""), http.StatusOK,
			func(m *member) error { return m.refuses("jane", "third") }},
		{"enabled", "", userRequest(http.MethodPost, "/users/jane/command/enable", ""), http.StatusOK,
			func(m *member) error { return m.letsIn("jane", "third", "billing") }},
		{"groups changed", "third", userRequest(http.MethodPut, "/users/jane", `{"fullName":"Jane","groups":["sales"]}`), http.StatusOK,
			func(m *member) error { return m.letsIn("jane", "third", "sales") }},
		{"deleted", "third", userRequest(http.MethodDelete, "/users/jane", ""), http.StatusNoContent,
			func(m *member) error { return m.refuses("jane", "third") }},
		{"created again", "", userRequest(http.MethodPost, "/users/", `{"loginName":"jane","groups":["audit"],"password":"fourth"}`), http.StatusCreated,
			func(m *member) error {
				return errors.Join(m.letsIn("jane", "fourth", "audit"), m.refuses("jane", "third"))
			}},
	}
	for i, change := range changes {
		if change.before != "" {
			c.lets("jane", change.before)
		}
		through := []*member{redirecting, relaying}[i%2]
		through.manage(change.r, change.status)
		c.inForce(change.what, change.is)
	}
	wrong := asUser("jane", "fourth", userRequest(http.MethodPost, "/users/jane/command/change-password", `{"currentPassword":"guessed","newPassword":"fifth"}`))
	relaying.manage(wrong, http.StatusUnauthorized)
	relaying.manage(userRequest(http.MethodPost, "/users/jane/command/change-password", `{"currentPassword":"fourth","newPassword":"fifth"}`), http.StatusUnauthorized)
	check.NoError(t, relaying.letsIn("jane", "fourth", "audit"), "after refused changes")
}

// hashUpgrade brings in a user as an old release stored it. Its first login upgrades the hash.
func (c *cluster) hashUpgrade(follower *member) {
	t := c.t
	salt := []byte("sixteen bytes !!")
	hash := check.Value(pbkdf2.Key(sha1.New, "of old", salt, 1000, 20)).Must(t)
	type stored struct {
		Login      string   `json:"loginName"`
		Name       string   `json:"fullName"`
		Salt       string   `json:"salt"`
		Hash       string   `json:"hash"`
		Groups     []string `json:"groups"`
		Algorithm  string   `json:"alg,omitempty"`
		Iterations int      `json:"iter,omitempty"`
	}
	old := stored{Login: "veteran", Name: "Old Hand", Groups: []string{"crew"}, Salt: base64.StdEncoding.EncodeToString(salt), Hash: base64.StdEncoding.EncodeToString(hash)}
	body := check.Value(json.Marshal(old)).Must(t)
	follower.manage(testkit.Request{Path: "/streams/%24user-veteran", Admin: true, Body: body, Header: map[string]string{
		"Content-Type": testkit.MediaJSON, testkit.HeaderEventType: "$UserCreated", testkit.HeaderEventID: bigEvent(700_001).ID,
	}}, http.StatusCreated)
	c.level()
	check.NoError(t, follower.refuses("veteran", "of new"))
	least := 600_000
	if testkit.BuildTags() != nil { // Nodes with the tag invariants hash faster.
		least = 1000
	}
	// A node that is still hashing something else puts the upgrade off until the next login.
	testkit.Eventually(t, settleLimit, func() error {
		if err := follower.letsIn("veteran", "of old", "crew"); err != nil {
			return err
		}
		entries, err := follower.ReadStream(t.Context(), "$user-veteran", 0)
		if err != nil {
			return err
		}
		last := entries[len(entries)-1]
		var now stored
		if err := json.Unmarshal([]byte(last.Data), &now); err != nil {
			return err
		}
		if last.Type != "$UserUpdated" || now.Algorithm != "pbkdf2-sha256" {
			return fmt.Errorf("the last of %d events is %s %s", len(entries), last.Type, last.Data)
		}
		if len(entries) != 2 || now.Iterations < least || now.Hash == old.Hash || now.Salt == old.Salt || now.Login != old.Login || now.Name != old.Name || !slices.Equal(now.Groups, old.Groups) {
			t.Errorf("%d events, the last is %s", len(entries), last.Data)
		}
		return nil
	})
	c.inForce("upgraded hash", func(m *member) error { return m.letsIn("veteran", "of old", "crew") })
}

func userRequest(method, path, body string) testkit.Request {
	r := testkit.Request{Method: method, Path: path, Admin: true}
	if body != "" {
		r.Body, r.Header = []byte(body), map[string]string{"Content-Type": testkit.MediaJSON}
	}
	return r
}

func asUser(login, password string, r testkit.Request) testkit.Request {
	r.Admin, r.User, r.Password = false, login, password
	return r
}

func resetPassword(login, password string) testkit.Request {
	return userRequest(http.MethodPost, "/users/"+login+"/command/reset-password", fmt.Sprintf(`{"newPassword":%q}`, password))
}

// askReady asks again when nothing was done because a leader is being replaced, as on a busy
// machine at any time.
func (m *member) askReady(r testkit.Request) (answer testkit.Response, err error) {
	testkit.Eventually(m.cluster.t, settleLimit, func() error {
		if answer, err = m.ask(r); err == nil && answer.Status == http.StatusServiceUnavailable {
			return fmt.Errorf("%s: %s", m, answer)
		}
		return nil
	})
	return answer, err
}

// manage sends a request to the node, and with the same credentials to where it
// is redirected, and demands a status of the answer.
func (m *member) manage(r testkit.Request, status int) testkit.Response {
	t := m.cluster.t
	t.Helper()
	answer, err := m.askReady(r)
	if err == nil && answer.Status == http.StatusTemporaryRedirect {
		r.Path = answer.Header.Get("Location")
		answer, err = m.askReady(r)
	}
	check.Must(t, err)
	check.MustEqual(t, answer.Status, status, m, r.Method, r.Path, answer)
	return answer
}

// login is what the node says to a login, and the roles that it knows of the user.
func (m *member) login(login, password string) (status int, roles []string, err error) {
	answer, err := m.askReady(testkit.Request{Path: "/admin/login", User: login, Password: password, Header: map[string]string{"Accept": testkit.MediaJSON}})
	if err != nil || answer.Status != http.StatusOK {
		return answer.Status, nil, err
	}
	var envelope struct{ Data struct{ Groups []string } }
	err = json.Unmarshal(answer.Body, &envelope)
	return answer.Status, envelope.Data.Groups, err
}

// letsIn returns nil when the node takes the password, and knows the user's roles if any are given.
func (m *member) letsIn(login, password string, roles ...string) error {
	status, have, err := m.login(login, password)
	if err != nil || status != http.StatusOK {
		return fmt.Errorf("%s answers %d to %s:%s, %v", m, status, login, password, err)
	}
	for _, role := range roles {
		if !slices.Contains(have, role) {
			return fmt.Errorf("to %s the roles of %s are %q", m, login, have)
		}
	}
	return nil
}

// refuses returns nil when the node answers 401.
func (m *member) refuses(login, password string) error {
	if status, _, err := m.login(login, password); err != nil || status != http.StatusUnauthorized {
		return fmt.Errorf("%s answers %d to %s:%s, %v", m, status, login, password, err)
	}
	return nil
}

// lets logs a user in at every node, which the node remembers from then on.
func (c *cluster) lets(login, password string) {
	c.t.Helper()
	for _, m := range c.running() {
		testkit.Eventually(c.t, settleLimit, func() error { return m.letsIn(login, password) })
	}
}

// refusesAndLetsIn is about a changed password.
func refusesAndLetsIn(login, old, current string) func(*member) error {
	return func(m *member) error {
		if err := m.refuses(login, old); err != nil {
			return err
		}
		return m.letsIn(login, current)
	}
}

// inForce demands that a change counts in the first answer of every node after it: a node remembers
// logins only until then.
func (c *cluster) inForce(what string, is func(*member) error) {
	c.t.Helper()
	c.level()
	for _, m := range c.running() {
		check.NoError(c.t, is(m), what)
	}
}
