package main

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/logkey"
)

// reloader reads the configuration again while the node runs. The file may have
// changed. The command line and the environment are those of the start and still
// override it.
type reloader struct {
	load   func() (*config.Config, error)
	logger hclog.Logger
	// latest is the configuration of the start with the options that were taken over since.
	latest atomic.Pointer[config.Config]

	underWay sync.Mutex // guards what follows, for as long as a reload takes
	node     runningNode
	missed   *config.Config // was read before there was a node
}

// newReloader returns one for a node that starts by c.
func newReloader(c *config.Config, load func() (*config.Config, error), logger hclog.Logger) *reloader {
	r := &reloader{load: load, logger: logger}
	r.latest.Store(c)
	return r
}

// settings returns the options in force.
func (r *reloader) settings() []config.Value { return r.latest.Load().Values() }

// run takes over the options that may change while a node runs: the level of the log,
// unless it is Default, and the certificates. A configuration that a start would refuse
// changes nothing. Only the log has the outcome. A call while another one runs is ignored.
func (r *reloader) run() {
	if !r.underWay.TryLock() {
		r.logger.Warn("a reload of the configuration is running, so another request for it is ignored")
		return
	}
	defer r.underWay.Unlock()
	c, err := r.load()
	if err != nil {
		r.logger.Error("the configuration was not reloaded", logkey.Error, err)
		return
	}
	if c.LogLevel != config.LogLevelDefault {
		r.logger.SetLevel(hclogLevel(c.LogLevel))
	}
	before := r.latest.Load()
	taken, refused := r.certificates(c)
	r.latest.Store(before.Reloaded(c, taken))
	if names := before.AwaitRestart(c); len(names) > 0 {
		r.logger.Warn("changed, but needs a restart: " + strings.Join(names, ", "))
	}
	if refused {
		r.logger.Warn("configuration reloaded, but for the certificates: the old ones stay in force", logkey.File, c.File(), "logLevel", string(c.LogLevel))
		return
	}
	r.logger.Info("configuration reloaded", logkey.File, c.File(), "logLevel", string(c.LogLevel))
}

// certificates passes a configuration on to the node, once there is one.
func (r *reloader) certificates(c *config.Config) (taken, refused bool) {
	if r.node == nil {
		r.missed = c
		return false, false
	}
	return r.node.ReloadCertificates(c)
}

// attach gives the node that runs now what was read while it started.
func (r *reloader) attach(n runningNode) {
	r.underWay.Lock()
	defer r.underWay.Unlock()
	r.node = n
	if c := r.missed; c != nil {
		r.missed = nil
		taken, _ := r.certificates(c)
		r.latest.Store(r.latest.Load().Reloaded(c, taken))
	}
}
