package node

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/replication"
)

// users makes sure that the built-in users exist before any client is let in, and gives the
// authenticator and the user manager the parts that they need.
type users struct {
	store   *store
	logger  hclog.Logger
	opts    Options
	running context.Context
	logins  *access.Authenticator
	manager *access.Manager
	hasher  *access.Hasher
	refused *api.RefusedLogins // nil: they are not logged

	defaults atomic.Int64 // users with the default password, as watchDefaults saw it last

	done chan struct{} // closed when the built-in users exist
}

func newUsers(n *Node) *users {
	o := n.opts
	u := &users{store: n.store, logger: o.Logger.Named("users"), opts: o, running: n.running, done: make(chan struct{})}
	hasher := access.NewHasher(access.HasherOptions{Iterations: o.PasswordIterations, Stats: o.Stats})
	u.logins = access.NewAuthenticator(u, access.AuthenticatorOptions{
		Insecure: o.Config.Insecure, TrustedAuth: o.Config.EnableTrustedAuth, Hasher: hasher, Upgrade: u.renew, Stats: o.Stats,
	})
	if o.Config.LogFailedAuthenticationAttempts {
		u.refused = api.NewRefusedLogins(o.Logger.Named("access"))
	}
	o.Stats.GaugeFunc("annals_access_default_passwords", "Built-in users that still have the default password; 0 on a node that only its own machine reaches.",
		func() float64 { return float64(u.defaults.Load()) })
	u.hasher, u.manager = hasher, access.NewManager(n.store, access.ManagerOptions{Hasher: hasher})
	return u
}

// LastEvent reads user streams for the authenticator.
func (u *users) LastEvent(ctx context.Context, stream string) (event.Record, error) {
	if err := u.ready(); err != nil {
		return event.Record{}, err
	}
	return u.store.LastEvent(ctx, stream)
}

// StreamInfo lets the authenticator check whether its copy of a user is still current.
func (u *users) StreamInfo(ctx context.Context, stream string) (event.StreamInfo, error) {
	if err := u.ready(); err != nil {
		return event.StreamInfo{}, err
	}
	return u.store.StreamInfo(ctx, stream)
}

// renew stores a user whose password was hashed again, wherever the leader is.
func (u *users) renew(user access.User, version int64) {
	ctx, cancel := context.WithTimeout(u.running, u.opts.Config.WriteTimeout)
	defer cancel()
	write, err := access.UpgradeWrite(user, version)
	if err == nil {
		_, err = u.store.WriteOwn(ctx, write)
	}
	// The user was changed meanwhile, or another node was first.
	var changed *event.WrongExpectedVersion
	if err != nil && !errors.As(err, &changed) {
		u.logger.Warn("the password of a user was not stored with a stronger hash, the next login tries again", logkey.Login, user.LoginName, logkey.Error, err)
	}
}

// close waits for logins in flight.
func (u *users) close() { u.logins.Close() }

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

// run waits for the built-in users, and creates them whenever this node leads. Until they are there
// no client is served.
func (u *users) run(ctx context.Context, c *replication.Cluster) {
	for {
		leadership, changed := c.Leadership()
		if leadership.Leading {
			err := u.create(ctx)
			if err == nil {
				break
			}
			u.logger.Warn("the built-in users could not be created yet", logkey.Error, err)
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
	close(u.done)
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
		if err != nil {
			u.logger.Debug("the built-in users cannot be read yet", logkey.Error, err)
			return false
		}
		if info.Last < 0 && !info.HardDeleted && !info.Metadata.SoftDeleted() {
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

const (
	defaultsEvery = 24 * time.Hour  // between two looks for default passwords, and between warnings
	defaultsAgain = 5 * time.Minute // after a look that found one, or could not be taken
)

// watchDefaults warns at the start, and every day, while a built-in user still has the password
// that everyone knows. It is for nodes that more than their own machine reaches.
func (u *users) watchDefaults(ctx context.Context) {
	if u.wait(ctx) != nil {
		return
	}
	silent := 0 // looks until the next warning
	for {
		pause := defaultsEvery
		logins, err := u.manager.DefaultsInForce(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			u.logger.Debug("default passwords cannot be checked yet", logkey.Error, err)
			pause = defaultsAgain
		case len(logins) > 0:
			pause = defaultsAgain
			if silent == 0 {
				silent = int(defaultsEvery / defaultsAgain)
				u.logger.Warn("the default password is still in force and other machines can reach this node: change it",
					logkey.Login, strings.Join(logins, ", "), logkey.Address, u.opts.Config.ListenAddr())
			}
			silent--
		default:
			silent = 0
		}
		if err == nil {
			u.defaults.Store(int64(len(logins)))
		}
		if clock.Sleep(ctx, pause) != nil {
			return
		}
	}
}
