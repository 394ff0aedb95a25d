package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/replication"
)

// users sees to it that the built-in users exist before anybody is let in, and
// that cached logins are forgotten when they change.
type users struct {
	store  *store
	logger hclog.Logger
	opts   Options
	logins *access.Authenticator

	done chan struct{} // closed when the built-in users exist
	once sync.Once
}

func newUsers(s *store, o Options) (*users, error) {
	u := &users{store: s, logger: o.Logger.Named("users"), opts: o, done: make(chan struct{})}
	logins, err := access.NewAuthenticator(u, access.AuthenticatorOptions{
		Insecure: o.Config.Insecure, TrustedAuth: o.Config.EnableTrustedAuth,
		Hasher: access.NewHasher(access.HasherOptions{Iterations: o.PasswordIterations}),
	})
	u.logins = logins
	return u, err
}

// LastEvent reads user streams for the authenticator.
func (u *users) LastEvent(ctx context.Context, stream string) (event.Record, error) {
	if err := u.ready(); err != nil {
		return event.Record{}, err
	}
	return u.store.LastEvent(ctx, stream)
}

// ready returns event.ErrNotInitialized until the built-in users exist.
func (u *users) ready() error {
	select {
	case <-u.done:
		return nil
	default:
		return event.ErrNotInitialized
	}
}

// wait blocks until the built-in users exist.
func (u *users) wait(ctx context.Context) error {
	select {
	case <-u.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run waits for the built-in users, and creates them whenever this node leads.
func (u *users) run(ctx context.Context, c *replication.Cluster) {
	for {
		leadership, changed := c.Leadership()
		if leadership.Leading {
			err := u.create(ctx)
			if err == nil {
				break
			}
			u.logger.Warn("the built-in users could not be created yet", "error", err)
		} else if u.exist(ctx) {
			break
		}
		select {
		case <-changed:
		case <-time.After(usersPace):
		case <-ctx.Done():
			return
		}
	}
	u.once.Do(func() { close(u.done) })
}

// usersPace is how often a node looks for users that another creates, or tries again.
const usersPace = 200 * time.Millisecond

// exist reports whether another node has created the built-in users.
func (u *users) exist(ctx context.Context) bool {
	if u.opts.Config.Insecure {
		return true
	}
	for _, login := range []string{access.LoginAdmin, access.LoginOps} {
		info, err := u.store.StreamInfo(ctx, access.UserStream(login))
		if err != nil || info.Last < 0 && !info.HardDeleted && !info.Metadata.SoftDeleted() {
			return false
		}
	}
	return true
}

func (u *users) create(ctx context.Context) error {
	if u.opts.Config.Insecure {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return access.EnsureDefaultUsers(ctx, u.store, u.opts.PasswordIterations, u.opts.Config.DefaultAdminPassword, u.opts.Config.DefaultOpsPassword)
}

// follow reads the notifications of changed users and forgets what is cached of them.
func (u *users) follow(ctx context.Context, log *eventlog.Log) {
	info, err := log.StreamInfo(access.NotificationsStream)
	last := info.Last
	for err == nil {
		if err = log.WaitStream(ctx, access.NotificationsStream, last); err != nil {
			break
		}
		last, err = u.forget(log, last)
	}
	if ctx.Err() == nil {
		u.logger.Error("changes of users are no longer followed: cached logins may be stale", "error", err)
	}
}

// forget drops the cached logins that the notifications behind a number name, and returns the number of the last.
func (u *users) forget(log *eventlog.Log, after int64) (int64, error) {
	page, err := log.ReadStream(event.StreamRead{Stream: access.NotificationsStream, From: after + 1, Count: 100})
	if errors.Is(err, event.ErrStreamNotFound) { // Soft-deleted: what it said is lost, what it will say is not.
		u.logins.ForgetAll()
		info, err := log.StreamInfo(access.NotificationsStream)
		return info.Last, err
	}
	if err != nil {
		u.logins.ForgetAll()
		return after, fmt.Errorf("read %s: %w", access.NotificationsStream, err)
	}
	next := min(page.Last, after+100)
	if int64(len(page.Events)) < next-after { // Some have expired unread.
		u.logins.ForgetAll()
		return next, nil
	}
	for i := range page.Events {
		login, err := access.DecodePasswordChanged(page.Events[i].Data)
		if err != nil {
			u.logins.ForgetAll()
			continue
		}
		u.logins.Forget(login)
	}
	return next, nil
}
