package node

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// fewUsers is a store that holds the last event of some users.
type fewUsers struct {
	access.ManagerStore
	users atomic.Pointer[map[string]string] // passwords by stream; nil: nothing can be read
	t     *testing.T
}

func (s *fewUsers) LastEvent(ctx context.Context, stream string) (event.Record, error) {
	users := s.users.Load()
	if users == nil {
		return event.Record{}, errors.New("not now")
	}
	password, ok := (*users)[stream]
	if !ok {
		return event.Record{}, event.ErrStreamNotFound
	}
	login := strings.TrimPrefix(stream, "$user-")
	u := access.User{LoginName: login, Disabled: password == "disabled"}
	if u.Disabled {
		password = access.DefaultPassword
	}
	hash, err := access.NewHasher(access.HasherOptions{Iterations: 1}).Hash(ctx, login, password)
	check.NoError(s.t, err)
	u.SetPassword(hash)
	data, err := access.EncodeUser(&u)
	check.NoError(s.t, err)
	return event.Record{Data: data}, nil
}

// TestDefaultPasswordsAreWarnedOf at the start and every day, until they are changed.
func TestDefaultPasswordsAreWarnedOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		s := &fewUsers{t: t}
		u := &users{
			logger: hclog.New(&hclog.LoggerOptions{Output: &lines, Level: hclog.Info}), opts: Options{Config: config.Default()}, done: make(chan struct{}),
			manager: access.NewManager(s, access.ManagerOptions{Hasher: access.NewHasher(access.HasherOptions{Iterations: 1})}),
		}
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { defer close(over); u.watchDefaults(ctx) }()
		// said wants so many lines by the time, each of the logins.
		said := func(when string, n int, logins string) {
			t.Helper()
			synctest.Wait()
			if got := lines.String(); strings.Count(got, "\n") != n || strings.Count(got, "[WARN]") != n || strings.Count(got, "login="+logins) != n {
				t.Errorf("%s: %d lines of %s expected:\n%s", when, n, logins, got)
			}
			lines.Reset()
			if got := u.defaults.Load(); got != int64(len(strings.FieldsFunc(logins, func(r rune) bool { return r == ',' }))) {
				t.Errorf("%s: the metric is %d", when, got)
			}
		}
		said("no users yet", 0, "")
		close(u.done)
		said("nothing can be read", 0, "")
		s.users.Store(&map[string]string{"$user-admin": "changeit", "$user-ops": "changeit", "$user-jane": "changeit"})
		time.Sleep(defaultsAgain)
		said("at the start", 1, `"admin, ops"`)
		time.Sleep(defaultsEvery - time.Second)
		if synctest.Wait(); lines.Len() > 0 || u.defaults.Load() != 2 {
			t.Errorf("within a day: %d, %s", u.defaults.Load(), lines.String())
		}
		s.users.Store(&map[string]string{"$user-admin": "better", "$user-ops": "changeit"})
		time.Sleep(3 * defaultsEvery)
		said("three days with one", 3, "ops")
		s.users.Store(&map[string]string{"$user-admin": "disabled"})
		time.Sleep(3 * defaultsEvery)
		said("changed, disabled or deleted", 0, "")
		cancel()
		<-over
	})
}
