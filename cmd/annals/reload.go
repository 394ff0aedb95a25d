package main

import (
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/config"
)

// reloader reads the configuration again while the node runs. The file may have
// changed; command line and environment are those of the start and keep winning
// over it.
type reloader struct {
	load   func() (*config.Config, error)
	logger hclog.Logger

	underWay sync.Mutex
}

// run takes over what may change while a node runs: the level of the log, unless
// it says Default. A configuration that a node would not start with changes
// nothing. The outcome is in the log alone. A call while another one runs is ignored.
func (r *reloader) run() {
	if !r.underWay.TryLock() {
		r.logger.Warn("the configuration is being reloaded already, another request for it is ignored")
		return
	}
	defer r.underWay.Unlock()
	c, err := r.load()
	if err != nil {
		r.logger.Error("the configuration was not reloaded", "error", err)
		return
	}
	if c.LogLevel != config.LogLevelDefault {
		r.logger.SetLevel(hclogLevel(c.LogLevel))
	}
	r.logger.Info("configuration reloaded", "file", c.File(), "logLevel", string(c.LogLevel))
}
